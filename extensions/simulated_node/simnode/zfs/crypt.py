# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Encryption as far as streams and keys need it, without a cipher.

A dataset that is encrypted has `crypt`: `master`, which stands for its master key; `key`, the user's key with which
that is wrapped; and, on an encryption root, `loaded`. A raw stream carries the master key as it is wrapped on its side.
"""

from __future__ import annotations

from typing import Any, Dict, Optional

from simnode.zfs.model import Dataset, Pool


def root_of(pool: Pool, dataset: Dataset) -> Optional[Dataset]:
    """Return the encryption root of a dataset, None if it is not encrypted."""
    if not dataset.cryptroot:
        return None
    for node in dataset.ancestors():
        if node.guid == dataset.cryptroot:
            return node
    return next((node for node in pool.datasets.values() if node.guid == dataset.cryptroot), None)


def encrypt(dataset: Dataset, key: str) -> None:
    """Make a new dataset an encryption root with this key, which is loaded."""
    dataset.cryptroot = dataset.guid
    dataset.crypt = {"master": dataset.guid, "key": key, "loaded": True}


def follow(pool: Pool, dataset: Dataset, parent: Dataset) -> None:
    """Give a new dataset the encryption root of its parent, and a master key of its own."""
    dataset.cryptroot = parent.cryptroot
    root = root_of(pool, dataset)
    dataset.crypt = {"master": dataset.guid, "key": root.crypt.get("key", "")} if root is not None else {}


def master_of(dataset: Dataset) -> int:
    """Return what stands for the master key, which clones have from their origin."""
    return int(dataset.crypt.get("master", dataset.guid))


def is_loaded(pool: Pool, dataset: Dataset) -> bool:
    """Return whether `keystatus` of an encrypted dataset is `available`."""
    root = root_of(pool, dataset)
    return root is not None and bool(root.crypt.get("loaded", True))


def can_read(pool: Pool, dataset: Dataset) -> bool:
    """Return whether the contents can be read.

    The loaded key of an encryption root does not fit a dataset below that came raw from elsewhere.
    """
    root = root_of(pool, dataset)
    return root is None or (is_loaded(pool, dataset) and root.crypt.get("key", "") == dataset.crypt.get("key", ""))


def raw_header(pool: Pool, dataset: Dataset) -> Dict[str, Any]:
    """Return what a raw stream says of the key, {} for a dataset that is not encrypted."""
    root = root_of(pool, dataset)
    if root is None:
        return {}
    props = {name: root.props.get(name) for name in ("encryption", "keyformat")}
    key = dataset.crypt.get("key", "")
    # The salt that is sent with the key is that of the root, so no passphrase fits a key that came with another one.
    return {"master": master_of(dataset), "key": key if key == root.crypt.get("key", "") else None, **props}


def begin_raw(dataset: Dataset, raw: Dict[str, Any]) -> None:
    """Make a dataset that a raw stream begins an encryption root whose key nobody has loaded."""
    dataset.cryptroot = dataset.guid
    dataset.crypt = {"master": raw["master"], "key": raw["key"], "loaded": False}
    dataset.props.update({"encryption": raw["encryption"], "keyformat": raw["keyformat"], "keylocation": "prompt"})


def take_raw(dataset: Dataset, raw: Dict[str, Any]) -> None:
    """Wrap the master key as a raw stream has it. The encryption root stays."""
    dataset.crypt["key"] = raw["key"]
    if dataset.cryptroot == dataset.guid:
        dataset.props["keyformat"] = raw["keyformat"]


def unload_all(pool: Pool) -> None:
    """Forget all keys, as after a boot."""
    for dataset in pool.datasets.values():
        if dataset.crypt and dataset.cryptroot == dataset.guid:
            dataset.crypt["loaded"] = False
