# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state machine: what operators, guests and others do to a node, and after each of it the invariants."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from . import invariants as inv
from .core import COUNTS, Core
from .declarations import ANYTHING, PICKS, SIZES, changes
from .invariants import demand
from .picture import MIB, ZVOL
from .words import Allowance, Spec
from .world import CRASHES, VMS

WHICH = st.sampled_from(["web01", "web01", "web01", "db01"])
NAMES = st.sampled_from(["s1", "s1", "s2"])
NTH = st.integers(1, 9)
HOW = st.sampled_from(CRASHES)


def only(unlisted: str, *edit: Any) -> Spec:
    """A change with this one edit."""
    return {"edits": [edit], "unlisted": unlisted, "flexible_disk_size": None, "quota": None}


class Node(Core):
    """The actions. What somebody else does by hand may be refused; then nothing has happened."""

    # -- declarations

    @rule(vm=WHICH, change=changes(), restart=st.sampled_from([True, True, True, False]))
    def declares(self, vm: str, change: Spec, restart: bool) -> None:
        self._converge(self._specs((vm, change)), restart)

    @rule(vm=WHICH, change=changes())
    def declares_something_else(self, vm: str, change: Spec) -> None:
        self._converge(self._specs((vm, change)), True)

    @rule(one=changes(), other=changes())
    def declares_both(self, one: Spec, other: Spec) -> None:
        self._converge(self._specs(("web01", one), ("db01", other)), True)

    @rule(vm=WHICH, spec=ANYTHING)
    def declares_anything(self, vm: str, spec: Spec) -> None:
        disks = [{"name": "root", "boot": True}, *spec["disks"]]
        self._converge([{**spec, "vm": vm, "disks": disks}], True)

    @rule(vm=WHICH, which=PICKS)
    def detaches(self, vm: str, which: int) -> None:
        self._converge(self._specs((vm, only("detach", "drop", which + 1))), True)

    @rule(vm=WHICH, which=PICKS)
    def attaches(self, vm: str, which: int) -> None:
        self._converge(self._specs((vm, only("keep", "recall", which))), True)

    @rule(vm=WHICH, which=PICKS)
    def destroys_unlisted(self, vm: str, which: int) -> None:
        self._converge(self._specs((vm, only("destroy", "drop", which + 1))), True)

    @rule(vm=WHICH, which=PICKS, preserve=st.sampled_from([True, True, False]))
    def preserves(self, vm: str, which: int, preserve: bool) -> None:
        self._converge(self._specs((vm, only("keep", "set", which, "preserve", preserve))), True)

    @rule(vm=WHICH)
    def takes_what_remains(self, vm: str) -> None:
        self._converge(self._specs((vm, only("keep", "new remaining", "rest"))), True)

    @precondition(lambda self: self.settled)
    @rule(which=PICKS)
    def declares_the_same_again(self, which: int) -> None:
        """Whatever guests wrote and which snapshots came and went: nothing is to be done."""
        vm = sorted(self.settled)[which % len(self.settled)]
        again, changed = self.world.changed_by(self.world.converge, self.settled[vm], allow_restart=True)
        demand(not (changed or again.changed or again.problems), "IDLE", (again.diff, again.problems))
        self.before = self._after(Allowance())

    # -- a run that does not come to its end

    @rule(vm=WHICH, change=changes(), nth=NTH, how=HOW, again=st.booleans())
    def is_cut_off(self, vm: str, change: Spec, nth: int, how: str, again: bool) -> None:
        self._cut_off(vm, change, nth, how, again)

    @rule(vm=WHICH, which=PICKS, nth=NTH, how=HOW, again=st.booleans())
    def is_cut_off_in_a_detach(self, vm: str, which: int, nth: int, how: str, again: bool) -> None:
        self._cut_off(vm, only("detach", "drop", which + 1), nth, how, again)

    @rule(vm=WHICH, which=PICKS, nth=NTH, how=HOW, again=st.booleans())
    def is_cut_off_in_an_attach(self, vm: str, which: int, nth: int, how: str, again: bool) -> None:
        self._cut_off(vm, only("keep", "recall", which), nth, how, again)

    # -- snapshots

    @rule(vm=WHICH, name=NAMES)
    def takes_snapshot(self, vm: str, name: str) -> None:
        if self.world.others("vmadm", "create-snapshot", VMS[vm], name):
            COUNTS["snapshots"] += 1
            self.before = self._after(Allowance())
            self.taken[vm, name] = {
                volume.guid: snap.guid
                for volume in self.before.below(VMS[vm])
                for snap in volume.snaps.values()
                if snap.name == f"vmsnap-{name}"
            }

    @precondition(lambda self: self.taken)
    @rule(which=PICKS)
    def rolls_back(self, which: int) -> None:
        """Exactly the disks that the VM had then and has had ever since go back."""
        vm, name = sorted(self.taken)[which % len(self.taken)]
        snaps = self._snapshot_of(vm, name)
        if self.world.others("vmadm", "rollback-snapshot", VMS[vm], name):
            COUNTS["rollbacks"] += 1
            self._meddled(vm)
            self.before = self._after(Allowance(rolled=snaps, snapshots=self._later(snaps)))
        else:
            self.before = self._after(None)

    @precondition(lambda self: self.taken)
    @rule(which=PICKS)
    def deletes_snapshot(self, which: int) -> None:
        vm, name = sorted(self.taken)[which % len(self.taken)]
        snaps = self._snapshot_of(vm, name)
        del self.taken[vm, name]
        self.world.others("vmadm", "delete-snapshot", VMS[vm], name)
        self.before = self._after(Allowance(snapshots={s.guid for s in snaps.values()}))

    @rule(which=st.integers(0, 9))
    def snapshots_one_disk(self, which: int) -> None:
        self.writes += 1
        self.world.others("zfs", "snapshot", f"{self._volume(which).name}@by-hand-{self.writes}")
        self.before = self._after(Allowance())

    # -- guests and others

    @rule(which=st.integers(0, 9), start=st.integers(0, 100), length=st.integers(1, 60))
    def guest_writes(self, which: int, start: int, length: int) -> None:
        volume = self._volume(which)
        self.writes += 1
        if not volume.detached and start * MIB < volume.size:
            length = min(length, volume.size // MIB - start)
            self.world.others("guest", "write", volume.name, str(start), str(length), str(self.writes))
        self.before = self._after(Allowance(written={volume.guid}))

    @rule(vm=WHICH, length=st.integers(1, 1200))
    def root_file_system_fills(self, vm: str, length: int) -> None:
        self.writes += 1
        self.world.others("guest", "write", f"zones/{VMS[vm]}", "0", str(length), str(self.writes))
        self.before = self._after(Allowance())

    @rule(vm=WHICH, running=st.booleans())
    def power_changes(self, vm: str, running: bool) -> None:
        self._meddled(vm)
        self.world.others("vmadm", "start" if running else "stop", VMS[vm])
        self.before = self._after(Allowance())

    @rule(vm=WHICH, more=st.sampled_from([-50, 1, 100]), what=st.sampled_from(["quota", "reservation", "both"]))
    def sets_quota_by_hand(self, vm: str, more: int, what: str) -> None:
        self._meddled(vm)
        size = self.before.vms[VMS[vm]].quota + more * MIB
        pairs = [f"{key}={size}" for key in ("quota", "reservation") if what in (key, "both")]
        self.world.others("zfs", "set", *pairs, f"zones/{VMS[vm]}")
        self.before = self._after(Allowance())

    @rule(which=st.integers(0, 9), size=st.sampled_from(["none", "10M", "200M", "auto"]))
    def sets_refreservation_by_hand(self, which: int, size: str) -> None:
        self.settled.clear()
        self.world.others("zfs", "set", f"refreservation={size}", self._volume(which).name)
        self.before = self._after(Allowance())

    @rule(vm=WHICH, which=PICKS, size=SIZES, what=st.sampled_from(["flexible", "grow", "add", "remove"]))
    def updates_vm_by_hand(self, vm: str, which: int, size: int, what: str) -> None:
        self._meddled(vm)
        paths = [ZVOL + volume.name for volume, device in self.before.attached(VMS[vm]) if not device["boot"]]
        path = paths[which % len(paths)] if paths else ""
        payloads: dict[str, Any] = {
            "flexible": {"flexible_disk_size": 512 + size},
            "grow": {"update_disks": [{"path": path, "size": size}]},
            "add": {"add_disks": [{"size": size, "model": "virtio"}]},
            "remove": {"remove_disks": [path]},
        }
        if path or what in ("flexible", "add"):
            self.world.others("vmadm", "update", VMS[vm], stdin=payloads[what])
        self.before = self._after(None)

    # -- the other modules

    @rule(reclaim=st.booleans())
    def recalculates(self, reclaim: bool) -> None:
        predicted, changed = self.world.changed_by(self.world.quota, check=True, reclaim=reclaim)
        demand(not changed, "PREDICTION", "check mode changed something")
        done = self.world.quota(reclaim=reclaim)
        demand((predicted.problems, predicted.vms) == (done.problems, done.vms), "PREDICTION", (predicted, done))
        demand(done.failure is None, "FINISHED", done.failure)
        after = self._after(Allowance())
        for vm in [] if done.problems else VMS.values():
            inv.law(after, vm)
        self.before = after

    @rule()
    def looks(self) -> None:
        COUNTS["actions"] += 1
        inv.figures(self.before, self.world.told(), False)
