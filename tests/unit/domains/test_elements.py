# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What libvirt knows of a disk beside path, target, address and serial travels with the disk."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import domain as facts
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import domain_disk
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.xml_text import Text
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from .conftest import OTHER, VM, domain, killed
from .test_in_use import disk_task, findings
from .test_vm import GONE, settle

ROOT = {"name": "root", "boot": True}
MADE = {"vm": "web01", "package": None, "image": None, "memory": 512, "vcpus": 1, "flexible_disk_size": "1GiB"}
SECRET = "0a1b2c3d-0000-4000-8000-000000000001"
PARTS = {
    "driver": "<driver name='qemu' type='raw' cache='writeback' io='threads' discard='ignore'/>",
    "readonly": "<readonly/>",
    "shareable": "<shareable/>",
    "blockio": "<blockio logical_block_size='4096' physical_block_size='4096'/>",
    "iotune": "<iotune><total_iops_sec>100</total_iops_sec><read_bytes_sec>1000</read_bytes_sec></iotune>",
    "alias": "<alias name='ua-data'/>",
    "wwn": "<wwn>5000c50015ea71ac</wwn>",
    "encryption": f"<encryption format='luks'><secret type='passphrase' uuid='{SECRET}'/></encryption>",
}


def spec(*disks, **more):
    return {"vm": "web01", "disks": [ROOT, *disks], **more}


def element(linux, name="a", uuid=VM, live=False):
    """The element of a disk in the configuration."""
    path = linux.disks(uuid)[name].path
    root = (linux.domains.lives if live else linux.domains.configs)[uuid]
    return next(
        d for d in root.findall("devices/disk") if path in (d.find("source").get("dev"), d.find("source").get("file"))
    )


def change(linux, *parts, name="a", uuid=VM, source="", top=""):
    """Write elements into a disk by hand, instead of those of their names."""
    path = linux.disks(uuid)[name].path
    root = linux.domains.configs[uuid]
    disk = next(d for d in root.findall("devices/disk") if d.find("source").get("dev") == path)
    for text in parts:
        new = ET.fromstring(text)
        for old in disk.findall(new.tag):
            disk.remove(old)
        disk.append(new)
    if source:
        disk.find("source").append(ET.fromstring(source))
    if top:
        root.append(ET.fromstring(top))


def texts(disk, names=PARTS):  # pylint: disable=dangerous-default-value
    return {name: [ET.canonicalize(ET.tostring(one), strip_text=True) for one in disk.findall(name)] for name in names}


@pytest.fixture(params=["stopped", "running"])
def full(linux, request):
    """A VM whose disk a has everything that libvirt can know."""
    linux.adopted(32)
    linux.domains.known_secrets = [SECRET]
    change(linux, *(text for name, text in PARTS.items() if name != "wwn"))
    if request.param == "running":
        linux.domains.boot(VM)
    return linux


def test_a_disk_comes_back_as_it_left(full):
    had = texts(element(full))
    done = full.four_steps(spec(unlisted="detach"))
    assert done.diff.splitlines()[2] == "  - a 32 MiB detached"
    assert full.vm().detached[0].element.format == "luks"
    full.four_steps(spec({"name": "a"}))
    assert texts(element(full)) == had
    if full.domains.lives:
        assert texts(element(full, live=True)) == had
    assert "flexdisk:element" not in full.run("zfs", "get", "all", full.disks()["a"].volume.name)


def test_a_disk_takes_it_to_another_vm(linux):
    linux.adopted(32)
    parts = {name: PARTS[name] for name in ("driver", "readonly", "blockio", "iotune", "alias")}
    change(linux, *parts.values())
    had, uuid = texts(element(linux), parts), linux.disks()["a"].uuid
    linux.four_steps(spec(unlisted="detach"))
    linux.create((64,), uuid=OTHER, name="web02")
    entry = {"vm": OTHER, "unlisted": "keep", "flexible_disk_size": "1GiB", "disks": [{"uuid": uuid, "name": "a"}]}
    linux.four_steps(entry)
    assert texts(element(linux, uuid=OTHER), parts) == had


def test_what_a_vm_lacks_is_named(linux):
    linux.adopted(32)
    change(linux, "<driver name='qemu' type='raw' iothread='2'/>", PARTS["alias"], top="<iothreads>2</iothreads>")
    uuid = linux.disks()["a"].uuid
    linux.four_steps(spec(unlisted="detach"))
    linux.create((64,), uuid=OTHER, name="web02")
    nic = linux.domains.configs[OTHER].find("devices/interface")
    nic.append(ET.fromstring("<alias name='ua-data'/>"))
    entry = {"vm": OTHER, "unlisted": "keep", "flexible_disk_size": "1GiB", "disks": [{"uuid": uuid, "name": "a"}]}
    done = linux.four_steps(entry)
    assert "without iothread 2, alias ua-data" in done.diff
    disk = element(linux, uuid=OTHER)
    assert (disk.find("driver").attrib, disk.find("alias")) == ({"name": "qemu", "type": "raw"}, None)


def test_a_disk_without_its_secret_is_not_attached(linux):
    linux.adopted(32)
    change(linux, PARTS["encryption"])
    linux.four_steps(spec(unlisted="detach"))
    refused = linux.converge(spec({"name": "a"}))
    assert [p.code for p in refused.problems] == ["ResourceNotFound"]
    assert f"no secret {SECRET}" in refused.problems[0].message
    linux.domains.known_secrets = None  # libvirt does not tell
    linux.four_steps(spec({"name": "a"}))


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("size", [16, 64])
def test_qcow2_keeps_its_size(linux, up, size):
    linux.adopted(32)
    change(linux, "<driver name='qemu' type='qcow2'/>")
    if up:
        linux.domains.boot(VM)
    declaration = spec({"name": "a", "size": size, "dangerous_allow_shrink": True})
    refused = linux.converge(declaration, allow_restart=True)
    assert [p.code for p in refused.problems] == ["NotSupported"]
    assert "qcow2" in refused.problems[0].message
    assert not linux.converge(spec({"name": "a", "size": 32})).changed
    linux.four_steps(spec(unlisted="detach"), allow_restart=True)
    assert [p.code for p in linux.converge(declaration, allow_restart=True).problems] == ["NotSupported"]
    linux.four_steps(spec({"name": "a"}), allow_restart=True)
    assert element(linux).find("driver").get("type") == "qcow2"


@pytest.mark.parametrize(("part", "why"), [("encryption", "it is encrypted"), ("readonly", "it is read-only")])
def test_what_qemu_does_not_resize_grows_only_while_the_vm_is_stopped(linux, part, why):
    linux.adopted(32)
    change(linux, PARTS[part])
    linux.domains.boot(VM)
    declaration = spec({"name": "a", "size": 64})
    refused = linux.converge(declaration)
    assert [p.code for p in refused.problems] == ["VmNotStopped"]
    assert f"{why}, so the guest" in refused.problems[0].message
    linux.four_steps(declaration, allow_restart=True)


def test_a_part_of_a_volume_grows_only_while_the_vm_is_stopped(linux):
    linux.adopted(32)
    change(linux, source="<slices><slice type='storage' offset='0' size='1048576'/></slices>")
    linux.domains.boot(VM)
    refused = linux.converge(spec({"name": "a", "size": 64}))
    assert "it is a part of its volume, so the guest" in refused.problems[0].message


@pytest.mark.parametrize("part", ["<driver name='qemu' type='qcow2'/>", PARTS["encryption"], PARTS["readonly"]])
def test_the_end_of_a_run_does_not_resize_them(linux, part):
    """After an interrupted run, guests are told the sizes of their volumes: not those of other disks."""
    linux.adopted(32)
    change(linux, part)
    linux.domains.boot(VM)
    declaration = spec({"name": "a"}, {"name": "b", "size": 16})
    killed(linux, 2, declaration)
    assert linux.vm().interrupted is not None
    linux.domains.calls.clear()
    assert linux.converge(declaration).failure is None
    resized = {arguments[1] for name, arguments in linux.domains.calls if name == "block_resize"}
    assert resized == {"vda"}


def test_a_vm_that_is_deleted_and_made_again_has_them_again(linux):
    """A mention of the path goes with the VM. A preserved disk keeps what it had."""
    linux.adopted(32)
    linux.four_steps(spec({"name": "a", "preserve": True}))
    parts = {name: PARTS[name] for name in ("driver", "iotune", "blockio")}
    change(linux, *parts.values(), top=f"<args><arg value='file={linux.disks()['a'].path}'/></args>")
    had = texts(element(linux), parts)
    settle(linux, {**GONE, "vm": VM})
    settle(linux, {**MADE, "uuid": VM, "disks": [{"name": "root", "size": 64, "boot": True}]})
    linux.four_steps(spec({"name": "a"}))
    assert texts(element(linux), parts) == had


@pytest.mark.parametrize("kind", ["file", "sparse"])
def test_a_conversion_keeps_it(linux, kind):
    linux.adopted(32)
    parts = {name: PARTS[name] for name in ("driver", "readonly", "blockio", "iotune", "alias")}
    change(linux, *parts.values())
    had = texts(element(linux), parts)
    linux.four_steps(spec({"name": "a", "type": kind}))
    assert texts(element(linux), parts) == had
    linux.four_steps(spec({"name": "a", "type": "thick"}))
    assert texts(element(linux), parts) == had


def restored(linux, *parts):
    """a is detached, lost, and restored from a backup: its properties are received ones."""
    linux.adopted(32)
    linux.domains.known_secrets = [SECRET]
    change(linux, *parts)
    had = texts(element(linux))
    linux.four_steps(spec(unlisted="detach"))
    [gone] = linux.vm().detached
    name = gone.volume.name
    linux.run("zfs", "snapshot", f"{name}@backup")
    _status, stream, _errors = linux.node.run(["zfs", "send", "-p", f"{name}@backup"], "")
    linux.run("zfs", "destroy", "-r", name)
    linux.node.run(["zfs", "receive", name], stream)
    linux.run("zfs", "destroy", f"{name}@backup")
    return name, had


@pytest.mark.parametrize("part", ["driver", "encryption", "readonly"])
def test_what_only_came_with_a_stream_is_not_guessed(linux, part):
    """A guest would see the bytes of a qcow2 disk, or could write to one that is read-only."""
    name, had = restored(linux, PARTS[part])
    uuid = linux.vm().detached[0].uuid
    back = spec({"name": "a"})
    before = linux.fingerprint()
    ways = {
        "attach": lambda check: linux.converge(back, check=check),
        "grow": lambda check: disk_task(linux, check, uuid=uuid, size="48MiB"),
        "convert": lambda check: disk_task(linux, check, uuid=uuid, type="file"),
        "copy": lambda check: disk_task(linux, check, name="b", source=uuid),
    }
    for way in ways.values():
        problems = way(True).problems
        assert [p.code for p in problems] == ["NotSupported"]
        assert f"zfs inherit flexdisk:element {name}" in problems[0].message
        assert (way(False).problems, linux.fingerprint()) == (problems, before)
    assert findings(linux, "received_property").outcome.changed
    linux.four_steps(back)
    assert texts(element(linux)) == had


def test_what_came_with_a_stream_can_be_given_up(linux):
    name, _had = restored(linux, PARTS["readonly"])
    linux.run("zfs", "inherit", "flexdisk:element", name)
    linux.four_steps(spec({"name": "a"}))
    assert element(linux).find("readonly") is None


def test_a_disk_made_anew_takes_over_all_but_the_format(linux):
    linux.adopted(32)
    change(linux, "<driver name='qemu' type='qcow2' cache='writeback'/>", PARTS["iotune"], PARTS["alias"])
    done = linux.four_steps(spec({"name": "a", "size": 32, "block_size": 65536, "recreate": True}))
    assert "without its format qcow2" in done.diff
    disk = element(linux)
    assert disk.find("driver").attrib == {"name": "qemu", "type": "raw", "cache": "writeback"}
    assert (disk.find("iotune") is not None, disk.find("alias").get("name")) == (True, "ua-data")


def test_what_cannot_be_kept_is_named(linux):
    linux.adopted(32)
    change(linux, "<unknown thing='x'/>")
    done = linux.four_steps(spec(unlisted="detach"))
    assert "  - a 32 MiB detached, without <unknown>" in done.diff.splitlines()


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (
            ["<backingStore type='block'><format type='raw'/><source dev='/dev/zvol/tank/base'/></backingStore>"],
            "<backingStore>",
        ),
        (["<driver name='qemu' type='qcow2'/>", f"<vendor>{'v' * 9000}</vendor>"], "the limit is 8191"),
    ],
)
def test_what_the_data_needs_holds_a_disk(linux, parts, text):
    linux.adopted(32)
    change(linux, *parts)
    refused = linux.converge(spec(unlisted="detach"))
    assert [p.code for p in refused.problems] == ["NotSupported"]
    assert text in refused.problems[0].message
    change(linux, "<driver name='qemu' type='raw'/>")
    if "limit" in text:
        done = linux.four_steps(spec(unlisted="detach"))
        assert "without what the hypervisor knows of it" in done.diff


# -- a serial of somebody's own


def with_serial(linux):
    """web01, whose disk disk1 has the serial MYSERIAL01, without our identity."""
    linux.create((64, 32))
    disk = linux.domains.configs[VM].findall("devices/disk")[1]
    ET.SubElement(disk, "serial").text = "MYSERIAL01"


def test_a_plan_says_which_serial_is_replaced(linux):
    with_serial(linux)
    done = linux.four_steps(spec({"name": "a", "pci_slot": "0:5:0"}, flexible_disk_size="1GiB"))
    serial = element(linux).findtext("serial")
    assert f"  ~ uuid and slot of disk0, disk1 written down, serial of disk1 MYSERIAL01 -> {serial}\n" in done.diff


def test_a_disk_that_leaves_a_running_vm_says_that_its_serial_goes(linux):
    with_serial(linux)
    linux.domains.boot(VM)
    done = linux.converge(spec(unlisted="detach", flexible_disk_size="1GiB"))
    assert (done.problems, done.failure) == ([], None)
    assert "32 MiB detached, without serial MYSERIAL01" in done.diff


# -- other places that name the path


TUNE = "<blkiotune><weight>800</weight><device><path>%s</path><weight>500</weight></device></blkiotune>"


def tuned(linux, uuid=VM):
    root = linux.domains.configs[uuid]
    return {d.findtext("path"): d.findtext("weight") for d in root.findall("blkiotune/device")}


@pytest.mark.parametrize("up", [False, True])
def test_limits_of_the_domain_follow(linux, up):
    linux.adopted(32)
    path = linux.disks()["a"].path
    change(linux, top=TUNE % path)
    if up:
        linux.domains.boot(VM)
    linux.four_steps(spec(unlisted="detach"))
    assert tuned(linux) == {}
    linux.four_steps(spec({"name": "b", "size": 16}, unlisted="detach"))
    done = linux.four_steps(spec({"name": "a"}, {"name": "b"}))
    assert ("without blkiotune until the next start" in done.diff) == up
    assert tuned(linux) == {linux.disks()["a"].path: "500"}
    assert linux.domains.configs[VM].findtext("blkiotune/weight") == "800"


def test_limits_of_the_domain_follow_an_adoption(linux):
    linux.run("zfs", "create", "tank/vms")
    linux.create((64,))
    linux.run("zfs", "rename", f"tank/{VM}/disk0", "tank/vms/x")
    old, new = f"/dev/zvol/tank/{VM}/disk0", "/dev/zvol/tank/vms/x"
    text = linux.domains.xml(VM, False).replace(old, new)
    linux.domains.add(text.replace("</domain>", f"{TUNE % new}</domain>"))
    linux.four_steps(spec(adopt=True, flexible_disk_size="1GiB"))
    assert tuned(linux) == {old: "500"}


def test_a_disk_that_becomes_a_file_has_no_limits_of_a_block_device(linux):
    """With the path of a file in <blkiotune>, no VM starts."""
    linux.adopted(32)
    change(linux, top=TUNE % linux.disks()["a"].path)
    done = linux.four_steps(spec({"name": "a", "type": "file"}))
    assert "without blkiotune, which only a block device can have" in done.diff
    assert tuned(linux) == {}


@pytest.mark.parametrize("name", ["/dev/zd16", "/dev/tank/%s/disk1", "/dev/zvol//tank/%s/disk1", "/dev/zd16p1"])
def test_limits_for_another_path_of_the_volume_are_a_refusal(linux, name):
    linux.adopted(32)
    path = name % VM if "%s" in name else name
    linux.domains.links.update({"/dev/zd16": f"tank/{VM}/disk1", "/dev/zd16p1": f"tank/{VM}/disk1"})
    change(linux, top=TUNE % path)
    for declaration in (spec(unlisted="detach"), spec(unlisted="destroy"), spec({"name": "a", "type": "file"})):
        refused = linux.converge(declaration)
        assert [p.code for p in refused.problems] == ["InUse"]
        assert f"in <path> as {path}, which would not follow" in refused.problems[0].message
    linux.four_steps(spec({"name": "a", "size": 48}))


def test_limits_for_another_path_keep_a_vm_from_adoption(linux):
    linux.run("zfs", "create", "tank/vms")
    linux.create((64,))
    linux.run("zfs", "rename", f"tank/{VM}/disk0", "tank/vms/x")
    old, new = f"/dev/zvol/tank/{VM}/disk0", "/dev/zvol/tank/vms/x"
    linux.domains.links["/dev/zd16"] = "tank/vms/x"
    text = linux.domains.xml(VM, False).replace(old, new)
    linux.domains.add(text.replace("</domain>", f"{TUNE % '/dev/zd16'}</domain>"))
    refused = linux.converge(spec(adopt=True, flexible_disk_size="1GiB"))
    assert "in <path> as /dev/zd16" in refused.problems[0].message


MENTIONS = [
    ("<os><nvram type='block'><source dev='%s'/></nvram></os>", "<source>"),
    ("<nvram>%s</nvram>", "<nvram>"),
    ("<args><arg value='file=%s,if=none'/></args>", "<arg>"),
    ("<args><arg value='file=%s-part1'/></args>", "<arg>"),
]


@pytest.mark.parametrize(("text", "message"), MENTIONS)
def test_another_mention_of_the_path_is_a_refusal(linux, text, message):
    linux.adopted(32)
    path = linux.disks()["a"].path
    change(linux, top=text % path)
    for declaration in (spec(unlisted="detach"), spec(unlisted="destroy"), spec({"name": "a", "type": "file"})):
        refused = linux.converge(declaration)
        assert [p.code for p in refused.problems] == ["InUse"]
        assert f"names {path} in {message}" in refused.problems[0].message


@pytest.mark.parametrize(("text", "message"), MENTIONS)
def test_another_mention_keeps_a_vm_from_adoption(linux, text, message):
    linux.run("zfs", "create", "tank/vms")
    linux.create((64,))
    linux.run("zfs", "rename", f"tank/{VM}/disk0", "tank/vms/x")
    old, new = f"/dev/zvol/tank/{VM}/disk0", "/dev/zvol/tank/vms/x"
    linux.domains.add(linux.domains.xml(VM, False).replace(old, new).replace("</domain>", f"{text % new}</domain>"))
    refused = linux.converge(spec(adopt=True, flexible_disk_size="1GiB"))
    assert [p.code for p in refused.problems] == ["InUse"]
    assert message in refused.problems[0].message


def test_longer_paths_and_notes_are_no_mentions(linux):
    linux.adopted(32)
    path = linux.disks()["a"].path
    change(linux, top=f"<args><arg value='{path}0'/></args>")
    change(linux, top=f"<metadata><note>{path}</note></metadata>")
    linux.four_steps(spec(unlisted="detach"))


def test_texts_and_parts():
    """Whatever is read of a disk comes back as it was, and nothing that only libvirt shows."""
    text = domain(["tank/a/disk0"]).replace(
        "<driver name='qemu' type='raw'/>",
        "<driver name='qemu' type='qcow2' queues='4' iothread='1'/><backingStore/><alias name='virtio-disk0'/>"
        "<throttlefilters><throttlefilter group='g'/></throttlefilters><vendor>a&amp;b</vendor>"
        "<encryption format='luks'><secret type='passphrase' usage='x'/></encryption>",
    )
    root = Text(text.replace("<disk type", "<disk model='virtio-transitional' type")).root
    (disk,) = facts.disks(root)
    known = domain_disk.known(root, disk, facts.path_of(disk), "")
    assert known.needs == (
        "iothread 1", "virtio option queues", "virtio model", "scsi vendor", "throttle group g", "secret x",
    )  # fmt: skip
    assert (known.format, known.claims, known.lost, known.holds) == ("qcow2", (), (), ())
    whole = domain_disk.parts(known.text)
    assert [one.partition(">")[0].split(" ")[0].rstrip("/") for one in whole.children] == [
        "<driver", "<backingStore", "<throttlefilters", "<vendor", "<encryption",
    ]  # fmt: skip
    assert (whole.attributes, "a&amp;b" in known.text) == ({"model": "virtio-transitional"}, True)
    bare = domain_disk.parts(known.text, [*known.needs, "format"])
    assert bare == ({}, {}, "", ('<driver name="qemu" type="raw"/>',), "")


@pytest.mark.parametrize(
    "text",
    [
        "<disk><backingStore type='file'><source file='/etc/shadow'/></backingStore></disk>",
        "<disk><source file='/etc/shadow'><dataStore/></source><mirror/><address/><serial>1</serial></disk>",
        "<disk><tune><path>/dev/sda</path><other>1</other></tune></disk>",
    ],
)
def test_only_known_elements_come_back(text):
    assert domain_disk.parts(text) == ({}, {}, "", (), "")


@pytest.mark.parametrize("text", ["{}", "<domain/>", "<!DOCTYPE x><disk/>"])
def test_other_texts_are_refused(text):
    with pytest.raises(FlexdiskError):
        domain_disk.parts(text)
