# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Killed before and after every command and every call to libvirt, a second run ends as the first one would have."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from .conftest import VM, LinuxHost, domain
from .test_elements import PARTS, TUNE, change

ROOT = {"name": "root", "boot": True}
Q35 = {"machine": "pc-q35-7.2"}


class Killed(BaseException):
    pass


def live() -> LinuxHost:
    linux = LinuxHost()
    linux.adopted(32, 16, **Q35)
    parts = [PARTS[name] for name in ("driver", "iotune", "blockio", "shareable", "alias")]
    change(linux, *parts, top=TUNE % linux.disks()["a"].path)
    linux.domains.boot(VM)
    return linux


def detached() -> LinuxHost:
    linux = live()
    assert linux.converge({"vm": VM, "unlisted": "detach", "disks": [ROOT, {"name": "b"}]}).failure is None
    return linux


def elsewhere() -> LinuxHost:
    linux = LinuxHost()
    linux.run("zfs", "create", "tank/vms")
    for name, size in (("x", 64), ("y", 32)):
        linux.run("zfs", "create", "-V", f"{size}M", f"tank/vms/{name}")
    linux.domains.add(domain(["tank/vms/x", "tank/vms/y"]))
    return linux


SCENARIOS = {
    "grow and create while it runs": (
        live,
        {"disks": [ROOT, {"name": "a", "size": 48}, {"name": "b"}, {"name": "c", "size": 8}]},
        {},
    ),
    "detach while it runs": (live, {"unlisted": "detach", "disks": [ROOT, {"name": "b"}]}, {}),
    "destroy while it runs": (
        live,
        {"disks": [ROOT, {"name": "b"}, {"name": "a", "state": "absent"}]},
        {},
    ),
    "destroy the unlisted": (live, {"unlisted": "destroy", "disks": [ROOT, {"name": "b"}]}, {}),
    "attach while it runs": (detached, {"disks": [ROOT, {"name": "b"}, {"name": "a", "size": 40}]}, {}),
    "shrink and change slots": (
        live,
        {
            "disks": [
                ROOT,
                {"name": "a", "size": 16, "dangerous_allow_shrink": True, "pci_slot": "6:0:0"},
                {"name": "b", "pci_slot": "6:0:1"},
            ]
        },
        {"allow_restart": True},
    ),
    "more space": (
        live,
        {"flexible_disk_size": "2GiB", "quota": "3MiB", "disks": [ROOT, {"name": "a"}, {"name": "b"}]},
        {},
    ),
    "adopt": (
        elsewhere,
        {"adopt": True, "flexible_disk_size": "1GiB", "disks": [{**ROOT, "size": 64}, {"name": "a", "size": 32}]},
        {},
    ),
}


def run(linux: LinuxHost, declaration: dict[str, Any], policy: dict[str, Any], stop_at: int = -1) -> int:
    """How many points it passes; killed at one of them."""
    count = 0

    def hook(*ignored) -> None:
        nonlocal count
        if count == stop_at:
            linux.hook = linux.domains.hook = None
            raise Killed
        count += 1

    linux.hook = linux.domains.hook = hook
    try:
        outcome = linux.converge({"vm": VM, **declaration}, **policy)
        assert (outcome.failure, outcome.problems) == (None, [])
    finally:
        linux.hook = linux.domains.hook = None
    return count


def picture(linux: LinuxHost) -> dict[str, Any]:
    """What is to be the same however often it was interrupted."""
    vm = linux.vm()
    return {
        "disks": {d.name: (d.size, d.pci_slot, d.boot, d.volume.name) for d in vm.disks},
        "elements": {d.name: d.element for d in vm.disks},
        "parked": {d.name: (d.size, d.element) for d in vm.detached},
        "orphans": [d.volume.name for d in vm.orphans],
        "power": (vm.config.state, vm.config.autoboot),
        "space": (vm.config.flexible_disk_size, vm.root.quota, vm.root.reservation, vm.root.refquota),
        "settled": vm.interrupted,
    }


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_every_point(name):
    make, declaration, policy = SCENARIOS[name]
    world = pickle.dumps(make())
    whole = pickle.loads(world)
    points = run(whole, declaration, policy)
    wanted = picture(whole)
    assert points >= 8
    for point in range(points):
        linux = pickle.loads(world)
        for volume in sorted(linux.host().datasets):
            if linux.host().datasets[volume].kind == "volume":
                linux.run("guest", "write", volume, "0", "4", "9")
        with pytest.raises(Killed):
            run(linux, declaration, policy, point)
        predicted = linux.converge({"vm": VM, **declaration}, check=True, **policy)
        assert predicted.problems == [], point
        again = linux.converge({"vm": VM, **declaration}, **policy)
        assert (again.problems, again.failure) == ([], None), point
        assert again.diff == predicted.diff, point
        result = picture(linux)
        if "unlisted" in name:
            # Detached already, and destroyed only when it is named.
            assert set(result.pop("parked")) <= {"a"}
        assert result == {key: wanted[key] for key in result}, point
        linux.assert_whole()
        assert not linux.converge({"vm": VM, **declaration}, **policy).changed, point
