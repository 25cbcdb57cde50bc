# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vm_disks on libvirt from end to end, on simulated ZFS and fake domains."""

from __future__ import annotations

import pytest

from .conftest import OTHER, SCSI, VM, LinuxHost, domain

ROOT = {"name": "root"}
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
    wish = spec({"name": "a", "size": 16, "dangerous_allow_shrink": True})
    refused = linux.converge(wish)
    assert [p.code for p in refused.problems] == ["VmNotStopped"]
    linux.four_steps(wish, allow_restart=True)
