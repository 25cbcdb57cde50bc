# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The same node, with all modules that change something on it, cut off anywhere, and with other people's snapshots,
holds, clones and renames at any moment.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.findings import REPAIRABLE
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.faults import tasks
from tests.faults.backend import module_of

from . import invariants as inv
from .core import COUNTS
from .declarations import IMAGE, PICKS
from .invariants import demand
from .machine import HOW, NAMES, NTH, WHICH, Node
from .words import Allowance
from .world import VMS, Cut, Killed

Task = dict[str, Any]
MADE = "cccccccc-0000-4000-8000-000000000003"
PACKAGE = {"name": "small", "disk": 1024, "flexible_disk": True, "memory": 256, "vcpus": 1}
CUT = st.one_of(st.none(), st.none(), st.tuples(NTH, HOW))
VM_SNAPSHOT = "vmsnap-"


class Modules(Node):
    """The actions of all modules, each as check, real, real again; some are cut off first."""

    # -- how a task is tested

    def _task(self, task: Task, check: bool = False) -> Task:
        zfs, hypervisor = Zfs(self.world.runner), Vmadm(self.world.runner, self.world.waits.append)
        try:
            return tasks.run(task, zfs, hypervisor, check)
        except FlexdiskError as exc:
            return {"failed": True, "changed": False, "msg": exc.message, "error_code": exc.code}

    def _does(self, task: Task, allowed: Allowance, vm: str = "", power: str = "", cut: Any = None) -> bool:
        """Whether the task succeeded. power: the state that it declares for the VM, else that is as it was."""
        COUNTS[f"tasks of {module_of(task)}"] += 1
        uuid = VMS.get(vm, "")
        if uuid:
            self.pending.setdefault(uuid, self.before.vms[uuid].power)
        if cut is not None:
            self.settled.clear()
            self._is_cut(task, *cut)
            self.before = self._after(allowed)
        predicted, changed = self.world.changed_by(self._task, task, check=True)
        demand(not changed, "PREDICTION", "check mode changed something")
        done, changed = self.world.changed_by(self._task, task)
        self.before = self._after(allowed)
        same = all(predicted.get(key) == done.get(key) for key in ("failed", "changed", "diff"))
        demand(same, "PREDICTION", f"{task}: {predicted.get('msg')}, and for real: {done.get('msg')}")
        if done.get("failed"):
            demand("failure" not in done, "FINISHED", f"{task}: {done['msg']}")
            demand(not changed, "PREDICTION", f"a refused task changed something: {task}")
            COUNTS["refused"] += 1
            if uuid and cut is None and self.pending[uuid] == self.before.vms[uuid].power:
                del self.pending[uuid]
            return False
        if uuid:
            self._check_power(task, uuid, power)
        again, changed = self.world.changed_by(self._task, task)
        demand(not (changed or again["changed"] or again.get("failed")), "IDLE", f"{task}: {again.get('diff')}")
        if done["changed"]:
            self.settled.clear()
        return True

    def _is_cut(self, task: Task, nth: int, how: str) -> None:
        self.world.fault = cut = Cut(self.world, nth, how)
        try:
            self._task(task)
        except Killed:
            pass
        finally:
            self.world.fault = None
            COUNTS["cut off"] += cut.hit

    def _check_power(self, task: Task, uuid: str, declared: str) -> None:
        was, now = self.pending.pop(uuid, None), self.before.vms[uuid].power
        if declared:
            demand(now[0] == declared, "POWER", f"{task}: declared {declared}, and is {now[0]}")
        elif was is not None:
            demand(now[0] == was[0], "POWER", f"{task}: was {was[0]}, and is {now[0]}")

    # -- whole VMs

    @rule(vm=WHICH, state=st.sampled_from(["running", "stopped"]), cut=CUT)
    def declares_power(self, vm: str, state: str, cut: Any) -> None:
        self._does(
            {"module": "vm", "vms": [{"vm": vm, "state": state}], "allow_restart": True}, Allowance(), vm, state, cut
        )

    @rule(vm=WHICH, memory=st.sampled_from([512, 1024, 1536]), cut=CUT)
    def declares_memory(self, vm: str, memory: int, cut: Any) -> None:
        task = {"module": "vm", "vms": [{"vm": vm, "state": "present", "memory": memory}], "allow_restart": True}
        self._does(task, Allowance(), vm, cut=cut)

    @rule(running=st.booleans(), cut=CUT)
    def makes_a_vm(self, running: bool, cut: Any) -> None:
        entry: Task = {"vm": "tmp01", "uuid": MADE, "state": "running" if running else "present", "package": "small"}
        entry.update(image=IMAGE, disks=[{"name": "root"}, {"name": "a", "size": 32}])
        self._does({"module": "vm", "vms": [entry], "packages": [PACKAGE]}, Allowance(), cut=cut)

    @rule(destroy=st.booleans(), snapshots=st.booleans(), cut=CUT)
    def deletes_a_vm(self, destroy: bool, snapshots: bool, cut: Any) -> None:
        entry = {"vm": MADE, "state": "absent", "destroy_disks": destroy, "destroy_snapshots": snapshots}
        mine = self.before.below(MADE)
        boots = {volume.guid for volume in mine if self._boots(volume)}
        gone = {volume.guid for volume in mine if destroy and not volume.preserve} | boots
        allowed = Allowance(destroyed=gone, bare=gone if snapshots else set())
        self._does({"module": "vm", "vms": [entry], "allow_restart": True}, allowed, cut=cut)

    def _boots(self, volume: Any) -> bool:
        machine = self.before.vms.get(MADE)
        return bool(((machine.device_of(volume) if machine else None) or {}).get("boot"))

    # -- snapshots of whole VMs

    @rule(vm=WHICH, name=NAMES, last=st.sampled_from([None, None, 1, 2]), cut=CUT)
    def takes_a_snapshot(self, vm: str, name: str, last: int | None, cut: Any) -> None:
        keep = {} if last is None else {"keep": {"last": last, "daily": None, "weekly": None}}
        guids_before = {
            s.guid for v in self.before.below(VMS[vm]) for s in v.snaps.values() if s.name.startswith(VM_SNAPSHOT)
        }
        task = {"module": "vm_snapshot", "vms": [vm], "name": name, **keep}
        self._does(task, Allowance(snapshots=guids_before if keep else set()), vm, cut=cut)
        self.taken = {key: held for key, held in self.taken.items() if key[0] != vm}

    @rule(vm=WHICH, name=NAMES, cut=CUT)
    def removes_a_snapshot(self, vm: str, name: str, cut: Any) -> None:
        mine = {s.guid for v in self.before.below(VMS[vm]) for s in v.snaps.values() if s.name == VM_SNAPSHOT + name}
        task = {"module": "vm_snapshot", "vms": [vm], "name": name, "state": "absent"}
        self._does(task, Allowance(snapshots=mine), vm, cut=cut)
        self.taken.pop((vm, name), None)

    @rule(vm=WHICH, name=NAMES, newer=st.booleans(), cut=CUT)
    def goes_back(self, vm: str, name: str, newer: bool, cut: Any) -> None:
        rolled = {
            volume.guid: snap
            for volume in self.before.below(VMS[vm])
            for snap in volume.snaps.values()
            if snap.name == VM_SNAPSHOT + name
        }
        later = self._later(rolled) if newer else set()
        task = {"module": "vm_snapshot", "vms": [vm], "name": name, "state": "rolled_back", "allow_restart": True}
        allowed = Allowance(written=set(rolled), shrunk=set(rolled), snapshots=later)
        self._does({**task, "destroy_newer": newer}, allowed, vm, cut=cut)

    # -- identities, quotas, repairs

    @rule(vm=WHICH, state=st.sampled_from(["adopted", "released"]), cut=CUT)
    def adopts(self, vm: str, state: str, cut: Any) -> None:
        self._does({"module": "disk_adopt", "vms": [{"vm": vm}], "state": state}, Allowance(), vm, cut=cut)

    @rule(vm=WHICH, cut=CUT)
    def applies_the_law(self, vm: str, cut: Any) -> None:
        if self._does({"module": "zfs_quota", "vms": [vm]}, Allowance(), cut=cut):
            inv.law(self.before, VMS[vm])

    @rule(kinds=st.lists(st.sampled_from(sorted(REPAIRABLE)), min_size=1, max_size=3, unique=True), cut=CUT)
    def repairs(self, kinds: list[str], cut: Any) -> None:
        """No repair destroys anything."""
        self._does({"module": "disk_verify", "vms": None, "repair": kinds}, Allowance(), cut=cut)

    # -- others

    @rule()
    def snapshots_the_pool(self) -> None:
        self.writes += 1
        self.world.others("zfs", "snapshot", "-r", f"zones@auto-{self.writes}")
        self.before = self._after(Allowance())

    @rule(which=st.integers(0, 9), hold=st.booleans())
    def holds_a_snapshot(self, which: int, hold: bool) -> None:
        volume = self._volume(which)
        for snap in list(volume.snaps.values())[:1]:
            self.world.others("zfs", "hold" if hold else "release", "theirs", f"{volume.name}@{snap.name}")
        self.before = self._after(Allowance())

    @rule(which=st.integers(0, 9))
    def clones_a_snapshot(self, which: int) -> None:
        self.writes += 1
        volume = self._volume(which)
        for snap in list(volume.snaps.values())[:1]:
            self.world.others("zfs", "clone", f"{volume.name}@{snap.name}", f"zones/clone-{self.writes}")
        self.before = self._after(Allowance())

    @precondition(lambda self: self.writes)
    @rule(which=PICKS)
    def gives_clones_up(self, which: int) -> None:
        for number in range(self.writes):
            self.world.others("zfs", "destroy", f"zones/clone-{number + 1}")
        self.before = self._after(Allowance())
