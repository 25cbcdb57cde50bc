# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook status: what is half done on all hosts, with the command that goes on and the one that gives it up."""

from __future__ import annotations

import json
import re
import shlex
import typing as t
from dataclasses import dataclass

from ...model.text import count, visible
from ...rules import half_done as kinds
from ...rules.findings import INTENTS
from ...rules.half_done import HalfDone
from ...rules.knobs import command, for_playbooks
from ..tables import aligned

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
    """The command that goes on, "" if there is none."""
    off: str = ""
    """The command that gives it up, "" if there is none."""


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
    rows = sorted(_rows(read), key=lambda row: (_STATES.index(row.state), row.since or "~", row.host, row.name))
    table = aligned(_COLUMNS, [(row.state, row.host, row.since or "-", f"{row.name}: {row.text}") for row in rows])
    lines = table[:1]
    for line, row in zip(table[1:], rows):
        lines.append(line)
        lines += [f"    go on:   {visible(row.on)}"] if row.on else []
        lines += [f"    give up: {visible(row.off)}"] if row.off else []
    counts = {state: sum(row.state == state for row in rows) for state in _STATES}
    lines.append(_summary(counts, len(read)))
    lines += [f"{', '.join(unread)} could not be read, and may have more"] if unread else []
    return Status(lines, {state.replace(" ", "_"): number for state, number in counts.items()})


def _summary(counts: t.Mapping[str, int], hosts: int) -> str:
    where = f"on {count(hosts, 'host')}"
    parts = [f"{number} {state}" for state, number in counts.items() if number]
    return f"{', '.join(parts)} {where}" if parts else f"nothing is half done {where}"


def _rows(read: t.Mapping[str, _Raw]) -> t.Iterator[Row]:
    places = [
        _Place(host, HalfDone(**{**one, "inherit": tuple(one["inherit"])}))
        for host, result in read.items()
        for one in result["half_done"]
    ]
    have = {host: {vm["uuid"]: str(vm["alias"]) for vm in result["vms"]} for host, result in read.items()}
    names = {vm: alias for some in have.values() for vm, alias in some.items() if alias}
    names.update({one.vm: one.alias for _host, one in places if one.vm and one.alias})
    moving = {one.vm for _host, one in places if one.kind in _OF_MOVES and one.kind != kinds.TOMBSTONE}
    yield from _moves(places, names, have)
    groups = {one.group for _host, one in places if one.kind == kinds.LEASE and one.works}
    for place in places:
        row = _ROWS.get(place.one.kind)
        if row is not None and not (place.one.kind in _PARTS_OF_MOVES and place.one.vm in moving):
            yield row(place, _called(place.one, names), place.one.works or place.one.group in groups - {""})


def _called(one: HalfDone, names: t.Mapping[str, str]) -> str:
    return one.alias or names.get(one.vm, "") or one.vm or one.group or one.volume


# -- moves


_PARTS_OF_MOVES = (kinds.RUN, kinds.REPLICA, kinds.STOPPED)
"""What the command that goes on with a move ends, too. No other task changes such a VM."""
_OF_MOVES = (kinds.LEAVES, kinds.COMES, kinds.TAKEN_OVER, kinds.TAKES_OVER, kinds.TOMBSTONE)


def _moves(
    places: t.Sequence[_Place], names: t.Mapping[str, str], have: t.Mapping[str, t.Mapping[str, str]]
) -> t.Iterator[Row]:
    """Both hosts tell of a move: it becomes one row, at the host where the VM goes."""
    known = {(host, one.vm): one for host, one in places if one.kind in _OF_MOVES}
    for (host, vm), one in known.items():
        name = _called(one, names)
        other = known.get((one.host, vm))
        works = one.works or (other is not None and other.works)
        state = AT_WORK if works else HALF_DONE
        if one.kind == kinds.COMES:
            yield _coming(host, one, other, name, state)
        elif one.kind == kinds.TAKES_OVER:
            text, since = f"is being taken over from {one.host}", one.since
            go = _failover(name, vm, ("flexdisk_target", host), ("flexdisk_fenced", "true"))
            yield Row(state, host, name, text, since, go, _failover(name, vm, ("flexdisk_failover_state", "stays")))
        elif one.kind == kinds.TAKEN_OVER:
            text = f"was taken over by {one.host}, and its end on {host} is not complete"
            go = _failover(name, vm, ("flexdisk_failover_state", "returned"), ("flexdisk_old_host", host))
            yield Row(state, host, name, text, one.since, go)
        elif one.kind == kinds.LEAVES and not _comes_to(other, host):
            text = f"is about to leave for {one.host}, which does not expect it yet"
            yield Row(state, host, name, text, one.since, *_of_move(name, vm, one.host))
        elif one.kind == kinds.TOMBSTONE and not _comes_to(other, host):
            text = f"has moved to {one.host}{_doubt(one, have)}, and its name is taken on {host}"
            forget = _run("move_vm", _vm(name, vm), ("flexdisk_move_state", "forgotten"), limit=host)
            yield Row(KEPT, host, name, text, one.since, off=forget)


def _comes_to(other: t.Optional[HalfDone], source: str) -> bool:
    """Return whether the other host tells of the same move."""
    return other is not None and other.kind in (kinds.COMES, kinds.TAKES_OVER) and other.host == source


def _doubt(one: HalfDone, have: t.Mapping[str, t.Mapping[str, str]]) -> str:
    if one.host not in have:
        return ", which was not read"
    return "" if one.vm in have[one.host] else ", which does not have it any more"


def _coming(host: str, one: HalfDone, other: t.Optional[HalfDone], name: str, state: str) -> Row:
    source = one.host
    go, stays = _of_move(name, one.vm, host)
    if other is not None and other.kind == kinds.TOMBSTONE and other.host == host:
        text = f"has left {source} and not arrived on {host}: only the way forward is left"
        return Row(state, host, name, text, other.since, go)
    text = f"moves from {source} to {host}, where it was made without its disks"
    since = other.since if other is not None and other.kind == kinds.LEAVES else one.since
    return Row(state, host, name, text, since, go, stays)


def _of_move(name: str, vm: str, target: str) -> t.Tuple[str, str]:
    move = (_vm(name, vm), ("flexdisk_target", target))
    return _run("move_vm", *move), _run("move_vm", *move, ("flexdisk_move_state", "stays"))


def _failover(name: str, vm: str, *more: t.Tuple[str, str]) -> str:
    return _run("failover_vm", _vm(name, vm), *more)


# -- the rest


def _run_row(place: _Place, name: str, works: bool) -> Row:
    host, one = place
    begin = "a run is at work" if works else "a run was interrupted"
    go, off = "", _inherit(host, one)
    if one.deletes:
        go, off = _module(host, {_VM_MODULE: {"vms": [{"vm": one.deletes, "state": "absent"}]}}), ""
    elif one.creates:
        group = ("flexdisk_group", one.group)
        go = _run("update_group", group) if one.group else _run("create_vm", ("flexdisk_vm", one.creates))
        off = _module(host, {_VM_MODULE: {"vms": [{"vm": one.creates, "state": "absent"}]}})
    elif one.repair is not None:
        does = command(one.repair, host, one.alias)
        does = _module(host, one.repair) if does.startswith("- ") else does
        go, off = (off, does) if _forgets(one.repair) else (does, off)
    return Row(_state(works), host, name, f"{begin}: {for_playbooks(one.text)}", one.since, go, off)


def _forgets(repair: _Raw) -> bool:
    """Return whether a task of disk_verify removes the record of a run, and does none of its steps."""
    return any(kind in INTENTS for options in repair.values() for kind in options.get("repair", ()))


def _replica_row(place: _Place, name: str, works: bool) -> Row:
    host, one = place
    wanted = (_vm(name, one.vm), ("flexdisk_replica_host", host))
    go = _run("replicate", *wanted)
    return Row(
        _state(works),
        host,
        name,
        one.text,
        one.since,
        go,
        _run("replicate", *wanted, ("flexdisk_replica_state", "absent")),
    )


def _lease_row(place: _Place, name: str, works: bool) -> Row:
    host, one = place
    group = ("flexdisk_group", one.group)
    if works:
        take = _run("update_group", group, ("flexdisk_take_over", "true"))
        return Row(AT_WORK, host, f"group {name}", one.text, one.since, off=take)
    return Row(HALF_DONE, host, f"group {name}", one.text, one.since, _run("update_group", group), _inherit(host, one))


def _drained_row(place: _Place, name: str, works: bool) -> Row:
    host, one = place
    go = _run("update_group", ("flexdisk_group", one.group)) if one.group else ""
    undo = _module(host, {_VM_MODULE: {"vms": [{"vm": one.vm, "drained": False}]}})
    return Row(_state(works), host, name, one.text, one.since, go, undo)


def _overlay_row(place: _Place, name: str, works: bool) -> Row:
    return Row(_state(works), place.host, name, for_playbooks(place.one.text))


def _stopped_row(place: _Place, name: str, works: bool) -> Row:
    return Row(_state(works), place.host, name, place.one.text, on=_run("start_host", limit=place.host))


def _diverged_row(place: _Place, name: str, _works: bool) -> Row:
    host, one = place
    give_up = _failover(name, one.vm, ("flexdisk_failover_state", "given_up"), ("flexdisk_old_host", host))
    return Row(KEPT, host, name, one.text, one.since, off=give_up)


_ROWS: t.Mapping[str, t.Callable[[_Place, str, bool], Row]] = {
    kinds.RUN: _run_row,
    kinds.REPLICA: _replica_row,
    kinds.LEASE: _lease_row,
    kinds.DRAINED: _drained_row,
    kinds.OVERLAY: _overlay_row,
    kinds.STOPPED: _stopped_row,
    kinds.DIVERGED: _diverged_row,
}


def _state(works: bool) -> str:
    return AT_WORK if works else HALF_DONE


# -- commands


def _vm(name: str, uuid: str) -> t.Tuple[str, str]:
    """Return the variable that names a VM: by its alias, if that means the same in a command as it says."""
    plain = _PLAIN.match(name) and not _YAML.match(name)
    return "flexdisk_vm", name if plain else uuid


def _run(playbook: str, *variables: t.Tuple[str, str], limit: str = "") -> str:
    argv = ["ansible-playbook", f"flexdisk.hypervisor.{playbook}"]
    argv += [argument for name, value in variables for argument in ("-e", f"{name}={value}")]
    argv += ["--limit", limit] if limit else []
    return " ".join(map(shlex.quote, argv))


def _module(host: str, task: _Raw) -> str:
    """Return the command that runs one task on one host."""
    ((module, options),) = task.items()
    return " ".join(map(shlex.quote, ("ansible", host, "-m", module, "-a", json.dumps(options, ensure_ascii=False))))


def _inherit(host: str, one: HalfDone) -> str:
    if not one.inherit:
        return ""
    argv = {"ansible.builtin.command": " ".join(("zfs", "inherit", *one.inherit))}
    ((module, arguments),) = argv.items()
    return " ".join(map(shlex.quote, ("ansible", host, "-m", module, "-a", arguments)))
