# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook status: what is half done on all hosts, and what goes on with it or gives it up."""

from __future__ import annotations

import json
import re
import shlex
import typing as t
from dataclasses import dataclass, replace

from ...model.text import count, visible
from ...rules import half_done as kinds
from ...rules.findings import INTENTS
from ...rules.half_done import HalfDone
from ...rules.knobs import command, for_playbooks
from ...rules.one_host import same_host_problems
from ..tables import aligned
from .refusals import run_playbook
from .restore import ending

_Raw = t.Mapping[str, t.Any]
_COLUMNS = ("STATE", "HOST", "SINCE", "WHAT")
_VM_MODULE = "flexdisk.hypervisor.vm"
HALF_DONE, AT_WORK, KEPT = "half done", "at work", "kept"
"""Somebody must go on or give up; a task is at it; it may stay as long as you like."""
_STATES = (HALF_DONE, AT_WORK, KEPT)
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._-]*\Z")
_YAML = re.compile(r"(?i)(y|yes|n|no|on|off|true|false|null|none)\Z")


@dataclass(frozen=True)
class Row:
    """One thing that is half done, on all hosts that know of it."""

    state: str
    host: str
    name: str
    """The VM or the group, as users call it."""
    text: str
    since: str = ""
    on: str = ""
    """The command that goes on, or what to do in words. "" if nothing is certain."""
    off: str = ""
    """The same for giving it up."""


class Status(t.NamedTuple):
    """What the playbook shows."""

    lines: t.List[str]
    counts: t.Dict[str, int]
    """The number of rows in each state: C(half_done), C(at_work), C(kept)."""


class _Place(t.NamedTuple):
    """Something half done, and the host that reports it."""

    host: str
    one: HalfDone


def status(read: t.Mapping[str, _Raw], unread: t.Sequence[str]) -> Status:
    """Return what is half done. read: the result of host_status, by host. unread: hosts that could not be read."""
    one_host = same_host_problems({host: [pool["guid"] for pool in result["pools"]] for host, result in read.items()})
    rows = sorted(
        _rows(read, bool(one_host)), key=lambda row: (_STATES.index(row.state), row.since or "~", row.host, row.name)
    )
    table = aligned(_COLUMNS, [(row.state, row.host, row.since or "-", f"{row.name}: {row.text}") for row in rows])
    lines = table[:1]
    for line, row in zip(table[1:], rows):
        lines.append(line)
        lines += [f"    go on:   {visible(row.on)}"] if row.on else []
        lines += [f"    give up: {visible(row.off)}"] if row.off else []
    counts = {state: sum(row.state == state for row in rows) for state in _STATES}
    lines.append(_summary(counts, len(read)))
    lines += [f"{', '.join(unread)} could not be read, and may have more"] if unread else []
    lines += [f"{text}. Take all but one of the names out of the inventory." for text in one_host]
    return Status(lines, {state.replace(" ", "_"): number for state, number in counts.items()})


def _summary(counts: t.Mapping[str, int], hosts: int) -> str:
    where = f"on {count(hosts, 'host')}"
    parts = [f"{number} {state}" for state, number in counts.items() if number]
    return f"{', '.join(parts)} {where}" if parts else f"nothing is half done {where}"


class _Fleet:
    """What all hosts that were read say of the VMs. hosts: the result of host_status, by host."""

    def __init__(self, hosts: t.Mapping[str, _Raw]) -> None:
        self.have = {host: {vm["uuid"]: str(vm["alias"]) for vm in result["vms"]} for host, result in hosts.items()}
        self.places = [
            _Place(host, HalfDone(**{**one, "inherit": tuple(one["inherit"])}))
            for host, result in hosts.items()
            for one in result["half_done"]
        ]
        self._names = {one.vm: one.alias for _host, one in self.places if one.vm and one.alias}
        self._names.update({vm: alias for vms in self.have.values() for vm, alias in vms.items() if alias})
        self._transfers = {vm for result in hosts.values() for vm in result["transfers"]}
        self._groups = {one.group for _host, one in self.places if one.kind == kinds.LEASE and one.works} - {""}
        self._moving = {
            (of, one.vm)
            for host, one in self.places
            if one.kind in _OF_MOVES and one.kind != kinds.TOMBSTONE
            for of in (host, one.host)
        }

    def called(self, one: HalfDone) -> str:
        """Return what people call a thing. If another VM has the name of a VM, too, its UUID follows."""
        name = self._names.get(one.vm, "")
        if name and self.others_called(name, one.vm):
            return f"{name} ({one.vm})"
        return name or one.vm or one.group or one.volume

    def others_called(self, name: str, vm: str) -> bool:
        """Whether a VM of a host has this name, and is not this VM."""
        return any(alias == name and uuid != vm for vms in self.have.values() for uuid, alias in vms.items())

    def homes(self, vm: str) -> t.List[str]:
        """Return the hosts that have the VM."""
        return sorted(host for host, vms in self.have.items() if vm in vms)

    def works(self, one: HalfDone) -> bool:
        """Whether a task works on it, or may work on it. Of a transfer, only the host that sends knows that."""
        sent = one.kind in (*_OF_MOVES, kinds.REPLICA, kinds.RESTORE) and one.vm in self._transfers
        return one.works or sent or one.group in self._groups

    def belongs_to_move(self, host: str, one: HalfDone) -> bool:
        """Whether the command that goes on with a move ends it, too. A third host may have something of its own."""
        return one.kind in _PARTS_OF_MOVES and (host, one.vm) in self._moving

    def twice(self) -> t.Iterator[str]:
        """Yield the VMs that several hosts have, and that no record explains."""
        moving = {vm for _host, vm in self._moving}
        for vm in sorted({vm for vms in self.have.values() for vm in vms} - moving):
            if len(self.homes(vm)) > 1:
                yield vm


def _rows(hosts: t.Mapping[str, _Raw], one_host: bool) -> t.Iterator[Row]:
    """Yield all rows. one_host: several names mean one host, so its VMs seem to be on two hosts."""
    fleet = _Fleet(hosts)
    for row in _every_row(fleet, one_host):
        yield replace(row, on="", off="") if row.state == AT_WORK else row  # a second run must not begin


def _every_row(fleet: _Fleet, one_host: bool) -> t.Iterator[Row]:
    yield from _moves(fleet)
    for vm in () if one_host else fleet.twice():
        homes = fleet.homes(vm)
        text = f"{' and '.join(homes)} have it, and one of them is its old home, or has a copy"
        name = fleet.called(HalfDone(kinds.TAKEN_OVER, "", vm))
        yield Row(HALF_DONE, homes[0], name, text, on=_failover(vm, ("flexdisk_failover_state", "returned")))
    for host, one in fleet.places:
        row = _ROWS.get(one.kind)
        if row is not None and not fleet.belongs_to_move(host, one):
            yield row(fleet, host, one)


# -- moves


_PARTS_OF_MOVES = (kinds.RUN, kinds.REPLICA, kinds.STOPPED)
"""What the command that goes on with a move ends, too, on both of its hosts."""
_OF_MOVES = (kinds.LEAVES, kinds.COMES, kinds.TAKEN_OVER, kinds.TAKES_OVER, kinds.TOMBSTONE)


def _moves(fleet: _Fleet) -> t.Iterator[Row]:
    """Both hosts tell of a move: it becomes one row, at the host where the VM goes."""
    known = {(host, one.vm): one for host, one in fleet.places if one.kind in _OF_MOVES}
    for (host, vm), one in known.items():
        name = fleet.called(one)
        other = known.get((one.host, vm))
        works = fleet.works(one) or (other is not None and fleet.works(other))
        state = _state(works)
        if one.kind == kinds.COMES:
            yield _coming(fleet, host, one, other, state)
        elif one.kind == kinds.TAKES_OVER:
            text = f"is being taken over from {one.host}{_unread(fleet, one.host)}"
            go = _failover(vm, ("flexdisk_target", host), ("flexdisk_fenced", "true"))
            stays = _failover(vm, ("flexdisk_failover_state", "stays"))
            yield Row(state, host, name, text, one.since, go, stays if one.host in fleet.homes(vm) else "")
        elif one.kind == kinds.TAKEN_OVER:
            text = f"was taken over by {one.host}, and its end on {host} is not complete"
            go = _failover(vm, ("flexdisk_failover_state", "returned"), ("flexdisk_old_host", host))
            yield Row(state, host, name, text, one.since, go)
        elif one.kind == kinds.LEAVES and not _comes_to(other, host):
            yield _about_to_leave(fleet, host, one, state)
        elif one.kind == kinds.TOMBSTONE and not _comes_to(other, host):
            yield _tombstone(fleet, host, one)


def _comes_to(other: t.Optional[HalfDone], source: str) -> bool:
    """Return whether the other host tells of the same move."""
    return other is not None and other.kind in (kinds.COMES, kinds.TAKES_OVER) and other.host == source


def _unread(fleet: _Fleet, host: str) -> str:
    return "" if host in fleet.have else f"; {host} was not read"


def _about_to_leave(fleet: _Fleet, host: str, one: HalfDone, state: str) -> Row:
    text = f"is about to leave for {one.host}"
    text += f", which {'does not expect it yet' if one.host in fleet.have else 'was not read and may have it'}"
    go, stays = _of_move(one.vm, one.host)
    has_not_left = one.host in fleet.have and fleet.homes(one.vm) == [host]
    return Row(state, host, fleet.called(one), text, one.since, go, stays if has_not_left else "")


def _coming(fleet: _Fleet, host: str, one: HalfDone, other: t.Optional[HalfDone], state: str) -> Row:
    source, name = one.host, fleet.called(one)
    go, stays = _of_move(one.vm, host)
    if other is not None and other.kind == kinds.TOMBSTONE and other.host == host:
        text = f"has left {source} and not arrived on {host}: only the way forward is left"
        return Row(state, host, name, text, other.since, go)
    text = f"moves from {source} to {host}, where it was made without its disks{_unread(fleet, source)}"
    since = other.since if other is not None and other.kind == kinds.LEAVES else one.since
    return Row(state, host, name, text, since, go, stays if fleet.homes(one.vm) == [source] else "")


def _tombstone(fleet: _Fleet, host: str, one: HalfDone) -> Row:
    """Whether the VM has arrived is certain only if a host has it."""
    text, off = f"has moved to {one.host}, and its name is taken on {host}", ""
    if [home for home in fleet.homes(one.vm) if home != host]:
        off = run_playbook("move_vm", _vm(one.vm), ("flexdisk_move_state", "forgotten"), limit=host)
    elif one.host in fleet.have:
        text = f"has moved to {one.host}, which does not have it any more, and its name is taken on {host}"
    else:
        text = f"has left for {one.host}, and whether it has arrived is not known: {one.host} was not read"
    return Row(KEPT, host, fleet.called(one), text, one.since, off=off)


def _of_move(vm: str, target: str) -> t.Tuple[str, str]:
    move = (_vm(vm), ("flexdisk_target", target))
    return run_playbook("move_vm", *move), run_playbook("move_vm", *move, ("flexdisk_move_state", "stays"))


def _failover(vm: str, *more: t.Tuple[str, str]) -> str:
    return run_playbook("failover_vm", _vm(vm), *more)


# -- the rest


def _run_row(fleet: _Fleet, host: str, one: HalfDone) -> Row:
    works = fleet.works(one)
    text = f"{'a run is at work' if works else 'a run was interrupted'}: {for_playbooks(one.text)}"
    go, off = "", _inherit(host, one)
    if one.restoring:
        playbook, variables = ending(one.vm, one.restoring)
        go, off = run_playbook(playbook, *variables), ""
    elif one.deletes or one.creates:
        go, off = _made_or_deleted(fleet, host, one)
    elif one.repair is not None:
        does = command(one.repair, host, "")
        does = _task(host, one.repair) if does.startswith("- ") else does
        go, off = (off, does) if _forgets(one.repair) else (does, off)
        if _forgets(one.repair):
            text += f"; giving it up drops all such records of {host}"
    return Row(_state(works), host, fleet.called(one), text, one.since, go, off)


def _made_or_deleted(fleet: _Fleet, host: str, one: HalfDone) -> t.Tuple[str, str]:
    """Return the commands for a VM that a run was making or deleting.

    A name may mean another VM meanwhile, so they have the UUID. The playbook delete_vm knows only VMs of the
    hypervisor; the module finds also what is left of one.
    """
    known = one.vm in fleet.have[host]
    end = _task(host, {_VM_MODULE: {"vms": [{"vm": one.vm, "state": "absent"}]}})
    end = run_playbook("delete_vm", _vm(one.vm)) if known else end
    whole = known and not one.unfinished
    if one.deletes:
        return end, _inherit(host, one) if whole else ""
    go = run_playbook("create_vm", ("flexdisk_vm", one.creates))
    if one.group:
        go = run_playbook("update_group", ("flexdisk_group", one.group))
    elif fleet.others_called(one.creates, one.vm) or not _is_plain(one.creates):
        go = ""
    return go, "" if whole else end


def _forgets(repair: _Raw) -> bool:
    """Return whether a task of disk_verify removes the record of a run, and does none of its steps."""
    return any(kind in INTENTS for options in repair.values() for kind in options.get("repair", ()))


def _replica_row(fleet: _Fleet, host: str, one: HalfDone) -> Row:
    """Whether the transfer works, and whether the replica is all that is left of the VM, only its home knows."""
    wanted = (_vm(one.vm), ("flexdisk_replica_host", host))
    text, go, off = one.text, "", ""
    if len(fleet.homes(one.vm)) == 1 and host not in fleet.homes(one.vm):
        go, off = (
            run_playbook("replicate", *wanted),
            run_playbook("replicate", *wanted, ("flexdisk_replica_state", "absent")),
        )
    elif one.host and one.host not in fleet.have:
        text += f"; {one.host}, which sends it, was not read, so it may be at work"
    elif not fleet.homes(one.vm):
        text += ", and no host that was read has the VM"
    return Row(_state(fleet.works(one)), host, fleet.called(one), text, one.since, go, off)


def _restore_row(fleet: _Fleet, host: str, one: HalfDone) -> Row:
    """Only its user knows the name of the restored disk. What has come is a copy, so nothing is lost with it."""
    text = f"{one.text}. The playbook restore_disk with the same variables goes on"
    off = f"as root on {host}: {' '.join(map(shlex.quote, ('zfs', 'destroy', '-r', one.volume)))}"
    return Row(_state(fleet.works(one)), host, fleet.called(one), text, one.since, off=off)


def _lease_row(fleet: _Fleet, host: str, one: HalfDone) -> Row:
    go = run_playbook("update_group", ("flexdisk_group", one.group))
    return Row(_state(fleet.works(one)), host, f"group {one.group}", one.text, one.since, go, _inherit(host, one))


def _drained_row(fleet: _Fleet, host: str, one: HalfDone) -> Row:
    go = run_playbook("update_group", ("flexdisk_group", one.group)) if one.group else ""
    undo = _task(host, {_VM_MODULE: {"vms": [{"vm": one.vm, "drained": False}]}})
    return Row(_state(fleet.works(one)), host, fleet.called(one), one.text, one.since, go, undo)


def _overlay_row(fleet: _Fleet, host: str, one: HalfDone) -> Row:
    return Row(_state(fleet.works(one)), host, fleet.called(one), for_playbooks(one.text))


def _stopped_row(fleet: _Fleet, host: str, one: HalfDone) -> Row:
    return Row(_state(fleet.works(one)), host, fleet.called(one), one.text, on=run_playbook("start_host", limit=host))


def _diverged_row(fleet: _Fleet, host: str, one: HalfDone) -> Row:
    """If no host has the VM, this may be all that is left of it."""
    give_up = _failover(one.vm, ("flexdisk_failover_state", "given_up"), ("flexdisk_old_host", host))
    lives = [home for home in fleet.homes(one.vm) if home != host]
    return Row(KEPT, host, fleet.called(one), one.text, one.since, off=give_up if lives else "")


def _unreadable_row(fleet: _Fleet, host: str, one: HalfDone) -> Row:
    return Row(HALF_DONE, host, fleet.called(one), one.text)


_ROWS: t.Mapping[str, t.Callable[[_Fleet, str, HalfDone], Row]] = {
    kinds.RUN: _run_row,
    kinds.REPLICA: _replica_row,
    kinds.RESTORE: _restore_row,
    kinds.LEASE: _lease_row,
    kinds.DRAINED: _drained_row,
    kinds.OVERLAY: _overlay_row,
    kinds.STOPPED: _stopped_row,
    kinds.DIVERGED: _diverged_row,
    kinds.UNREADABLE: _unreadable_row,
}


def _state(works: bool) -> str:
    return AT_WORK if works else HALF_DONE


# -- what to do: the command of a playbook, or in words what to do on the host


def _vm(uuid: str) -> t.Tuple[str, str]:
    """Return the variable that names a VM. An alias may mean another VM by the time that somebody uses the command."""
    return "flexdisk_vm", uuid


def _is_plain(name: str) -> bool:
    """Whether a name in a command means the text itself, not a number or a truth value."""
    return bool(_PLAIN.match(name)) and not _YAML.match(name)


def _task(host: str, task: _Raw) -> str:
    """Return in words that a host needs a task. An ad-hoc command would lack the variables of our playbooks."""
    ((module, options),) = task.items()
    return f"a task for {host}: {{{module}: {json.dumps(options, ensure_ascii=False)}}}"


def _inherit(host: str, one: HalfDone) -> str:
    if not one.inherit:
        return ""
    return f"as root on {host}: {' '.join(map(shlex.quote, ('zfs', 'inherit', *one.inherit)))}"
