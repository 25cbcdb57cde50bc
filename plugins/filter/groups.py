# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters of the role instance_group: from what hosts say to the members of a group, and to what each shall be."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups import template
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.found import (
    check_places,
    observed,
    places,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.homes import Homes, parse_homes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.judged import ended, judged
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.members import (
    RECREATE,
    index_of,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.policy import parse_policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.report import done_table
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.roll import FINISH
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

_Dict = t.Mapping[str, t.Any]
_Result = t.TypeVar("_Result")
GATE = ("name", "index", "host", "address", "running")  # what group_gate takes of a member


def group_found(results: t.Mapping[str, _Dict], group: _Dict, unread: t.Sequence[str] = ()) -> t.Dict[str, t.Any]:
    """results: the result of vm_info for each host. group: name, size, hosts, policy, template and members."""
    return _guarded("group_found", _found, results, group, unread)


def group_entries(
    members: t.Sequence[_Dict], group: _Dict, recreate: bool = False, more: t.Optional[_Dict] = None
) -> t.List[_Dict]:
    """members: those that group_found has found. more: further words for each entry that deletes none."""
    return _guarded("group_entries", _entries, members, group, recreate, more or {})


def group_members(
    members: t.Sequence[_Dict],
    checks: t.Mapping[str, _Dict],
    serving: t.Sequence[str],
    size: int,
    recreate: bool = False,
) -> t.List[t.Dict[str, t.Any]]:
    """checks: the result of vm in check mode for each host. serving: names of the members whose gate says yes."""
    return _guarded("group_members", judged, members, checks, serving, size, recreate)


def group_ended(result: _Dict) -> t.List[str]:
    """result: what vm returned. The names of the members that it has brought to what the task wants."""
    return _guarded("group_ended", ended, result)


def group_batch(members: t.Sequence[_Dict], actions: t.Sequence[_Dict]) -> t.List[t.Dict[str, t.Any]]:
    """members: those that group_found has found. actions: those of a step. The members in it, with what is done."""
    return _guarded("group_batch", _batch, members, actions)


def group_former(members: t.Sequence[_Dict]) -> t.List[t.Dict[str, t.Any]]:
    """members: those of a step, as group_batch has returned them before it."""
    return _guarded("group_former", _former, members)


def group_table(log: t.Sequence[_Dict], failed: t.Sequence[str] = ()) -> t.List[str]:
    """log: actions of group_plan, each with step and seconds."""
    return _guarded("group_table", done_table, log, failed)


def _found(results: t.Mapping[str, _Dict], group: _Dict, unread: t.Sequence[str]) -> t.Dict[str, t.Any]:
    name, size, own = group["name"], group["size"], group["members"]
    problems = template.check_template(name, group["template"], own)
    policy, wrong = parse_policy(group["policy"])
    homes = problems.attempt("", parse_homes, group["hosts"]) or Homes()
    strange = sorted({*homes.hosts, *homes.fixed.values()} - {*results, *unread})
    texts = [f"size is {size}, but must not be negative"] if size < 0 else []
    texts += [problem.message for problem in [*problems, *wrong]]
    texts += [f"hosts names {', '.join(strange)}, which this play does not have"] if strange else []
    texts += [
        f"replace names {member}, which is not a member of {name}" for member in _strangers(group["replace"], name)
    ]
    texts += [f"hosts names {member}, which is not a member of {name}" for member in _strangers(homes.fixed, name)]
    if texts:
        return {"members": [], "keeps_disks": True, "problems": texts}
    uuids = {member: str(values.get("uuid") or "") for member, values in own.items()}
    found = places(results, name, size, uuids)
    texts = [problem.message for problem in check_places(found)]
    surge = 0 if template.keeps_disks(group["template"]) else policy.limits(size).max_batch_size
    members = [] if texts else observed(found, name, size, unread, homes, surge)
    facts = [template.facts_of(member, group["template"], own) for member in members]
    for member, fact in zip(members, facts):
        member["address"] = fact[template.ADDRESS]
        member["gate"] = {key: member[key] for key in GATE}
    return {"members": members, "keeps_disks": template.keeps_disks(group["template"]), "problems": texts}


def _strangers(names: t.Iterable[str], group: str) -> t.List[str]:
    return sorted(member for member in names if index_of(member, group) < 0)


def _entries(members: t.Sequence[_Dict], group: _Dict, recreate: bool, more: _Dict) -> t.List[_Dict]:
    gone = [member["there"] and member["index"] >= group["size"] for member in members]
    return [
        template.removal(member, group["template"])
        if removed
        else {**template.entry(member, group["template"], group["members"], recreate, _word(member, group)), **more}
        for member, removed in zip(members, gone)
    ]


def _word(member: _Dict, group: _Dict) -> str:
    """The word for which the boot disk of a member is made anew, "" for those that the user has not named."""
    return group["generation"] if member["name"] in group["replace"] else ""


def _batch(members: t.Sequence[_Dict], actions: t.Sequence[_Dict]) -> t.List[t.Dict[str, t.Any]]:
    known = {member["name"]: member for member in members}
    return [{**known[action["member"]], "do": action["do"]} for action in actions]


def _former(members: t.Sequence[_Dict]) -> t.List[t.Dict[str, t.Any]]:
    return [template.former(member, member["do"] in (RECREATE, FINISH)) for member in members]


def _guarded(name: str, work: t.Callable[..., _Result], *args: t.Any) -> _Result:
    """What work returns. An error of the user, or input of a strange form, becomes an error of the filter."""
    try:
        return work(*args)
    except FlexdiskError as exc:
        raise AnsibleFilterError(f"{name}: {exc.message}") from exc
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"{name} wants what flexdisk.hypervisor.instance_group gives it ({exc!r})") from exc


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return {
            "group_found": group_found,
            "group_entries": group_entries,
            "group_members": group_members,
            "group_ended": group_ended,
            "group_batch": group_batch,
            "group_former": group_former,
            "group_table": group_table,
        }
