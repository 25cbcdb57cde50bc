# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of datasets: what is built is what is understood."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import Disk
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import identity, layout

VM = "cccccccc-0000-4000-8000-000000000001"
DISK = "dddddddd-0000-4000-8000-000000000001"
IMAGE = "aaaaaaaa-0000-4000-8000-000000000001"


@pytest.mark.parametrize("index", [0, 1, 10, 99999])
def test_an_index_is_read_as_it_is_written(index):
    assert layout.index_of(layout.disk_dataset("zones/" + VM, index)) == index


def test_a_name_without_an_index_has_index_0():
    assert layout.index_of(f"zones/{VM}/data") == layout.index_of("zones/disk7x") == 0
    assert layout.index_of(f"zones/{VM}/vm-100-disk-5") == 0


def test_places():
    assert layout.vm_dataset("zones", VM) == "zones/" + VM
    assert layout.disk_dataset("zones/" + VM, 3) == f"zones/{VM}/disk3"
    assert layout.container("zones") == "zones/flexdisk"
    assert layout.detached_dataset("zones", DISK) == "zones/flexdisk/" + DISK
    assert layout.copy_place("zones/flexdisk/" + DISK) == f"zones/flexdisk/{DISK}.copy"
    assert layout.final(layout.image_dataset("zones", IMAGE)) == f"zones/{IMAGE}@final"


def test_an_image_is_found_in_the_origin_of_its_clones():
    assert layout.image_of(layout.final(layout.image_dataset("zones", IMAGE))) == IMAGE
    assert layout.image_of("zones/other@final") == layout.image_of("") == ""


def test_a_vm_is_found_directly_below_a_pool():
    names = ["zones", "zones/a/" + VM, "tank/" + VM, "data/" + VM, "data/x" + VM]
    assert layout.find_vm_dataset(VM, names) == "data/" + VM
    assert layout.find_vm_dataset(VM, names[:2]) == ""
    assert (layout.pool_of("data/" + VM), layout.pool_of("")) == ("data", "")


def test_a_disk_is_detached_to_the_place_of_its_uuid():
    volume = Dataset(f"zones/{VM}/disk0", "volume", guid=42)
    assert layout.detached_place(Disk(volume=volume, vm=VM, index=0, uuid=DISK)) == "zones/flexdisk/" + DISK
    assert layout.detached_place(Disk(volume=volume, vm=VM, index=0)) == "zones/flexdisk/" + identity.uuid_of(42)


def test_below_is_not_beside():
    assert layout.is_below("zones/a/b/c", "zones/a")
    assert not layout.is_below("zones/ab", "zones/a")
    assert not layout.is_below("zones/a", "zones/a")


def test_half_of_a_conversion_needs_mark_uuid_and_place():
    whole = Dataset(f"zones/{VM}/disk0", "volume", guid=42, user={"uuid": DISK})
    user = {"from": "42", "uuid": DISK}
    place = layout.detached_dataset("zones", DISK)
    assert layout.is_partial_copy(whole, Dataset(place, "filesystem", user=user))
    assert layout.is_partial_copy(whole, Dataset(layout.copy_place(place), "filesystem", user=user))
    assert not layout.is_partial_copy(whole, Dataset(place + "x", "filesystem", user=user))
    assert not layout.is_partial_copy(whole, Dataset(place, "filesystem", user={**user, "from": "43"}))
    assert not layout.is_partial_copy(whole, Dataset(place, "filesystem", user={**user, "uuid": VM}))


def test_pools_that_are_in_use_have_a_container_or_a_vm():
    uuid = "cccccccc-0000-4000-8000-000000000001"
    names = ["a", "a/flexdisk", "b", f"b/{uuid}", f"c/x/{uuid}", "d/flexdisk/x", "e/home", "f/flexdisk2"]
    assert layout.pools_in_use(names) == ["a", "b"]
