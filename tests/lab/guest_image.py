# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The root file system of the guests that are booted beside the lab, as a folder that is kept in the cache."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import recipe

PACKAGES = (
    "linux-image-cloud-amd64", "systemd-sysv", "udev", "kmod", "iproute2", "procps", "openssh-server", "python3", "lz4",
    "fdisk", "e2fsprogs", "xfsprogs", "btrfs-progs", "lvm2", "cryptsetup-bin", "cloud-init", "cloud-guest-utils",
    "grub-pc-bin", "grub2-common",
)  # fmt: skip
CUSTOMIZE = recipe.IMAGE / "booted.sh"
# Debian packages of the programs that make disks of it
TOOLS = {"sfdisk": "fdisk", "losetup": "mount", "mkfs.vfat": "dosfstools", "mcopy": "mtools"}


def image_dir() -> Path:
    """Where it is, or will be: root/, build.log."""
    parts = (recipe.RELEASE, *PACKAGES, *recipe.EXCLUDED_PATHS, CUSTOMIZE.read_text(encoding="utf-8"))
    return recipe.cache_dir() / f"guest-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}"


def install_tools() -> None:
    """Install what is missing here to make disks and to boot them."""
    recipe.install_tools(build=False)
    recipe.install([package for tool, package in TOOLS.items() if not shutil.which(tool, path=recipe.SEARCH_PATH)])


def ensure() -> Path:
    """The folder `root`, built unless it is there."""
    return recipe.ensure(image_dir() / "root", _fill) / "root"


def kernel() -> tuple[Path, Path]:
    """Kernel and initial RAM disk."""
    (path,) = (image_dir() / "root" / "boot").glob("vmlinuz-*")
    return path, path.with_name(path.name.replace("vmlinuz", "initrd.img"))


def _fill(scratch: Path) -> None:
    recipe.bootstrap(scratch / "root", PACKAGES, [f'chroot "$1" sh -eu < "{CUSTOMIZE}"'], scratch / "build.log")
