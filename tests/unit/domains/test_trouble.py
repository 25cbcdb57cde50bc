# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is refused on libvirt, what goes wrong there, and what hot-plug can and cannot do."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_disks import converge
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_info import info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.zfs_quota import recalculate
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.libvirt_driver import Libvirt
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import serial_of
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from .conftest import DISK, OTHER, SCSI, VM, domain

ROOT = {"name": "root", "boot": True}
Q35 = {"machine": "pc-q35-7.2"}


def spec(*disks, **more):
    return {"vm": "web01", "disks": [ROOT, *disks], **more}


def codes(outcome):
    return [problem.code for problem in outcome.problems]


def up(linux, *sizes, **more):
    linux.adopted(*sizes, **more)
    linux.domains.boot(VM)


# -- the guest


def test_a_guest_that_holds_its_disk(linux):
    up(linux, 32)
    path = linux.disks()["a"].path
    linux.domains.held.add(path)
    before = (linux.domains.xml(VM, False), linux.domains.xml(VM, True))
    done = linux.converge(spec(unlisted="detach"))
    assert done.failure["error_code"] == "GuestHoldsDisk"
    assert path in done.failure["message"]
    assert (linux.domains.xml(VM, False), linux.domains.xml(VM, True)) == before
    assert linux.disks()["a"].path == path
    linux.domains.held.clear()
    linux.four_steps(spec(unlisted="detach"))


def test_the_middle_one_of_three(linux):
    up(linux, 32, 16, 8, **Q35)
    before = linux.domains.addresses(VM, True)
    gone = serial_of(linux.disks()["b"].uuid)
    linux.four_steps(spec({"name": "a"}, {"name": "c"}, unlisted="detach"))
    del before[gone]
    assert linux.domains.addresses(VM, True) == before
    linux.domains.halt(VM)
    linux.domains.boot(VM)
    assert linux.domains.addresses(VM, True) == before


def test_disks_of_one_slot_go_together_and_so_only_cold(linux):
    linux.adopted(32, 16)
    slots = [{"name": "a", "pci_slot": "0:9:0"}, {"name": "b", "pci_slot": "0:9:1"}]
    linux.four_steps(spec(*slots))
    linux.domains.boot(VM)
    refused = linux.converge(spec(slots[0], unlisted="detach"))
    assert codes(refused) == ["VmNotStopped"]
    assert "share a PCI slot" in refused.problems[0].message
    linux.four_steps(spec(slots[0], unlisted="detach"), allow_restart=True)


SHARED = [{"name": "a", "pci_slot": "0:9:0"}, {"name": "b", "pci_slot": "0:9:1"}]


@pytest.mark.parametrize(
    "declaration",
    [
        {"disks": [ROOT, {"name": "b"}], "unlisted": "detach"},
        {"disks": [ROOT, {"name": "a", "pci_slot": "0:10:0"}], "unlisted": "keep"},
        {"disks": [ROOT, {"name": "a", "model": "scsi"}, {"name": "b"}]},
    ],
    ids=["detached", "moved", "without a slot"],
)
def test_no_disk_is_left_where_no_guest_finds_it(linux, declaration):
    linux.adopted(32, 16, more=SCSI)
    linux.four_steps(spec(*SHARED))
    before = linux.fingerprint()
    refused = linux.converge({"vm": "web01", **declaration})
    assert [(p.code, p.vm, p.disk) for p in refused.problems] == [("InvalidArgument", "web01", "b")]
    assert '"0:9:1": nothing is at 0:9:0' in refused.problems[0].message
    assert linux.fingerprint() == before


def test_a_function_of_a_device_that_is_not_there(linux):
    linux.adopted(32)
    new = {"name": "b", "size": 16, "pci_slot": "0:9:1"}
    assert codes(linux.converge(spec({"name": "a"}, new))) == ["InvalidArgument"]
    linux.four_steps(spec({"name": "a", "pci_slot": "0:9:0"}, new))


def test_beside_what_is_no_disk(linux):
    """The network interface has function 0, and somebody has put a disk beside it by hand."""
    linux.adopted(32)
    old = linux.domains.xml(VM, False).replace(' slot="0x5" function="0x0"', ' slot="0x03" function="0x1"')
    linux.domains.add(old)
    assert linux.disks()["a"].pci_slot == "0:3:1"
    assert linux.four_steps(spec({"name": "a", "size": 48})).warnings == []


def test_a_disk_that_is_hidden_already_forbids_nothing_but_is_told(linux):
    linux.adopted(32, 16)
    linux.four_steps(spec(*SHARED))
    linux.domains.add(linux.domains.xml(VM, False).replace('slot="0x09" function="0x0"', 'slot="0x0a" function="0x0"'))
    done = linux.four_steps(spec({"name": "a"}, {"name": "b", "size": 32}))
    assert [w for w in done.warnings if "0:9:1" in w] == [
        "web01: b is at 0:9:1, but function 0 of that device is empty, so the guest will not find it"
    ]
    linux.four_steps(spec({"name": "a"}, {"name": "b", "pci_slot": "0:9:0"}))


def test_disks_that_shared_a_slot_come_back_to_it_together_only(linux):
    linux.adopted(32, 16)
    linux.four_steps(spec(*SHARED))
    linux.four_steps(spec(unlisted="detach"))
    linux.four_steps(spec({"name": "b"}, {"name": "a"}))
    assert [linux.disks()[name].pci_slot for name in "ab"] == ["0:9:0", "0:9:1"]
    linux.four_steps(spec(unlisted="detach"))
    linux.four_steps(spec({"name": "b"}))
    assert linux.disks()["b"].pci_slot == "0:5:0"


def test_another_function_only_cold(linux):
    up(linux, 32)
    declaration = spec({"name": "a"}, {"name": "b", "size": 16, "pci_slot": "0:%d:1" % 5})
    assert codes(linux.converge(declaration)) == ["VmNotStopped"]


def test_a_slot_asked_for_while_it_runs(linux):
    up(linux, 32, **Q35)
    linux.four_steps(spec({"name": "a"}, {"name": "b", "size": 16, "pci_slot": "6:0:0"}))
    assert linux.disks()["b"].pci_slot == "6:0:0"


def test_no_free_root_port(linux):
    up(linux, 32, machine="pc-q35-7.2", ports=3)
    declaration = spec({"name": "a"}, {"name": "b", "size": 16})
    refused = linux.converge(declaration)
    assert codes(refused) == ["VmNotStopped"]
    assert "4:0:0 is no slot for hot-plug, and none is free" in refused.problems[0].message
    linux.four_steps(declaration, allow_restart=True)
    linux.four_steps(spec({"name": "a"}, {"name": "b"}, {"name": "c", "size": 16}))
    assert linux.disks()["c"].pci_slot == "5:0:0"


def test_a_slot_without_hot_plug_though_others_are_free(linux):
    up(linux, 32, machine="pc-q35-7.2", ports=6)
    refused = linux.converge(spec({"name": "a"}, {"name": "b", "size": 16, "pci_slot": "7:0:0"}))
    assert codes(refused) == ["VmNotStopped"]
    assert "(7:0:0 is no slot for hot-plug)" in refused.problems[0].message


def test_a_disk_that_sits_at_a_slot_without_hot_plug(linux):
    linux.adopted(32, machine="pc-q35-7.2", ports=3)
    port = next(p for p in linux.domains.configs[VM].iter("controller") if p.get("index") == "3")
    port.append(port.makeelement("target", {"hotplug": "off"}))
    linux.domains.boot(VM)
    refused = linux.converge(spec(unlisted="detach"))
    assert codes(refused) == ["VmNotStopped"]
    assert "(3:0:0 is no slot for hot-plug)" in refused.problems[0].message
    linux.four_steps(spec(unlisted="detach"), allow_restart=True)


def test_a_stopped_vm_that_gets_a_disk_keeps_ports_to_spare(linux):
    linux.adopted(32, ports=4, **Q35)
    done = linux.four_steps(spec({"name": "a"}, {"name": "b", "size": 16}))
    assert "+ PCIe root ports 5 to 8" in [step["text"] for step in done.vms[0]["steps"]]
    assert linux.domains.xml(VM, False).count("pcie-root-port") == 8
    linux.domains.boot(VM)
    done = linux.four_steps(spec(*[{"name": name, "size": 16} for name in "bcdef"], {"name": "a"}))
    assert [step["step"] for step in done.vms[0]["steps"]] == ["create"] * 4
    assert linux.domains.xml(VM, False).count("pcie-root-port") == 8


def test_ports_are_added_only_for_a_disk_that_comes(linux):
    linux.adopted(32, ports=3, **Q35)
    linux.four_steps(spec({"name": "a", "size": 48}))
    linux.four_steps(spec(unlisted="detach"))
    assert linux.domains.xml(VM, False).count("pcie-root-port") == 3
    linux.four_steps(spec({"name": "a", "pci_slot": "5:0:0"}))
    assert linux.domains.xml(VM, False).count("pcie-root-port") == 7


@pytest.mark.parametrize(
    ("machine", "slot", "text"),
    [
        ({}, "0:3:0", "PCI device 3 is reserved for interface 52:54:00:aa:bb:cc"),
        ({}, "0:1:0", "PCI device 1 is reserved for the ISA bridge"),
        ({}, "1:1:0", "no PCI device 1:1 for disks"),
        (Q35, "1:0:0", "PCI device 1:0 is reserved for interface 52:54:00:aa:bb:cc"),
        (Q35, "99:0:0", "no PCI device 99:0 for disks"),
        (Q35, "3:0:0", f"belongs to /dev/zvol/tank/{VM}/disk1"),
    ],
)
def test_slots_that_are_refused(linux, machine, slot, text):
    linux.adopted(32, **machine)
    refused = linux.converge(spec({"name": "a"}, {"name": "b", "size": 16, "pci_slot": slot}))
    assert codes(refused) == ["InvalidArgument"]
    assert text in refused.problems[0].message


# -- domains that are left alone


def test_transient(linux):
    linux.create((64,))
    linux.domains.lives[VM] = linux.domains.configs.pop(VM)
    refused = linux.converge(spec())
    assert codes(refused) == ["NotSupported"]
    assert "transient" in refused.problems[0].message
    assert refused.problems[0].vm == "web01"


@pytest.mark.parametrize("transient", [True, False])
def test_a_domain_that_goes_while_all_are_read(linux, transient):
    linux.adopted(32)
    linux.domains.add(domain([], uuid=OTHER, name="web02"), transient)
    linux.domains.autostarts[OTHER] = False
    there = linux.domains.all()
    linux.domains.configs.pop(OTHER, None)
    linux.domains.lives.pop(OTHER, None)
    linux.domains.all = lambda: there
    assert [config.alias for config in linux.driver().vms()] == ["web01"]
    with pytest.raises(FlexdiskError):
        linux.driver().vm(OTHER)


def test_what_else_fails_while_all_are_read(linux):
    linux.adopted(32)

    def fail(uuid, live):
        raise FlexdiskError("LibvirtFailed", "no")

    linux.domains.xml = fail
    with pytest.raises(FlexdiskError, match="no"):
        linux.driver().vms()


def test_a_domain_that_cannot_be_understood_is_named(linux):
    linux.adopted(32)
    text = domain([], uuid=OTHER, name="web02").replace("<memory unit='KiB'>", "<memory unit='lots'>")
    linux.domains.add(text)
    with pytest.raises(FlexdiskError, match=rf"^web02 \({OTHER}\): .*'lots'") as caught:
        linux.driver().vms()
    assert caught.value.code == "UnexpectedOutput"


@pytest.mark.parametrize("state", ["paused", "suspended", "unknown", "crashed", "shutting down"])
def test_neither_running_nor_stopped(linux, state):
    up(linux, 32)
    linux.domains.states[VM] = state
    refused = linux.converge(spec({"name": "a", "size": 48}))
    assert codes(refused) == ["VmInTransition"]
    assert not linux.converge(spec({"name": "a"})).problems


def test_a_disk_that_only_runs(linux):
    up(linux, 32)
    linux.run("zfs", "create", "-V", "16M", "tank/loose")
    live = linux.domains.lives[VM]
    linux.domains.lives[VM] = type(live)("x")
    text = domain([f"tank/{VM}/disk0", f"tank/{VM}/disk1", "tank/loose"])
    linux.domains.lives[VM] = linux.domains._normal(
        __import__("xml.etree.ElementTree").etree.ElementTree.fromstring(text)
    )
    refused = linux.converge(spec({"name": "a", "size": 48}))
    assert codes(refused) == ["NotSupported"]
    assert "/dev/zvol/tank/loose" in refused.problems[0].message


CDROM = "<disk type='file' device='%s'>%s<target dev='sdz' bus='sata'/></disk>"


@pytest.mark.parametrize("media", ["cdrom", "floppy"])
def test_a_medium_that_was_put_in_while_it_runs(linux, media):
    linux.adopted(32)
    linux.domains.add(linux.domains.xml(VM, False).replace("</devices>", CDROM % (media, "") + "</devices>"))
    linux.domains.boot(VM)
    drive = linux.domains.lives[VM].find(f"devices/disk[@device='{media}']")
    drive.insert(0, drive.makeelement("source", {"file": "/iso/x.iso"}))
    assert linux.converge(spec({"name": "a", "size": 48}), check=True).problems == []
    done = linux.converge(spec({"name": "a", "size": 48}, {"name": "b", "size": 16}))
    assert (done.problems, done.failure, done.changed) == ([], None, True)
    assert drive.find("source").get("file") == "/iso/x.iso"


@pytest.mark.parametrize("bus", ["sata", "ide"])
def test_a_disk_of_another_bus_goes_only_cold(linux, bus):
    linux.adopted(32)
    linux.four_steps(spec(unlisted="detach"))
    uuid = linux.vm().detached[0].uuid
    linux.run("zfs", "create", "-V", "16M", f"tank/{VM}/disk1")
    disk = DISK.replace("vd%s", "sd%s").replace("virtio", bus) % (f"tank/{VM}/disk1", "a")
    linux.domains.add(linux.domains.xml(VM, False).replace("</devices>", disk + "</devices>"))
    linux.four_steps(spec({"name": "old", "size": 16}))
    linux.domains.boot(VM)
    linux.four_steps(spec({"name": "old", "size": 24}))
    for declaration in (spec(unlisted="detach"), spec({"name": "old", "state": "absent"})):
        refused = linux.converge(declaration, check=True)
        assert codes(refused) == ["VmNotStopped"]
        assert f"a disk of model {bus} comes and goes only while the VM is stopped" in refused.problems[0].message
    linux.four_steps(spec(unlisted="detach"), allow_restart=True)
    linux.four_steps(spec({"name": "a", "uuid": uuid}))


def test_a_volume_that_a_vm_of_another_pool_has_too(linux):
    linux.adopted(32)
    linux.domains.add(domain(["other/x", f"tank/{VM}/disk1"], uuid=OTHER, name="web02"))
    refused = converge(linux.zfs(), linux.driver(), [spec({"name": "a", "size": 48})], Policy(), "tank", True)
    assert codes(refused) == ["InUse"]


def test_two_writers(linux):
    linux.adopted(32)
    linux.domains.add(domain([f"tank/{VM}/disk1"], uuid=OTHER, name="web02"))
    refused = linux.converge(spec({"name": "a", "size": 48}))
    assert codes(refused) == ["InUse"]
    assert "web02" in refused.problems[0].message


def other(linux, disk):
    """Another domain with this disk, which runs no more."""
    text = domain([], uuid=OTHER, name="web02").replace("<interface", "<disk " + disk + "</disk><interface", 1)
    linux.domains.configs[OTHER], linux.domains.autostarts[OTHER] = ET.fromstring(text), False


@pytest.mark.parametrize(
    "source",
    [
        "type='volume' device='disk'><source pool='web' volume='disk1'/>",
        "type='volume' device='disk'><source pool='web' volume='disk1-part1'/>",
        "type='block' device='disk'><source dev='/dev/zd16'/>",
        "type='block' device='disk'><source dev='/dev/zd16p1'/>",
        "type='block' device='lun'><source dev='/dev/tank/x'/>",
        "type='file' device='disk'><source file='/dev/zd16'/>",
        f"type='block' device='disk'><source dev='/dev/zvol/tank/{VM}/disk1-part1'/>",
        f"type='block' device='disk'><source dev='/dev/zvol//tank/{VM}//disk1'/>",
        f"type='block' device='disk'><source dev='//dev/zvol/tank/{VM}/disk1'/>",
        "type='file' device='disk'><source file='/a'/><backingStore><source dev='/dev/zd16'/></backingStore>",
    ],
)
def test_two_writers_under_other_names(linux, source):
    linux.adopted(32)
    volume = f"tank/{VM}/disk1"
    linux.domains.links = dict.fromkeys(("/dev/zd16", "/dev/zd16p1", "/dev/tank/x"), volume)
    linux.domains.pools = {"web": f"/dev/zvol/tank/{VM}"}
    other(linux, source + "<target dev='vda' bus='virtio'/>")
    for live in (False, True):
        refused = linux.converge(spec({"name": "a", "size": 48}))
        assert codes(refused) == ["InUse"], live
        assert "web02" in refused.problems[0].message
        linux.domains.lives[OTHER] = linux.domains.configs[OTHER]
        linux.domains.configs[OTHER] = ET.fromstring(domain([], uuid=OTHER, name="web02"))


@pytest.mark.parametrize(
    "source",
    [
        "type='volume' device='disk'><source pool='gone' volume='disk1'/>",
        "type='volume' device='disk'><source pool='images' volume='disk1'/>",
        "type='block' device='disk'><source dev='/dev/zd32'/>",
        "type='block' device='disk'><source dev='/dev/sda'/>",
        "type='block' device='disk'><source dev=''/>",
        "type='file' device='disk'><source file='/nfs/disk1'/>",
        "type='network' device='disk'><source protocol='nbd' name='disk1'/>",
    ],
)
def test_others_are_no_writers(linux, source):
    linux.adopted(32)
    linux.domains.links = {"/dev/zd32": f"tank/{OTHER}/disk1", "/nfs/disk1": "is not asked for"}
    linux.domains.pools = {"images": "/var/lib/libvirt/images"}
    other(linux, source + "<target dev='vda' bus='virtio'/>")
    linux.four_steps(spec({"name": "a", "size": 48}))


def test_a_file_under_another_name(linux):
    path = f"/var/lib/flexdisk/{OTHER}/disk.raw"
    linux.adopted(32)
    linux.domains.pools = {"f": f"/var/lib/flexdisk/{OTHER}"}
    other(linux, "type='volume' device='disk'><source pool='f' volume='disk.raw'/><target dev='vda' bus='virtio'/>")
    result = next(config for config in linux.driver().vms() if config.uuid == OTHER)
    assert list(result.uses) == [path]


def test_what_is_recognised_is_not_looked_up(linux):
    linux.adopted(32)
    linux.domains.boot(VM)
    linux.domains.volume = linux.domains.path = None
    linux.four_steps(spec({"name": "a", "size": 48}))


def test_a_detached_disk_that_another_domain_has_open(linux):
    linux.adopted(32)
    linux.four_steps(spec(unlisted="detach"))
    volume = linux.vm().detached[0].volume.name
    linux.domains.add(domain([volume], uuid=OTHER, name="web02"))
    assert codes(linux.converge(spec({"name": "a"}))) == ["InUse"]


def test_other_disks_are_counted_and_left_alone(linux):
    linux.adopted(32)
    more = (
        "<disk type='file' device='cdrom'><target dev='sda' bus='sata'/></disk>"
        "<disk type='network' device='disk'><source protocol='nbd' name='x'/><target dev='sdb' bus='sata'/></disk>"
    )
    linux.domains.add(linux.domains.xml(VM, False).replace("</devices>", more + "</devices>"))
    assert len(linux.vm().unbacked) == 2
    linux.four_steps(spec({"name": "b", "size": 16}, unlisted="destroy"))
    assert len(linux.vm().unbacked) == 2


# -- identity


def with_serial(linux, serial, number=1):
    text = linux.domains.xml(VM, False)
    old = serial_of(linux.vm().disks[number].uuid)
    linux.domains.add(text.replace(old, serial))


def test_a_serial_that_is_anothers_refuses_what_destroys(linux):
    linux.adopted(32)
    with_serial(linux, "0123456789abcdef0123")
    uuid = linux.vm().disks[1].volume.user["uuid"]
    for declaration in (
        spec({"name": "a", "state": "absent"}),
        spec({"name": "a", "size": 16, "dangerous_allow_shrink": True}),
        spec(unlisted="detach"),
    ):
        refused = linux.converge(declaration)
        assert "IdentityMismatch" in codes(refused)
    assert linux.converge(spec({"name": "a", "description": "x"})).failure is None
    assert linux.vm().disks[1].volume.user["uuid"] == uuid, "never the other way"


@pytest.mark.parametrize("serial", ["WD-1234", ""])
def test_no_serial_of_ours_gets_it_when_stopped(linux, serial):
    linux.adopted(32)
    with_serial(linux, serial)
    linux.domains.boot(VM)
    assert not linux.converge(spec({"name": "a"})).changed
    linux.domains.halt(VM)
    done = linux.four_steps(spec({"name": "a"}))
    assert [s["step"] for s in done.vms[0]["steps"]] == ["edit"]
    assert linux.vm().config.disks[1].serial == serial_of(linux.disks()["a"].uuid)


# -- changes meanwhile


def test_a_configuration_that_others_change_meanwhile(linux):
    linux.adopted(32)

    def hook(name, arguments, when):
        if name == "zfs" and when == "before":
            linux.hook = None
            linux.domains.add(linux.domains.xml(VM, False).replace("65536", "131072"))

    linux.hook = hook
    done = linux.converge(spec({"name": "a"}, {"name": "b", "size": 16}))
    assert done.failure["error_code"] == "Changed"
    assert "131072" in linux.domains.xml(VM, False)
    linux.four_steps(spec({"name": "a"}, {"name": "b", "size": 16}))
    assert "131072" in linux.domains.xml(VM, False)


@pytest.mark.parametrize(("waits", "up"), [("detach", True), ("attach", True), ("attach", False)])
def test_a_configuration_that_others_change_while_we_wait(linux, waits, up):
    """For the guest, or for the device of a volume: a minute is long enough for virsh edit."""
    linux.adopted(32)
    if up:
        linux.domains.boot(VM)
    declaration = spec(unlisted="detach") if waits == "detach" else spec({"name": "a"}, {"name": "b", "size": 16})
    device = linux.domains.device

    def change(*ignored):
        linux.domains.hook, linux.domains.device = None, device
        linux.domains.add(linux.domains.xml(VM, False).replace("65536", "131072"))

    if waits == "attach":
        linux.domains.device = change
    else:
        linux.domains.hook = lambda name, _arguments, when: change() if (name, when) == ("detach", "after") else None
    done = linux.converge(declaration)
    assert done.failure["error_code"] == "Changed"
    assert done.failure["vm"] == "web01"
    assert "131072" in linux.domains.xml(VM, False)
    linux.four_steps(declaration)
    assert "131072" in linux.domains.xml(VM, False)


def test_nothing_says_the_password(linux):
    linux.create((64,))
    done = linux.four_steps(spec(flexible_disk_size="1GiB"))

    def fail(name, arguments, when):
        raise FlexdiskError("LibvirtFailed", "no")

    linux.domains.hook = fail
    failed = linux.converge(spec({"name": "a", "size": 16}))
    assert failed.failure is not None
    assert "secret" not in repr(done) + repr(failed)
    assert "secret" in linux.domains.xml(VM, False)


# -- power


def test_a_guest_that_shuts_down_later_is_started_by_the_next_run(linux):
    up(linux, 32)
    linux.domains.deaf.add(VM)
    declaration = spec({"name": "a", "size": 16, "dangerous_allow_shrink": True})
    assert linux.converge(declaration, allow_restart=True, stop_timeout=3).failure["restarted"] is None
    same = spec({"name": "a"})
    assert not linux.converge(same).changed
    linux.domains.deaf.clear()
    linux.domains.halt(VM)
    assert linux.converge(same).changed
    assert linux.domains.status(VM).state == "running"
    assert (linux.vm().interrupted, linux.vm().asked) == (None, None)
    assert not linux.converge(same).changed


def test_a_guest_that_does_not_shut_down(linux):
    up(linux, 32)
    linux.domains.deaf.add(VM)
    declaration = spec({"name": "a", "size": 16, "dangerous_allow_shrink": True})
    done = linux.converge(declaration, allow_restart=True, stop_timeout=3)
    assert done.failure["error_code"] == "VmNotStopped"
    assert "stop_timeout=3" in done.failure["message"]
    assert linux.domains.status(VM).state == "running"
    assert done.failure["restarted"] is None
    assert (linux.vm().interrupted, linux.vm().asked.late) == (None, True)
    assert not [call for call in linux.domains.calls if call[0] == "destroy"]
    linux.four_steps(declaration, allow_restart=True, stop_timeout=3, allow_force_stop=True)
    assert [call for call in linux.domains.calls if call[0] == "destroy"]


def test_a_guest_that_still_boots_is_asked_again(linux):
    up(linux, 32)
    linux.domains.deaf.add(VM)
    seconds = itertools.count(1)
    driver = Libvirt(
        linux.domains, linux.uri, linux.runner, lambda _s: linux.domains.deaf.clear() if next(seconds) == 20 else None
    )
    driver.stop(VM, 60, False)
    asked = [call for call in linux.domains.calls if call[0] == "shutdown"]
    assert (len(asked), next(seconds)) == (3, 32)


@pytest.mark.parametrize("autostart", [True, False])
def test_autostart_is_not_touched(linux, autostart):
    up(linux, 32)
    linux.domains.autostarts[VM] = autostart
    linux.domains.calls.clear()
    linux.four_steps(spec({"name": "a", "size": 16, "dangerous_allow_shrink": True}), allow_restart=True)
    assert linux.domains.autostarts[VM] == autostart
    assert "set_autostart" not in [name for name, _arguments in linux.domains.calls]


def test_a_grow_that_the_guest_was_not_told_of(linux):
    """A failure there leaves the intent, so that the next run tells it."""
    up(linux, 32)

    def hook(name, arguments, when):
        if name == "block_resize":
            raise FlexdiskError("LibvirtFailed", "no")

    linux.domains.hook = hook
    failed = linux.converge(spec({"name": "a", "size": 48}))
    assert failed.failure["step"].startswith("~ a")
    linux.domains.hook = None
    assert linux.converge(spec({"name": "a", "size": 48})).failure is None
    linux.assert_whole()
    assert not linux.converge(spec({"name": "a", "size": 48})).changed


def test_a_guest_never_sees_a_disk_of_no_whole_mib_shrink(linux):
    """What an interrupted run may have left untold is told anew, but not rounded down."""
    up(linux, 32)
    linux.run("zfs", "set", "volsize=%d" % ((32 << 20) + 16384), f"tank/{VM}/disk1")
    linux.domains.guest_sizes[VM, f"/dev/zvol/tank/{VM}/disk1"] = (32 << 20) + 16384

    def hook(name, arguments, when):
        if name == "block_resize":
            raise FlexdiskError("LibvirtFailed", "no")

    linux.domains.hook = hook
    assert linux.converge(spec({"name": "a"}, quota="2MiB")).failure is None
    assert linux.converge({"vm": VM, "unlisted": "keep", "disks": [{"name": "root", "size": 80}]}).failure is not None
    linux.domains.hook = None
    assert linux.converge({"vm": VM, "unlisted": "keep", "disks": [{"name": "root", "size": 80}]}).failure is None
    assert linux.domains.guest_sizes[VM, f"/dev/zvol/tank/{VM}/disk0"] == 80 << 20


# -- models


def test_scsi(linux):
    up(linux, 32, more=SCSI)
    linux.four_steps(spec({"name": "a"}, {"name": "b", "size": 16, "model": "scsi"}))
    assert linux.disks()["b"].pci_slot == ""
    linux.four_steps(spec({"name": "a"}, {"name": "b", "size": 24}))
    linux.four_steps(spec({"name": "a", "model": "scsi"}, {"name": "b", "model": "virtio"}), allow_restart=True)
    slots = {name: (d.model, bool(d.pci_slot)) for name, d in linux.disks().items()}
    assert slots == {"root": ("virtio", True), "a": ("scsi", False), "b": ("virtio", True)}
    linux.four_steps(spec({"name": "b"}, unlisted="detach"))


def test_two_disks_become_scsi_in_one_task(linux):
    linux.adopted(32, 16, more=SCSI)
    linux.four_steps(spec({"name": "a", "model": "scsi"}, {"name": "b", "model": "scsi"}))
    assert [linux.disks()[name].model for name in "ab"] == ["scsi", "scsi"]
    linux.four_steps(spec({"name": "a", "model": "virtio"}, {"name": "b"}, {"name": "c", "size": 8, "model": "scsi"}))
    assert sorted(t.get("dev") for t in linux.domains.configs[VM].iter("target") if t.get("bus") == "scsi") == [
        "sdb",
        "sdc",
    ]


@pytest.mark.parametrize("before", [True, False])
def test_the_boot_disk_becomes_scsi_and_boots_still(linux, before):
    """Without a boot order it is the first of its bus by name that boots."""
    linux.adopted(32, more=SCSI)
    data = {"name": "a", "model": "scsi"}
    if before:
        linux.four_steps(spec(data))
    linux.four_steps({"vm": VM, "disks": [data, {"name": "root", "model": "scsi"}]})
    assert [(d.name, d.model) for d in linux.vm().disks if d.boot] == [("root", "scsi")]


LSILOGIC = """    <controller type='scsi' index='0' model='lsilogic'/>
    <controller type='scsi' index='1' model='virtio-scsi'/>
    <hostdev mode='subsystem' type='scsi'>
      <address type='drive' controller='1' bus='0' target='0' unit='1'/>
    </hostdev>"""


def units(linux, live=False):
    """Of disks at virtio-scsi: controller, bus, target and unit by name of the device."""
    root = (linux.domains.lives if live else linux.domains.configs)[VM]
    disks = [d for d in root.iter("disk") if d.find("target").get("bus") == "scsi"]
    places = ("controller", "bus", "target", "unit")
    return {d.find("target").get("dev"): "".join(d.find("address").get(p) for p in places) for d in disks}


def test_scsi_disks_go_where_the_controller_is_that_they_need(linux):
    linux.adopted(32, 16, more=LSILOGIC)
    linux.four_steps(spec({"name": "a", "model": "scsi"}, {"name": "b", "model": "scsi"}))
    assert units(linux) == {"sda": "1000", "sdb": "1002"}
    linux.domains.boot(VM)
    linux.four_steps(spec({"name": "a"}, {"name": "b"}, {"name": "c", "size": 8, "model": "scsi"}))
    assert units(linux) == units(linux, True) == {"sda": "1000", "sdb": "1002", "sdc": "1003"}


def test_scsi_where_there_is_no_controller(linux):
    linux.adopted(32)
    refused = linux.converge(spec({"name": "a"}, {"name": "b", "size": 16, "model": "scsi"}))
    assert codes(refused) == ["InvalidArgument"]
    refused = linux.converge(spec({"name": "a"}, {"name": "b", "size": 16, "model": "nvme"}))
    assert codes(refused) == ["InvalidArgument"]


def test_a_scsi_disk_has_no_slot_to_ask_for(linux):
    linux.adopted(32, more=SCSI)
    refused = linux.converge(spec({"name": "a"}, {"name": "b", "size": 16, "model": "scsi", "pci_slot": "0:9:0"}))
    assert "model scsi has no pci_slot" in refused.problems[0].message


# -- the boot disk


def test_another_boot_disk(linux):
    linux.adopted(32)
    linux.four_steps({"vm": VM, "disks": [{"name": "root", "boot": False}, {"name": "a", "boot": True}]})
    assert [d.boot for d in linux.vm().disks] == [False, True]
    linux.domains.create(VM)


def test_another_boot_disk_where_types_of_devices_are_booted_from(linux):
    linux.adopted(32)
    by_type = '<boot dev="network" /><boot dev="hd" />'
    linux.domains.add(linux.domains.xml(VM, False).replace('<boot dev="hd" />', by_type))
    linux.domains.boot(VM)
    linux.domains.calls.clear()
    declaration = {"vm": VM, "disks": [{"name": "root", "boot": False}, {"name": "a", "boot": True}]}
    before = linux.fingerprint()
    for check in (True, False):
        [problem] = linux.converge(declaration, check=check, allow_restart=True).problems
        assert (problem.code, problem.disk) == ("NotSupported", "a")
        assert VM in problem.vm
        assert "network, hd" in problem.message
    assert (linux.fingerprint(), linux.domains.calls) == (before, [])
    linux.four_steps(spec({"name": "a", "size": 48, "boot": False}, {"name": "b", "size": 16}))


def test_a_new_disk_is_no_boot_disk_before_it_is_there(linux):
    """For a moment no disk would be the boot disk, which libvirt does not know."""
    linux.adopted(32)
    new = {"name": "b", "size": 16}
    wanted = {"vm": VM, "disks": [{"name": "root", "boot": False}, {"name": "a"}, {**new, "boot": True}]}
    for check in (True, False):
        refused = linux.converge(wanted, check=check)
        assert [(p.code, p.disk) for p in refused.problems] == [("NotSupported", "b")]
    linux.four_steps(spec({"name": "a"}, new))
    linux.four_steps(wanted)


def test_the_boot_disk_stays(linux):
    up(linux, 32)
    refused = linux.converge({"vm": VM, "disks": [{"name": "a"}, {"name": "root", "state": "absent"}]})
    assert "the boot disk cannot be removed" in [p.message for p in refused.problems]


# -- from one VM to another


def test_a_preserved_disk_goes_from_one_running_vm_to_another(linux):
    up(linux, 32)
    linux.create((64,), uuid=OTHER, name="web02", **Q35)
    linux.domains.boot(OTHER)
    disk = linux.disks()["a"]
    linux.run("guest", "write", disk.volume.name, "0", "8", "5")
    digest = linux.run("guest", "hash", disk.volume.name)
    linux.four_steps(spec(unlisted="detach"))
    linux.four_steps({"vm": "web02", "flexible_disk_size": "1GiB", "disks": [ROOT, {"name": "a", "uuid": disk.uuid}]})
    arrived = linux.disks(OTHER)["a"]
    assert linux.run("guest", "hash", arrived.volume.name) == digest
    assert serial_of(disk.uuid) in linux.domains.addresses(OTHER, True)


# -- bhyve: everything cold, one function


def bhyve(linux):
    linux.uri = "bhyve:///system"
    linux.run("zfs", "create", f"tank/{VM}")
    linux.run("zfs", "create", "-V", "64M", f"tank/{VM}/disk0")
    disk = (DISK % (f"tank/{VM}/disk0", "a")).replace("type='block'", "type='file'").replace("dev='/dev", "file='/dev")
    text = domain([]).replace("type='kvm'", "type='bhyve'").replace("<driver name='qemu' type='raw'/>", "")
    linux.domains.add(text.replace("<graphics", disk + "<graphics"))


def test_bhyve_is_changed_only_stopped(linux):
    bhyve(linux)
    linux.four_steps(spec({"name": "a", "size": 16}, flexible_disk_size="1GiB"))
    linux.domains.boot(VM)
    for declaration in (
        spec({"name": "a", "size": 24}),
        spec({"name": "a"}, {"name": "b", "size": 8}),
        spec(unlisted="detach"),
    ):
        assert codes(linux.converge(declaration)) == ["VmNotStopped"]
        linux.four_steps(declaration, allow_restart=True)
    assert not [n for n, _a in linux.domains.calls if n in ("attach", "detach", "block_resize")]
    refused = linux.converge(spec({"name": "b", "size": 8, "pci_slot": "0:9:1"}))
    assert "1 function" in refused.problems[0].message


# -- odds and ends


def test_a_guest_that_lets_go_too_late(linux):
    up(linux, 32)
    path = linux.disks()["a"].path
    linux.domains.held.add(path)
    assert linux.converge(spec(unlisted="detach")).failure["error_code"] == "GuestHoldsDisk"
    live = linux.domains.lives[VM].find("devices")
    live.remove(next(d for d in live.findall("disk") if d.find("source").get("dev") == path))
    outcome = linux.converge(spec({"name": "a"}))
    assert any("after its next start" in warning and path in warning for warning in outcome.warnings)
    linux.four_steps(spec(unlisted="detach"))


def test_the_quota_of_a_vm_that_was_never_declared_is_left_alone(linux):
    linux.create((64,))
    outcome, skipped = recalculate(Zfs(linux.runner), linux.driver(), None, None, False, False)
    assert (outcome.changed, outcome.problems) == (False, [])
    assert [one["reason"] for one in skipped] == ["it has no quota yet; vm_disks sets one"]


def test_drift_is_repaired(linux):
    up(linux, 32)
    linux.run("zfs", "set", "quota=5G", f"tank/{VM}")
    outcome, _skipped = recalculate(Zfs(linux.runner), linux.driver(), None, None, False, False)
    assert outcome.changed
    linux.assert_whole()


def test_the_space_of_syncs_stays(linux):
    """Here nobody computes a quota without it, so the snapshots stay, too."""
    up(linux, 32)
    disk = linux.vm().disks[1].volume.name
    linux.run("zfs", "snapshot", f"{disk}@flexdisk-sync-0000002a-1")
    linux.run("zfs", "set", f"flexdisk:replicas.space={7 << 20}", f"tank/{VM}")
    linux.four_steps(spec({"name": "a", "size": 48}, flexible_disk_size="2GiB", quota="4MiB"))
    vm = linux.vm()
    assert [len(one.snapshots) for one in vm.disks] == [0, 1]
    law = space.quota_law(4 << 20, 2 << 30, vm.volumes, linux.host().geometry["tank"])
    assert vm.root.quota == vm.root.reservation == law + (7 << 20)


def test_vm_info(linux):
    linux.adopted(32)
    linux.domains.add(domain(["tank/vms/x"], uuid=OTHER, name="web02"))
    result = info(Zfs(linux.runner), linux.driver(), None, None, True)
    assert [vm["alias"] for vm in result.vms] == ["web01"]
    [reason] = [one["reason"] for one in result.skipped]
    assert reason.startswith(f"not adopted: it has no dataset tank/{OTHER}, and adopt: true makes none")
    assert result.vms[0]["allocatable"] == 1024 - 64 - 32
