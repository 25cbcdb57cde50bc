# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Image files: what qemu-img says of them is believed only in part, and the real program does what is asked of it."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.runner import SubprocessRunner
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import images
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.images import convert, probe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

REAL = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="there is no qemu-img")
MIB = 1 << 20


def said(**result):
    text = json.dumps({"virtual-size": MIB, "format": "raw", **result})
    return lambda argv, stdin="", timeout=300: Answer(0, text, "")


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"format": "vmdk"}, "it must be raw or qcow2"),
        ({"virtual-size": 0}, "and 0 bytes; it must be raw"),
        ({"backing-filename": "/etc/shadow"}, "depends on another file"),
        ({"format-specific": {"data": {"data-file": "/etc/shadow"}}}, "depends on another file"),
        ({"virtual-size": "x"}, "no JSON of an image"),
    ],
)
def test_what_is_not_taken(result, message):
    with pytest.raises(FlexdiskError, match=message):
        probe(said(**result), "/image")


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
    image_file = probe(runner, str(image))
    assert (image_file.format, image_file.size) == (kind, 3 * MIB)
    convert(runner, image_file, str(device))
    assert device.read_bytes() == raw.read_bytes() + bytes(MIB)


@REAL
def test_an_overlay_is_refused(tmp_path):
    base, overlay = tmp_path / "base", tmp_path / "overlay"
    base.write_bytes(bytes(MIB))
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "raw", overlay], check=True)
    with pytest.raises(FlexdiskError, match="depends on another file"):
        probe(SubprocessRunner(), str(overlay))


# -- the same file


def swapping(when, change, stdout=""):
    """A runner before or after whose command somebody changes what is at the path. It keeps what it was given."""

    def runner(argv, stdin="", timeout=300):
        runner.path = next(word for word in argv if word.startswith("/proc/"))
        if when == "before":
            change()
        with open(runner.path, "rb") as file:
            runner.read = file.read()
        if when == "after":
            change()
        return Answer(0, stdout, "")

    return runner


INFO = json.dumps({"virtual-size": MIB, "format": "raw"})


@pytest.fixture
def image(tmp_path):
    (tmp_path / "image").write_bytes(b"good")
    return tmp_path / "image"


def swap(image):
    other = image.with_name("other")
    other.write_bytes(b"evil")
    other.replace(image)


@pytest.mark.parametrize("copies", [False, True])
def test_a_file_that_is_swapped_is_never_read(image, copies):
    """What was opened is read, and then the difference is seen."""
    image_file = probe(swapping("before", lambda: None, INFO), str(image))
    runner = swapping("before", lambda: swap(image), INFO)
    with pytest.raises(FlexdiskError, match=f"image_file {image} changed since it was read"):
        convert(runner, image_file, "/dev/null") if copies else probe(runner, str(image))
    assert runner.read == b"good"


def test_a_file_that_is_swapped_after_the_plan_is_not_copied(image):
    image_file = probe(swapping("before", lambda: None, INFO), str(image))
    swap(image)
    runner = swapping("before", lambda: None)
    with pytest.raises(FlexdiskError, match="changed since it was read") as caught:
        convert(runner, image_file, "/dev/null")
    assert (caught.value.code, hasattr(runner, "read")) == ("Changed", False)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_file_that_is_written_to_is_refused(image, when):
    with pytest.raises(FlexdiskError, match="changed since it was read"):
        probe(swapping(when, lambda: image.write_bytes(b"more than good"), INFO), str(image))
    image_file = probe(swapping("before", lambda: None, INFO), str(image))
    with pytest.raises(FlexdiskError, match="changed since it was read"):
        convert(swapping(when, lambda: image.write_bytes(b"good")), image_file, "/dev/null")


def test_messages_have_the_path_of_the_user(image):
    def runner(argv, stdin="", timeout=300):
        return Answer(1, "", f"qemu-img: {argv[-1]}: not an image")

    with pytest.raises(FlexdiskError, match=f"image_file {image}: qemu-img: {image}: not an image"):
        probe(runner, str(image))


@pytest.mark.parametrize("there", [True, False])
def test_where_a_child_opens_the_path_itself_a_swap_is_seen(image, monkeypatch, there):
    """Not every platform has a path for what a process has opened."""
    monkeypatch.setattr(images._Opened, "name", property(lambda self: self.path))

    def runner(argv, stdin="", timeout=300):
        swap(image)
        if not there:
            image.unlink()
        return Answer(0, INFO, "")

    with pytest.raises(FlexdiskError, match="changed since it was read"):
        probe(runner, str(image))
