# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests that write numbered records, and the files in which libvirt saves their memory."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.errors import ZfsError

from .files import FakeFiles

MIB = 1 << 20
_DEVICE = "/dev/zvol/"
_RECORD = re.compile(r"record ([0-9]+)")
# virDomainMigratable refuses these, and virDomainSave with it, whether the domain goes to another host or not.
_BOUND = {
    "devices/hostdev": "cannot migrate domain with a hostdev device",
    "devices/shmem": "migration with shmem device is not supported",
    "devices/filesystem": "migration with a filesystem device is not supported",
    "cpu/feature[@name='invtsc']": "domain has 'invtsc' CPU feature but TSC frequency is not specified",
}


@dataclass(frozen=True)
class Image:
    """A file that libvirt has saved: the configuration of the domain as it ran, and what its guest knew."""

    number: int
    """Each save makes another image."""
    xml: str
    record: int | None
    """The last record that the guest had written, None if it has written none since it was started."""
    contents: dict[str, str]
    """What was on its disks, by their targets."""


def why_not_saved(live: ET.Element, backed_up: bool) -> str:
    """Why libvirt refuses to save the memory of a running domain, "" if it does not."""
    if backed_up or live.find("devices/disk/mirror") is not None:
        return "domain has active block job"
    return next((text for path, text in _BOUND.items() if live.find(path) is not None), "")


def differs(image: ET.Element, given: ET.Element) -> str:
    """Why libvirt refuses a description for an image. Only paths on the host may be others."""
    for path in ("name", "uuid", "memory", "vcpu", "os/type"):
        have, wanted = ([_text(e) for e in root.findall(path)] for root in (image, given))
        if have != wanted:
            return f"Target domain {path} does not match source"
    if _shapes(image) != _shapes(given):
        return "Target domain disks do not match source"
    return ""


def _shapes(root: ET.Element) -> list[list[str]]:
    """What the guest sees of each disk."""
    parts = ("target", "address", "serial")
    return [[_text(e) for name in parts for e in disk.findall(name)] for disk in root.findall("devices/disk")]


def _text(element: ET.Element) -> str:
    return ET.tostring(element, encoding="unicode").strip()


class Disks:
    """What guests write to their disks, and what libvirt writes to files, on a simulated node.

    run: runs a command of the node, and returns its status and what it has printed.
    """

    def __init__(self, run: Callable[[list[str]], tuple[int, str, str]], files: FakeFiles) -> None:
        self._run, self._files = run, files

    def _dataset(self, path: str) -> str:
        return path[len(_DEVICE) :] if path.startswith(_DEVICE) else self._files.dataset_of(path)

    def _ok(self, *argv: str) -> str:
        rc, out, err = self._run(list(argv))
        assert rc == 0, (argv, err)
        return out.strip()

    def content(self, path: str) -> str:
        """What is on a disk."""
        return self._ok("guest", "hash", self._dataset(path))

    def is_read_only(self, path: str) -> bool:
        """Whether nobody can open a volume for writing."""
        return path.startswith(_DEVICE) and self._files.is_read_only(path)

    def write(self, path: str, record: int) -> None:
        """The guest writes its next record behind the others: 4 KiB each."""
        self._ok("guest", "write", self._dataset(path), f"{4 * record}K", "4K", f"record {record}")

    def last(self, path: str) -> int:
        """The last record on a disk. All records before it must be there, too."""
        contents = [content for _start, _end, content, _birth in self._files.extents(self._dataset(path))]
        records = {int(found[1]) for found in map(_RECORD.fullmatch, contents) if found}
        assert records == {*range(1, len(records) + 1)}, f"a record is lost: {path} has {sorted(records)}"
        return len(records)

    def save(self, path: str, image: Image, memory: int) -> str:
        """Write an image of so many KiB, and return why that has failed, "" if it has not."""
        text = json.dumps(asdict(image))
        try:
            self._files.store(path, memory * 1024, text)
        except ZfsError as exc:
            return str(exc)
        return ""

    def load(self, path: str) -> Image | None:
        """The image in a file, None if there is none."""
        text = self._files.stored(path)
        content: dict[str, Any] = json.loads(text) if text.startswith("{") else {}
        return Image(**content) if content else None
