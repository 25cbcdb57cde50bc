# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vm_disks on libvirt from end to end, on simulated ZFS and fake domains."""

from __future__ import annotations

import pytest

from .conftest import DISK, OTHER, VM, domain

ROOT = {"name": "root", "boot": True}
Q35 = {"machine": "pc-q35-7.2"}


def spec(*disks, **more):
    return {"vm": "web01", "disks": [ROOT, *disks], **more}


def kinds(done):
    return [step["step"] for step in done.vms[0]["steps"]]


@pytest.mark.parametrize("machine", [{}, Q35])
def test_first_run(linux, machine):
    linux.create((64, 32), **machine)
    done = linux.four_steps(spec({"name": "a", "size": 32}, flexible_disk_size="1GiB"))
    assert kinds(done) == ["edit", "flexible", "quota", "identity", "identity"]
    vm = linux.vm()
    assert all(e.uuid and e.serial for e in vm.config.disks)
    assert (vm.root.refquota, vm.config.flexible_disk_size) == (1 << 20, 1024)


@pytest.mark.parametrize("machine", [{}, Q35])
@pytest.mark.parametrize("up", [True, False])
def test_operations(linux, machine, up):
    linux.adopted(32, **machine)
    if up:
        linux.domains.boot(VM)
    linux.four_steps(spec({"name": "a", "size": 48}, {"name": "b", "size": 16}))
    linux.four_steps(spec({"name": "b"}, {"name": "c", "size": "remaining"}, unlisted="detach"))
    linux.four_steps(spec({"name": "a", "size": 64}, {"name": "b", "state": "absent"}, unlisted="detach"))
    assert "a" in linux.disks()
    assert linux.domains.status(VM).state == ("running" if up else "stopped")


def test_shrink_needs_a_stop(linux):
    linux.adopted(32)
    linux.domains.boot(VM)
    declaration = spec({"name": "a", "size": 16, "dangerous_allow_shrink": True})
    refused = linux.converge(declaration)
    assert [p.code for p in refused.problems] == ["VmNotStopped"]
    linux.four_steps(declaration, allow_restart=True)


# -- adoption


def strays(linux, *sizes, machine=None):
    """A VM whose volumes lie in a folder of another tool."""
    linux.run("zfs", "create", "tank/vms")
    names = []
    for number, size in enumerate(sizes):
        names.append("tank/vms/web01-%d" % number)
        linux.run("zfs", "create", "-V", f"{size}M", names[-1])
    linux.domains.add(domain(names, **(machine or {})))
    return names


@pytest.mark.parametrize("machine", [{}, Q35])
def test_adoption(linux, machine):
    names = strays(linux, 64, 32, machine=machine)
    linux.run("zfs", "snapshot", names[1] + "@keep")
    linux.run("guest", "write", names[1], "0", "8", "7")
    digest = linux.run("guest", "hash", names[1])
    refused = linux.converge(spec({"name": "a", "size": 32}))
    assert [p.code for p in refused.problems] == ["ResourceNotFound"]
    assert "adopt: true" in refused.problems[0].message
    done = linux.four_steps(spec({"name": "a", "size": 32}, adopt=True, flexible_disk_size="1GiB"))
    assert kinds(done)[0] == "adopt"
    assert linux.disks()["a"].volume.name == f"tank/{VM}/disk1"
    assert [s.name for s in linux.disks()["a"].snapshots] == [f"tank/{VM}/disk1@keep"]
    assert linux.run("guest", "hash", f"tank/{VM}/disk1") == digest
    assert "flexdisk:from" not in linux.run("zfs", "get", "all", f"tank/{VM}/disk1")
    linux.domains.create(VM)


@pytest.mark.parametrize(
    "child",
    [
        "<seclabel model='dac' relabel='no'/>",
        "<reservations managed='yes'/>",
        "<encryption format='luks'/><!-- kept -->",
    ],
)
def test_adoption_keeps_what_a_source_says_besides(linux, child):
    [name] = strays(linux, 64)
    text = domain([name]).replace(
        f"<source dev='/dev/zvol/{name}'/>", f"<source dev='/dev/zvol/{name}'>{child}</source>"
    )
    linux.domains.add(text)
    linux.four_steps(spec(adopt=True, flexible_disk_size="1GiB"))
    element = child[1:].split(" ")[0]
    assert linux.domains.configs[VM].find(f"devices/disk/source/{element}") is not None
    linux.domains.create(VM)


def test_adoption_keeps_what_a_folder_has_given(linux):
    names = strays(linux, 64, 32)
    had = {"compression": "zstd", "sync": "always", "copies": "2", "com.sun:auto-snapshot": "true"}
    for name, value in had.items():
        linux.run("zfs", "set", f"{name}={value}", "tank/vms")
    linux.four_steps(spec({"name": "a", "size": 32}, adopt=True, flexible_disk_size="1GiB"))
    for name in had:
        assert linux.run("zfs", "get", "-Hpo", "value", name, linux.disks()["a"].volume.name).strip() == had[name]
    assert names[0] not in linux.host().datasets


@pytest.mark.parametrize("back", [False, True])
def test_a_conversion_keeps_what_a_disk_had(linux, back):
    linux.adopted(32)
    if back:
        linux.four_steps(spec({"name": "a", "type": "file"}))
    volume = linux.disks()["a"].volume.name
    linux.run("zfs", "set", "sync=always", f"tank/{VM}")
    linux.run("zfs", "set", "primarycache=metadata", volume)
    linux.run("zfs", "set", "com.sun:auto-snapshot=true", volume)
    linux.four_steps(spec({"name": "a", "type": "thick" if back else "file"}))
    for name, value in {"sync": "always", "primarycache": "metadata", "com.sun:auto-snapshot": "true"}.items():
        assert linux.run("zfs", "get", "-Hpo", "value", name, linux.disks()["a"].volume.name).strip() == value


def test_a_running_vm_is_not_adopted(linux):
    strays(linux, 64)
    linux.domains.boot(VM)
    refused = linux.converge(spec(adopt=True), allow_restart=True)
    assert [p.code for p in refused.problems] == ["VmNotStopped"]


def test_a_shared_volume_is_not_adopted(linux):
    strays(linux, 64)
    linux.domains.add(domain(["tank/vms/web01-0"], uuid=OTHER, name="web02"))
    refused = linux.converge(spec(adopt=True))
    assert [p.code for p in refused.problems] == ["InUse"]
    assert "web02" in refused.problems[0].message


def test_a_volume_elsewhere_is_left_alone_and_told(linux):
    linux.adopted(32)
    linux.run("zfs", "create", "-V", "16M", "tank/elsewhere")
    text = linux.domains.xml(VM, False).replace("</devices>", DISK % ("tank/elsewhere", "q") + "</devices>")
    linux.domains.add(text)
    done = linux.converge(spec({"name": "a"}))
    assert (done.problems, done.changed) == ([], False)
    assert any("tank/elsewhere" in warning and "adopt: true" in warning for warning in done.warnings)
    linux.four_steps(spec({"name": "a"}, {"name": "b", "size": 16}, adopt=True))
    assert linux.disks()["b"].volume.name == f"tank/{VM}/disk2"


def test_a_vm_without_disks(linux):
    linux.domains.add(domain([]))
    linux.create((64,), uuid=OTHER, name="web02")
    done = linux.four_steps(
        {
            "vm": "web01",
            "adopt": True,
            "flexible_disk_size": "1GiB",
            "disks": [{"name": "root", "size": 32, "boot": True}],
        }
    )
    assert kinds(done)[0] == "adopt"
    assert linux.disks()["root"].boot


def test_a_function_that_was_asked_for_is_remembered(linux):
    """Only this VM asked for it, so another one that takes the disk gives it a device of its own."""
    linux.adopted(32)
    data = {"name": "data", "size": 16}
    linux.four_steps({"vm": VM, "disks": [{"name": "root"}, {"name": "a"}, {**data, "pci_slot": "0:4:5"}]})
    linux.four_steps({"vm": VM, "unlisted": "detach", "disks": [{"name": "root"}, {"name": "a"}]})
    linux.four_steps({"vm": VM, "disks": [{"name": "root"}, {"name": "a"}, data]})
    assert linux.disks()["data"].pci_slot == "0:4:5"
    uuid = linux.disks()["data"].uuid
    linux.four_steps({"vm": VM, "unlisted": "detach", "disks": [{"name": "root"}, {"name": "a"}]})
    linux.create(uuid=OTHER, name="web02")
    entry = {"vm": OTHER, "unlisted": "keep", "flexible_disk_size": "1GiB", "disks": [{"uuid": uuid, "name": "data"}]}
    linux.converge(entry)
    assert linux.disks(OTHER)["data"].pci_slot.endswith(":0")


def test_devices_of_detached_disks_are_without_partitions(linux):
    """What a volume has from its first moment it inherits; C(park) sees to those that are moved in."""
    linux.adopted(32)
    linux.converge({"vm": VM, "unlisted": "detach", "disks": [{"name": "root"}]})
    assert linux.run("zfs", "get", "-Ho", "value", "volmode", "tank/flexdisk") == "dev\n"
