# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node of the stateful test: two VMs on a small pool, the collection's runs on it, and a run that is cut off."""

from __future__ import annotations

import json
import pickle
from functools import cache
from typing import Any

from simnode import Node
from simnode.node import PoolSpec

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_info import info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run import report
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.outcome import Outcome
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.unit.engine.conftest import Simulated

from .declarations import IMAGE
from .invariants import demand

GIB = 1 << 30
VMS = {"web01": "cccccccc-0000-4000-8000-000000000001", "db01": "cccccccc-0000-4000-8000-000000000002"}
CRASHES = ("before", "after", "fails", "lost")


class Killed(BaseException):
    """The run is gone: nothing after this happens, no clean-up either."""


class Cut:
    """Ends a run at its n-th changing command: killed before or after it; or the command fails, without effect or
    with it.
    """

    def __init__(self, sim: Simulated, nth: int, how: str) -> None:
        self.sim, self.left, self.how = sim, nth, how
        self.hit = False

    def __call__(self, argv: list[str]) -> str | None:
        if self.hit and self.how in ("before", "after"):
            raise Killed
        if self.hit or not changes(argv):
            return None
        self.left -= 1
        if self.left > 0:
            return None
        self.hit = True
        if self.how in ("after", "lost"):
            self.sim.node.run(argv, self.sim.stdin)
        if self.how in ("before", "after"):
            raise Killed
        return "cut: this command has failed"


@cache
def _template(pool: int, flexible: bool, adopted: bool, legacy: bool) -> bytes:
    sim = World(pickle.dumps(Node.create(None, [PoolSpec("zones", pool)])))
    sim.admin("image-import", IMAGE, "256")
    for alias, size in (("web01", 2048), ("db01", 1024 if flexible else None)):
        sim.create(size, (128, 64), alias=alias, uuid=VMS[alias])
        if legacy:
            sim.admin("vm-make-legacy", VMS[alias])
        if adopted:
            names = [{"name": "root", "boot": True}, {"name": "a", "size": 128}, {"name": "b", "size": 64}]
            done = sim.converge({"vm": alias, "disks": names})
            demand(not done.problems and done.failure is None, "FINISHED", (done.problems, done.failure))
    for number, volume in enumerate(("disk0", "disk1", "disk2")):
        for uuid in VMS.values():
            sim.write(f"zones/{uuid}/{volume}", 1000 + number, 0, 10)
    return pickle.dumps(sim.node)


def fresh(pool: int, flexible: bool, adopted: bool, legacy: bool) -> World:
    return World(_template(pool, flexible, adopted, legacy))


class World(Simulated):
    """A simulated node made from a template."""

    def __init__(self, template: bytes) -> None:
        self.node = pickle.loads(template)
        self.calls = []
        self.stdin = ""
        self.fault = None
        self.waits = []

    def changed_by(self, run: Any, *args: Any, **more: Any) -> tuple[Any, bool]:
        """What a run returns, and whether it ran a command that may change something."""
        self.calls.clear()
        return run(*args, **more), any(changes(argv) for argv in self.calls)

    def told(self) -> list[dict[str, Any]]:
        return info(Zfs(self.runner), Vmadm(self.runner), None, None, True).vms

    def others(self, *argv: str, stdin: Any = None) -> bool:
        """What somebody else does by hand; False if it was refused."""
        return self.node.run(argv, "" if stdin is None else json.dumps(stdin))[0] == 0


def unpredicted(done: Outcome, predicted: Outcome) -> list[str]:
    """Where a real run is not what check mode said, but for stamps and the uuids of disks that did not exist."""
    wrong = [f"{key}: {getattr(predicted, key)!r}, done {getattr(done, key)!r}"
             for key in ("changed", "diff", "warnings") if getattr(predicted, key) != getattr(done, key)]  # fmt: skip
    if len(done.vms) != len(predicted.vms):
        return [*wrong, f"{len(predicted.vms)} VMs, done {len(done.vms)}"]
    for real, prediction in zip(done.vms, predicted.vms, strict=True):
        # Where a guard is lifted, what it shared with snapshots is ZFS's to tell.
        hidden = {"allocatable", "pinned"} if "unguard" in {step["step"] for step in real["steps"]} else set()
        ours = {key: _plain(key, value, prediction.get(key), hidden) for key, value in real.items()}
        keys = (set(prediction) | set(ours)) - ({"free_space", *hidden} - set(prediction))
        wrong += [
            f"{key}: {prediction.get(key)!r}, done {ours.get(key)!r}"
            for key in keys
            if prediction.get(key) != ours.get(key)
        ]
    return wrong


def _plain(key: str, disks: Any, predicted: Any, hidden: set[str]) -> Any:
    """A list of disks without what check mode cannot know."""
    if key not in ("disks", "parked") or len(disks) != len(predicted):
        return disks
    volatile = {*report.VOLATILE, "uuid", *hidden}
    return [
        {k: v for k, v in disk.items() if k in twin or k not in volatile}
        for disk, twin in zip(disks, predicted, strict=True)
    ]
