# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the hypervisor says and what ZFS says, as one picture."""

from __future__ import annotations

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import DiskConfig, VmConfig
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.inventory import link
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.layout import (
    container,
    image_of,
    index_of,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.reservation import PoolGeometry
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.slots import SMARTOS

MIB = 1 << 20
U1 = "cccccccc-0000-4000-8000-000000000001"
U2 = "cccccccc-0000-4000-8000-000000000002"
D1 = "dddddddd-0000-4000-8000-000000000001"
D2 = "dddddddd-0000-4000-8000-000000000002"
IMAGE = "aaaaaaaa-0000-4000-8000-000000000001"
ZVOL = "/dev/zvol/rdsk/"
GEOMETRY = {"zones": PoolGeometry((), "classic")}


def config(uuid=U1, disks=(), brand="bhyve", **more):
    return VmConfig(
        uuid, "web", brand, "stopped", False, "zones", "zones/" + uuid, None, tuple(disks), pci=SMARTOS, **more
    )


def entry(volume, **more):
    return DiskConfig(ZVOL + volume, volume, **more)


def fs(name, **more):
    return Dataset(name, "filesystem", **more)


def vol(name, user=None, **more):
    return Dataset(name, "volume", volsize=64 * MIB, user=user or {}, **more)


def run(configs, *datasets):
    return link(configs, [fs("zones", available=77), *datasets], GEOMETRY, "bhyve")


def test_names():
    assert container("tank") == "tank/flexdisk"
    assert [index_of(n) for n in ("zones/u/disk7", "/dev/zvol/rdsk/zones/u/disk12", "zones/u/data1", "disk3", "")] == [
        7, 12, 0, 0, 0,
    ]  # fmt: skip
    assert image_of(f"zones/{IMAGE}@final") == IMAGE
    assert image_of("zones/base@final") == image_of("") == ""


def test_attached_disks_in_the_order_of_their_indexes():
    root = "zones/" + U1
    disks = [entry(root + "/disk10"), entry(root + "/disk2"), entry(root + "/disk0", boot=True)]
    host = run([config(disks=disks)], fs(root), *(vol(e.volume) for e in disks))
    assert [d.index for d in host.vms[0].disks] == [0, 2, 10]
    assert host.available("zones") == 77


def test_the_hypervisors_word_wins_over_the_copy():
    name = f"zones/{U1}/disk1"
    copy = {"uuid": D2, "slot": "0:4:5", "model": "nvme", "boot": "true", "name": "a", "preserve": "true"}
    known = entry(name, uuid=D1, pci_slot="4:1", model="virtio", boot=False)
    disk = run([config(disks=[known])], fs("zones/" + U1), vol(name, copy)).vms[0].disks[0]
    assert (disk.uuid, disk.pci_slot, disk.model, disk.boot) == (D1, "0:4:1", "virtio", False)
    assert (disk.name, disk.preserve, disk.disowned) == ("a", True, True)


def test_without_the_hypervisors_uuid_the_copy_counts():
    name = f"zones/{U1}/disk1"
    disk = run([config(disks=[entry(name)])], fs("zones/" + U1), vol(name, {"uuid": D2})).vms[0].disks[0]
    assert (disk.uuid, disk.disowned, disk.adopted) == (D2, False, True)


def test_junk_in_properties_is_dropped():
    name = f"zones/{U1}/disk1"
    junk = {"uuid": "x", "name": "a/b", "tags": "[", "preserve": "yes", "description": "%zz"}
    disk = run([config(disks=[entry(name, uuid=D1)])], fs("zones/" + U1), vol(name, junk)).vms[0].disks[0]
    assert (disk.uuid, disk.name) == (D1, "")
    assert disk.user_properties == {"preserve": False, "description": "%zz", "tags": {}}


def test_absent_slots_are_the_legacy_positions():
    root = "zones/" + U1
    disks = [entry(root + "/disk0", boot=True), entry(root + "/disk1"), DiskConfig("/x.iso", media="cdrom")]
    vm = run(
        [config(disks=[*disks, entry(root + "/disk2", pci_slot="junk")])],
        fs(root),
        *(vol(root + "/disk%d" % n) for n in range(3)),
    ).vms[0]
    assert [d.pci_slot for d in vm.disks] == ["0:4:0", "0:5:0", "0:5:1"]
    assert [e.pci_slot for e in vm.config.disks] == ["", "", "", "junk"]


def test_what_is_no_disk():
    root = "zones/" + U1
    disks = [entry(root + "/gone"), DiskConfig("/x.iso", media="cdrom"), DiskConfig("/file.img")]
    vm = run([config(disks=disks)], fs(root), vol(root + "/stray"), fs(root + "/data", used=5)).vms[0]
    assert vm.disks == ()
    assert vm.missing == (ZVOL + root + "/gone",)
    assert (len(vm.unbacked), vm.other_used) == (2, 5)
    assert [d.volume.name for d in vm.orphans] == [root + "/stray"]


def test_deep_volumes_count_once():
    root = "zones/" + U1
    vm = run([config()], fs(root), fs(root + "/data", used=100), vol(root + "/data/deep", used=64)).vms[0]
    assert [d.volume.name for d in vm.orphans] == [root + "/data/deep"]
    assert vm.other_used == 36


def test_a_file_system_under_a_disks_path_is_not_its_disk():
    root = "zones/" + U1
    vm = run([config(disks=[entry(root + "/disk1")])], fs(root), fs(root + "/disk1")).vms[0]
    assert (vm.disks, vm.missing) == ((), (ZVOL + root + "/disk1",))


def test_snapshots_in_order_and_the_guard_apart():
    name = f"zones/{U1}/disk1"
    made = (("b", 9), ("flexdisk-guard", 8), ("a", 3))
    snaps = [Dataset(f"{name}@{short}", "snapshot", createtxg=txg) for short, txg in made]
    disk = run([config(disks=[entry(name)])], fs("zones/" + U1), vol(name), *snaps).vms[0].disks[0]
    assert [s.name[-1] for s in disk.snapshots] == ["a", "b"]
    assert disk.guarded


def test_detached_disks_know_whose_they_were():
    facts = {"uuid": D1, "vm": U1, "name": "a", "slot": "4:3", "index": "3", "boot": "false", "model": "nvme"}
    host = run(
        [config(), config(U2)], fs("zones/" + U1), fs("zones/" + U2), fs("zones/flexdisk"),
        vol("zones/flexdisk/" + D1, facts), vol("zones/flexdisk/x", {"vm": "junk"}), fs("zones/flexdisk/fs"),
    )  # fmt: skip
    assert [[d.name for d in vm.detached] for vm in host.vms] == [["a"], []]
    disk = host.vms[0].detached[0]
    assert (disk.pci_slot, disk.index, disk.model, disk.detached, disk.path) == ("0:4:3", 3, "nvme", True, "")
    assert sorted(d.vm for d in host.detached) == ["", U1]


def test_images_set_a_limit():
    origin = f"zones/{IMAGE}@final"
    snapshot = Dataset(origin, "snapshot", volsize=10 * MIB)
    name = f"zones/{U1}/disk0"
    detached = vol("zones/flexdisk/" + D1, {"vm": U1, "uuid": D1}, origin=origin)
    vm = run([config(disks=[entry(name)])], fs("zones/" + U1), vol(name, origin=origin), detached, snapshot).vms[0]
    assert [(d.image, d.image_size) for d in vm.disks + vm.detached] == [(IMAGE, 10)] * 2


def test_ghosts():
    """A path whose volume was detached, and the configuration was not told."""
    path = f"zones/{U1}/disk1"
    detached = vol("zones/flexdisk/" + D1, {"vm": U1, "uuid": D1})
    vm = run([config(disks=[entry(path, uuid=D1)])], fs("zones/" + U1), detached).vms[0]
    assert vm.ghosts == vm.missing == (ZVOL + path,)
    vm = run([config(disks=[entry(path, uuid=D2)])], fs("zones/" + U1), detached).vms[0]
    assert (vm.ghosts, vm.missing) == ((), (ZVOL + path,))


def test_other_brands_and_lost_datasets():
    host = run([config(brand="kvm"), config(U2)], fs("zones/" + U1))
    assert (host.vms, len(host.other_brands), len(host.unlinked)) == ((), 1, 1)


def test_one_uuid_on_two_volumes():
    name = f"zones/{U1}/disk1"
    detached = vol("zones/flexdisk/" + D1, {"uuid": D1})
    host = run([config(disks=[entry(name, uuid=D1)])], fs("zones/" + U1), vol(name), detached)
    assert {u: sorted(n) for u, n in host.duplicates.items()} == {D1: [name, "zones/flexdisk/" + D1]}
