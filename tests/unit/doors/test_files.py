# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Small files on hosts are replaced by hypervisor/whole_files.py alone: nothing else replaces another file."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import whole_files

UTILS = Path(__file__).resolve().parents[3] / "plugins" / "module_utils" / "_flexdisk"
DOOR = UTILS / "hypervisor" / "whole_files.py"


def replacing(path):
    """The calls of a file that put a file in the place of another, or open one by its name to write it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            modes = [arg.value for arg in node.args[1:2] if isinstance(arg, ast.Constant)]
            if called in ("os.replace", "os.rename") or (called == "open" and {*modes} & {"w", "wb", "a", "x"}):
                yield f"{path.name}: {called}"


def test_nothing_replaces_files_around_the_door():
    files = [path for path in sorted(UTILS.rglob("*.py")) if path != DOOR]
    assert files
    assert [found for path in files for found in replacing(path)] == []
    assert [*replacing(DOOR)] == ["whole_files.py: os.replace"]


@pytest.mark.parametrize("durable", [True, False])
def test_a_link_is_replaced_and_not_followed(tmp_path, durable):
    """Neither at the place itself nor where the new file is written."""
    theirs, path = tmp_path / "theirs", tmp_path / "ours"
    theirs.write_text("theirs")
    path.symlink_to(theirs)
    (tmp_path / f"ours{whole_files.NEW}").symlink_to(theirs)
    whole_files.replace(str(path), b"new", durable=durable)
    assert (theirs.read_text(), path.read_text(), path.is_symlink()) == ("theirs", "new", False)
    assert path.stat().st_mode & 0o7777 == 0o600
    assert sorted(one.name for one in tmp_path.iterdir()) == ["ours", "theirs"]


def test_the_old_file_stays_if_the_new_one_cannot_be_written(tmp_path, monkeypatch):
    path = tmp_path / "ours"
    path.write_text("old")

    def full(_fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        whole_files.replace(str(path), b"new")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("ours", "old")]


def test_mode_and_owner_are_those_that_are_given(tmp_path):
    path = tmp_path / "ours"
    whole_files.replace(str(path), b"new", 0o644, (os.getuid(), os.getgid()))
    assert path.stat().st_mode & 0o7777 == 0o644
