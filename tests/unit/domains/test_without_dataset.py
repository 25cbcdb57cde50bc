# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VMs that have no dataset where their disks lie: one refusal says what ends that."""

from __future__ import annotations

from .conftest import OTHER, VM, domain
from .test_disk_adopt import refusal, settle
from .test_left_out import pooled
from .test_vm_disks import spec, strays

WISH = spec({"name": "a", "size": 32}, adopt=True, flexible_disk_size="1GiB")
LABEL = f"web01 ({VM})"


def test_disk_adopt_names_what_makes_the_dataset(linux):
    strays(linux, 64, 32)
    told = refusal(linux, "ResourceNotFound", vms=[{"vm": "web01"}])
    assert told == f": {LABEL}: no dataset tank/{VM}; vm_disks with adopt: true makes it"
    linux.four_steps(WISH)


def test_nothing_can_be_adopted(linux):
    linux.domains.add(domain(["x"]).replace("/dev/zvol/x", "/dev/sdx"))
    told = refusal(linux, "ResourceNotFound", vms=[{"vm": "web01"}])
    assert "adopt: true makes none: which pool it belongs to is not clear" in told
    assert "disk vda (/dev/sdx) is left alone" in told


def test_the_dataset_has_gone_with_the_volumes(linux):
    linux.domains.add(domain([f"tank/{VM}/disk0", f"tank/{VM}/disk1"]))
    words = f"adopt: true makes none: its configuration names tank/{VM}/disk0, tank/{VM}/disk1, and there is no such"
    assert words in refusal(linux, "ResourceNotFound", vms=[{"vm": "web01"}])
    [told] = linux.converge(WISH).problems
    assert words in told.message


def test_all_disks_lie_in_another_pool_than_the_dataset():
    linux = pooled()
    linux.create((16,), uuid=OTHER, name="other")
    linux.adopted(32)
    text = linux.domains.xml(VM, False)
    for number in (0, 1):
        linux.run("zfs", "create", "-V", f"{(64, 32)[number]}M", f"data/web01-{number}")
        linux.run("zfs", "destroy", "-r", f"tank/{VM}/disk{number}")
        text = text.replace(f"/dev/zvol/tank/{VM}/disk{number}", f"/dev/zvol/data/web01-{number}")
    linux.domains.add(text)
    words = f"its disks lie in pool data, and its dataset is tank/{VM}; bring the disks back below that, or zfs rename"
    assert words in refusal(linux, "ResourceNotFound", vms=[{"vm": "web01"}])
    [told] = linux.converge(WISH).problems
    assert words in told.message
    linux.run("zfs", "rename", f"tank/{VM}", f"tank/{VM}-old")
    linux.four_steps(WISH)
    settle(linux)
