# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vm_disks from end to end on a simulated node: every operation in four steps."""

from __future__ import annotations

ROOT = {"name": "root", "boot": True}


def names(sim, uuid=None):
    return {d.name: d for d in (sim.vm(uuid) if uuid else sim.vm()).disks}


def test_adopts_what_is_there(sim):
    sim.create()
    done = sim.four_steps({"vm": "web01", "disks": [ROOT, {"name": "data", "size": 2048}]})
    assert done.changed
    assert [s["step"] for s in done.vms[0]["steps"]] == ["identity", "identity"]
    assert set(names(sim)) == {"root", "data"}


def test_grows_adds_and_fills_what_remains(sim):
    sim.create()
    done = sim.four_steps(
        {
            "vm": "web01",
            "disks": [
                ROOT,
                {"name": "data", "size": "5GiB", "uuid": sim.vm().disks[1].uuid},
                {"name": "scratch", "size": "remaining"},
            ],
        }
    )
    assert done.vms[0]["allocatable"] == 0
    assert names(sim)["scratch"].size_mib == 30720 - 10240 - 5120
    assert names(sim)["scratch"].pci_slot == "0:4:2"


def test_detach_and_return_with_data(sim):
    sim.create()
    spec = {"vm": "web01", "disks": [ROOT, {"name": "data", "size": 2048, "preserve": True, "pci_slot": "0:4:3"}]}
    sim.four_steps(spec)
    sim.write(f"zones/{sim.vm().config.uuid}/disk1", 7)
    digest = sim.digest(names(sim)["data"].volume.name)
    uuid = names(sim)["data"].uuid
    done = sim.four_steps({"vm": "web01", "unlisted": "detach", "disks": [ROOT]})
    assert done.vms[0]["parked"][0]["name"] == "data"
    assert sim.digest("zones/flexdisk/" + uuid) == digest
    sim.four_steps(spec)
    assert names(sim)["data"].uuid == uuid
    assert names(sim)["data"].pci_slot == "0:4:3"
    assert sim.digest(names(sim)["data"].volume.name) == digest
    assert sim.get()["disks"][1]["uuid"] == uuid


def test_shrink_remove_destroy(sim):
    sim.create(sizes=(2048, 1024))
    sim.four_steps({"vm": "web01", "disks": [ROOT, {"name": "a", "size": 2048}, {"name": "b", "size": 1024}]})
    sim.four_steps(
        {
            "vm": "web01",
            "disks": [ROOT, {"name": "a", "size": 1024, "dangerous_allow_shrink": True}, {"name": "b", "size": 1024}],
        }
    )
    sim.run("zfs", "snapshot", names(sim)["b"].volume.name + "@s")
    refused = sim.converge({"vm": "web01", "disks": [ROOT, {"name": "a"}, {"name": "b", "state": "absent"}]})
    assert [p.code for p in refused.problems] == ["HasSnapshots"]
    sim.four_steps(
        {"vm": "web01", "disks": [ROOT, {"name": "a"}, {"name": "b", "state": "absent", "destroy_snapshots": True}]}
    )
    assert set(names(sim)) == {"root", "a"}


def test_running_vm(sim):
    sim.create(autoboot=True)
    spec = {
        "vm": "web01",
        "disks": [ROOT, {"name": "data", "size": 4096, "uuid": sim.vm().disks[1].uuid, "model": "nvme"}],
    }
    assert [p.code for p in sim.converge(spec).problems] == ["VmNotStopped"]
    done = sim.four_steps(spec, allow_restart=True)
    assert done.vms[0]["state"] == "running"
    assert sim.get()["disks"][1]["model"] == "nvme"


def test_flexible_up_and_down_with_image_disk(sim):
    from ..conftest import IMAGE

    sim.create(flexible=None)
    refused = sim.converge(
        {"vm": "web01", "disks": [ROOT, {"name": "data", "size": 4096, "uuid": sim.vm().disks[1].uuid}]}
    )
    assert [p.code for p in refused.problems] == ["VmWithoutFlexibleDiskSize"]
    sim.four_steps(
        {
            "vm": "web01",
            "flexible_disk_size": "40GiB",
            "quota": "2GiB",
            "disks": [
                ROOT,
                {"name": "data", "size": 2048, "pci_slot": "0:4:1"},
                {"name": "img", "image": IMAGE, "size": 11264},
            ],
        }
    )
    assert sim.get()["quota"] == 2
    sim.four_steps({"vm": "web01", "flexible_disk_size": 23552, "disks": [ROOT, {"name": "data"}, {"name": "img"}]})
    refused = sim.converge({"vm": "web01", "flexible_disk_size": 23551})
    assert [p.code for p in refused.problems] == ["InsufficientSpace"]


def test_remaining_and_snapshots(sim):
    sim.create()
    data, rest = {"name": "data", "size": 2048, "pci_slot": "0:4:1"}, {"name": "rest", "size": "remaining"}
    spec = {"vm": "web01", "disks": [ROOT, data, rest]}
    sim.run(
        "vmadm",
        "update",
        sim.create.__defaults__ and "cccccccc-0000-4000-8000-000000000001",
        "flexible_disk_size=20480",
    )
    sim.four_steps(spec)
    size = names(sim)["rest"].size_mib
    sim.run("zfs", "snapshot", names(sim)["rest"].volume.name + "@x")
    assert not sim.converge(spec).changed
    sim.run("zfs", "destroy", names(sim)["rest"].volume.name + "@x")
    assert not sim.converge(spec).changed
    sim.four_steps(dict(spec, flexible_disk_size=30720))
    assert names(sim)["rest"].size_mib == size + 10240


def test_drift_is_repaired(sim):
    sim.create(sizes=(2048, 1024))
    sim.run("vmadm", "update", sim.vm().config.uuid, stdin='{"remove_disks": ["%s"]}' % sim.vm().disks[2].path)
    predicted = sim.quota(check=True)
    assert predicted.changed
    assert predicted.vms[0]["cause"] == "overhead of a removed disk"
    assert sim.quota().changed
    sim.assert_lawful()
    assert not sim.quota().changed
