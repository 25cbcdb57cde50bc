# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine under test as a black box: commands in; exit code, stdout and stderr out."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

MIB = 1 << 20
GIB = 1 << 30
POOL = "zones"
IMAGE = "aaaaaaaa-0000-4000-8000-000000000001"
UEFI_IMAGE = "aaaaaaaa-0000-4000-8000-000000000002"
BIOS_IMAGE = "aaaaaaaa-0000-4000-8000-000000000003"
NOCLOUD_IMAGE = "aaaaaaaa-0000-4000-8000-000000000004"
ZONE_IMAGE = "aaaaaaaa-0000-4000-8000-000000000005"
LX_IMAGE = "aaaaaaaa-0000-4000-8000-000000000006"
SMALL_IMAGE = "aaaaaaaa-0000-4000-8000-000000000007"
IMAGES = (
    (IMAGE, 10240),
    (UEFI_IMAGE, 10240, "bootrom=uefi"),
    (BIOS_IMAGE, 10240, "bootrom=bios"),
    (NOCLOUD_IMAGE, 10240, "nocloud=yes"),
    (ZONE_IMAGE, 0, "type=zone-dataset"),
    (LX_IMAGE, 0, "type=lx-dataset"),
    (SMALL_IMAGE, 5120),
)
UUID = "cccccccc-0000-4000-8000-000000000001"
OTHER_UUID = "cccccccc-0000-4000-8000-000000000002"
DISK_UUID = "dddddddd-0000-4000-8000-000000000001"
OTHER_DISK_UUID = "dddddddd-0000-4000-8000-000000000002"
WRITTEN_MIB = 256
"""No test writes beyond."""
PARKED = f"{POOL}/flexdisk/{DISK_UUID}"


class Result(NamedTuple):
    rc: int
    out: str
    err: str


class Backend(Protocol):
    """A machine with zfs, zpool, vmadm, imgadm and guest, and the administration of the simulated parts."""

    def run(self, argv: Sequence[str], stdin: str = "") -> Result: ...

    def admin(self, *argv: str) -> Result: ...

    def advance(self, seconds: float) -> None: ...

    def now(self) -> float: ...


class CommandBackend:
    """Programs run as real processes in an environment."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment

    def run(self, argv: Sequence[str], stdin: str = "") -> Result:
        done = subprocess.run(
            list(argv), input=stdin, capture_output=True, text=True, env=self.environment, timeout=300, check=False
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def admin(self, *argv: str) -> Result:
        raise NotImplementedError

    def advance(self, seconds: float) -> None:
        raise NotImplementedError

    def now(self) -> float:
        raise NotImplementedError


class ServedBackend:
    """A machine behind `python3 -m simnode.real serve`: the simulated vmadm over its real zfs."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, argv: Sequence[str], stdin: str = "") -> Result:
        requests, answers = self.process.stdin, self.process.stdout
        assert requests is not None
        assert answers is not None
        requests.write(json.dumps({"argv": list(argv), "stdin": stdin}) + "\n")
        requests.flush()
        answer = answers.readline()
        assert answer, "the machine has gone"
        return Result(*json.loads(answer))

    def admin(self, *argv: str) -> Result:
        return self.run(["admin", *argv])

    def advance(self, seconds: float) -> None:
        self.admin("advance", str(seconds))

    def now(self) -> float:
        return float(self.admin("now").out)

    def close(self) -> None:
        """End the server."""
        self.process.communicate(timeout=60)


class NodeBackend:
    """The simulated node in process."""

    def __init__(self, node: Any) -> None:
        self.node = node

    def run(self, argv: Sequence[str], stdin: str = "") -> Result:
        return Result(*self.node.run(list(argv), stdin))

    def admin(self, *argv: str) -> Result:
        from simnode.vmadm.admin import COMMANDS

        return Result(*COMMANDS[argv[0]](self.node, list(argv[1:])))

    def advance(self, seconds: float) -> None:
        self.node.clock.advance(seconds)

    def now(self) -> float:
        return float(self.node.clock.now())


def boot_disk(**more: Any) -> dict[str, Any]:
    return {"image_uuid": IMAGE, "boot": True, "model": "virtio", **more}


def data_disk(size: Any, **more: Any) -> dict[str, Any]:
    return {"size": size, "model": "virtio", **more}


def base(*disks: dict[str, Any], uuid: str = UUID, **more: Any) -> dict[str, Any]:
    """The payload B1, with further disks and properties."""
    return {
        "uuid": uuid,
        "brand": "bhyve",
        "alias": "vm-" + uuid[-1],
        "autoboot": False,
        "ram": 1024,
        "vcpus": 1,
        "disks": [boot_disk(), *disks],
        **more,
    }


class Vm:
    """One VM on a backend."""

    def __init__(self, backend: Backend, uuid: str = UUID) -> None:
        self.backend = backend
        self.uuid = uuid
        self.root = f"{POOL}/{uuid}"

    # -- commands

    def vmadm(self, *argv: str, stdin: str = "") -> Result:
        return self.backend.run(["vmadm", *argv], stdin)

    def create(self, payload: dict[str, Any]) -> Result:
        return self.vmadm("create", stdin=json.dumps(payload))

    def update(self, **payload: Any) -> Result:
        return self.vmadm("update", self.uuid, stdin=json.dumps(payload))

    def grow(self, index: int, size: Any, **more: Any) -> Result:
        return self.update(update_disks=[{"path": self.path(index), "size": size, **more}])

    def start(self) -> Result:
        return self.vmadm("start", self.uuid)

    def stop(self, *argv: str) -> Result:
        return self.vmadm("stop", self.uuid, *argv)

    def snapshot(self, verb: str, name: str) -> Result:
        return self.vmadm(f"{verb}-snapshot", self.uuid, name)

    def zfs(self, *argv: str) -> Result:
        return self.backend.run(["zfs", *argv])

    # -- observations

    def get(self) -> dict[str, Any]:
        result = self.vmadm("get", self.uuid)
        assert result.rc == 0, result
        found: dict[str, Any] = json.loads(result.out)
        return found

    def exists(self) -> bool:
        return self.vmadm("get", self.uuid).rc == 0

    def path(self, index: int | str) -> str:
        name = index if isinstance(index, str) else f"disk{index}"
        return f"/dev/zvol/rdsk/{self.root}/{name}"

    def volume(self, index: int) -> str:
        return f"{self.root}/disk{index}"

    def disk(self, index: int) -> dict[str, Any]:
        return next(disk for disk in self.get()["disks"] if disk["path"] == self.path(index))

    def disks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get()["disks"]
        return found

    def prop(self, dataset: str, name: str) -> int:
        result = self.zfs("get", "-Hpo", "value", name, dataset)
        assert result.rc == 0, result
        return int(result.out)

    def root_prop(self, name: str) -> int:
        return self.prop(self.root, name)

    def dataset_exists(self, name: str) -> bool:
        return self.zfs("list", "-H", "-o", "name", name).rc == 0

    def drift(self) -> tuple[int, int]:
        """quota and reservation, each minus the formula's value."""
        vm = self.get()
        base_quota = self.root_prop("refquota")
        rows = self.zfs("list", "-Hpr", "-t", "volume", "-o", "volsize,refreservation", self.root).out.split()
        sizes = sum(int(value) for value in rows[0::2])
        reserved = sum(int(value) for value in rows[1::2])
        expected = base_quota + reserved
        if "flexible_disk_size" in vm:
            expected += vm["flexible_disk_size"] * MIB - sizes
        return self.root_prop("quota") - expected, self.root_prop("reservation") - expected


def ok(result: Result) -> Result:
    assert result.rc == 0, result
    return result


def refused(result: Result, text: str, rc: int = 1) -> Result:
    """Failed with `text` in what it said to stderr, nothing on stdout."""
    assert result.rc == rc, result
    assert text in result.err, result
    assert result.out == ""
    return result


def made(backend: Backend, *disks: dict[str, Any], uuid: str = UUID, **more: Any) -> Vm:
    """A VM from the payload B1 with these further disks."""
    vm = Vm(backend, uuid)
    ok(vm.create(base(*disks, uuid=uuid, **more)))
    return vm


def vm_with(backend: Backend, *sizes: int, flexible: int = 1024, uuid: str = UUID) -> Vm:
    """A VM with disks of these sizes alone, the first of them for boot."""
    vm = Vm(backend, uuid)
    disks = [data_disk(size, boot=index == 0) for index, size in enumerate(sizes)]
    ok(vm.create({**base(uuid=uuid, flexible_disk_size=flexible), "disks": disks}))
    return vm


def make_container(vm: Vm) -> None:
    ok(vm.zfs("create", "-o", "mountpoint=none", "-o", "canmount=off", f"{POOL}/flexdisk"))


def overhead(vm: Vm, volume: str) -> int:
    return vm.prop(volume, "refreservation") - vm.prop(volume, "volsize")


def digest(vm: Vm, volume: str) -> str:
    """The size, and a hash of the part where `write` may write: a whole disk takes an emulated machine minutes."""
    size = vm.prop(volume, "volsize")
    return f"{size} {ok(vm.backend.run(['guest', 'hash', volume, '0', str(min(size // MIB, WRITTEN_MIB))])).out}"


def write(vm: Vm, volume: str, start: int, length: int, seed: str) -> Result:
    assert start + length <= WRITTEN_MIB
    return vm.backend.run(["guest", "write", volume, str(start), str(length), seed])


def park(vm: Vm, index: int = 1, target: str = PARKED) -> None:
    if not vm.dataset_exists(f"{POOL}/flexdisk"):
        make_container(vm)
    ok(vm.zfs("rename", vm.volume(index), target))


def raise_quota(vm: Vm, by: int) -> None:
    size = vm.root_prop("quota") + by
    ok(vm.zfs("set", f"quota={size}", f"reservation={size}", vm.root))


def attach(vm: Vm, name: str = "disk1", size: int = 64, **more: object) -> Result:
    return vm.update(add_disks=[{"path": vm.path(name), "nocreate": True, "size": size, "model": "virtio",
                                 "media": "disk", "boot": False, **more}])  # fmt: skip


def detached(backend: Backend, size: int = 64) -> Vm:
    """A VM whose second disk is parked and out of its configuration, at the formula's quota."""
    vm = vm_with(backend, 128, size)
    extra = overhead(vm, vm.volume(1))
    park(vm)
    ok(vm.update(remove_disks=[vm.path(1)]))
    raise_quota(vm, -extra)
    assert vm.drift() == (0, 0)
    return vm
