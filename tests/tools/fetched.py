# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What some tests get from PyPI beyond .venv, once: the collection awx.awx, and other series of ansible-core."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from make_venv import CORES
from tree import DEV, ROOT, python_folders

REQUIREMENTS = ROOT / "requirements"
_PIP = ["-m", "pip", "--disable-pip-version-check", "--quiet"]


def awx_collection() -> Path:
    """A collections path with awx.awx alone."""
    wanted = REQUIREMENTS / "awx.txt"
    return _once(DEV / "awx", wanted.read_text(), lambda folder: _take_out(wanted, folder))


def cores() -> list[str]:
    """The series of ansible-core that are supported beside that of .venv, such as 2.20."""
    return [series for series in CORES if not version("ansible-core").startswith(f"{series}.")]


def core(series: str) -> Path | None:
    """The bin folder of an environment with this series, or None where there is no Python for it."""
    folders = python_folders()
    found = [folders[python] / f"python{python}" for python in CORES[series] if python in folders]
    found += [Path(path) for path in map(shutil.which, (f"python{python}" for python in CORES[series])) if path]
    if not found:
        return None
    pins = [REQUIREMENTS / f"core-{series}.txt", REQUIREMENTS / "constraints.txt"]
    wanted = "".join(path.read_text() for path in pins)
    made = _once(DEV / f"core-{series}", f"{found[0]}\n{wanted}", lambda to: _install(found[0], pins, to))
    return made / "bin"


def _once(folder: Path, wanted: str, make: Callable[[Path], None]) -> Path:
    """The folder, made anew if it was made for something else. Other processes wait."""
    DEV.mkdir(exist_ok=True)
    stamp = folder / "stamp"
    with (DEV / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.is_file() or stamp.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            stamp.write_text(wanted)
    return folder


def _take_out(requirements: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        download = ["download", "--no-deps", "--require-hashes", "--requirement", str(requirements), "--dest", place]
        subprocess.run([sys.executable, *_PIP, *download], check=True)
        (wheel,) = Path(place).glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            for name in packed.namelist():
                if name.startswith("ansible_collections/awx/awx/"):
                    packed.extract(name, folder)


def _install(python: Path, pins: list[Path], folder: Path) -> None:
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    package, constraints = map(str, pins)
    arguments = ["install", "--constraint", constraints, "--requirement", package]
    subprocess.run([str(folder / "bin" / "python"), *_PIP, *arguments], check=True)
