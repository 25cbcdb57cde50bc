# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""LUKS on the whole disk, LVM in it, ext4 on that, by programs that are played: what each layer is told."""

from __future__ import annotations

import json

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.guest.guest_grow import grow
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.sizes import GIB, MIB

HEADER = 16 * MIB
EXTENT = 4 * MIB


class Played:
    """A guest whose programs do what the real ones do to the sizes, in bytes. It is killed after some changes."""

    def __init__(self):
        self.disk, self.crypt = 50 * GIB, 20 * GIB - HEADER
        self.pv = self.lv = self.fs = (self.crypt - MIB) // EXTENT * EXTENT
        self.active, self.integrity = self.lv, ""
        self.keyring, self.open, self.told, self.tested, self.left = True, True, [], [], 99

    def __call__(self, argv, stdin="", timeout=0):
        verbs = [word for word in argv if word in ("status", "resize", "open", "luksDump")]
        name = " ".join((argv[0], *verbs[: argv[0] == "cryptsetup"]))
        if name == "cryptsetup open":
            self.tested.append((argv, stdin))
            return Answer(0 if stdin == "a passphrase" else 2, "", "No key available with this passphrase.")
        play = getattr(self, name.replace(" ", "_"))
        if name in ("cryptsetup resize", "pvresize", "lvextend", "lvchange", "resize2fs"):
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            self.told.append((argv, stdin))
            play()
            return Answer(0, "", "")
        text = play(argv)
        return text if isinstance(text, Answer) else Answer(0, text, "")

    def blockdev(self, _argv):
        return ""

    def sfdisk(self, _argv):
        return Answer(1, "", "does not contain a recognized partition table")

    def lsblk(self, _argv):
        volume = {"name": "my--vg-srv", "kname": "dm-1", "type": "lvm", "size": self.active}
        crypt = {"name": "data", "kname": "dm-0", "type": "crypt", "size": self.crypt, "children": [volume]}
        above = [crypt] if self.open else []
        return json.dumps(
            {"blockdevices": [{"name": "vdb", "kname": "vdb", "type": "disk", "size": self.disk, "children": above}]}
        )

    def blkid(self, argv):
        return {"/dev/vdb": "TYPE=crypto_LUKS\n", "/dev/dm-0": "TYPE=LVM2_member\n", "/dev/dm-1": "TYPE=ext4\n"}[
            argv[-1]
        ]

    def cryptsetup_luksDump(self, _argv):
        return f"Data segments:\n  0: crypt\n\tcipher: aes-xts-plain64\n{self.integrity}\nKeyslots:\n"

    def cryptsetup_status(self, _argv):
        key = "  key location: keyring\n" if self.keyring else ""
        return f"{key}  offset:  {HEADER // 512} sectors\n  size:    {self.crypt // 512} sectors\n"

    def cryptsetup_resize(self):
        self.crypt = self.disk - HEADER

    def pvs(self, _argv):
        row = {"pv_name": "/dev/mapper/data", "vg_name": "my-vg", "pv_size": str(self.pv)}
        more = {"pv_free": str(self.pv - self.lv), "pe_start": str(MIB), "vg_extent_size": str(EXTENT)}
        return json.dumps({"report": [{"pv": [{**row, **more}]}]})

    def lvs(self, _argv):
        row = {"lv_name": "srv", "vg_name": "my-vg", "lv_size": str(self.lv), "segtype": "linear", "lv_attr": "-wi-ao"}
        return json.dumps({"report": [{"lv": [row]}]})

    def pvresize(self):
        self.pv = (self.crypt - MIB) // EXTENT * EXTENT

    def lvextend(self):
        assert self.pv > self.lv, "lvextend fails without free extents"
        self.lv = self.active = self.pv

    def lvchange(self):
        self.active = self.lv

    def findmnt(self, _argv):
        mount = {"source": "/dev/dm-1", "target": "/srv", "fstype": "ext4", "options": "rw"}
        return json.dumps({"filesystems": [mount]})

    def dumpe2fs(self, _argv):
        return f"Filesystem features: 64bit\nBlock count: {self.fs // 4096}\nBlock size: 4096\n"

    def resize2fs(self):
        self.fs = self.active


def growth_of(guest, passphrase="a passphrase", *, check_mode=False, root="/nowhere"):
    params = {"logical_volume": None, "luks_passphrase": passphrase, "backup_dir": "/nowhere"}
    return grow(guest, "vdb", params, check_mode, root)


COMMANDS = [
    ("cryptsetup", "resize", "--key-file=-", "data"),
    ("pvresize", "/dev/mapper/data"),
    ("lvextend", "-l", "+100%FREE", "my-vg/srv", "/dev/mapper/data"),
    ("resize2fs", "/dev/dm-1"),
]


def test_each_layer_takes_the_space_of_the_one_below():
    guest = Played()
    done = growth_of(guest)
    assert guest.told == [(argv, "a passphrase" if argv[0] == "cryptsetup" else "") for argv in COMMANDS]
    names = [line.split("GiB")[0].rsplit(" ", 2)[0] for line in done["steps"]]
    assert names == ["~ data", "~ physical volume /dev/mapper/data", "~ my-vg/srv", "~ ext4 on my--vg-srv at /srv"]
    assert guest.fs > 49 * GIB
    assert not growth_of(guest)["changed"]


@pytest.mark.parametrize("left", range(4))
def test_a_killed_run_is_continued(left):
    guest = Played()
    guest.left = left
    with pytest.raises(KeyboardInterrupt):
        growth_of(guest)
    guest.left = 99
    assert growth_of(guest)["changed"]
    assert [argv for argv, _stdin in guest.told] == COMMANDS
    assert not growth_of(guest)["changed"]


@pytest.mark.parametrize("more", [0, GIB])
def test_a_run_that_was_killed_within_lvextend_is_continued(more):
    """LVM has written that the volume is larger, and its device is not. The disk may have grown again since."""
    guest = Played()
    guest.left = 2
    with pytest.raises(KeyboardInterrupt):
        growth_of(guest)
    guest.lv, guest.left, guest.disk = guest.pv, 99, guest.disk + more
    done = growth_of(guest)
    assert guest.told[-2][0] == (COMMANDS[2] if more else ("lvchange", "--refresh", "my-vg/srv"))
    assert done["steps"][-2].startswith("~ my-vg/srv 19.9 GiB -> ")
    assert guest.fs == guest.active == guest.lv == guest.pv
    assert not growth_of(guest)["changed"]


def test_a_volume_that_lvextend_has_left_suspended_is_not_read(tmp_path):
    """Whoever reads it waits for ever."""
    guest, folder = Played(), tmp_path / "sys/block/dm-1/dm"
    folder.mkdir(parents=True)
    (folder / "suspended").write_text("1\n")
    with pytest.raises(FlexdiskError, match=r"my-vg/srv is suspended, .* run: lvchange --refresh my-vg/srv") as refused:
        growth_of(guest, root=str(tmp_path))
    assert (refused.value.code, guest.told) == ("UnknownLayout", [])
    (folder / "suspended").write_text("0\n")
    assert growth_of(guest, root=str(tmp_path))["changed"]


def test_the_key_in_the_keyring_needs_a_passphrase():
    guest = Played()
    with pytest.raises(FlexdiskError, match="give luks_passphrase"):
        growth_of(guest, None)
    guest.keyring = False
    assert growth_of(guest, None)["changed"]
    guest.keyring = True
    assert not growth_of(guest, None)["changed"], "without growth, no passphrase is needed"
    assert guest.told[0] == (("cryptsetup", "-q", "resize", "data"), "")


@pytest.mark.parametrize("check_mode", [True, False])
def test_a_wrong_passphrase_is_found_before_anything_changes(check_mode):
    guest = Played()
    with pytest.raises(FlexdiskError, match="luks_passphrase is none of those of /dev/vdb") as refused:
        growth_of(guest, "another passphrase", check_mode=check_mode)
    assert (refused.value.code, guest.told) == ("InvalidArgument", [])
    growth_of(guest)
    assert guest.tested[-1] == (("cryptsetup", "open", "--test-passphrase", "--key-file=-", "/dev/vdb"), "a passphrase")
    assert not growth_of(guest, "another passphrase")["changed"], "without growth, no passphrase is needed"


@pytest.mark.parametrize("check_mode", [True, False])
def test_integrity_is_refused(check_mode):
    guest = Played()
    guest.integrity = "\tintegrity: hmac(sha256)\n"
    with pytest.raises(FlexdiskError, match=r"the LUKS on /dev/vdb has integrity \(hmac\(sha256\)\)") as refused:
        growth_of(guest, check_mode=check_mode)
    assert (refused.value.code, guest.told) == ("UnknownLayout", [])


def test_a_closed_device_is_refused():
    guest = Played()
    guest.open = False
    with pytest.raises(FlexdiskError, match="on vdb there should be an open LUKS device, but there is nothing"):
        growth_of(guest)
    assert guest.told == []
