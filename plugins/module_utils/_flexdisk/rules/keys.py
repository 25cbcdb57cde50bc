# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keys of encrypted datasets: whether one is loaded, and where a dataset may be renamed to. No key is ever read."""

from __future__ import annotations

import typing as t

from ..model.dataset import Dataset
from .layout import container

KEY_NOT_LOADED = "KeyNotLoaded"


def key_missing(root: str, location: str = "") -> str:
    """Return that the key of an encryption root is not loaded, where ZFS looks for it, and how it is loaded.

    location: its keylocation. ZFS asks for a key of C(prompt), which every replica has at first.
    """
    where = "" if location in ("", "none", "prompt") else f", which ZFS looks for at {location}"
    return f"the key of {root} is not loaded{where}; zfs load-key {root} loads it"


def leaves_its_root(dataset: Dataset, above: Dataset) -> bool:
    """Return whether a dataset would leave its encryption root if it was renamed to a place below another dataset. ZFS
    refuses that.
    """
    return dataset.encryptionroot not in ("", dataset.name, above.encryptionroot)


def locked_pool(datasets: t.Mapping[str, Dataset], pool: str) -> str:
    """Return that the key of a pool, or of its container, is not loaded; "" if it is. Without it, ZFS makes no dataset
    there. It renames datasets, destroys them, and takes raw streams all the same.
    """
    places = [datasets[name] for name in (pool, container(pool)) if name in datasets]
    return next((key_missing(one.encryptionroot, one.keylocation) for one in places if one.locked), "")
