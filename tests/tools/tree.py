# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the scripts behind the Makefile share: places, processes, and the views of the collection that tools ask for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BIN = ROOT / ".venv" / "bin"
DEV = ROOT / ".dev"  # a collections path in which the collection is a link to ROOT: always the current files
BUILD = ROOT / "build"
SLOWER = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
TARGET_PYTHONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")  # all that ansible-core 2.19 to 2.21 manage


def require(path: str) -> Path:
    """Return `path` below ROOT; a check whose subject is not there fails here."""
    found = ROOT / path
    if not found.exists():
        sys.exit(f"{path}: not there, so nothing was tested")
    return found


def environment(**extra: str) -> dict[str, str]:
    """The caller's environment with .venv and the real Pythons first on PATH, and the collection findable.

    Without what makes Python slower: unbuffered, it reads each module that Ansible sends byte by byte.
    """
    path = [str(BIN), *map(str, python_folders().values()), *_path_without_shims()]
    same = {name: value for name, value in os.environ.items() if name not in SLOWER}
    return {**same, "PATH": os.pathsep.join(path), "ANSIBLE_COLLECTIONS_PATH": str(dev_tree()), **extra}


def built_once(folder: str) -> dict[str, str]:
    """Environment in which ansible-playbook keeps in `folder` what it builds of each module, for its next run."""
    return {
        "FLEXDISK_BUILT": folder,
        "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "tests" / "tools" / "callback"),
        "ANSIBLE_CALLBACKS_ENABLED": "built_once",
    }


def in_forks() -> dict[str, str]:
    """Environment in which, beside that of built_once, modules run in forks of Ansible's workers: see in_process.py."""
    return {
        "FLEXDISK_BUILT": os.environ["FLEXDISK_BUILT"],
        "ANSIBLE_CALLBACK_PLUGINS": os.environ["ANSIBLE_CALLBACK_PLUGINS"],
        "ANSIBLE_CALLBACKS_ENABLED": f"{os.environ['ANSIBLE_CALLBACKS_ENABLED']},in_process",
        "ANSIBLE_PIPELINING": "1",
    }


def run(command: Sequence[str | Path], *, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> int:
    """Show and run `command`; return its exit code."""
    words = [str(word) for word in command]
    print("+ " + " ".join(words), flush=True)
    return subprocess.run(words, cwd=cwd, env=dict(env or environment()), check=False).returncode


def dev_tree() -> Path:
    """Make sure that DEV is there, and return it."""
    link = DEV / "ansible_collections" / "flexdisk" / "hypervisor"
    link.parent.mkdir(parents=True, exist_ok=True)
    target = os.path.relpath(ROOT, link.parent)
    if not link.is_symlink() or os.readlink(link) != target:
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    return DEV


def project_files() -> list[str]:
    """Every file of the project, tracked or new but not ignored, relative to ROOT."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted({name for name in names if name and (ROOT / name).is_file()})


def copy_tree(where: Path = BUILD) -> Path:
    """A copy of the project's files below `where`, up to date, for ansible-test, which follows no link. tests/output in
    it is ansible-test's own, kept.
    """
    copy = where / "ansible_collections" / "flexdisk" / "hypervisor"
    wanted = set(project_files())
    copy.mkdir(parents=True, exist_ok=True)
    # A repository of its own, or ansible-test would ask the one around it, which ignores all of build
    subprocess.run(["git", "init", "--quiet"], cwd=copy, check=True)
    for path in sorted(copy.rglob("*"), reverse=True):
        name = path.relative_to(copy).as_posix()
        if name in wanted or name.startswith((".git/", "tests/output/")):
            continue
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        else:
            path.unlink()
    for name in wanted:
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    return copy


def python_folders() -> dict[str, Path]:
    """The bin folder of pyenv's newest Python of each version in TARGET_PYTHONS that is there; none without pyenv."""
    found: dict[str, tuple[int, Path]] = {}
    for folder in (_pyenv_root() / "versions").glob("*/bin"):
        match = re.fullmatch(r"(\d+\.\d+)\.(\d+)", folder.parent.name)
        if match and match[1] in TARGET_PYTHONS and (folder / f"python{match[1]}").exists():
            found[match[1]] = max(found.get(match[1], (-1, folder)), (int(match[2]), folder))
    return {version: found[version][1] for version in TARGET_PYTHONS if version in found}


def _pyenv_root() -> Path:
    return Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")


def _path_without_shims() -> list[str]:
    """PATH without pyenv's shims: they answer to names of Pythons that then refuse to start."""
    root = _pyenv_root()
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return [entry for entry in entries if not (entry.endswith("shims") and Path(entry).is_relative_to(root))]
