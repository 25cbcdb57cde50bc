# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""UEFI variables of a libvirt domain: their file, and whether they can be moved. By its text only."""

from __future__ import annotations

import re
import typing as t

from ..model.sizes import render_bytes
from ..rules.uefi import LIMIT
from .xml_text import Element

FOLDER = "/var/lib/libvirt/qemu/nvram"
_UEFI_VARIABLES = "UEFI variables"
_NAME = re.compile(r"(?!\.{1,2}\Z)[^/\0]{1,200}")


def path_of(domain: Element) -> str:
    """Return the file with the variables of a domain; "" if it names none."""
    paths = [path_of_nvram(one) for system in domain.all("os") for one in system.all("nvram")]
    return paths[0] if paths else ""


def path_of_nvram(nvram: Element) -> str:
    """Return the file in an <nvram> element."""
    return nvram.get("source", "file") or nvram.text.strip()


def stays(domain: Element) -> t.Iterator[str]:
    """Yield why the variables of a domain cannot be moved, as text."""
    for system in domain.all("os"):
        nvrams = system.all("nvram")
        if system.all("varstore"):
            yield f"{_UEFI_VARIABLES} (varstore)"
        elif not nvrams and _is_uefi(system):
            yield f"{_UEFI_VARIABLES} (nvram) in a file that its XML does not name"
        elif len(nvrams) > 1 or not all(map(_is_file, nvrams)):
            yield f"{_UEFI_VARIABLES} (nvram) that are not in a plain file"
        elif nvrams and not is_place(path_of_nvram(nvrams[0])):
            yield f"{_UEFI_VARIABLES} (nvram) in {path_of_nvram(nvrams[0]) or 'no file'}, which is not in {FOLDER}"


def _is_uefi(system: Element) -> bool:
    """Whether libvirt creates a file with variables when the domain starts."""
    uefi = system.attributes.get("firmware") == "efi" or system.get("loader", "type") == "pflash"
    return uefi and system.get("loader", "stateless") != "yes"


def _is_file(nvram: Element) -> bool:
    plain = nvram.attributes.get("type", "file") == "file" and nvram.attributes.get("format", "raw") in ("raw", "qcow2")
    return plain and not any(source.children for source in nvram.all("source"))


def is_place(path: str) -> bool:
    """Whether this is the path of a file in libvirt's folder. Another host may have named any path."""
    folder, _slash, name = path.rpartition("/")
    return folder == FOLDER and bool(_NAME.fullmatch(name))


def too_large(content: bytes) -> t.List[str]:
    """Return why the content of a file cannot be moved, as text."""
    text = f"{_UEFI_VARIABLES} (nvram) of more than {render_bytes(LIMIT)}"
    return [text] if len(content) > LIMIT else []
