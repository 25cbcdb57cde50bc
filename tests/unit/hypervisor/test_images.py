# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Image files: what qemu-img says of them is believed only in part, and the real program does what is asked of it."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.runner import SubprocessRunner
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.images import convert, probe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

REAL = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="there is no qemu-img")
MIB = 1 << 20


def said(**found):
    text = json.dumps({"virtual-size": MIB, "format": "raw", **found})
    return lambda argv, stdin="", timeout=300: Answer(0, text, "")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"format": "vmdk"}, "it must be raw or qcow2"),
        ({"virtual-size": 0}, "and 0 bytes; it must be raw"),
        ({"backing-filename": "/etc/shadow"}, "depends on another file"),
        ({"format-specific": {"data": {"data-file": "/etc/shadow"}}}, "depends on another file"),
        ({"virtual-size": "x"}, "no JSON of an image"),
    ],
)
def test_what_is_not_taken(found, words):
    with pytest.raises(FlexdiskError, match=words):
        probe(said(**found), "/image")


@pytest.mark.parametrize("path", ["image", "", "/a\nb", "json:{}"])
def test_paths_that_are_none(path):
    with pytest.raises(FlexdiskError, match="absolute path"):
        probe(said(), path)


def test_no_such_file(tmp_path):
    def runner(argv, stdin="", timeout=300):
        return Answer(1, "", "qemu-img: Could not open: No such file")

    with pytest.raises(FlexdiskError, match="No such file"):
        probe(runner, str(tmp_path / "none"))


@REAL
@pytest.mark.parametrize("kind", ["raw", "qcow2"])
def test_a_real_image_comes_whole(tmp_path, kind):
    data = bytes(range(256)) * 4096
    raw, image, device = tmp_path / "raw", tmp_path / "image", tmp_path / "device"
    raw.write_bytes(data + bytes(MIB) + data)
    subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", kind, raw, image], check=True)
    device.write_bytes(bytes(4 * MIB))
    runner = SubprocessRunner()
    found = probe(runner, str(image))
    assert (found.format, found.size) == (kind, 3 * MIB)
    convert(runner, found, str(device))
    assert device.read_bytes() == raw.read_bytes() + bytes(MIB)


@REAL
def test_an_overlay_is_refused(tmp_path):
    base, overlay = tmp_path / "base", tmp_path / "overlay"
    base.write_bytes(bytes(MIB))
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "raw", overlay], check=True)
    with pytest.raises(FlexdiskError, match="depends on another file"):
        probe(SubprocessRunner(), str(overlay))
