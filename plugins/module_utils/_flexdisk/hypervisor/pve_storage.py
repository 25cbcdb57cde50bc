# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read storage.cfg of Proxmox VE and files like it, and which dataset a volume of a storage is."""

from __future__ import annotations

import re
import typing as t

from ..model.errors import FlexdiskError

ZFS = "zfspool"
_HEADER = re.compile(r"(\S+):\s*(\S+)\s*")
_VOLUME = re.compile(r"(?:base-[0-9]{1,9}-[^\s/]+/)?((?:vm|base)-([0-9]{1,9})-[^\s/@]+)")
_YES = ("", "1", "on", "yes", "true")
# Volumes wherever they stand in a line, also in one that is wrong: STORAGE:NAME, and the path of a device.
_MENTION = re.compile(r"([^\s,;=:/]{1,100}:(?:base-[0-9]{1,9}-[^\s,;=/]+/)?(?:vm|base)-[0-9]{1,9}-[^\s,;=/@]+)")
_DEVICE = re.compile(r"/dev/(?:zvol/)?([^\s,;=@]+?)(?:-part[0-9]+)?(?=[\s,;=@]|$)")


class Storage(t.NamedTuple):
    """A storage of the cluster."""

    name: str
    kind: str
    dataset: str  # "" of other kinds than zfspool
    sparse: bool
    blocksize: str  # "" for the default
    content: t.Tuple[str, ...]
    nodes: t.Tuple[str, ...]  # empty: all
    disabled: bool

    def is_active(self, node: str) -> bool:
        """Return whether the node has the storage."""
        return not self.disabled and (not self.nodes or node in self.nodes)


class Volume(t.NamedTuple):
    """A volume of a zfspool."""

    dataset: str
    owner: int  # the VM that it belongs to for Proxmox VE, whoever uses it
    is_base: bool  # of a template: linked clones may depend on it


def sections(text: str) -> t.List[t.Tuple[str, str, t.Dict[str, str]]]:
    """Return the sections of a file of the cluster: their kind, their name and their settings.

    Of a setting that is there twice, Proxmox VE takes the first.
    """
    result: t.List[t.Tuple[str, str, t.Dict[str, str]]] = []
    for line in text.splitlines():
        header = _HEADER.fullmatch(line)
        if header:
            result.append((header.group(1), header.group(2), {}))
        elif result and line[:1] in (" ", "\t") and line.strip():
            key, *value = line.split(None, 1)
            result[-1][2].setdefault(key, "".join(value).strip())
    return result


def parse_storages(text: str) -> t.Dict[str, Storage]:
    """Return the storages of storage.cfg by name. Lines that say nothing of zfspools are left alone."""
    storages: t.Dict[str, Storage] = {}
    for kind, name, values in sections(text):
        storages[name] = Storage(
            name,
            kind,
            values.get("pool", "").strip("/") if kind == ZFS else "",
            values.get("sparse", "0") in _YES,
            values.get("blocksize", ""),
            _words(values.get("content", "")),
            _words(values.get("nodes", "")),
            values.get("disable", "0") in _YES,
        )
    return storages


def _words(text: str) -> t.Tuple[str, ...]:
    return tuple(word for word in re.split(r"[,;\s]+", text) if word)


def volume(storages: t.Mapping[str, Storage], name: str) -> Volume:
    """Return which volume C(STORAGE:NAME) is. Raises FlexdiskError C(InvalidArgument) if it is none of a zfspool."""
    storage_name, colon, rest = name.partition(":")
    storage = storages.get(storage_name)
    match = _VOLUME.fullmatch(rest)
    if not colon or storage is None or storage.kind != ZFS or not storage.dataset:
        raise FlexdiskError("InvalidArgument", f"{name} is not a volume of a storage of type {ZFS}")
    if match is None:
        raise FlexdiskError("InvalidArgument", f"{rest} in storage {storage_name} is not the name of a VM's volume")
    short = match.group(1)
    return Volume(f"{storage.dataset}/{short}", int(match.group(2)), short.startswith("base-"))


def mentioned(storages: t.Mapping[str, Storage], text: str) -> t.List[str]:
    """Return the datasets of all volumes that a text names, in whatever form."""
    datasets = _DEVICE.findall(text)
    for name in _MENTION.findall(text):
        try:
            datasets.append(volume(storages, name).dataset)
        except FlexdiskError:
            continue
    return datasets
