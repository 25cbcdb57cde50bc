# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Locate named VMs and disks on the hosts of a play."""

from __future__ import annotations

import typing as t

from ...model.text import cut
from ...rules.identity import is_uuid
from ...rules.naming import Identifiers, find_by_name, names_volume, similar
from ...rules.one_host import same_host_problems

_Dict = t.Mapping[str, t.Any]
_Read = t.Mapping[str, _Dict]  # the result of vm_info, by host
_Known = t.Dict[str, t.List[Identifiers]]  # by host
_COPY = (
    "so one of them is an old copy: a failover has not ended, or a disk was copied by hand. Find out which host has the"
    " right one, and end the other with flexdisk_failover_state=returned of the playbook failover_vm; start_host on"
    " each host says whether it has been taken over. --limit takes one of them as it is"
)


class Located(t.NamedTuple):
    """Where the named VMs or disks are."""

    here: t.Dict[str, t.Dict[str, t.Dict[str, str]]]
    """For each host, by name: C({vm: UUID}), or C({disk: UUID}). Only names that mean exactly one."""
    problems: t.List[str]


def find_vms(
    read: _Read,
    names: t.Iterable[object],
    unread: t.Sequence[str] = (),
    strict: bool = False,
    optional: bool = False,
    gone: bool = False,
    exact: bool = False,
) -> Located:
    """Return where each VM is that a UUID, an alias or the beginning of a UUID names.

    unread: the hosts that could not be read; strict refuses all names then. optional: a VM may be on no host. gone: a
    name may be the UUID of a VM that has left nothing but detached disks. exact: the beginning of a UUID is refused,
    since it could mean another VM later.
    """
    known = {host: _owners(result) if gone else _vms(result) for host, result in read.items()}
    prefixes = not (optional or exact)
    return _of_different_hosts(read, _locate("VM", known, _listed(names), unread, strict, optional, prefixes, exact))


def find_disks(read: _Read, names: t.Iterable[object], unread: t.Sequence[str] = (), strict: bool = False) -> Located:
    """Return where each disk is, by its name or its whole UUID."""
    listed = _listed(names)
    known = {host: _disks(result) for host, result in read.items()}
    one = _locate("disk", known, listed, unread, strict, optional=False, prefixes=False)
    hints = [hint for name in listed for hint in _unadopted(read, name, one.here)]
    return _of_different_hosts(read, Located(one.here, [*one.problems, *hints]))


def _unadopted(read: _Read, name: str, here: t.Mapping[str, _Dict]) -> t.Iterator[str]:
    """Yield a hint for a name that only reports show, of a disk that has none."""
    known = [(host, vm, disk) for host, result in read.items() for vm in result["vms"] for disk in vm["disks"]]
    vms = [
        f"{vm['alias'] or vm['uuid']} on {host}"
        for host, vm, disk in known
        if names_volume(name, str(disk["name"] or ""), str(disk.get("volume", "")))
    ]
    if vms and not any(name in names for names in here.values()):
        yield (
            f"A disk without a name is shown so, of {', '.join(cut(vms, 'VM'))}. The playbook adopt gives disks their "
            "names, and flexdisk_vm says whose disk is meant."
        )


def _of_different_hosts(read: _Read, one: Located) -> Located:
    """Return what was located. If several names mean one host, that is the only problem."""
    twice = same_host_problems(
        {host: [pool.get("guid") for pool in result.get("pools", ())] for host, result in read.items()}
    )
    problems = [f"{text}. Take all but one of the names out of the inventory." for text in twice]
    return Located(one.here, problems or one.problems)


def _vms(result: _Dict) -> t.List[Identifiers]:
    return [Identifiers(str(vm["uuid"]), str(vm["alias"])) for vm in [*result["vms"], *result["skipped_vms"]]]


def _owners(result: _Dict) -> t.List[Identifiers]:
    vms = _vms(result)
    gone = {str(disk["vm"]) for disk in result["parked"]} - {vm.uuid for vm in vms} - {""}
    return vms + [Identifiers(uuid, "") for uuid in sorted(gone)]


def _disks(result: _Dict) -> t.List[Identifiers]:
    disks = [*(disk for vm in result["vms"] for disk in vm["disks"]), *result["parked"]]
    return [Identifiers(str(disk.get("uuid", "")), str(disk["name"])) for disk in disks]


def _listed(names: t.Iterable[object]) -> t.List[str]:
    return list(dict.fromkeys(str(name).strip() for name in names))


def _locate(
    kind: str,
    known: _Known,
    names: t.Sequence[str],
    unread: t.Sequence[str],
    strict: bool,
    optional: bool,
    prefixes: bool,
    exact: bool = False,
) -> Located:
    here: t.Dict[str, t.Dict[str, t.Dict[str, str]]] = {host: {} for host in known}
    problems = []
    for name in names:
        full_uuid_only = exact and is_uuid(name.lower())  # once that VM is gone, it must not mean another one's alias
        places = [
            (host, thing.uuid)
            for host, things in known.items()
            for thing in find_by_name(name, things, prefixes)
            if not full_uuid_only or thing.uuid == name.lower()
        ]
        if len(places) > 1 or (strict and unread) or not (places or optional):
            begun = exact and any(find_by_name(name, things) for things in known.values())
            hint = " The beginning of a UUID, or another VM's UUID as alias, is not enough here." if begun else ""
            problems.append(_problem(kind, name, places, list(known), unread))
            problems[-1] += "" if places else hint or _similar(name, known)
        elif places:
            host, uuid = places[0]
            here[host][name] = {kind.lower(): uuid}
    return Located(here, cut(problems))


def _similar(name: str, known: _Known) -> str:
    """Return a question about a name that is on no host."""
    question = similar(name, {host: [one.alias for one in things if one.alias] for host, things in known.items()})
    return f" {question}" if question else ""


def _problem(
    kind: str, name: str, places: t.Sequence[t.Tuple[str, str]], hosts: t.Sequence[str], unread: t.Sequence[str]
) -> str:
    where = " and ".join(f"on {host} ({uuid or 'without a UUID'})" for host, uuid in places) or "on none"
    text = f"{kind} {name} is {where}"
    unread_text = f"{', '.join(unread)} could not be read and may have a {kind} of this name"
    if len(places) > 1 and kind == "VM" and len({uuid for _host, uuid in places}) == 1:
        return f"{text}, {_COPY}"
    if len(places) > 1:
        ways = ["--limit"] * (len({host for host, _uuid in places}) > 1)
        ways += ["its UUID"] * (len({uuid for _host, uuid in places}) > 1)
        ways += ["flexdisk_vm"] * (kind == "disk")
        return f"{text}. Say with {' or '.join(ways)} which one you mean."
    if places:
        return f"{text}, but {unread_text} too. Use --limit to leave out what you do not mean."
    return f"{text} of {', '.join(hosts)}{', but ' + unread_text if unread else ''}."
