# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files that are disks, on a real file system."""

from __future__ import annotations

import os
import stat

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs import files as module
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.errors import ZfsError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.files import Files

MIB = 1 << 20


@pytest.fixture
def disk(tmp_path):
    return str(tmp_path / "disk.raw")


def test_a_file_is_made_and_sized(disk):
    files = Files()
    assert files.size(disk) == -1
    files.make(disk, 8 * MIB)
    assert (files.size(disk), stat.S_IMODE(os.stat(disk).st_mode)) == (8 * MIB, 0o600)
    with open(disk, "r+b") as handle:
        handle.write(b"x" * MIB)
    files.make(disk, 8 * MIB)
    files.resize(disk, 16 * MIB)
    with open(disk, "rb") as handle:
        assert handle.read() == b"x" * MIB + bytes(15 * MIB)
    files.resize(disk, MIB // 2)
    assert files.size(disk) == MIB // 2


def test_a_link_in_its_place_is_not_followed(disk, tmp_path):
    (tmp_path / "other").write_bytes(b"precious")
    os.symlink(tmp_path / "other", disk)
    for what in (Files().make, Files().resize):
        with pytest.raises(ZfsError, match=r"disk\.raw"):
            what(disk, 1)
    assert (tmp_path / "other").read_bytes() == b"precious"


def test_a_copy_is_whole_leaves_holes_and_tells(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PIECE", MIB)
    source = tmp_path / "source"
    content = os.urandom(MIB + 5) + bytes(3 * MIB) + b"end"
    source.write_bytes(content)
    Files().make(disk, len(content))
    told = []
    Files().copy(str(source), disk, len(content), told.append)
    with open(disk, "rb") as handle:
        assert handle.read() == content
    assert told == [MIB, 2 * MIB, 3 * MIB, 4 * MIB, len(content)]
    assert os.stat(disk).st_blocks * 512 < 4 * MIB, "zeros are not written"


def test_what_is_too_short_is_told(disk, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"x" * 10)
    Files().make(disk, 20)
    with pytest.raises(ZfsError, match="ends after 10 of 20 bytes"):
        Files().copy(str(source), disk, 20, lambda done: None)


def test_what_is_not_there_is_named(disk):
    with pytest.raises(ZfsError, match=r"disk\.raw: No such file") as caught:
        Files().resize(disk, 1)
    assert caught.value.code == "FileFailed"


def test_only_an_empty_folder_goes(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "empty").mkdir()
    for name in ("full", "empty", "none"):
        Files().remove_folder(str(tmp_path / name))
    assert [p.name for p in tmp_path.iterdir()] == ["full"]
    assert not Files().mounted(str(tmp_path))
    assert Files().mounted("/")
