# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of this collection travels to a host with a module: the module and all that it imports, also inside functions.

Usage: payload.py [module]. Without a module, one line for each; with one, the files, the largest first.
"""

from __future__ import annotations

import ast
import functools
import io
import sys
import zipfile
import zlib

from tree import ROOT

PREFIX = "ansible_collections.flexdisk.hypervisor."
KIB = 1024


@functools.cache
def _imports(name: str) -> tuple[str, ...]:
    """The names below the root that a module of the collection may import. Some name no file."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source(name))):
        if not isinstance(node, ast.ImportFrom):
            continue
        base = node.module or ""
        if node.level:
            base = ".".join([*name.split(".")[: -node.level], *filter(None, [base])])
        elif not base.startswith(PREFIX):
            continue
        base = base.removeprefix(PREFIX)
        found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(found)


@functools.cache
def source(name: str) -> str:
    """The text of a module, called as plugins.modules.vm is; "" if there is no such file."""
    path = ROOT.joinpath(*name.split(".")).with_suffix(".py")
    return path.read_text() if path.is_file() else ""


def payload(module: str) -> dict[str, str]:
    """The sources of this collection that travel with a module, by their paths."""
    todo, found = [f"plugins.modules.{module}"], {}
    while todo:
        name = todo.pop()
        path = name.replace(".", "/") + ".py"
        if path not in found and source(name):
            found[path] = source(name)
            todo += _imports(name)
    return found


def zipped_kib(texts: dict[str, str]) -> float:
    """KiB of the compressed archive in which Ansible sends these files."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path, text in texts.items():
            packed.writestr(path, text)
    return len(archive.getvalue()) / KIB


def modules() -> list[str]:
    """The modules that run on hosts. The others are the documentation of actions."""
    names = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py"))
    return [name for name in names if len(payload(name)) > 1]


def main() -> None:
    """Print the payload of all modules, or of one, file by file."""
    if len(sys.argv) > 1:
        texts = payload(sys.argv[1])
        for size, path in sorted(
            ((len(zlib.compress(text.encode())), path) for path, text in texts.items()), reverse=True
        ):
            print(f"{size / KIB:6.1f} KiB {len(texts[path].splitlines()):5} lines  {path}")
    for name in sys.argv[1:] or modules():
        texts = payload(name)
        lines = sum(len(text.splitlines()) for text in texts.values())
        print(f"{name:20} {zipped_kib(texts):6.1f} KiB zipped, {len(texts):4} files, {lines:6} lines")


if __name__ == "__main__":
    main()
