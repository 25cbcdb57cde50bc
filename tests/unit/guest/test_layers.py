# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What lies on a partition: what programs print of it, what it takes of the space below, and what is refused."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest import layers
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest.observed import (
    AMBIGUOUS,
    Content,
    Mount,
    parse_blkid,
    parse_findmnt,
    parse_lsblk,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.sizes import GIB, MIB

from .conftest import run

EXT = """dumpe2fs 1.47.0 (5-Feb-2023)
Filesystem features:      has_journal ext_attr resize_inode extent {}flex_bg
Filesystem state:         {}
Block count:              262144
Reserved GDT blocks:      127
Block size:               4096
Inode blocks per group:   512
"""
CRYPT = """/dev/mapper/data is active and is in use.
  type:    LUKS2
  cipher:  aes-xts-plain64
  keysize: 512 bits
  key location: {}
  device:  /dev/vdb1
  sector size:  512
  offset:  32768 sectors
  size:    2064384 sectors
  mode:    read/write
"""
BTRFS = """Label: none  uuid: 2b9e
\tTotal devices 2 FS bytes used 147456
\tdevid    1 size 1073741824 used 247463936 path /dev/vdc
\tdevid    3 size 576716800 used 92340224 path /dev/vda1
"""
XFS = """meta-data=/dev/loop0p1           isize=512    agcount=4, agsize=35200 blks
data     =                       bsize=4096   blocks=140800, imaxpct=25
log      =internal log           bsize=4096   blocks=16384, version=2
"""


def test_ext4():
    layer = layers.ext_layer("root", "/dev/vda1", EXT.format("64bit ", "clean"), 20 * GIB)
    assert (layer.size, layer.argv) == (GIB, ("resize2fs", "/dev/vda1"))
    assert layer.grown(20 * GIB) == 20 * GIB
    assert layer.grown(GIB + 15 * MIB) == GIB
    many_inodes = EXT.format("64bit ", "clean").replace("group:   512", "group:   8192")
    assert layers.ext_layer("root", "/dev/vda1", many_inodes, GIB).grown(GIB + 60 * MIB) == GIB


@pytest.mark.parametrize(
    ("features", "state", "below", "message"),
    [("64bit ", "clean with errors", GIB, "has errors"), ("", "clean", 17 * 1024 * GIB, "no feature 64bit")],
)
def test_ext4_that_cannot_grow(features, state, below, message):
    with pytest.raises(FlexdiskError, match=message):
        layers.ext_layer("root", "/dev/vda1", EXT.format(features, state), below)


def test_xfs_and_btrfs():
    xfs = layers.xfs_layer("root", "/srv", XFS)
    assert (xfs.size, xfs.argv) == (140800 * 4096, ("xfs_growfs", "/srv"))
    btrfs = layers.btrfs_layer("root", ("/dev/vda1", "/dev/mapper/x"), "/srv", BTRFS)
    assert (btrfs.size, btrfs.argv[3:]) == (576716800, ("3:max", "/srv"))


def test_a_btrfs_on_several_devices():
    message = r"/dev/vda1 has 2 devices \(/dev/vdc, /dev/vda1\); make .* run: btrfs filesystem resize 3:max MOUNT_POINT"
    with pytest.raises(FlexdiskError, match=message) as refused:
        layers.full_btrfs(("/dev/vda1", "/dev/mapper/x"), BTRFS, GIB)
    assert refused.value.code == "UnknownLayout"
    with pytest.raises(FlexdiskError, match="resize DEVID:max"):
        layers.full_btrfs(("/dev/vdd",), BTRFS, GIB)
    assert layers.full_btrfs(("/dev/vdc",), BTRFS.replace("devices 2", "devices 1"), GIB) is None


def test_a_btrfs_on_several_devices_that_has_all_of_its_own():
    layer = layers.full_btrfs(("/dev/vda1",), BTRFS, 576716800)
    assert (layer.size, layer.grown(576716800)) == (576716800, 576716800)


def test_luks():
    layer = layers.crypt_layer("data", "/dev/vdb1", CRYPT.format("dm-crypt"), False, GIB)
    assert (layer.argv, layer.secret, layer.size) == (("cryptsetup", "-q", "resize", "data"), False, 2064384 * 512)
    assert layer.grown(1024 * MIB) == layer.size
    assert layer.grown(2048 * MIB) == 2032 * MIB
    secret = layers.crypt_layer("data", "/dev/vdb1", CRYPT.format("keyring"), True, GIB)
    assert (secret.argv, secret.secret) == (("cryptsetup", "resize", "--key-file=-", "data"), True)
    assert (layer.test, secret.test[1:]) == ((), ("open", "--test-passphrase", "--key-file=-", "/dev/vdb1"))
    with pytest.raises(FlexdiskError, match="give luks_passphrase") as refused:
        layers.crypt_layer("data", "/dev/vdb1", CRYPT.format("keyring"), False, 2 * GIB)
    assert refused.value.code == "MissingParameter"


def report(kind, *rows):
    return json.dumps({"report": [{kind: list(rows)}]})


PV = {
    "pv_name": "/dev/vda3",
    "vg_name": "my-vg",
    "pv_size": str(20 * GIB),
    "pv_free": str(4 * MIB),
    "pe_start": str(MIB),
    "vg_extent_size": str(4 * MIB),
}


def lv(name, segment="linear", attributes="-wi-ao----", size=10 * GIB):
    return {"lv_name": name, "vg_name": "my-vg", "lv_size": str(size), "segtype": segment, "lv_attr": attributes}


def test_the_only_logical_volume_takes_the_space_and_another_one_by_name():
    volumes, name = layers.lvm_layers("/dev/vda3", report("pv", PV), report("lv", lv("root"), lv("root")), None)
    assert name == "my--vg-root"
    assert volumes[0].argv == ("pvresize", "/dev/vda3")
    assert volumes[1].argv == ("lvextend", "-l", "+100%FREE", "my-vg/root", "/dev/vda3")
    assert volumes[1].grown(volumes[0].grown(20 * GIB + MIB)) == 10 * GIB + 4 * MIB
    both = report("lv", lv("root"), lv("swap_1"))
    assert layers.lvm_layers("/dev/vda3", report("pv", PV), both, "root")[1] == "my--vg-root"
    alone, name = layers.lvm_layers("/dev/vda3", report("pv", PV), both, "")
    assert (len(alone), name) == (1, "")


@pytest.mark.parametrize(
    ("rows", "wanted", "code", "message"),
    [
        ([lv("root"), lv("swap_1")], None, "Ambiguous", "has the volumes root, swap_1; name one"),
        ([lv("root")], "home", "ResourceNotFound", "my-vg has no such volume; it has root"),
        ([], None, "ResourceNotFound", "it has none"),
        ([lv("root", "thin", "Vwi-aotz--")], None, "UnknownLayout", "my-vg/root is not a plain"),
        ([lv("root"), lv("root", "striped")], None, "UnknownLayout", "my-vg/root is not a plain"),
        ([lv("root", attributes="owi-aos---")], None, "UnknownLayout", "my-vg/root is not a plain"),
    ],
)
def test_refused_volumes(rows, wanted, code, message):
    with pytest.raises(FlexdiskError, match=message) as refused:
        layers.lvm_layers("/dev/vda3", report("pv", PV), report("lv", *rows), wanted)
    assert refused.value.code == code


def test_a_physical_volume_without_group():
    with pytest.raises(FlexdiskError, match="without volume group"):
        layers.lvm_layers("/dev/vda3", report("pv", {**PV, "vg_name": ""}), report("lv"), None)


def test_real_lvm_takes_the_space(new_disk, monkeypatch, tmp_path):
    """Its metadata, without the kernel's device mapper, which not every machine has."""
    folder = tmp_path / "lvm"
    folder.mkdir()
    (folder / "lvm.conf").write_text("global { activation = 0 }\ndevices { use_devicesfile = 0 }\n")
    monkeypatch.setenv("LVM_SYSTEM_DIR", str(folder))
    disk = new_disk(300)
    disk.partition("label: gpt\nsize=250MiB, type=lvm\n")
    part, group = disk.part(1), f"flexdisk-{os.getpid()}"
    run("pvcreate", "-q", part)
    run("vgcreate", "-q", group, part)
    run("lvcreate", "-q", "-an", "-Zn", "-L", "100M", "-n", "root", group)
    run("lvcreate", "-q", "-an", "-Zn", "-L", "20M", "-n", "home", group)
    disk.to_size(400)
    with pytest.raises(FlexdiskError, match="has the volumes home, root"):
        disk.grow()
    with pytest.raises(FlexdiskError, match="there should be an active logical volume, but there is nothing"):
        disk.grow(logical_volume="root")
    done = disk.grow(logical_volume="")
    assert [line.split(" 2")[0] for line in done["steps"]] == [f"~ {disk.kname}p1", f"~ physical volume {part}"]
    assert not disk.grow(logical_volume="")["changed"]

    def grown():
        shape = ("--reportformat", "json", "--units", "b", "--nosuffix", "-o")
        pvs = run("pvs", *shape, "pv_name,vg_name,pv_size,pv_free,pe_start,vg_extent_size", part)
        lvs = run("lvs", *shape, "lv_name,vg_name,lv_size,segtype,lv_attr")
        volumes, _name = layers.lvm_layers(part, pvs, lvs, "root")
        below = volumes[0].grown(int(Path(f"/sys/class/block/{disk.kname}p1/size").read_text()) * 512)
        return volumes[1], volumes[1].grown(below)

    logical, size = grown()
    assert size > logical.size
    run(*logical.argv)
    after, again = grown()
    assert after.size == again == size


def mount(target, options="rw", kind="ext4", source="/dev/vda1"):
    return Mount(source, target, kind, tuple(options.split(",")))


@pytest.mark.parametrize(
    ("mounts", "message"),
    [
        ([], "the ext4 on /dev/vda1 is not mounted"),
        ([mount("/", source="/dev/vdb1")], "is not mounted"),
        ([mount("/mnt", "ro,relatime")], "is mounted read-only at /mnt"),
        (
            [mount("/media/root-ro"), mount("/", kind="overlay", source="overlayroot")],
            "is an overlay; /dev/vda1 may be",
        ),
    ],
)
def test_refused_mounts(mounts, message):
    with pytest.raises(FlexdiskError, match=message):
        layers.chosen_mount(Content("ext4"), "/dev/vda1", "254:1", mounts)


LOWER = "rw,lowerdir=/media/root-ro,upperdir=/media/root-rw/overlay,workdir=/media/root-rw/overlay-workdir/_"


@pytest.mark.parametrize("options", [LOWER, "rw,lowerdir+=/media/root-ro,lowerdir+=/b,upperdir=/media/root-rw/overlay"])
@pytest.mark.parametrize(
    ("target", "grows"),
    [("/srv", True), ("/media/root-r", True), ("/media/root-ro", False), ("/media/root-rw", False), ("/media", False)],
)
def test_a_data_disk_beside_an_overlay_grows(options, target, grows):
    mounts = [mount(target), mount("/", options, kind="overlay", source="overlayroot")]
    if grows:
        assert layers.chosen_mount(Content("ext4"), "/dev/vda1", "254:1", mounts) == target
    else:
        with pytest.raises(FlexdiskError, match="is an overlay; /dev/vda1 may be"):
            layers.chosen_mount(Content("ext4"), "/dev/vda1", "254:1", mounts)


def test_containers_on_overlays_are_no_matter():
    mounts = [mount("/"), mount("/var/lib/docker/x", kind="overlay", source="overlay"), mount("/a/b")]
    assert layers.chosen_mount(Content("ext4"), "/dev/vda1", "254:1", mounts) == "/"


def test_a_root_that_the_kernel_calls_otherwise():
    """As in guests that boot without an initramfs."""
    mounts = [Mount("/dev/root", "/", "ext4", ("rw",), "254:1"), Mount("proc", "/proc", "proc", ("rw",), "0:21")]
    assert layers.chosen_mount(Content("ext4"), "/dev/vda1", "254:1", mounts) == "/"
    with pytest.raises(FlexdiskError, match="is not mounted"):
        layers.chosen_mount(Content("ext4"), "/dev/vda1", "", [replace(mounts[0], numbers="")])


def test_what_is_printed_is_read():
    volume = {"name": "vg-root", "kname": "dm-0", "type": "lvm", "size": 5, "serial": None}
    row = {"name": "vda", "kname": "vda", "type": "disk", "size": "1024", "serial": " ab ", "maj:min": " 254:0"}
    (disk,) = parse_lsblk(json.dumps({"blockdevices": [{**row, "children": [volume]}]}))
    assert (disk.size, disk.serial, disk.numbers, disk.above[0].kname) == (1024, "ab", "254:0", "dm-0")
    assert parse_blkid(0, "DEVNAME=/dev/x\nLABEL=a\\ b\nUUID=u\nTYPE=swap\n") == Content("swap", "u", "a b")
    assert parse_blkid(2, "") == Content()
    assert parse_blkid(8, "") == Content(AMBIGUOUS)
    row = {"source": "/dev/vda1[/sub]", "target": "/", "fstype": "btrfs", "options": "rw,x", "maj:min": "0:25"}
    (mounted,) = parse_findmnt(json.dumps({"filesystems": [row]}))
    assert mounted == Mount("/dev/vda1", "/", "btrfs", ("rw", "x"), "0:25")


@pytest.mark.parametrize(
    "read",
    [
        parse_lsblk,
        parse_findmnt,
        lambda text: parse_blkid(4, text),
        lambda text: layers.xfs_layer("a", "b", text),
        lambda text: layers.btrfs_layer("a", ("b",), "c", text),
        lambda text: layers.full_btrfs(("b",), text, 1),
        lambda text: layers.ext_layer("a", "b", text, 1),
        lambda text: layers.crypt_layer("a", "b", text, True, GIB),
        lambda text: layers.lvm_layers("a", text, text, None),
    ],
)
@pytest.mark.parametrize("text", ["", "{}", "what?", '{"blockdevices": [{}], "filesystems": [{}], "report": []}'])
def test_what_is_not_known_is_refused(read, text):
    with pytest.raises(FlexdiskError) as refused:
        read(text)
    assert refused.value.code == "UnexpectedOutput"
