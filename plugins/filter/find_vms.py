# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters find_vms and find_disks: on which host of a play each VM or disk is that somebody names."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.text import cut
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import is_uuid
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.naming import (
    Names,
    fitting,
    names_volume,
    similar,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.one_host import doubles
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

_Dict = t.Mapping[str, t.Any]
_Known = t.Dict[str, t.List[Names]]  # by host


def find_vms(
    found: t.Mapping[str, _Dict],
    names: object,
    unread: t.Sequence[str] = (),
    strict: bool = False,
    optional: bool = False,
    gone: bool = False,
    exact: bool = False,
) -> t.Dict[str, t.Any]:
    """found: the result of vm_info for each host."""
    known = _known(found, _owners if gone else _vms)
    one = _found("VM", known, names, unread, strict, optional, prefixes=not (optional or exact), exact=exact)
    return _of_different_hosts(found, one)


def find_disks(
    found: t.Mapping[str, _Dict], names: object, unread: t.Sequence[str] = (), strict: bool = False
) -> t.Dict[str, t.Any]:
    """found: the result of vm_info for each host. A disk is not known by a UUID prefix."""
    one = _found("disk", _known(found, _disks), names, unread, strict, optional=False, prefixes=False)
    hints = [hint for name in dict.fromkeys(_listed(names)) for hint in _unadopted(found, name, one["here"])]
    return _of_different_hosts(found, {**one, "problems": [*one["problems"], *hints]})


def _unadopted(found: t.Mapping[str, _Dict], name: str, here: t.Mapping[str, _Dict]) -> t.Iterator[str]:
    """A hint for a name that only reports show, of a disk that has none."""
    known = [(host, vm, disk) for host, result in found.items() for vm in result["vms"] for disk in vm["disks"]]
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


def _of_different_hosts(found: t.Mapping[str, _Dict], one: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
    """What was found, unless several hosts are one: then that is the problem, and whatever else there is follows."""
    twice = doubles({host: [pool.get("guid") for pool in result.get("pools", ())] for host, result in found.items()})
    problems = [f"{words}. Take all but one of the names out of the inventory." for words in twice]
    return {**one, "problems": problems or one["problems"]}


def _known(found: t.Mapping[str, _Dict], names: t.Callable[[_Dict], t.List[Names]]) -> _Known:
    try:
        return {str(host): names(result) for host, result in found.items()}
    except (AttributeError, LookupError, TypeError) as exc:
        raise AnsibleFilterError(f"find_vms and find_disks need a result of vm_info for each host ({exc!r})") from exc


def _vms(result: _Dict) -> t.List[Names]:
    return [Names(str(vm["uuid"]), str(vm["alias"])) for vm in [*result["vms"], *result["skipped_vms"]]]


def _owners(result: _Dict) -> t.List[Names]:
    vms = _vms(result)
    gone = {str(disk["vm"]) for disk in result["parked"]} - {vm.uuid for vm in vms} - {""}
    return vms + [Names(uuid, "") for uuid in sorted(gone)]


def _disks(result: _Dict) -> t.List[Names]:
    disks = [*(disk for vm in result["vms"] for disk in vm["disks"]), *result["parked"]]
    return [Names(str(disk.get("uuid", "")), str(disk["name"])) for disk in disks]


def _found(
    kind: str,
    known: _Known,
    names: object,
    unread: t.Sequence[str],
    strict: bool,
    optional: bool,
    prefixes: bool,
    exact: bool = False,
) -> t.Dict[str, t.Any]:
    here: t.Dict[str, t.Dict[str, t.Dict[str, str]]] = {host: {} for host in known}
    problems = []
    for name in dict.fromkeys(_listed(names)):
        whole = exact and is_uuid(name.lower())  # once that VM is gone, it must not mean another one's alias
        places = [
            (host, thing.uuid)
            for host, things in known.items()
            for thing in fitting(name, things, prefixes)
            if not whole or thing.uuid == name.lower()
        ]
        if len(places) > 1 or (strict and unread) or not (places or optional):
            begun = exact and any(fitting(name, things) for things in known.values())
            hint = " The beginning of a UUID, or another VM's UUID as alias, is not enough here." if begun else ""
            problems.append(_problem(kind, name, places, list(known), unread))
            problems[-1] += "" if places else hint or _similar(name, known)
        elif places:
            host, uuid = places[0]
            here[host][name] = {kind.lower(): uuid}
    return {"here": here, "problems": cut(problems)}


def _similar(name: str, known: _Known) -> str:
    """A question about a name that is on no host."""
    found = similar(name, {host: [one.alias for one in things if one.alias] for host, things in known.items()})
    return f" {found}" if found else ""


def _listed(names: object) -> t.List[str]:
    """A list, or as Ansible's options take it a string with commas."""
    listed = names.split(",") if isinstance(names, str) else t.cast(t.Iterable[object], names)
    return [str(name).strip() for name in listed]


_COPY = (
    "so one of them is an old copy: a failover has not ended, or a disk was copied by hand. Find out which host has the"
    " right one, and end the other with flexdisk_failover_state=returned of the playbook failover_vm; start_host on"
    " each host says whether it has been taken over. --limit takes one of them as it is"
)


def _problem(
    kind: str, name: str, places: t.Sequence[t.Tuple[str, str]], hosts: t.Sequence[str], unread: t.Sequence[str]
) -> str:
    where = " and ".join(f"on {host} ({uuid or 'without a UUID'})" for host, uuid in places) or "on none"
    text = f"{kind} {name} is {where}"
    silent = f"{', '.join(unread)} could not be read and may have a {kind} of this name"
    if len(places) > 1 and kind == "VM" and len({uuid for _host, uuid in places}) == 1:
        return f"{text}, {_COPY}"
    if len(places) > 1:
        ways = ["--limit"] * (len({host for host, _uuid in places}) > 1)
        ways += ["its UUID"] * (len({uuid for _host, uuid in places}) > 1)
        ways += ["flexdisk_vm"] * (kind == "disk")
        return f"{text}. Say with {' or '.join(ways)} which one you mean."
    if places:
        return f"{text}, but {silent} too. Use --limit to leave out what you do not mean."
    return f"{text} of {', '.join(hosts)}{', but ' + silent if unread else ''}."


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters({"find_vms": find_vms, "find_disks": find_disks})
