# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory of guests: what the driver asks for, and a fake that does what libvirt 9.0 was seen to do."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.libvirt_memory import (
    LibvirtMemory,
    not_saved,
    with_paths_of,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.xml_text import Text
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from .conftest import OTHER, VM, LinuxHost, domain

FOLDER = "/var/lib/flexdisk/memory"
FILE = f"{FOLDER}/image"


@pytest.fixture
def web(linux):
    """A guest of 64 MiB that has written three records, and a file system for its memory."""
    linux.create()
    linux.run("zfs", "create", "-o", f"mountpoint={FOLDER}", "tank/memory")
    linux.domains.boot(VM)
    for _record in range(3):
        linux.domains.write(VM)
    return linux.domains


def state(web, uuid=VM):
    return web.status(uuid).state


def restored(web):
    web.restore_memory(FILE, web.memory_xml(FILE))


def test_the_guest_goes_on_with_the_next_record(web):
    web.save_memory(VM, FILE)
    assert (state(web), web.ended_with_save(VM)) == ("stopped", True)
    restored(web)
    assert (state(web), web.ended_with_save(VM)) == ("paused", False)
    web.write(VM)  # it stands still
    assert web.records[VM] == 3
    web.resume(VM)
    web.write(VM)
    assert (state(web), web.records[VM]) == ("running", 4)


def test_a_second_restore_works_as_long_as_the_domain_does_not_run(web):
    """Nothing but this collection prevents it. Over disks that were written since, the guest is broken."""
    web.save_memory(VM, FILE)
    restored(web)
    with pytest.raises(FlexdiskError, match="already active"):
        restored(web)
    web.resume(VM)
    web.write(VM)
    web.halt(VM)
    restored(web)
    assert web.restored[0] == web.restored[1]
    with pytest.raises(AssertionError, match="does not belong to its disks"):
        web.resume(VM)


def test_a_guest_over_other_records_is_seen(web):
    """Also without an image: its memory has other records than its disks."""
    web.records[VM] = 2
    with pytest.raises(AssertionError, match="memory with 2 over disks with"):
        web.write(VM)


def test_a_lost_record_is_seen(web, linux):
    linux.run("guest", "write", f"tank/{VM}/disk0", "8K", "4K", "other")
    with pytest.raises(AssertionError, match="a record is lost"):
        web.write(VM)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("<hostdev mode='subsystem' type='pci'/>", "hostdev"),
        ("<shmem name='a'/>", "shmem"),
        ("<filesystem type='mount'/>", "filesystem"),
        ("<disk type='file'><target dev='vdq'/><mirror file='/a'/><source file='/b'/></disk>", "active block job"),
    ],
)
def test_what_is_not_saved(web, change, reason):
    """The guest goes on."""
    devices = web.lives[VM].find("devices")
    devices.append(ET.fromstring(change))
    with pytest.raises(FlexdiskError, match=reason):
        web.save_memory(VM, FILE)
    assert state(web) == "running"


def test_a_backup_is_a_block_job(web):
    web.backed_up[VM] = ["vda"]
    with pytest.raises(FlexdiskError, match="active block job"):
        web.save_memory(VM, FILE)


def test_a_stopped_guest_has_no_memory(web):
    web.halt(VM)
    with pytest.raises(FlexdiskError, match="not running"):
        web.save_memory(VM, FILE)
    with pytest.raises(FlexdiskError, match="No such file"):
        web.memory_xml(FILE)


def test_a_save_that_fails_at_its_end(web, linux):
    """No space: the guest goes on, and nothing says that it was saved."""
    linux.run("zfs", "set", "quota=1M", "tank/memory")
    with pytest.raises(FlexdiskError, match="operation failed"):
        web.save_memory(VM, FILE)
    assert (state(web), web.ended_with_save(VM)) == ("running", False)
    web.write(VM)


def test_the_daemon_ends_the_save_of_a_caller_that_was_killed(web):
    """Who looks at it meanwhile sees a guest that stands still. It does not go on before the end."""

    def kill(name, _arguments, when):
        if (name, when) == ("save_memory", "after"):
            raise KeyboardInterrupt

    web.hook = kill
    with pytest.raises(KeyboardInterrupt):
        web.save_memory(VM, FILE)
    web.hook = None
    assert state(web) == "paused"
    with pytest.raises(FlexdiskError, match="state change lock"):
        web.resume(VM)
    assert (state(web), web.ended_with_save(VM)) == ("stopped", True)


def test_a_daemon_that_is_started_again_does_not_know_how_a_run_has_ended(web):
    web.save_memory(VM, FILE)
    web.restart_daemon()
    assert (state(web), web.ended_with_save(VM)) == ("stopped", False)


@pytest.mark.parametrize("cold", ["create", "halt"])
def test_a_run_after_the_save_is_known(web, cold):
    """Of the domain's last run, nothing but its end is known."""
    web.save_memory(VM, FILE)
    web.create(VM)
    if cold == "halt":
        web.halt(VM)
    assert not web.ended_with_save(VM)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("pc-i440fx-7.2", "pc-i440fx-8.0", "os/type"),
        ("<name>web01", "<name>web02", "name"),
        ("65536", "32768", "memory"),
        ('dev="vdb"', 'dev="vdc"', "disks"),
    ],
)
def test_only_paths_may_be_others(web, old, new, reason):
    web.save_memory(VM, FILE)
    with pytest.raises(FlexdiskError, match=reason):
        web.restore_memory(FILE, web.memory_xml(FILE).replace(old, new))


def test_on_another_host_with_other_paths(web, linux):
    """The file and the disks travel as ZFS sends them. The domain is no other, and stays without a stored definition
    where nobody has defined it."""
    web.save_memory(VM, FILE)
    there = LinuxHost()
    there.run("zfs", "create", f"tank/{OTHER}")
    for name, target in ((f"tank/{VM}/disk0", "disk7"), (f"tank/{VM}/disk1", "disk1")):
        linux.run("zfs", "snapshot", f"{name}@s")
        status, stream, err = linux.node.run(["zfs", "send", f"{name}@s"], "")
        assert status == 0, err
        assert there.node.run(["zfs", "receive", f"tank/{OTHER}/{target}"], stream)[0] == 0
    linux.run("zfs", "snapshot", "tank/memory@s")
    stream = linux.node.run(["zfs", "send", "tank/memory@s"], "")[1]
    assert there.node.run(["zfs", "receive", "tank/memory"], stream)[0] == 0
    there.run("zfs", "set", f"mountpoint={FOLDER}", "tank/memory")
    domains = there.domains
    with pytest.raises(FlexdiskError, match="Could not open"):
        domains.restore_memory(FILE, web.memory_xml(FILE))
    text = domains.memory_xml(FILE).replace(f"tank/{VM}/disk0", f"tank/{OTHER}/disk7")
    domains.restore_memory(FILE, text.replace(f"tank/{VM}/disk1", f"tank/{OTHER}/disk1"))
    domains.resume(VM)
    domains.write(VM)
    assert (domains.records[VM], domains.status(VM).persistent) == (4, False)


@pytest.mark.parametrize(
    ("old", "new", "reasons"),
    [
        ("", "", []),
        ("</devices>", "<hostdev/><hostdev/></devices>", ["<hostdev>"]),
        ("</devices>", "<shmem name='a'/><tpm/></devices>", ["<shmem>", "<tpm>"]),
        ("<target dev='vdb'", "<mirror file='/a'/><target dev='vdb'", ["a block job of vdb"]),
        ("<devices>", "<cpu mode='host-passthrough'/><devices>", ["a CPU of the host (host-passthrough)"]),
        ("<devices>", "<cpu mode='custom'><model>EPYC</model></cpu><devices>", []),
        ("<devices>", "<cpu><feature name='invtsc' policy='disable'/></cpu><devices>", []),
        (
            "<devices>",
            "<cpu><feature name='invtsc'/></cpu><devices>",
            ["the CPU feature invtsc without a frequency of the TSC"],
        ),
        (
            "<devices>",
            "<cpu><feature name='invtsc'/></cpu><clock><timer name='tsc' frequency='3'/></clock><devices>",
            [],
        ),
    ],
)
def test_what_keeps_a_guest_from_being_saved(old, new, reasons):
    text = domain(["tank/a/disk0", "tank/a/disk1"]).replace(old, new, 1)
    assert not_saved(Text(text).root) == reasons


def test_a_backup_keeps_a_guest_from_being_saved(web):
    driver = LibvirtMemory(web)
    before = driver.refuses(VM)
    web.backed_up[VM] = ["vda"]
    assert driver.refuses(VM) == ["a block job (backup)", *before]


def test_disks_without_a_serial_cannot_be_told_apart(web):
    assert LibvirtMemory(web).refuses(VM) == ["the disks of the saved domain are not those of its configuration"]


SERIALS = ("a" * 20, "b" * 20)


def with_serials(text, serials=SERIALS):
    for serial in serials:
        text = text.replace("bus='virtio'/>\n    </disk>", f"bus='virtio'/><serial>{serial}</serial>\n    </disk>", 1)
    return text


def test_disks_get_the_paths_that_they_have_here():
    """Nothing else of the saved domain changes, and the order of the disks does not matter."""
    saved = with_serials(domain(["tank/a/disk0", "tank/a/disk1"]))
    stored = with_serials(domain(["pool/b/disk1", "pool/b/disk0"], machine="pc-q35-7.2"), SERIALS[::-1])
    given = with_paths_of(saved, stored)
    there = saved.replace("'/dev/zvol/tank/a/disk0'", '"/dev/zvol/pool/b/disk0"')
    assert given == there.replace("'/dev/zvol/tank/a/disk1'", '"/dev/zvol/pool/b/disk1"')
    assert with_paths_of(given, stored) == given


@pytest.mark.parametrize(
    ("saved", "stored"),
    [
        (SERIALS[:1], SERIALS),
        (SERIALS, SERIALS[:1]),
        ((SERIALS[0], SERIALS[0]), SERIALS),
        (SERIALS, (SERIALS[0], "c" * 20)),
        ((), ()),
    ],
)
def test_other_disks_are_refused(saved, stored):
    text = domain(["tank/a/disk0", "tank/a/disk1"])
    with pytest.raises(FlexdiskError, match="are not those of its configuration") as caught:
        with_paths_of(with_serials(text, saved), with_serials(text, stored))
    assert caught.value.code == "Changed"


@pytest.mark.parametrize("what", ["save", "restore", "resume"])
def test_what_libvirt_says_is_looked_at(web, what):
    """An answer without an error does not suffice."""
    driver = LibvirtMemory(web)
    for root in (web.configs[VM], web.lives[VM]):
        for disk, serial in zip(root.findall("devices/disk"), SERIALS, strict=True):
            ET.SubElement(disk, "serial").text = serial
    if what != "save":
        driver.save(VM, FILE)
    if what == "resume":
        driver.restore(VM, FILE, driver.saved_domain(VM, FILE, ()))
    setattr(web, {"resume": "resume"}.get(what, f"{what}_memory"), lambda *_arguments: None)
    calls = {
        "save": lambda: driver.save(VM, FILE),
        "restore": lambda: driver.restore(VM, FILE, driver.saved_domain(VM, FILE, ())),
        "resume": lambda: driver.resume(VM),
    }
    with pytest.raises(FlexdiskError, match="although libvirt reported no error"):
        calls[what]()


def test_a_managed_save_is_another_thing(web):
    web.save(VM)
    assert (state(web), web.ended_with_save(VM)) == ("saved", False)
