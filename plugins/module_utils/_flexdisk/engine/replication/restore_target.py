# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A disk is restored on this host from a replica on another one: its stream is let in, and becomes a detached disk."""

from __future__ import annotations

import os
import typing as t

from ...fleet.replication import trust
from ...fleet.replication.restores import Target
from ...fleet.replication.streams import Full, GiveUp
from ...fleet.replication.transfers import DiskTransfer, VmTransfer
from ...hypervisor.protocol import Hypervisor
from ...model.command import Runner
from ...model.dataset import Dataset
from ...model.errors import FlexdiskError
from ...model.sizes import MIB, render_apart, render_mib
from ...model.vm import THICK, Disk
from ...plan.changes import facts_of
from ...plan.exchange import is_interrupted
from ...plan.resolve import creation_interrupted, new_uuid
from ...rules import identity, restore
from ...rules.disk import Place, disk_places
from ...rules.exchange import READY, REPLACED
from ...rules.identity import GUARD_SNAPSHOT, PREFIX
from ...rules.inventory import Host
from ...rules.keys import KEY_NOT_LOADED, locked_pool
from ...rules.layout import container, detached_dataset, restoring_container
from ...rules.replicas import REPLICAS_PROPERTY, Note, anchor_of, decode_notes, is_set_of
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ...zfs.guard import lift
from ..host.container import make_container
from ..host.observe import observe
from ..steps import renames
from ..steps.perform import stamp
from . import trust as keys
from .own_copies import drop_own_copy
from .receivers import end_receiver, pid_file
from .replica_info import check_alone
from .replica_receive import zfs_program


class _View(t.NamedTuple):
    """What this host has of a disk that is restored here."""

    host: Host
    target: Target
    # The VM whose disk it was, "" if this host does not have the disk.
    vm: str
    # The disk that has the new name.
    place: t.Optional[Place]
    # What has come of it so far.
    partial: t.Optional[Dataset]
    # What the disk notes about its replicas.
    notes: t.Sequence[Note]


class RestoreTarget:
    """The host on which a disk is restored.

    Args:
        disk: the UUID of the disk that is restored.
        new_name: the name of the restored disk.
        pool: where it will lie. "" for the pool of the disk, else the default one.
        authorized: the file authorized_keys through which the other host sends.
        in_place: the disk itself gets the contents. It is restored beside it first, and keeps a bookmark of the
            snapshot then, from which syncs go on.
    """

    def __init__(
        self,
        zfs: Zfs,
        hypervisor: Hypervisor,
        runner: Runner,
        disk: str,
        new_name: str,
        pool: str = "",
        authorized: str = "",
        in_place: bool = False,
    ) -> None:
        self._zfs, self._hypervisor, self._runner = zfs, hypervisor, runner
        self._copies = Copies(runner)
        self._disk, self._new_name, self._pool = disk, new_name, pool
        self._authorized = os.path.expanduser(authorized)
        self._in_place = in_place

    def look(self) -> Target:
        """Return what this host has of the disk. Raises FlexdiskError if it cannot be restored here."""
        view = self._read()
        missing = locked_pool(view.host.datasets, view.target.pool) if view.place is None else ""
        if missing:
            raise FlexdiskError(KEY_NOT_LOADED, f"{self._new_name} is not made: {missing}")
        return view.target

    def _read(self) -> _View:
        host = observe(self._zfs, self._hypervisor, all_pools=True)
        original = next((one for one in disk_places(host) if one.disk.uuid == self._disk), None)
        vm = original.disk.vm if original is not None else ""
        pool = self._pool or (original.disk.volume.pool if original is not None else self._default_pool(host))
        if pool not in host.datasets:
            raise FlexdiskError("ResourceNotFound", f"no such pool here: {pool}")
        place = _named(host, self._new_name, vm)
        is_copy = place is not None and place.disk.uuid != self._disk  # the disk itself is no copy of what it had
        partial = host.datasets.get(f"{restoring_container(pool)}/{self._disk}")
        token = self._token(partial.name) if partial is not None else ""
        target = Target(
            pool,
            host.datasets[pool].guid,
            place.description if place is not None else "",
            place.disk.volume.user.get(restore.RESTORED, "") if place is not None and is_copy else "",
            place.disk.volume.user.get(REPLACED, "") if place is not None and self._in_place else "",
            self._in_place and is_interrupted(host, self._disk, self._new_name),
            place is not None and creation_interrupted(place.disk),
            partial is not None,
            partial.user.get(restore.RESTORED, "") if partial is not None else "",
            token,
            tuple(one.guid for one in _snapshots(host, partial)),
        )
        notes = decode_notes(original.disk.volume.user.get(REPLICAS_PROPERTY, "")) if original is not None else []
        return _View(host, target, vm, place, partial, notes)

    def _default_pool(self, host: Host) -> str:
        default, pools = self._hypervisor.capabilities.default_pool, sorted(host.geometry)
        if default in host.datasets:
            return default
        if len(pools) != 1:
            text = f"a restored disk needs a pool; pools on this host: {', '.join(pools) or 'none'}"
            raise FlexdiskError("MissingParameter", text)
        return pools[0]

    def _token(self, name: str) -> str:
        value = self._zfs.properties(name)[name].get("receive_resume_token", ("-", "-"))[0]
        return "" if value == "-" else value

    def plan(self, vm: VmTransfer, needed: int = 0) -> str:
        """Return the line of the plan. Raises FlexdiskError if what this host has has changed, or room lacks.

        needed: bytes that other disks take before.
        """
        view, disk = self._read(), vm.disks[0]
        if (view.target.pool, view.target.pool_guid) != (vm.pool, vm.peer) or disk.uuid != self._disk:
            raise FlexdiskError("Changed", f"pool {vm.pool} changed since it was read; run the task again")
        if view.place is None:
            self._check_room(view, disk, needed)
        verb = "is finished as" if view.place is not None else "detached as"
        name = disk.sent[-1].to.name if disk.sent else disk.name
        size = render_mib(disk.volsize // MIB)
        return f"+ {self._new_name} {size} {verb} a copy of {disk.dataset}@{name}"

    def _check_room(self, view: _View, disk: DiskTransfer, needed: int) -> None:
        """Check that the pool has what the disk will reserve, beside what has come already."""
        goes_on = not any(isinstance(one, GiveUp) for one in disk.streams)
        there = view.partial.used if view.partial is not None and goes_on else 0
        room = view.host.available(view.target.pool) + there
        if disk.refreservation + needed > room:
            left, all_needed = render_apart(room, disk.refreservation + needed)
            others = ", with the disks that are restored before it," if needed else ""
            text = f"pool {view.target.pool} has {left} left, but {self._new_name}{others} needs {all_needed}"
            raise FlexdiskError("InsufficientSpace", text)

    def open(self, vm: VmTransfer, host_keys: t.Sequence[str]) -> t.List[str]:
        """Let the stream in, and give up what has come of another snapshot. Return the public keys of this host.

        host_keys: directories that may have them.
        """
        (disk,) = vm.disks
        end_receiver(self._runner, disk.uuid)
        view = self._read()
        if view.partial is not None and any(isinstance(stream, GiveUp) for stream in disk.streams):
            self._give_up(view.partial)
        if disk.sent:
            self._make_place(vm.pool)
            keys.add_authorized(self._authorized, {disk.uuid: self._authorized_line(vm, disk)})
        return keys.host_keys(host_keys)

    def _give_up(self, partial: Dataset) -> None:
        if self._token(partial.name):
            self._copies.give_up(partial.name)
        left = self._zfs.datasets(partial.name) if self._zfs.exists(partial.name) else []
        check_alone(partial.name, [one.name for one in left if one.kind != "snapshot"])
        if left:
            drop_own_copy(self._zfs, self._copies, partial.name, partial.guid)

    def _make_place(self, pool: str) -> None:
        if not self._zfs.exists(container(pool)):
            make_container(self._zfs, self._hypervisor.capabilities, pool)
        if not self._zfs.exists(restoring_container(pool)):
            self._zfs.create_container(restoring_container(pool), readonly="on", **self._hidden())

    def _hidden(self) -> t.Dict[str, str]:
        """Return the property that keeps a volume without a device, where ZFS has it."""
        return {} if self._hypervisor.capabilities.platform == "illumos" else {"volmode": "none"}

    def _authorized_line(self, vm: VmTransfer, disk: DiskTransfer) -> str:
        (stream,) = disk.sent
        place = f"{restoring_container(vm.pool)}/{disk.uuid}"
        properties = {"readonly": "on", **self._hidden()}
        if isinstance(stream, Full):
            note = restore.encode_origin(restore.Origin(disk.uuid, stream.to.guid, stream.to.name))
            properties[PREFIX + restore.RESTORED] = note
        command = trust.receive_command(zfs_program(), place, properties, pid_file(disk.uuid))
        return trust.authorized(command, disk.key, disk.uuid, keys.expiry(max(vm.sends, disk.volsize)))

    def close(self, vm: VmTransfer) -> bool:
        """Let no stream in any more. If the snapshot has come, make a detached disk of it. Return whether it has."""
        (disk,) = vm.disks
        keys.remove_authorized(self._authorized, [disk.uuid])
        end_receiver(self._runner, disk.uuid)
        view = self._read()
        if view.place is not None:
            known = restore.decode_origin(view.target.existing)
            if known is None or known.disk != disk.uuid or known.guid not in disk.snapshots:
                raise FlexdiskError("NameConflict", f"{view.place.description} has come since the task began")
            if view.target.unfinished:
                self._finish(view.place.disk.volume.name, known.snapshot, view.notes)
            return True
        if view.partial is None or view.target.token or not {*view.target.guids} & {*disk.snapshots}:
            return False
        self._finish(self._become_disk(view, disk), disk.name, view.notes)
        return True

    def _become_disk(self, view: _View, disk: DiskTransfer) -> str:
        """Make a detached disk of what has come: write the identity, then rename. Return its dataset.

        The last snapshot becomes a guard, which goes when the creation ends.
        """
        partial, pool = t.cast(Dataset, view.partial), view.target.pool
        check_alone(partial.name, [name for name, one in view.host.datasets.items() if one.kind != "snapshot"])
        (snapshot,) = [one for one in _snapshots(view.host, partial) if one.guid in disk.snapshots]
        uuid = new_uuid(view.host, "restored", disk.uuid, snapshot.guid, self._new_name)
        facts = facts_of(
            Disk(volume=Dataset("", "volume"), vm=view.vm, index=0), uuid=uuid, name=self._new_name, kind=THICK
        )
        self._zfs.set_facts(partial.name, {**facts, **stamp({}), "from": identity.IMPORTING})
        short = restore.short_name(snapshot)
        if short != GUARD_SNAPSHOT:
            renames.rename_snapshot(self._zfs, partial.name, short, GUARD_SNAPSHOT)
        self._zfs.inherit(partial.name, "readonly", *self._hidden())
        place = detached_dataset(pool, uuid)
        renames.rename(self._zfs, partial.name, place)
        return place

    def _finish(self, name: str, snapshot: str, notes: t.Sequence[Note]) -> None:
        """End the creation of the disk, as the module disk does after an interruption: guard, reservation, mark.

        snapshot: the short name that the guard had. notes: of the replicas whose next sync goes on from a bookmark.
        """
        guard = f"{name}@{GUARD_SNAPSHOT}"
        if self._in_place and self._zfs.exists(guard):
            known = self._zfs.bookmarks(name)
            # Each host with a replica has a bookmark of its own, which goes with the next sync with this host.
            others = [anchor_of(note) for note in notes if not is_set_of(snapshot, note)]
            for short in dict.fromkeys((*others, snapshot)):
                if f"{name}#{short}" not in known:
                    self._copies.bookmark(guard, short)
        lift(self._zfs, name)
        self._zfs.set(name, refreservation="auto")
        ready = {READY: "on"} if self._in_place and f"{name}#{snapshot}" in self._zfs.bookmarks(name) else {}
        self._zfs.set_facts(name, {**ready, "from": ""})


def _named(host: Host, name: str, vm: str) -> t.Optional[Place]:
    """Return the disk with this name: among those of a VM, or of the whole host if there is none."""
    places = [one for one in disk_places(host) if one.disk.name == name and (not vm or one.disk.vm == vm)]
    if len(places) > 1:
        text = "; ".join(one.description for one in places)
        raise FlexdiskError("Ambiguous", f"{len(places)} disks are called {name}: {text}")
    return places[0] if places else None


def _snapshots(host: Host, dataset: t.Optional[Dataset]) -> t.List[Dataset]:
    name = dataset.name if dataset is not None else None
    return [one for one in host.datasets.values() if one.kind == "snapshot" and one.parent == name]
