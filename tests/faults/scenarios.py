# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is interrupted: a state of a hypervisor, and a task that changes it.

`module` of a task names its module. Without one it is vm_disks, or disk if it has disks.

Sizes are small enough for a real pool. Every disk and snapshot has contents of its own before the task begins.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.faults.backend import POOL, Backend

IMAGE = "aaaaaaaa-0000-4000-8000-000000000001"
SECOND = IMAGE.replace("1", "5")
WEB = "cccccccc-0000-4000-8000-000000000001"
DB = "dddddddd-0000-4000-8000-000000000001"
FLEXIBLE = 1024
IMAGE_MIB = 64
SIZES = {"a": 64, "b": 96, "c": 48}
ROOT = {"name": "root"}
A = {"name": "a"}
B = {"name": "b"}

Entry = dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    """`prepare` makes the state on an empty backend; `task` has the arguments of its module. rewrites: the task itself
    changes contents that it keeps, as a rollback does.
    """

    name: str
    prepare: Callable[[Backend], None]
    task: dict[str, Any]
    rewrites: bool = False


def declare(*disks: Entry, vm: str = "web01", root: Entry | None = None, **more: Any) -> dict[str, Any]:
    """The arguments of a task for one VM. root is what is said of its boot disk besides the name. unlisted and
    flexible_disk_size belong to the VM, the rest to the task.
    """
    vm_options = {key: more.pop(key) for key in ("unlisted", "flexible_disk_size", "quota") if key in more}
    return {"vms": [{"vm": vm, "disks": [{**ROOT, **(root or {})}, *disks], **vm_options}], **more}


def disk_uuid(vm: str, index: int) -> str:
    """The uuid of the disk of that number in a VM made here."""
    return f"{vm[:6]}{index:02d}-0000-4000-9000-{vm[-12:]}"  # serial numbers are made of its first 20 digits


def image(backend: Backend) -> None:
    backend.admin("image-import", IMAGE, str(IMAGE_MIB))


def vm(backend: Backend, uuid: str, alias: str, names: Sequence[str], *, running: bool = False) -> None:
    """A VM whose disks are root and `names`, adopted, each with contents at its beginning and near its end."""
    payload = {
        "uuid": uuid,
        "alias": alias,
        "brand": "bhyve",
        "ram": 256,
        "vcpus": 1,
        "quota": 1,
        "autoboot": running,
        "flexible_disk_size": FLEXIBLE,
        "disks": [
            {"image_uuid": IMAGE, "boot": True, "model": "virtio", "uuid": disk_uuid(uuid, 0)},
            *({"size": SIZES[name], "model": "virtio", "uuid": disk_uuid(uuid, i)} for i, name in enumerate(names, 1)),
        ],
    }
    backend.run("vmadm", "create", stdin=json.dumps(payload))
    if not running and json.loads(backend.run("vmadm", "get", uuid))["state"] == "running":
        backend.run("vmadm", "stop", uuid, "-F")
    slots = [{"name": name, "pci_slot": f"0:4:{index}"} for index, name in enumerate(["root", *names])]
    must(backend, {"vms": [{"vm": uuid, "disks": slots}]})
    for index, size in enumerate([IMAGE_MIB, *(SIZES[name] for name in names)]):
        volume = f"{POOL}/{uuid}/disk{index}"
        backend.run("guest", "write", volume, "0", "3", f"{index}1")
        backend.run("guest", "write", volume, str(size // 2 - 2), "2", f"{index}2")


def must(backend: Backend, arguments: dict[str, Any]) -> None:
    """A task that belongs to the preparation."""
    result = backend.task(arguments)
    assert not result.get("failed"), result


def stopped(backend: Backend) -> None:
    image(backend)
    vm(backend, WEB, "web01", ["a", "b"])


def running(backend: Backend) -> None:
    image(backend)
    vm(backend, WEB, "web01", ["a", "b"], running=True)


def snapshots(backend: Backend) -> None:
    """Two snapshots with different contents, the newer one of the disk alone."""
    stopped(backend)
    backend.run("vmadm", "create-snapshot", WEB, "before")
    backend.run("guest", "write", f"{POOL}/{WEB}/disk1", "1", "2", "77")
    backend.run("zfs", "snapshot", f"{POOL}/{WEB}/disk1@own")
    backend.run("guest", "write", f"{POOL}/{WEB}/disk1", "2", "2", "78")


def detached(backend: Backend) -> None:
    stopped(backend)
    must(backend, declare(B, unlisted="detach"))


def detached_from_running(backend: Backend) -> None:
    running(backend)
    must(backend, declare(B, unlisted="detach", allow_restart=True))


def detached_with_snapshots(backend: Backend) -> None:
    snapshots(backend)
    must(backend, declare(B, unlisted="detach"))


def unattached(backend: Backend) -> None:
    """What an attach leaves that was killed after it had renamed the volume into the VM."""
    detached_with_snapshots(backend)
    backend.run("zfs", "set", "quota=8G", f"{POOL}/{WEB}")
    backend.run("zfs", "rename", f"{POOL}/flexdisk/{disk_uuid(WEB, 1)}", f"{POOL}/{WEB}/disk1")


def hanging(backend: Backend) -> None:
    """A running VM whose guest does not shut down."""
    running(backend)
    backend.admin("vm-stop-takes", WEB, "100000")


def slow(backend: Backend) -> None:
    """A running VM whose guest takes its time to shut down."""
    running(backend)
    backend.admin("vm-stop-takes", WEB, "90")


def three(backend: Backend) -> None:
    image(backend)
    vm(backend, WEB, "web01", ["a", "b", "c"])


def three_running(backend: Backend) -> None:
    image(backend)
    vm(backend, WEB, "web01", ["a", "b", "c"], running=True)


def two(backend: Backend) -> None:
    """Two VMs, and a disk detached from the first one."""
    detached(backend)
    vm(backend, DB, "db01", ["a"])


def preserved(backend: Backend) -> None:
    stopped(backend)
    must(backend, declare({**A, "preserve": True}, B))


def unnamed(backend: Backend) -> None:
    """Disks as vmadm made them, without any identity of ours."""
    stopped(backend)
    for index in range(3):
        volume = f"{POOL}/{WEB}/disk{index}"
        for line in backend.run("zfs", "get", "-Hpo", "property,source", "all", volume).splitlines():
            prop, source = line.split("\t")
            if prop.startswith("flexdisk:") and source == "local":
                backend.run("zfs", "inherit", prop, volume)


def full(backend: Backend) -> None:
    """Not a byte of flexible disk space is left, and a disk is detached."""
    detached(backend)
    must(backend, declare({**B, "size": SIZES["b"]}, flexible_disk_size=IMAGE_MIB + SIZES["b"]))


def drifted(backend: Backend) -> None:
    """A quota set by hand, and a rollback over a resize."""
    stopped(backend)
    backend.run("zfs", "snapshot", f"{POOL}/{WEB}/disk1@small")
    must(backend, declare({**A, "size": 80}, B))
    backend.run("zfs", "rollback", f"{POOL}/{WEB}/disk1@small")
    backend.run("zfs", "set", "quota=8G", f"{POOL}/{WEB}")


def second_image(backend: Backend) -> None:
    """A running VM, and another image for its boot disk."""
    running(backend)
    backend.admin("image-import", SECOND, str(IMAGE_MIB))


def other_image(backend: Backend) -> None:
    """The boot disk is made of the second image, and the first one is detached."""
    second_image(backend)
    must(backend, NEW_IMAGE)
    backend.run("guest", "write", f"{POOL}/{WEB}/disk0", "0", "3", "91")


def with_newer(backend: Backend) -> None:
    """Two snapshots of the VM with different contents, and what was written since."""
    running(backend)
    for number, name in enumerate(("before", "later")):
        backend.run("vmadm", "create-snapshot", WEB, name)
        backend.run("guest", "write", f"{POOL}/{WEB}/disk1", "1", "2", f"7{number}")


def identified(backend: Backend) -> None:
    """A VM with a disk that is preserved, and one with tags."""
    stopped(backend)
    must(backend, declare({**A, "preserve": True}, {**B, "tags": {"k": "v"}}))


def released(backend: Backend) -> None:
    identified(backend)
    must(backend, {"module": "disk_adopt", "vms": [{"vm": "web01"}], "state": "released"})


def of_vm(**wanted: Any) -> dict[str, Any]:
    """The arguments of a task of vm for one VM."""
    task: dict[str, Any] = {key: wanted.pop(key) for key in ("allow_restart", "packages") if key in wanted}
    return {"module": "vm", "vms": [{"vm": "web01", "state": "present", **wanted}], **task}


def of_snapshot(**wanted: Any) -> dict[str, Any]:
    return {"module": "vm_snapshot", "vms": [WEB], **wanted}


PACKAGES = [{"name": "small", "disk": 1024, "flexible_disk": True, "memory": 256, "vcpus": 1}]
MADE = {
    "uuid": WEB,
    "package": "small",
    "packages": PACKAGES,
    "image": IMAGE,
    "quota": "1GiB",
    "disks": [ROOT, {**A, "size": 64}],
}
NEW_IMAGE = declare(A, B, root={"boot": True, "image": SECOND, "recreate": True}, allow_restart=True)
BACK = {"uuid": disk_uuid(WEB, 0), "boot": True, "recreate": True}
TO_WEB = {**A, "vm": "web01", "state": "attached"}
NEW = {"name": "n", "size": 32, "description": "new", "tags": {"k": "v"}}
SHRUNK = {**A, "size": 32, "dangerous_allow_shrink": True}
MIXED = declare(
    SHRUNK,
    {**B, "size": 128, "pci_slot": "0:4:6", "description": "bigger"},
    NEW,
    unlisted="detach",
    flexible_disk_size=1536,
)
SWAPPED = [{**A, "pci_slot": "0:4:2"}, {**B, "pci_slot": "0:4:1", "model": "nvme"}]
TOGETHER = {
    "vms": [
        {"vm": "db01", "disks": [ROOT, A, {"uuid": disk_uuid(WEB, 1), "name": "moved"}]},
        {"vm": "web01", "flexible_disk_size": 512, "disks": [ROOT, {**B, "state": "absent"}]},
    ]
}

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("grow", stopped, declare({**A, "size": 128}, B)),
        Scenario("grow-snapshots", snapshots, declare({**A, "size": 128}, B)),
        Scenario("shrink", stopped, declare(SHRUNK, B)),
        Scenario("add", stopped, declare(A, B, NEW)),
        Scenario("add-remaining", stopped, declare(A, B, {"name": "n", "size": "remaining"})),
        Scenario("clone", stopped, declare(A, B, {"name": "n", "image": IMAGE, "size": 96})),
        Scenario("remove", stopped, declare({**A, "state": "absent"}, B)),
        Scenario("remove-snapshots", snapshots, declare({**A, "state": "absent", "destroy_snapshots": True}, B)),
        Scenario("remove-detached", detached, declare({**A, "state": "absent"}, B)),
        Scenario("detach", stopped, declare(B, unlisted="detach")),
        Scenario("detach-snapshots", snapshots, declare(B, unlisted="detach")),
        Scenario("park", unattached, declare(B, unlisted="detach")),
        Scenario("attach", detached, declare(A, B)),
        Scenario("attach-grown", detached_with_snapshots, declare({**A, "size": 128}, B)),
        Scenario("attach-shrunk", detached, declare(SHRUNK, B)),
        Scenario("full-exchange", full, declare({**A, "size": 32, "dangerous_allow_shrink": True},
                                                {"name": "n", "size": SIZES["b"] - 32}, unlisted="detach")),
        Scenario("flexible-up", stopped, declare(A, B, flexible_disk_size=2048)),
        Scenario("flexible-down", stopped, declare(A, B, flexible_disk_size=256)),
        Scenario("quota", stopped, declare(A, B, quota="2GiB")),
        Scenario("mixed", three, MIXED),
        Scenario("restart", three_running, {**MIXED, "allow_restart": True}),
        Scenario("detach-running", running, declare(B, unlisted="detach", allow_restart=True)),
        Scenario("detach-slow", slow, declare(B, unlisted="detach", allow_restart=True)),
        Scenario("detach-hanging", hanging,
                 declare(B, unlisted="detach", allow_restart=True, allow_force_stop=True)),
        Scenario("attach-running", detached_from_running, declare(A, B, allow_restart=True)),
        Scenario("grow-running", running, declare({**A, "size": 128}, B, allow_restart=True)),
        Scenario("slots", stopped, declare(*SWAPPED)),
        Scenario("adopt", unnamed,
                 declare({**A, "pci_slot": "0:4:1"}, {**B, "pci_slot": "0:4:2"}, root={"boot": True})),
        Scenario("drift", drifted, declare(A, B)),
        Scenario("recreate", stopped, declare({**A, "size": 64, "block_size": 4096, "recreate": True}, B)),
        Scenario("recreate-preserved", preserved,
                 declare({**A, "size": 64, "block_size": 4096, "recreate": True, "preserve": True}, B)),
        Scenario("recreate-boot", second_image, NEW_IMAGE),
        Scenario("boot-back", other_image, declare(A, B, root=BACK, allow_restart=True)),
        Scenario("two-vms", two, TOGETHER),
        Scenario("vm-make", image, of_vm(**MADE)),
        Scenario("vm-make-running", image, of_vm(**MADE, state="running", autoboot=True)),
        Scenario("vm-stop", running, of_vm(state="stopped")),
        Scenario("vm-stop-slow", slow, of_vm(state="stopped")),
        Scenario("vm-stop-hanging", hanging, {**of_vm(state="stopped"), "allow_force_stop": True}),
        Scenario("vm-start", stopped, of_vm(state="running")),
        Scenario("vm-memory", running, of_vm(memory=512, allow_restart=True)),
        Scenario("vm-absent", snapshots, of_vm(state="absent", destroy_disks=True, destroy_snapshots=True)),
        Scenario("vm-absent-preserved", identified, of_vm(state="absent", destroy_disks=True)),
        Scenario("vm-absent-running", running, of_vm(state="absent", destroy_disks=True, allow_restart=True)),
        Scenario("snapshot", running, of_snapshot(name="now")),
        Scenario("snapshot-absent", with_newer, of_snapshot(name="before", state="absent")),
        Scenario("snapshot-back", with_newer,
                 of_snapshot(name="before", state="rolled_back", newer=["later"], allow_restart=True), rewrites=True),
        Scenario("adopt-all", unnamed, {"module": "disk_adopt", "vms": [{"vm": "web01"}]}),
        Scenario("release", identified, {"module": "disk_adopt", "vms": [{"vm": "web01"}], "state": "released"}),
        Scenario("adopt-again", released, {"module": "disk_adopt", "vms": [{"vm": "web01"}]}),
        Scenario("quota-law", drifted, {"module": "zfs_quota", "vms": ["web01"]}),
        Scenario("verify-orphan", unattached,
                 {"module": "disk_verify", "vms": ["web01"], "repair": ["orphan_volume", "quota_drift"]}),
        Scenario("disk-make", stopped, {"disks": [{"name": "n", "size": 32, "tags": {"k": "v"}}]}),
        Scenario("disk-copy", snapshots, {"disks": [{"name": "n", "source": "a", "size": 80}]}),
        Scenario("disk-copy-snapshot", snapshots, {"disks": [{"name": "n", "source": "a", "source_snapshot": "own"}]}),
        Scenario("disk-clone", snapshots, {"disks": [{"name": "n", "source": "a", "source_snapshot": "own",
                                                      "source_method": "clone"}]}),
        Scenario("disk-grow", detached_with_snapshots, {"disks": [{"name": "a", "size": 128, "description": "more"}]}),
        Scenario("disk-attach", detached, {"disks": [{**TO_WEB, "pci_slot": "0:4:6", "size": 80}]}),
        Scenario("disk-detach", snapshots, {"disks": [{**A, "vm": "web01", "state": "detached"}]}),
        Scenario("disk-detach-running", running, {"disks": [{**A, "vm": "web01", "state": "detached"}],
                                                  "allow_restart": True}),
        Scenario("disk-take", two, {"disks": [{**B, "from_vm": "web01", "vm": "db01", "state": "attached",
                                               "take": True}]}),
        Scenario("disk-together", two, {"disks": [{**TO_WEB, "from_vm": "web01"},
                                                  {**B, "state": "detached", "vm": "web01"},
                                                  {"name": "n", "size": 32}]}),
        Scenario("disk-destroy", detached_with_snapshots, {"disks": [{**A, "state": "absent",
                                                                      "destroy_snapshots": True}]}),
    )
}  # fmt: skip
