# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The data that the two hosts of a sync exchange through the controller: replicas, and transfers of VMs.

It is untrusted. The reader checks every value, because values reach commands.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import asdict, dataclass

from ...model.errors import FlexdiskError
from ...model.text import visible
from ...rules import identity
from ...rules.layout import memory_dataset, replicas_container
from ...rules.replicas import is_host, is_synced
from ...rules.retention import NEWEST_ONLY, Keep, decode_keep, encode_keep
from .copies import VOLUME, Point, Replica
from .streams import Full, GiveUp, Increment, Resume, Rollback, Stream, Travelling
from .sync import DiskSync

_Dict = t.Dict[str, t.Any]
_KINDS: t.Mapping[str, t.Any] = {
    "full": Full,
    "increment": Increment,
    "resume": Resume,
    "give_up": GiveUp,
    "rollback": Rollback,
}
_SNAPSHOT = re.compile(r"[A-Za-z0-9_.: -]{1,255}")
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.: -]{0,254}")
TOKEN = re.compile(r"[0-9a-f]{1,4}(?:-[0-9a-f]{1,4000}){2,3}")
KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]{20,200}={0,2}")
HOST_KEY = re.compile(r"(?:ssh|ecdsa)-[a-z0-9-]{2,40} [A-Za-z0-9+/]{20,2000}={0,3}")


@dataclass(frozen=True)
class DiskTransfer:
    """A disk whose replica is brought up to date."""

    uuid: str
    # For people.
    name: str
    # The disk's, on its own host.
    dataset: str
    kind: str
    volsize: int
    # Bytes that the disk reserves.
    refreservation: int
    streams: t.Tuple[Stream, ...] = ()
    # The guids of those that it has.
    snapshots: t.Tuple[int, ...] = ()
    # Bytes that travel, by estimate.
    sends: int = 0
    # The public key with which its streams may come, "" without any.
    key: str = ""
    # The disk is encrypted, and its streams are raw.
    raw: bool = False

    @property
    def sent(self) -> t.List[Travelling]:
        """The streams that travel."""
        return [stream for stream in self.streams if isinstance(stream, (Full, Increment, Resume))]


@dataclass(frozen=True)
class VmTransfer:
    """A VM whose replicas are brought up to date."""

    uuid: str
    alias: str
    # What all disks have on both sides at the end.
    set: str
    # The guid of the home's pool.
    home: int
    # The guid of the peer's pool.
    peer: int
    # The name of the peer's pool.
    pool: str
    # The name of the home.
    host: str
    disks: t.Tuple[DiskTransfer, ...]
    # All disks have the set, and there is nothing to do.
    idle: bool = False
    # The public key with which the home may ask what the peer has of the VM, "" for none.
    asks: str = ""
    # The older sets that stay on both sides.
    keep: Keep = NEWEST_ONLY
    # When the set was taken by this sync, in seconds since 1970 by the clock of the home. If the set was there before,
    # when the disks were read, and were like it.
    taken: int = 0
    # The file system with the saved memory of the guest, which is sent after the disks. Its uuid is that of the VM.
    memory: t.Optional[DiskTransfer] = None

    @property
    def label(self) -> str:
        """The VM for people."""
        return self.alias or self.uuid

    @property
    def full_label(self) -> str:
        """The VM in failures, with its UUID: two VMs may have one alias. As that of VmConfig."""
        return f"{visible(self.alias)} ({self.uuid})" if self.alias else self.uuid

    @property
    def sends(self) -> int:
        """Bytes that travel, by estimate."""
        return sum(one.sends for one in (*self.disks, *filter(None, [self.memory])))


def place(vm: VmTransfer, disk: DiskTransfer) -> str:
    """Return the dataset of a replica."""
    return f"{replicas_container(vm.pool)}/{disk.uuid}"


def memory_place(vm: VmTransfer) -> str:
    """Return the dataset in which the saved memory of the guest arrives."""
    return memory_dataset(vm.pool, vm.uuid)


def transfer(planned: DiskSync, name: str) -> DiskTransfer:
    """Return the transfer of a disk. name is for people."""
    disk = planned.disk
    return DiskTransfer(
        disk.uuid,
        name,
        disk.dataset,
        disk.kind,
        disk.volsize,
        disk.refreservation,
        planned.streams,
        tuple(point.guid for point in disk.snapshots if point.guid),
        planned.stream_bytes,
        raw=bool(disk.encryptionroot),
    )


def transfer_as_result(vm: VmTransfer) -> _Dict:
    """Return a transfer as a result."""
    disks = [dict(asdict(disk), streams=[_stream(one) for one in disk.streams]) for disk in vm.disks]
    memory = dict(asdict(vm.memory), streams=[]) if vm.memory is not None else None
    return dict(asdict(vm), label=vm.label, disks=disks, keep=encode_keep(vm.keep), memory=memory)


def _stream(stream: Stream) -> _Dict:
    kind = next(word for word, kind in _KINDS.items() if isinstance(stream, kind))
    fields = {key: value._asdict() if isinstance(value, Point) else value for key, value in vars(stream).items()}
    return dict(fields, kind=kind)


def read_transfers(given: t.Sequence[t.Mapping[str, t.Any]]) -> t.List[VmTransfer]:
    """Transfers from a result. Raises FlexdiskError InvalidArgument for anything that is none."""
    return [_checked(_vm, vm, "transfer") for vm in given]


_Made = t.TypeVar("_Made")


def _checked(make: t.Callable[[t.Any], _Made], given: t.Any, kind: str) -> _Made:
    try:
        return make(given)
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise FlexdiskError("InvalidArgument", f"this is no {kind}: {str(given)[:200]} ({exc!r})") from exc


def _vm(given: t.Any) -> VmTransfer:
    return VmTransfer(
        uuid=_uuid(given["uuid"]),
        alias=str(given["alias"])[:100],
        set=_matching(given["set"], is_synced),
        home=_guid(given["home"]),
        peer=_guid(given["peer"]),
        pool=_matching(given["pool"], identity.is_pool),
        host=_matching(given["host"], is_host),
        disks=tuple(_disk(disk) for disk in given["disks"]),
        idle=bool(given["idle"]),
        asks=_matching(given["asks"], KEY.fullmatch) if given["asks"] else "",
        keep=decode_keep(str(given["keep"])),
        taken=int(given["taken"]),
        memory=_disk(given["memory"]) if given.get("memory") else None,
    )


def _disk(given: t.Any) -> DiskTransfer:
    key = given["key"]
    return DiskTransfer(
        uuid=_uuid(given["uuid"]),
        name=str(given["name"])[:100],
        dataset=_matching(given["dataset"], _is_dataset),
        kind=_matching(given["kind"], (VOLUME, "filesystem").__contains__),
        volsize=int(given["volsize"]),
        refreservation=int(given["refreservation"]),
        streams=tuple(_read_stream(stream) for stream in given["streams"]),
        snapshots=tuple(_guid(guid) for guid in given["snapshots"]),
        sends=int(given["sends"]),
        key=_matching(key, KEY.fullmatch) if key else "",
        raw=bool(given["raw"]),
    )


def _read_stream(given: t.Any) -> Stream:
    fields = {key: value for key, value in given.items() if key != "kind"}
    for key in ("to", "base"):
        if key in fields:
            fields[key] = _point(fields[key])
    if fields.get("token") or given["kind"] == "resume":
        _matching(fields["token"], TOKEN.fullmatch)
    if "lost" in fields:
        fields["lost"] = tuple(_matching(name, _SNAPSHOT.fullmatch) for name in fields["lost"])
    return t.cast(Stream, _KINDS[given["kind"]](**fields))


def _point(given: t.Any) -> Point:
    _matching(given["name"], _SNAPSHOT.fullmatch)
    flags = (
        bool(given["bookmark"]),
        bool(given["sent"]),
        int(given["written"]),
        bool(given["held"]),
        bool(given["pinned"]),
        bool(given["coming"]),
        int(given["time"]),
    )
    return Point(given["name"], _guid(given["guid"]), int(given["createtxg"]), *flags)


def replica_as_result(replica: Replica) -> _Dict:
    """Return a replica as a result."""
    return dict(asdict(replica), points=[point._asdict() for point in replica.points])


def read_replica(given: t.Any) -> Replica:
    """Return a replica from a result. Raises FlexdiskError InvalidArgument for anything that is none."""
    return _checked(_replica, given, "replica")


def _replica(given: t.Any) -> Replica:
    token, root = given["token"], given["encryptionroot"]
    return Replica(
        uuid=_uuid(given["uuid"]) if given["uuid"] else "",
        dataset=_matching(given["dataset"], _is_dataset),
        volsize=int(given["volsize"]),
        points=tuple(_point(point) for point in given["points"]),
        written=int(given["written"]),
        refreservation=int(given["refreservation"]),
        kind=_matching(given["kind"], (VOLUME, "filesystem").__contains__),
        token=_matching(token, TOKEN.fullmatch) if token else "",
        token_guid=int(given["token_guid"]),
        readonly=bool(given["readonly"]),
        home=_guid(given["home"]),
        host=str(given["host"])[:255],
        reserved=int(given["reserved"]),
        encryptionroot=_matching(root, _is_root) if root else "",
        key_loaded=bool(given["key_loaded"]),
        key_location=str(given["key_location"])[:300],
        keep=encode_keep(decode_keep(str(given["keep"]))),
    )


def _matching(value: t.Any, fits: t.Callable[[str], t.Any]) -> str:
    if not isinstance(value, str) or not fits(value):
        raise ValueError(f"not {value!r:.100}")
    return value


def _uuid(value: t.Any) -> str:
    return _matching(value, identity.is_uuid)


def _guid(value: t.Any) -> int:
    number = int(value)
    if not 0 <= number < 1 << 64:
        raise ValueError(f"not {value!r:.100}")
    return number


def _is_root(name: str) -> bool:
    return identity.is_pool(name) or _is_dataset(name)


def _is_dataset(name: str) -> bool:
    pool, *rest = name.split("/")
    return identity.is_pool(pool) and bool(rest) and all(_PART.fullmatch(part) for part in rest)
