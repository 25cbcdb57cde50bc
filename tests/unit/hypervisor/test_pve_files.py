# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of Proxmox VE: read as the recorded cases have them, every byte kept, nothing else changed by an edit."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import pve_disk, pve_storage
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.pve_config import VmFile
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

CASES = Path(__file__).resolve().parents[2] / "conformance" / "data" / "proxmox"
KEPT = b"""#the owner's words, 100 %25 caf%C3%A9
#second
boot: order=virtio0
flexdisk: unknown
 cores: 2
description: third
hello world
memory:128
virtio1: size=2G,discard=on,file=local-zfs:vm-100-disk-1,backup=no
virtio0: local-zfs:vm-100-disk-0,serial=a%2Cb,size=1G\r

[pending]
delete: virtio1,!sata0
memory: 256

[special:flexdisk]
a: b

[not a name]
x: y

[s1]
#about s1
memory: 64
[s1]
memory: 32
snaptime: 1767225600
\xff\xfe"""


def recorded():
    for path in sorted(CASES.glob("*.json")):
        yield from json.loads(path.read_text())["cases"]


def texts():
    """Every file of every case."""
    for case in recorded():
        for side in ("before", "after"):
            for text in case[side].get("config", {}).values():
                if text is not None:
                    yield text.encode()


def test_every_recorded_file_keeps_its_bytes():
    files = list(texts())
    assert len(files) > 1000
    for content in files:
        assert VmFile(content).content == content


def test_every_recorded_disk_is_read():
    found = set()
    for content in texts():
        file = VmFile(content)
        for values in (file.main.values, file.pending, *file.snapshots.values()):
            for key, value in values.items():
                if pve_disk.is_disk_key(key) and "colour" not in value:
                    disk = pve_disk.parse(value)
                    found.add(pve_disk.parse_size(disk.options.get("size", "0")) is None)
                    if "file=" not in value and "iothread=1,serial" not in value:
                        assert pve_disk.render(disk) == value
    assert found == {False}


def test_what_wait_and_what_snapshots_are_called_as_the_real_program_says():
    """By `qm pending`, of the cases that were recorded with it."""
    seen = 0
    for case in recorded():
        if case["argv"][:2] == ["qm", "pending"] and case["rc"] == 0:
            file = VmFile(case["before"]["config"]["100"].encode())
            lines = [line.partition(": ")[0].split() for line in case["stdout"].splitlines()]
            assert {key for word, key in lines if word == "new"} == set(file.pending)
            assert {key for word, key in lines if word == "del"} == set(file.deletes) & set(file.main.values)
            seen += 1
    assert seen >= 2


def test_unreadable_lines_are_those_that_the_real_program_warns_of():
    """But for settings that it does not know: which it knows differs from version to version.

    Of two equal keys it drops the first without a warning.
    """
    seen = 0
    for case in recorded():
        if case["argv"][:2] in (["qm", "set"], ["qm", "config"]) and case["rc"] == 0:
            warned = re.findall(r"unable to parse config: (.*)|skipping unknown section: '(.*)'", case["stderr"])
            text = case["before"]["config"][case["argv"][2]]
            keys = re.findall(r"^(\w+):", text.partition("[")[0], re.MULTILINE)
            twice = {key for key in keys if keys.count(key) > 1}
            unreadable = [line for line in VmFile(text.encode()).unreadable if line.partition(":")[0] not in twice]
            assert unreadable == [line or f"[{section}]" for line, section in warned], case["id"]
            seen += len(warned)
    assert seen >= 3


def test_a_digest_is_that_of_the_bytes():
    cases = [case for case in recorded() if "--digest" in case["argv"] and case["rc"] == 0 and not case["stderr"]]
    assert len(cases) >= 3
    for case in cases:
        file = VmFile(case["before"]["config"]["100"].encode())
        assert file.digest == case["argv"][case["argv"].index("--digest") + 1]
    assert VmFile(b"").digest == hashlib.sha1(b"").hexdigest()


def test_one_file_with_everything():
    file = VmFile(KEPT)
    assert file.content == KEPT
    assert file.main.values["memory"] == "128"
    assert file.main.description == "the owner's words, 100 % café\nsecond\nthird"
    assert file.pending == {"memory": "256"}
    assert file.deletes == {"virtio1": False, "sata0": True}
    assert file.snapshots == {"s1": {"memory": "32", "snaptime": "1767225600"}}
    assert file.unreadable == [" cores: 2", "hello world", "[special:flexdisk]", "[not a name]", "[s1]", "\udcff\udcfe"]
    assert [section.kind for section in file.sections] == ["main", "pending", "other", "other", "snapshot", "snapshot"]


def test_an_empty_boot_order_is_a_setting():
    for content, values in ((b"boot:  \n", {"boot": ""}), (b"boot: ", {"boot": ""}), (b"boot:\n", {})):
        file = VmFile(content)
        assert file.main.values == values
        assert (file.unreadable == []) == bool(values)


def test_an_edit_changes_its_line_alone():
    file = VmFile(KEPT)
    file.set("virtio0", "local-zfs:vm-100-disk-0,size=2G")
    file.set("virtio3", "local-zfs:vm-100-disk-3")
    file.remove("virtio1")
    wanted = re.sub(rb"virtio1: size.*\n", b"", KEPT)
    wanted = re.sub(
        rb"virtio0: .*\r\n", b"virtio0: local-zfs:vm-100-disk-0,size=2G\r\nvirtio3: local-zfs:vm-100-disk-3\n", wanted
    )
    assert file.content == wanted


def test_a_setting_is_added_to_any_file():
    for content, wanted in (
        (b"", b"a: 1\n"),
        (b"b: 2", b"b: 2\na: 1\n"),
        (b"[s1]\nb: 2\n", b"a: 1\n[s1]\nb: 2\n"),
        (b"b: 2\n\n[s1]\n", b"b: 2\na: 1\n\n[s1]\n"),
    ):
        file = VmFile(content)
        file.set("a", "1")
        assert file.content == wanted
        assert VmFile(wanted).main.values["a"] == "1"


LINES = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [
            b"#x",
            b"",
            b"a\rb: c\x0bd: e\xe2\x80\xa8f: g",
            b"boot:  ",
            b"[PENDING]",
            b"[s1]",
            b"[special:cloudinit]",
            b"delete: !a,b",
            b"memory: 1",
            b"virtio0: x:y\r",
        ]
    ),
)


@given(st.lists(LINES, max_size=12), st.booleans())
def test_every_file_keeps_its_bytes(lines, ends):
    content = b"\n".join(lines) + (b"\n" if ends else b"")
    assert VmFile(content).content == content


@given(st.lists(LINES, max_size=12))
def test_what_is_set_is_read_and_taken_back(lines):
    content = b"\n".join(lines) + b"\n"
    before = VmFile(content)
    file = VmFile(content)
    file.set("virtio9", "local-zfs:vm-100-disk-9,size=1G")
    again = VmFile(file.content)
    assert again.main.values == {**before.main.values, "virtio9": "local-zfs:vm-100-disk-9,size=1G"}
    assert (again.pending, again.deletes, again.snapshots) == (before.pending, before.deletes, before.snapshots)
    file.remove("virtio9")
    assert file.content == content


BAD_DISKS = ["", "discard=on", "a:b,c", "a:b,serial=", "a:b,serial=x,serial=y", "a:b,file=c:d", "a:b,=x"]


@pytest.mark.parametrize("text", BAD_DISKS)
def test_a_value_that_is_no_disk(text):
    with pytest.raises(FlexdiskError) as caught:
        pve_disk.parse(text)
    assert caught.value.code == "UnexpectedOutput"


def test_disks():
    disk = pve_disk.parse("size=2G,discard=on,file=local-zfs:vm-100-disk-1,backup=no")
    assert (disk.volume, disk.is_path, disk.is_cdrom) == ("local-zfs:vm-100-disk-1", False, False)
    assert pve_disk.render(disk) == "local-zfs:vm-100-disk-1,backup=no,discard=on,size=2G"
    assert pve_disk.parse("none,media=cdrom").is_cdrom
    assert pve_disk.parse("/dev/zvol/rpool/x").is_path
    sizes = {"5000000001": 5000000001, "104858K": 104858 << 10, "1536M": 1536 << 20, "1T": 1 << 40, "1.5G": None}
    assert {text: pve_disk.parse_size(text) for text in sizes} == sizes


def test_keys():
    good = ["ide0", "ide3", "sata5", "scsi0", "scsi30", "virtio15"]
    bad = ["ide4", "sata6", "scsi31", "virtio16", "virtio01", "virtio", "unused0", "efidisk0", "net0", ""]
    assert [key for key in good + bad if pve_disk.is_disk_key(key)] == good
    assert [key for key in ("unused0", "unused255", "unused256", "virtio0", "") if pve_disk.is_unused_key(key)] == [
        "unused0",
        "unused255",
    ]


STORAGES = """dir: local
\tpath /var/lib/vz
\tcontent iso,vztmpl,backup

zfspool: local-zfs
\tpool rpool/data
\tcontent images,rootdir
\tsparse 1

zfspool: thick
        pool tank/vms
        blocksize 16k
        content images
        nodes pve2,pve3
        disable
"""


def test_storages():
    found = pve_storage.parse_storages(STORAGES)
    assert found["local-zfs"] == pve_storage.Storage(
        "local-zfs", "zfspool", "rpool/data", True, "", ("images", "rootdir"), (), False
    )
    assert found["thick"] == pve_storage.Storage(
        "thick", "zfspool", "tank/vms", False, "16k", ("images",), ("pve2", "pve3"), True
    )
    assert found["local"].dataset == ""
    assert found["local-zfs"].is_active("pve1")
    assert not found["thick"].is_active("pve2")
    assert not found["thick"]._replace(disabled=False).is_active("pve1")
    assert pve_storage.parse_storages("") == {}


def test_volumes():
    storages = pve_storage.parse_storages(STORAGES)
    expected = {
        "local-zfs:vm-100-disk-0": ("rpool/data/vm-100-disk-0", 100, False),
        "local-zfs:base-100-disk-0": ("rpool/data/base-100-disk-0", 100, True),
        "local-zfs:base-100-disk-0/vm-101-disk-0": ("rpool/data/vm-101-disk-0", 101, False),
        "thick:vm-9-flex-a": ("tank/vms/vm-9-flex-a", 9, False),
    }
    assert {name: tuple(pve_storage.volume(storages, name)) for name in expected} == expected


@pytest.mark.parametrize(
    "name", ["", "none", "/dev/zvol/x", "local:iso/x.iso", "nowhere:vm-1-a", "local-zfs:other", "local-zfs:x/vm-1-a",
             "local-zfs:subvol-1-disk-0", "local-zfs:vm-1-a@s", "local-zfs:vm-100-disk-0\n"]
)  # fmt: skip
def test_no_volume_of_ours(name):
    with pytest.raises(FlexdiskError) as caught:
        pve_storage.volume(pve_storage.parse_storages(STORAGES), name)
    assert caught.value.code == "InvalidArgument"
