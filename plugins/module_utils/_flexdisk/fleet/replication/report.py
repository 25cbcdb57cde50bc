# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Messages about a sync."""

from __future__ import annotations

import typing as t

from ...model.sizes import render_bytes
from ...model.text import count
from .streams import Full, Increment, Resume, Rollback, Stream
from .sync import DiskSync, VmSync

_Raw = t.Mapping[str, t.Any]
Shown = t.Sequence[t.Tuple[str, VmSync]]  # the name of a VM, and its sync


def summary(syncs: Shown, peer: str) -> str:
    """One line."""
    busy = [(name, one) for name, one in syncs if not one.idle]
    if not busy:
        return f"the replicas on {peer} of {count(len(syncs), 'VM')} have everything"
    disks = [disk for _name, one in busy for disk in one.disks]
    sends = sum(disk.stream_bytes for disk in disks)
    streams = sum(len(disk.streams) for disk in disks)
    text = f"{count(len(busy), 'VM')} to {peer}: {count(streams, 'stream')}, about {render_bytes(sends)}"
    return text + (f"; {len(syncs) - len(busy)} have everything" if len(busy) < len(syncs) else "")


def done(
    transfers: t.Sequence[_Raw],
    sent: t.Sequence[_Raw],
    complete: t.Collection[str],
    peer: str,
    began: str,
    seconds: float,
) -> t.List[str]:
    """Return a line for each VM: what was sent, in which time, and how old the replicas are now.

    transfers and sent: as the home returns them. complete: UUIDs of VMs whose replicas are complete. began: when
    the snapshots of the sync were about to be taken, seconds before now. A VM whose sync was interrupted before can
    have older ones, so its line tells no age.
    """
    by_vm = {one["vm"]: one for one in sent}
    return [
        _done(vm, by_vm.get(vm["uuid"]), peer, f"as of {began}, {round(seconds)} s ago")
        for vm in transfers
        if vm["uuid"] in complete
    ]


def _done(vm: _Raw, sent: t.Optional[_Raw], peer: str, age: str) -> str:
    name = vm["alias"] or vm["uuid"]
    if vm["idle"] or sent is None:
        return f"{name}: its replicas on {peer} have everything that was written until now"
    rest = any(stream["kind"] == "resume" for disk in vm["disks"] for stream in disk["streams"])
    state = "complete; a transfer that was interrupted has ended" if rest else age
    return f"{name}: {render_bytes(sent['sent_bytes'])} sent to {peer} in {sent['seconds']} s; its replicas are {state}"


def diff_text(syncs: Shown) -> str:
    """Return a block for each VM that has something to do."""
    lines = []
    for name, one in syncs:
        if one.idle:
            continue
        lines.append(f"VM {name}:")
        if one.new:
            lines.append(f"  + snapshot {one.name} of {count(len(one.disks), 'disk')}")
        if one.settles:
            lines.append("  quota and reservation set by the law")
        for disk in one.disks:
            lines += [f"  {line}" for line in _lines(disk)]
    return "".join(line + "\n" for line in lines)


def _lines(sync: DiskSync) -> t.Iterator[str]:
    name = sync.disk.dataset
    for stream in sync.streams:
        yield f"{name}: {_stream_text(stream)}"
    if sync.streams:
        yield f"{name}: about {render_bytes(sync.stream_bytes)}"
    gone = (*sync.failed, *sync.obsolete_here)
    if gone:
        yield f"- {name}: {', '.join(point.suffix for point in gone)}"
    if sync.obsolete_there:
        yield f"- replica of {name}: {', '.join(point.suffix for point in sync.obsolete_there)}"
    for repair in sync.repairs:
        yield f"{name}: {repair}"


def _stream_text(stream: Stream) -> str:
    if isinstance(stream, Full):
        return f"all of {stream.to.suffix}"
    if isinstance(stream, Increment):
        return f"from {stream.base.suffix} to {stream.to.suffix}"
    if isinstance(stream, Resume):
        return f"the rest of {stream.to.suffix}"
    if isinstance(stream, Rollback):
        return f"the replica goes back to @{stream.to.name}, without {', '.join(stream.lost)}"
    return "what arrived of an interrupted stream is given up, for its snapshot or its base has gone"
