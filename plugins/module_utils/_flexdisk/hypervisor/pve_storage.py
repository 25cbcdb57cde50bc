# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read storage.cfg of Proxmox VE and files like it, and which dataset a volume of a storage is."""

from __future__ import annotations

import posixpath
import re
import typing as t

from ..model.errors import FlexdiskError

ZFS = "zfspool"
_HEADER = re.compile(r"(\S+):\s*(\S+)\s*")
_VOLUME = re.compile(r"(?:base-[0-9]{1,9}-[^\s/]+/)?((?:vm|base)-([0-9]{1,9})-[^\s/@]+)")
_YES = ("", "1", "on", "yes", "true")
_PART = r"[A-Za-z0-9_.:%-]"  # what a part of the name of a dataset has
_OF_VM = f"(?:vm|base)-[0-9]{{1,9}}-{_PART}{{1,255}}"
# Volumes wherever they stand in a line, also in one that is wrong: the path of a device, STORAGE:NAME, and a bare name.
_MENTION = re.compile(
    rf"(?P<device>/dev/(?:{_PART}|[/+]){{1,512}})"
    rf"|(?<![A-Za-z0-9_.-])(?P<storage>[A-Za-z0-9_.-]{{1,100}}):"
    rf"(?:base-[0-9]{{1,9}}-[^\s,;=/]{{1,255}}/)?(?P<volume>{_OF_VM})"
    rf"|(?P<bare>{_OF_VM})"
)
_PARTITION = re.compile(r"-part[0-9]+")


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

    @property
    def takes_disks(self) -> bool:
        """Whether Proxmox VE attaches volumes of the storage to VMs."""
        return not self.content or "images" in self.content


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


class Mention(t.NamedTuple):
    """A volume that a text names, or may name."""

    dataset: str
    doubt: str = ""  # why it may be another volume, "" if it is this one


def mentioned(storages: t.Mapping[str, Storage], text: str) -> t.List[Mention]:
    """Return all volumes that a text names, in whatever form: as Proxmox VE names them, or by paths, quoted or not.

    A volume of a storage that the cluster does not have may be any volume of that name, because a storage can get
    another name while its volumes stay where they are. So may a name without anything that tells where it is.
    """
    found: t.List[Mention] = []
    for match in _MENTION.finditer(text.replace("\\/", "/")):
        device, name, bare = match["device"], match["storage"], match["bare"]
        storage = storages.get(name) if name else None
        if device:
            found += [Mention(one) for one in _devices(device)]
        elif storage is not None and storage.kind != ZFS:
            continue
        elif storage is not None and storage.dataset:
            found += [Mention(f"{storage.dataset}/{one}") for one in _shorter(match["volume"])]
        else:
            doubt = f"no storage is called {name}" if name else "nothing tells its storage"
            found += [Mention(one, doubt) for one in _anywhere(storages, bare or match["volume"])]
    return found


def _devices(path: str) -> t.List[str]:
    """Return the datasets that the path of a device may mean."""
    plain = posixpath.normpath(path)[len("/dev/") :]
    return _shorter(plain[len("zvol/") :] if plain.startswith("zvol/") else plain)


def _shorter(name: str) -> t.List[str]:
    """Return a name, and what is left of it if it ends with something else: a partition, or options behind a colon."""
    ends = [len(name), *(at for at, letter in enumerate(name) if letter == ":")]
    names = [name[:end] for end in ends]
    return list(dict.fromkeys(one for whole in names for one in (whole, _PARTITION.split(whole, 1)[0])))


def _anywhere(storages: t.Mapping[str, Storage], name: str) -> t.List[str]:
    """Return every dataset that a volume of this name can be."""
    places = sorted({storage.dataset for storage in storages.values() if storage.dataset})
    return [f"{place}/{one}" for place in places for one in _shorter(name)]


def is_nowhere(storages: t.Mapping[str, Storage], name: str) -> bool:
    """Return whether C(STORAGE:NAME) may be a volume in ZFS, and the cluster does not have the storage."""
    storage_name, _colon, rest = name.partition(":")
    return storage_name not in storages and _VOLUME.fullmatch(rest) is not None


def dataset_of(storages: t.Mapping[str, Storage], name: str) -> str:
    """Return the dataset of C(STORAGE:NAME), "" if it is no volume of a zfspool."""
    try:
        return volume(storages, name).dataset
    except FlexdiskError:
        return ""
