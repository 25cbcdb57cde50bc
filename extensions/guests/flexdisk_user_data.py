# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prints user-data for cloud-init: at each boot, the guest's root file system gets its whole disk.

The program in it is the code of the module guest_growth, packed as a zip archive that Python runs.
"""

from __future__ import annotations

import argparse
import ast
import base64
import io
import textwrap
import typing as t
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOUSE = HERE.parents[1] / "plugins" / "module_utils" / "_flexdisk"
PROGRAM = HERE / "flexdisk_growth.py"
USER_DATA = """\
#cloud-config
# The root file system gets its whole disk, also if a swap partition lies behind it. Layouts that are not known stay as
# they are. Made by extensions/guests/flexdisk_user_data.py of the Ansible collection flexdisk.hypervisor.
# The program is a zip archive of Python files. It is written at each boot, and run by cloud-init's last stage, before
# runcmd. What it says is in /var/log/cloud-init-output.log; tables as they were are in /var/lib/flexdisk.
bootcmd:
  - |
    base64 -d > /var/lib/cloud/scripts/flexdisk-growth.new <<'END' &&
{program}
    END
    chmod 755 /var/lib/cloud/scripts/flexdisk-growth.new &&
    mv -f /var/lib/cloud/scripts/flexdisk-growth.new /var/lib/cloud/scripts/per-boot/flexdisk-growth
"""


def sources(file: Path) -> t.Set[Path]:
    """All files of the house that a file imports, and those that these import."""
    found: t.Set[Path] = set()
    waiting = [*_imported(file)]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += _imported(file)
    return found


def _imported(file: Path) -> t.Iterator[Path]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith(HOUSE.name)):
            folder = file.parents[node.level - 1] if node.level else HOUSE.parent
            base = folder.joinpath(*(node.module or "").split("."))
            module = base.with_suffix(".py")
            yield from [module] if module.is_file() else (base / f"{name.name}.py" for name in node.names)


def program() -> bytes:
    """The archive. The same sources always give the same bytes."""
    files = {str(file.relative_to(HOUSE.parent)): file.read_bytes() for file in sources(PROGRAM)}
    packages = {f"{folder}/__init__.py" for name in files for folder in Path(name).parents if folder.name}
    files.update(dict.fromkeys(packages, b""))
    files["__main__.py"] = PROGRAM.read_bytes()
    packed = io.BytesIO(b"#!/usr/bin/env python3\n")
    packed.seek(0, io.SEEK_END)
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name), files[name], zipfile.ZIP_DEFLATED, 9)
    return packed.getvalue()


def main() -> None:
    """Print it."""
    argparse.ArgumentParser(prog="flexdisk_user_data.py", description=__doc__).parse_args()
    text = base64.encodebytes(program()).decode()
    print(USER_DATA.format(program=textwrap.indent(text.rstrip(), " " * 4)), end="")


if __name__ == "__main__":
    main()
