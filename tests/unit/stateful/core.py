# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every action of the state machine goes through: pictures before and after, runs of the collection, counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from . import invariants as inv
from .declarations import declare
from .invariants import demand
from .picture import Picture, Snap, Volume, take
from .words import Allowance, Spec, given_up
from .world import GIB, VMS, Cut, Killed, World, fresh, unpredicted

COUNTS: Counter[str] = Counter()


class Core(RuleBasedStateMachine):
    """One sequence. before is the node as the last action left it."""

    def __init__(self) -> None:
        super().__init__()
        COUNTS["sequences"] += 1
        self.known: dict[int, str] = {}
        self.taken: dict[tuple[str, str], dict[int, int]] = {}
        self.settled: dict[str, Spec] = {}
        self.pending: dict[str, tuple[str, bool] | None] = {}
        self.writes = 0

    @initialize(
        tight=st.booleans(),
        flexible=st.booleans(),
        adopted=st.sampled_from([True, True, False]),
        legacy=st.sampled_from([False, False, True]),
    )
    def begin(self, tight: bool, flexible: bool, adopted: bool, legacy: bool) -> None:
        self.world: World = fresh(7 * GIB if tight else 64 * GIB, flexible, adopted, legacy)
        self.before: Picture = take(self.world.node)

    def _after(self, allowed: Allowance | None, specs: Sequence[Spec] = ()) -> Picture:
        """What holds after whatever has happened. allowed None: somebody else has changed disks by hand."""
        COUNTS["actions"] += 1
        after = take(self.world.node)
        if allowed is not None:
            inv.no_loss(self.before, after, allowed)
            inv.slots_stick(self.before, after, specs)
        for held in self.taken.values():
            for guid in [guid for guid in held if guid not in after.volumes or after.volumes[guid].detached]:
                del held[guid]
        inv.slots_differ(after)
        inv.identity_stays(self.known, after)
        return after

    def _converge(self, specs: Sequence[Spec], restart: bool) -> bool:
        """Check, real, real again; False if it was refused."""
        allowed = given_up(self.before, specs)
        predicted, changed = self.world.changed_by(self.world.converge, *specs, check=True, allow_restart=restart)
        demand(not changed, "PREDICTION", "check mode changed something")
        done, changed = self.world.changed_by(self.world.converge, *specs, allow_restart=restart)
        same = [p.message for p in predicted.problems] == [p.message for p in done.problems]
        demand(same, "PREDICTION", f"refused for {predicted.problems}, and for real {done.problems}")
        after = self._after(allowed, specs)
        COUNTS["declared"] += 1
        if done.problems:
            demand(not changed, "PREDICTION", "a refused run changed something")
            COUNTS["refused"] += 1
            return False
        demand(done.failure is None, "FINISHED", done.failure)
        wrong = unpredicted(done, predicted)
        demand(not wrong, "PREDICTION", "; ".join(wrong))
        self._succeeded(specs, after, done.vms)
        again, changed = self.world.changed_by(self.world.converge, *specs, allow_restart=restart)
        demand(not (changed or again.changed or again.problems), "IDLE", (again.diff, again.problems))
        self.before = after
        return True

    def _succeeded(self, specs: Sequence[Spec], after: Picture, results: list[dict[str, Any]]) -> None:
        for result in results:
            COUNTS.update(step["step"] for step in result["steps"])
            inv.law(after, result["uuid"])
        inv.figures(after, results, True)
        for spec in specs:
            inv.wanted(self.before, after, spec)
            self.settled[spec["vm"]] = spec
            uuid = VMS[spec["vm"]]
            power = self.pending.pop(uuid, self.before.vms[uuid].power)
            demand(power in (None, after.vms[uuid].power), "POWER", f"{spec['vm']} was {power}")

    def _specs(self, *declared: tuple[str, Spec]) -> list[Spec]:
        return [declare(self.before, VMS[vm], change) for vm, change in declared]

    def _cut_off(self, vm: str, change: Spec, nth: int, how: str, again: bool) -> None:
        specs = self._specs((vm, change))
        self.settled.pop(vm, None)
        refused = self.world.converge(*specs, check=True, allow_restart=True).problems
        self.pending.setdefault(VMS[vm], self.before.vms[VMS[vm]].power)
        for attempt in ("cut", "again") if again else ("cut",):
            done = self._cut(specs, nth, how) if attempt == "cut" else self.world.converge(*specs, allow_restart=True)
            after = self._after(given_up(self.before, specs), specs)
            if attempt == "again" and not refused:
                demand(done is not None and not done.problems and done.failure is None, "FINISHED", done)
                self._succeeded(specs, after, done.vms)
            self.before = after

    def _cut(self, specs: Sequence[Spec], nth: int, how: str) -> Any:
        self.world.fault = cut = Cut(self.world, nth, how)
        try:
            return self.world.converge(*specs, allow_restart=True)
        except Killed:
            return None
        finally:
            self.world.fault = None
            COUNTS["cut off"] += cut.hit

    def _meddled(self, vm: str) -> None:
        """Somebody else has changed the VM: it need not be settled, nor may it be known whether it should run."""
        self.settled.pop(vm, None)
        if VMS[vm] in self.pending:
            self.pending[VMS[vm]] = None

    def _snapshot_of(self, vm: str, name: str) -> dict[int, Snap]:
        """What this VM's snapshot holds of the disks that it still has and that did not leave it meanwhile."""
        result = {}
        for guid, snapshot in self.taken.get((vm, name), {}).items():
            volume = self.before.volumes.get(guid)
            snap = volume.snaps.get(snapshot) if volume and volume.vm == VMS[vm] else None
            if snap is not None and snap.name == f"vmsnap-{name}":
                result[guid] = snap
        return result

    def _later(self, snaps: dict[int, Snap]) -> set[int]:
        """The snapshots that a rollback to these takes away."""
        every = ((snap, self.before.volumes[guid].snaps.values()) for guid, snap in snaps.items())
        return {other.guid for snap, others in every for other in others if other.txg > snap.txg}

    def _volume(self, which: int) -> Volume:
        volumes = sorted(self.before.volumes.values(), key=lambda v: v.name)
        return volumes[which % len(volumes)]
