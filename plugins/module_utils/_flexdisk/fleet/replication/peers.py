# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host of the replicas, and why it cannot have a replica of a VM."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...model.errors import FlexdiskError, Problem
from ...model.sizes import render_apart
from ...model.vm import Vm
from ...rules import exchange
from ...rules.identity import blank_in, uuid_of
from ...rules.inventory import Host
from ...rules.keys import KEY_NOT_LOADED, key_missing
from ...rules.layout import replicas_container
from ...rules.unmanaged import unmanaged
from .copies import Replica
from .transfers import read_replica


class PeerPool(t.NamedTuple):
    """A pool of the other host."""

    guid: int
    # Bytes.
    available: int
    # Whether it can have encrypted datasets.
    encrypts: bool = True
    # The encryption root whose key is not loaded, so that nothing is made where replicas lie. "" if it is loaded.
    locked: str = ""
    # Whether the place of replicas is there.
    prepared: bool = True


@dataclass(frozen=True)
class Peer:
    """The other host, as replica_info told of it. pool: where the replicas lie there, "" for the same name as here."""

    name: str
    pool: str
    pools: t.Mapping[str, PeerPool]  # by name
    vms: t.Sequence[t.Mapping[str, str]]
    replicas: t.Mapping[str, Replica]  # by the name of the dataset
    collected: int = 0  # when it was read, by its clock: seconds since 1970


def read_peer(name: str, pool: str, info: t.Mapping[str, t.Any]) -> Peer:
    """Return the peer from the result of replica_info there. Raises FlexdiskError InvalidArgument for anything else."""
    try:
        pools = {
            str(one["name"]): PeerPool(
                int(one["guid"]),
                int(one["available_bytes"]),
                bool(one["encryption"]),
                str(one["locked"]),
                bool(one["prepared"]),
            )
            for one in info["pools"]
        }
        vms = [{"uuid": str(vm["uuid"]), "alias": str(vm["alias"])} for vm in info["vms"]]
        replicas = [read_replica(one["sync"]) for one in info["replicas"]]
        collected = int(info["collected"])
    except (KeyError, TypeError, ValueError) as exc:
        raise FlexdiskError("InvalidArgument", f"peer is no result of replica_info: {exc!r}") from exc
    return Peer(name, pool, pools, vms, {one.dataset: one for one in replicas}, collected)


def refusals(vm: Vm, host: Host, peer: Peer, place: str) -> t.List[Problem]:
    """Return why a VM has no replica on this peer, before its disks are looked at."""
    name, problems = vm.config.label, []
    if place not in peer.pools:
        message = f"{peer.name} has no pool {place}, but {', '.join(sorted(peer.pools)) or 'none'}"
        return [Problem("ResourceNotFound", message, name)]
    if blank_in(place):
        return [Problem("NotSupported", blank_in(place), name)]
    if peer.pools[place].guid == host.datasets[vm.config.pool].guid:
        return [
            Problem("InvalidArgument", f"{peer.name} is the host that has the VM: a replica is on another one", name)
        ]
    for other in peer.vms:
        if other["uuid"] == vm.config.uuid or (vm.config.alias and other["alias"] == vm.config.alias):
            message = f"{peer.name} has a VM {other['alias'] or other['uuid']} ({other['uuid']}) already"
            problems.append(Problem("AlreadyExists", message, name))
    if all(disk.hidden for disk in vm.disks):
        alone = "".join(f"; {text}" for text in unmanaged(vm))
        problems.append(
            Problem("ResourceNotFound", f"it has no disks{' that are replicated' * bool(alone)}{alone}", name)
        )
    problems += _of_disks(vm, host, peer, place)
    if peer.pools[place].locked and not (peer.pools[place].prepared and _only_raw_ones_are_new(vm, peer, place)):
        message = f"pool {place} of {peer.name} gets no replicas: {key_missing(peer.pools[place].locked)}"
        problems.append(Problem(KEY_NOT_LOADED, message, name))
    if vm.missing or vm.unread:
        problems.append(Problem("ResourceNotFound", f"it lacks {', '.join((*vm.missing, *vm.unread))}", name))
    why = vm.overlaid or exchange.why_refused(vm)
    if why:
        problems.append(Problem("InUse", why, name))
    return problems


def _only_raw_ones_are_new(vm: Vm, peer: Peer, place: str) -> bool:
    """Return whether each new replica is one of an encrypted disk. It has a key of its own, which it does not need."""
    plain = [disk for disk in vm.disks if not (disk.hidden or disk.volume.encryptionroot)]
    names = [f"{replicas_container(place)}/{disk.uuid or uuid_of(disk.volume.guid)}" for disk in plain]
    return all(name in peer.replicas for name in names)


def _of_disks(vm: Vm, host: Host, peer: Peer, place: str) -> t.Iterator[Problem]:
    name = vm.config.label
    for disk in vm.disks:
        if disk.uuid in host.duplicates:
            message = f"its uuid {disk.uuid} is also on {', '.join(host.duplicates[disk.uuid])}"
            yield Problem("Ambiguous", message, name, disk.label)
        if disk.volume.encryptionroot and not disk.hidden and not peer.pools[place].encrypts:
            message = f"it is encrypted, and pool {place} of {peer.name} has the feature encryption disabled"
            message += f"; zpool set feature@encryption=enabled {place} on {peer.name} enables it, for good"
            yield Problem("NotSupported", message, name, disk.label)


def without_room(vm: Vm, place: str, needed: int, of_vm: int, peer: Peer) -> t.Iterator[Problem]:
    """Yield why the replicas of a VM have no room in a pool of the peer, beside those of the VMs before it.

    needed: bytes of all of them; of_vm: of this VM.
    """
    room = peer.pools[place].available
    if of_vm and needed > room:
        figures = render_apart(of_vm, max(0, room - needed + of_vm))
        text = "the replicas need %s in pool %s of %s, which has %s left"
        yield Problem("InsufficientSpace", text % (figures[0], place, peer.name, figures[1]), vm.config.label)


def peer_space_problems(needs: t.Mapping[str, int], peer: Peer) -> t.Iterator[Problem]:
    """Pools of the peer that lack room. needs: bytes by the names of its pools."""
    for place, needed in sorted(needs.items()):
        room = peer.pools[place].available
        if needed > room:
            figures = render_apart(needed, room)
            text = "the replicas need %s in pool %s of %s, which has %s"
            yield Problem("InsufficientSpace", text % (figures[0], place, peer.name, figures[1]))
