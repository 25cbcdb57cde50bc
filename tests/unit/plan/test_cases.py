# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The planner by tables of cases: a VM as it is, what is declared, and the steps in words or the problems.

The VM is web01 of 4 GiB flexible disk space, with the disks root (1 GiB, boot) and a (64 MiB), if a case says nothing
else. Silent steps are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset

from .build import MIB, host, plan, uuid, volume

ROOT, A = {"name": "root"}, {"name": "a"}
THREE = {"sizes": (1024, 512, 512)}
FULL = {"sizes": (1024, 3072)}
RUNNING = {"state": "running", "autoboot": True}
UUID_OF_A = "dddddddd-0000-4000-8000-000001000001"
LOST = "dddddddd-0000-4000-8000-00000000000f"
PLACE = f"zones/flexdisk/{LOST}"
SNAPSHOT = {"snapshots": ("a",)}
NOTHING: Mapping[str, Any] = MappingProxyType({})
Words = list[str]


class Steps(NamedTuple):
    what: str
    declared: dict[str, Any]
    steps: Words
    before: Mapping[str, Any] = NOTHING
    policy: Mapping[str, Any] = NOTHING


class Refusal(NamedTuple):
    what: str
    declared: dict[str, Any]
    code: str
    words: tuple[str, ...]
    before: Mapping[str, Any] = NOTHING


def disks(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What is declared: these disks, and more of the VM."""
    return {"disks": list(entries), **more}


def machine(before: Mapping[str, Any]) -> Any:
    """A host with the VM. detached: disk x of 512 MiB was a disk of it, with these properties more.

    snapshots names disks that have a snapshot of 16 MiB.
    """
    fields = dict(before)
    snapshots, detached = fields.pop("snapshots", ()), fields.pop("detached", None)
    extra = []
    if detached is not None:
        facts = {"uuid": LOST, "name": "x", "vm": uuid(1), "slot": "0:4:5", "index": "7", "model": "nvme"}
        extra = [Dataset("zones/flexdisk", "filesystem"), volume(PLACE, 512, {**facts, **detached})]
    host_with_vm = host({"alias": "web01", **fields}, detached=extra)
    vm = host_with_vm.vms[0]
    changed = tuple(_with_snapshot(disk) if disk.name in snapshots else disk for disk in vm.disks)
    return replace(host_with_vm, vms=(replace(vm, disks=changed),))


def _with_snapshot(disk: Any) -> Any:
    taken = Dataset(disk.volume.name + "@daily", "snapshot", guid=5, createtxg=9, used=16 * MIB)
    return replace(disk, snapshots=(taken,), volume=replace(disk.volume, used=disk.volume.used + 16 * MIB))


def said(case: Steps | Refusal) -> Any:
    policy = case.policy if isinstance(case, Steps) else {}
    return plan(machine(case.before), case.declared, **policy)


def words(planned: Any) -> Words:
    assert planned.problems == ()
    return [step.text for step in planned.steps if not step.facts_only and step.text]


def label(case: Steps | Refusal) -> str:
    return case.what


# -- what each disk shall be (plan/resolve.py, plan/arrivals.py, plan/changes.py)

RESOLVING = [
    Steps("nothing declared, nothing done", {}, []),
    Steps("a disk without a size keeps its own", disks(ROOT, A), []),
    Steps("a number is MiB", disks(ROOT, {**A, "size": 128}), ["~ a 64 MiB -> 128 MiB"]),
    Steps("units are binary", disks(ROOT, {**A, "size": "1GiB"}), ["~ a 64 MiB -> 1 GiB"]),
    Steps("remaining is F less the other disks", disks(ROOT, {**A, "size": "remaining"}), ["~ a 64 MiB -> 3 GiB"]),
    Steps(
        "remaining counts what else is declared",
        disks(ROOT, A, {"name": "n", "size": "remaining"}),
        ["+ n 2.9 GiB at 0:4:2"],
    ),
    Steps("a new disk takes the lowest free slot", disks(ROOT, A, {"name": "n", "size": 8}), ["+ n 8 MiB at 0:4:2"]),
    Steps(
        "a new disk takes the slot that one has left",
        disks(ROOT, {"name": "a", "state": "absent"}, {"name": "n", "size": 8}),
        ["- a 64 MiB DESTROYED", "+ n 8 MiB at 0:4:1"],
    ),
    Steps(
        "a declared slot is taken",
        disks(ROOT, A, {"name": "n", "size": 8, "pci_slot": "0:4:6"}),
        ["+ n 8 MiB at 0:4:6"],
    ),
    Steps(
        "a disk that comes back has its slot, size and model",
        disks(ROOT, A, {"name": "x"}),
        ["+ x 512 MiB re-attached at 0:4:5"],
        {"detached": {}},
    ),
    Steps(
        "it takes another one if its slot is taken",
        disks(ROOT, A, {"name": "x"}),
        ["+ x 512 MiB re-attached at 0:4:2"],
        {"detached": {"slot": "0:4:1"}},
    ),
    Steps(
        "it may come back larger",
        disks(ROOT, A, {"name": "x", "size": 600}),
        ["+ x 512 MiB -> 600 MiB re-attached at 0:4:5"],
        {"detached": {}},
    ),
    Steps("a detached disk that is not listed stays", disks(ROOT, A), [], {"detached": {}}),
    Steps("absent destroys an attached disk", disks(ROOT, {**A, "state": "absent"}), ["- a 64 MiB DESTROYED"]),
    Steps(
        "absent destroys a detached one",
        disks(ROOT, A, {"name": "x", "state": "absent"}),
        ["- x 512 MiB (detached) DESTROYED"],
        {"detached": {}},
    ),
    Steps("absent is done where there is none", disks(ROOT, A, {"name": "n", "state": "absent"}), []),
    Steps("keep leaves what is not listed", disks(ROOT, unlisted="keep"), []),
    Steps("detach takes it out with its data", disks(ROOT, unlisted="detach"), ["- a 64 MiB detached"]),
    Steps("destroy destroys it", disks(ROOT, unlisted="destroy"), ["- a 64 MiB DESTROYED"]),
    Steps("an index is an address, not a wish", disks(ROOT, {"name": "a", "index": 1}), []),
    Steps("F grows", {"flexible_disk_size": "8GiB"}, ["flexible_disk_size 4 GiB -> 8 GiB"]),
    Steps("the VM's own quota grows", {"quota": "2GiB"}, ["VM quota 1 GiB -> 2 GiB"]),
    Steps("a name is given to a uuid", disks(ROOT, {"uuid": UUID_OF_A, "name": "b"}), ["~ b renamed from a"]),
    Steps(
        "texts are properties",
        disks(ROOT, {**A, "description": "x", "tags": {"k": "v"}}),
        ["~ a description none -> 'x', tags none -> k=v"],
    ),
]

# -- in which order (plan/ordering.py)

ORDERING = [
    Steps(
        "what frees space comes first",
        disks({**ROOT, "size": 1536}, {"name": "a", "size": 64, "dangerous_allow_shrink": True}, {"name": "b"}),
        ["~ a 512 MiB -> 64 MiB", "~ root 1 GiB -> 1.5 GiB"],
        THREE,
    ),
    Steps(
        "a disk leaves before another one comes",
        disks(ROOT, {"name": "b"}, {"name": "n", "size": 256}, unlisted="detach"),
        ["- a 512 MiB detached", "+ n 256 MiB at 0:4:1"],
        THREE,
    ),
    Steps(
        "F grows before disks do",
        disks(ROOT, {**A, "size": 4096}, flexible_disk_size="8GiB"),
        ["flexible_disk_size 4 GiB -> 8 GiB", "~ a 3 GiB -> 4 GiB"],
        FULL,
    ),
    Steps(
        "F shrinks after disks did",
        disks(ROOT, {**A, "size": 1024, "dangerous_allow_shrink": True}, flexible_disk_size="2GiB"),
        ["~ a 3 GiB -> 1 GiB", "flexible_disk_size 4 GiB -> 2 GiB"],
        FULL,
    ),
    Steps(
        "slots are exchanged at once, before a new disk takes one",
        disks(ROOT, {"name": "a", "pci_slot": "0:4:2"}, {"name": "b", "pci_slot": "0:4:1"}, {"name": "n", "size": 8}),
        ["~ a pci_slot 0:4:1 -> 0:4:2, b pci_slot 0:4:2 -> 0:4:1", "+ n 8 MiB at 0:4:3"],
        THREE,
    ),
    Steps(
        "a running VM is down for what needs it, and up again",
        disks({**ROOT, "size": 2048}, A),
        ["stop", "~ root 1 GiB -> 2 GiB", "start"],
        RUNNING,
        {"allow_restart": True},
    ),
    Steps(
        "what works while it runs is done while it runs",
        disks(ROOT, {**A, "preserve": True}, flexible_disk_size="8GiB"),
        ["flexible_disk_size 4 GiB -> 8 GiB", "~ a preserve false -> true"],
        RUNNING,
    ),
]

# -- what is refused (plan/checks.py)

REFUSED = [
    Refusal(
        "a smaller disk",
        disks(ROOT, {**A, "size": 32}),
        "InvalidArgument",
        ("64 MiB -> 32 MiB", "dangerous_allow_shrink"),
    ),
    *(
        Refusal(
            f"smaller than the guest allows, {permitted}",
            disks(ROOT, {**A, "size": 32, "min_size_from_guest": "33MiB", "dangerous_allow_shrink": permitted}),
            "TooSmallForGuest",
            ("32 MiB would cut off what the guest uses", "min_size_from_guest is 33 MiB, and the disk has 64 MiB"),
        )
        for permitted in (False, True)
    ),
    Refusal(
        "a disk made anew that is smaller than the guest allows",
        disks(ROOT, {**A, "size": 32, "min_size_from_guest": 33, "block_size": 4096, "recreate": True}),
        "TooSmallForGuest",
        ("32 MiB would cut off what the guest uses", "min_size_from_guest is 33 MiB, and the disk has 64 MiB"),
    ),
    Refusal(
        "a smaller disk that the guest would allow",
        disks(ROOT, {**A, "size": 32, "min_size_from_guest": 32}),
        "InvalidArgument",
        ("64 MiB -> 32 MiB", "dangerous_allow_shrink"),
    ),
    Refusal(
        "more than F holds",
        disks(ROOT, {**A, "size": "4GiB"}),
        "InsufficientSpace",
        ("flexible_disk_size 4 GiB", "the smallest that fits is 5 GiB"),
    ),
    Refusal("nothing remains", disks(ROOT, A, {"name": "n", "size": "remaining"}), "InsufficientSpace", ("n",), FULL),
    Refusal("an unlisted disk", disks(ROOT), "UnlistedDisk", ("attached but not listed", "64 MiB")),
    Refusal("a model that there is not", disks(ROOT, {**A, "model": "ide"}), "InvalidArgument", ("'ide'", "virtio")),
    Refusal(
        "a slot that another disk has",
        disks(ROOT, {**A, "pci_slot": "0:4:0"}),
        "InvalidArgument",
        ("0:4:0",),
    ),
    Refusal("the boot disk removed", disks({**ROOT, "state": "absent"}, A), "InvalidArgument", ("boot disk",)),
    Refusal("two boot disks", disks(ROOT, {**A, "boot": True}), "InvalidArgument", ("several boot disks: root, a",)),
    Refusal("no boot disk", disks({**ROOT, "boot": False}, A), "InvalidArgument", ("no boot disk",)),
    Refusal(
        "snapshots of a destroyed disk",
        disks(ROOT, {**A, "state": "absent"}),
        "HasSnapshots",
        ("has 1 snapshot that holds", "16 MiB", "destroy_snapshots: true"),
        SNAPSHOT,
    ),
    Refusal(
        "a type that vmadm has not", disks(ROOT, {**A, "type": "sparse"}), "NotSupported", ("type sparse", "thick")
    ),
    Refusal(
        "a name that a detached disk of the VM has",
        disks(ROOT, {"uuid": UUID_OF_A, "name": "x"}),
        "NameConflict",
        ("the name x is already used", PLACE),
        {"detached": {}},
    ),
    Refusal(
        "an indestructible VM's disk",
        disks(ROOT, {**A, "state": "absent"}),
        "Indestructible",
        ("none of its disks can be removed",),
        {"indestructible": True},
    ),
    Refusal(
        "a size of its own without F",
        disks(ROOT, {**A, "size": 128}),
        "VmWithoutFlexibleDiskSize",
        ("needs flexible_disk_size",),
        {"flexible_disk_size": None},
    ),
    Refusal("a quota below what is held", {"quota": "10MiB"}, "InvalidArgument", ("10 MiB", "1 GiB")),
    Refusal("a running VM", disks({**ROOT, "size": 2048}, A), "VmNotStopped", ("allow_restart",), RUNNING),
]


@pytest.mark.parametrize("case", [*RESOLVING, *ORDERING], ids=label)
def test_steps(case: Steps) -> None:
    assert words(said(case)) == case.steps


@pytest.mark.parametrize("case", REFUSED, ids=label)
def test_refusals(case: Refusal) -> None:
    planned = said(case)
    assert planned.steps == ()
    assert {problem.code for problem in planned.problems} == {case.code}, planned.problems
    text = "; ".join(f"{problem.vm} {problem.disk}: {problem.message}" for problem in planned.problems)
    for part in ("vm", *case.words):
        assert part in text
