# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook list_replicas: the replicas of VMs, how old they are, when they are due, and what is wrong."""

from __future__ import annotations

import typing as t

from ...model.errors import FlexdiskError
from ...model.text import count
from ...rules.naming import Identifiers, find_by_name
from ..tables import aligned
from .replica_age import NEVER, age_text, due_text, replica_age

_Raw = t.Mapping[str, t.Any]
_SETS = ("VM", "REPLICA ON", "SNAPSHOT", "AS IT WAS AT", "DISKS")
_COLUMNS = ("VM", "HOME", "REPLICA ON", "SYNCED", "AGE", "NEXT DUE", "PROBLEMS")


def replica_list(
    read: t.Mapping[str, _Raw],
    stored: t.Mapping[str, _Raw],
    wanted: t.Mapping[str, _Raw],
    unread: t.Sequence[str] = (),
    left_out: t.Sequence[str] = (),
    vm: str = "",
) -> t.List[str]:
    """Return the lines of the table.

    read: the result of vm_info by host. stored: that of replica_info. wanted: what wanted() of replicate.py gives each
    host. unread: hosts that could not be read. left_out: what is wrong with names in entries. vm: the only VM that is
    shown, with the snapshots from which its disks can be restored: its UUID, alias or the beginning of its UUID.

    Raises FlexdiskError ResourceNotFound or Ambiguous if vm does not mean one.
    """
    fleet = _Fleet(read, stored, wanted)
    uuids = {fleet.meant(vm, unread)} if vm else {uuid for uuid, _host in fleet.places()}
    places = {one for one in fleet.places() if one[0] in uuids}
    rows = sorted((_row(fleet, uuid, host) for uuid, host in places), key=lambda row: (row[0], row[2]))
    lines = aligned(_COLUMNS, rows)
    lines += aligned(_SETS, [row for place in sorted(places) for row in _sets(fleet, *place)]) if vm else []
    wrong = sum(bool(row[-1]) for row in rows)
    total = f"{count(len(rows), 'replica')} of VMs on {count(len(stored), 'host')}"
    lines.append(f"{total}{f', {wrong} with problems' if wrong else ''}")
    lines += [f"{', '.join(unread)} could not be read, and may have more"] if unread else []
    return [*lines, *left_out]


class _Fleet:
    """What the homes of VMs and the hosts of their replicas say."""

    def __init__(self, read: t.Mapping[str, _Raw], stored: t.Mapping[str, _Raw], wanted: t.Mapping[str, _Raw]) -> None:
        self.read_hosts = set(stored)
        self.vms = {host: {vm["uuid"]: vm for vm in result["vms"]} for host, result in read.items()}
        self.every = {(one["vm"], one["host"]): one["every"] for call in wanted.values() for one in call["replicas"]}
        self.stored: t.Dict[t.Tuple[str, str], t.List[_Raw]] = {}
        for host, result in stored.items():
            for replica in result["replicas"]:
                self.stored.setdefault((replica["vm"], host), []).append(replica)

    def places(self) -> t.Set[t.Tuple[str, str]]:
        """Return each VM with each host that has replicas of it, or should have."""
        noted = {
            (uuid, note["host"])
            for vms in self.vms.values()
            for uuid, vm in vms.items()
            for disk in vm["disks"]
            for note in disk.get("replicas", ())
        }
        return {*noted, *self.every, *self.stored}

    def homes(self, vm: str) -> t.List[str]:
        """Return the hosts that have a VM."""
        return sorted(host for host, vms in self.vms.items() if vm in vms)

    def name(self, vm: str) -> str:
        """Return what people call a VM."""
        aliases = [self.vms[host][vm]["alias"] for host in self.homes(vm)]
        return next(filter(None, aliases), vm) or "unknown"

    def meant(self, name: str, unread: t.Sequence[str]) -> str:
        """Return the UUID of the one VM with replicas that a name means. unread: hosts that could not be read."""
        vms = sorted({vm for vm, _host in self.places()})
        found = find_by_name(name.strip(), [Identifiers(vm, self.name(vm)) for vm in vms])
        if len(found) == 1:
            return found[0].uuid
        if found:
            raise FlexdiskError("Ambiguous", f"{name} could be {' or '.join(one.uuid for one in found)}")
        known = ", ".join(sorted(map(self.name, vms))) or "none"
        text = f"no replicas of {name} are on the hosts that were read, but of: {known}"
        if unread:
            text += f"; {', '.join(unread)} could not be read: a VM whose home is off is found by its UUID"
        raise FlexdiskError("ResourceNotFound", text)


def _row(fleet: _Fleet, vm: str, host: str) -> t.Sequence[str]:
    homes, stored = fleet.homes(vm), fleet.stored.get((vm, host), [])
    here: _Raw = fleet.vms[homes[0]][vm] if len(homes) == 1 else {}
    age = replica_age(here, host)
    seconds = age.seconds if len(homes) == 1 else _age_there(stored)
    problems = [*_problems_of_places(fleet, homes, host), *_problems_of_disks(fleet, here, host, stored)]
    problems += [age.reason] if age.reason else []
    due = "no entry" if homes else ""
    if (vm, host) in fleet.every:
        every = fleet.every[vm, host]
        due = due_text(seconds, every)
        problems += [f"older than {age_text(every)}"] if every and seconds is not None and seconds > every else []
    home = " and ".join(homes) or "not found"
    text = age_text(seconds) if seconds is not None or not age.reason else ""
    return (fleet.name(vm), home, host, _synced(here, host, stored), text, due, "; ".join(problems))


def _age_there(stored: t.Sequence[_Raw]) -> t.Optional[int]:
    """Return the age of the oldest replica of a VM by the clock of their host, None if one was never complete."""
    ages = [one["age"] for one in stored]
    return max(ages) if ages and None not in ages else None


def _synced(here: _Raw, host: str, stored: t.Sequence[_Raw]) -> str:
    """Return when the oldest of the replicas was complete, by the clock of their host, or of the VM's if need be. Those
    of detached disks, which no sync renews, do not count.
    """
    attached = {disk["uuid"] for disk in _disks(here)} if here else {one["uuid"] for one in stored}
    times = [one["synced"] for one in stored if one["synced"] and one["uuid"] in attached] or [
        note["synced"] for note in _notes(here, host).values() if note["synced"]
    ]
    return min(times, default=NEVER)


def _sets(fleet: _Fleet, vm: str, host: str) -> t.Iterator[t.Sequence[str]]:
    """Yield the snapshots of the replicas of a VM on a host, newest first, with the disks that have each, and whether
    one of those that are attached lacks it.
    """
    homes = [fleet.vms[home][vm] for home in fleet.homes(vm)]
    names = {disk["uuid"]: disk["name"] for one in homes for disk in [*_disks(one), *one.get("parked", ())]}
    stored = fleet.stored.get((vm, host), [])
    times: t.Dict[str, t.Dict[str, str]] = {}  # by snapshot and disk. All replicas have them oldest first.
    for one in stored:
        for snapshot in one["snapshots"]:
            times.setdefault(snapshot["name"], {})[one["uuid"]] = snapshot["synced"]
    wanted = {disk["uuid"] for one in homes for disk in _disks(one)} or {one["uuid"] for one in stored}
    rows = [(min(filter(None, times[name].values()), default=""), at, name) for at, name in enumerate(times)]
    for time, _at, name in sorted(rows, reverse=True):
        disks = sorted(names.get(uuid) or uuid for uuid in times[name])
        lacking = "" if wanted <= {*times[name]} else f", not all of {len(wanted)}"
        yield (fleet.name(vm), host, name, time or "not known", f"{', '.join(disks)}{lacking}")


def _disks(vm: _Raw) -> t.List[_Raw]:
    return [disk for disk in vm.get("disks", ()) if "uuid" in disk and not disk.get("hidden")]


def _notes(vm: _Raw, host: str) -> t.Dict[str, _Raw]:
    """Return what the disks of a VM know of their replicas on a host, by the UUIDs of the disks."""
    return {disk["uuid"]: note for disk in _disks(vm) for note in disk.get("replicas", ()) if note["host"] == host}


def _problems_of_places(fleet: _Fleet, homes: t.Sequence[str], host: str) -> t.Iterator[str]:
    if not homes:
        yield "no host that was read has the VM"
    if len(homes) > 1:
        yield "several hosts have the VM: see status"
    if homes == [host]:
        yield "the VM itself is there"
    if host not in fleet.read_hosts:
        yield f"{host} was not read"


def _problems_of_disks(fleet: _Fleet, here: _Raw, host: str, stored: t.Sequence[_Raw]) -> t.Iterator[str]:
    names = {disk["uuid"]: disk["name"] or disk["uuid"] for disk in here.get("disks", ()) if "uuid" in disk}
    missing = {uuid for uuid, note in _notes(here, host).items() if note["synced"]} - {one["uuid"] for one in stored}
    if host in fleet.read_hosts:
        yield from (f"{host} has no replica of disk {names[uuid]}" for uuid in sorted(missing, key=names.__getitem__))
    for one in stored:
        label = f"disk {names[one['uuid']]}" if one["uuid"] in names else one["dataset"]
        if one["interrupted"]:
            yield f"{label}: a transfer was interrupted"
        if one["written_bytes"]:
            yield f"{label}: its replica was written to"
        if not one["key_loaded"]:
            yield f"{label}: the key of its replica is not loaded"
