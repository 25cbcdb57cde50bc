# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters of the role instance_group: from what hosts say to the members of a group, and to what each shall be."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups import lease, template
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.found import adoptions, find
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.judged import ended, judged
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.report import done_table
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.roll import batch_of
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

_Dict = t.Mapping[str, t.Any]
_Result = t.TypeVar("_Result")


def group_found(results: t.Mapping[str, _Dict], group: _Dict, unread: t.Sequence[str] = ()) -> t.Dict[str, t.Any]:
    """Return the members of a group, and all problems of its declaration.

    results: the result of vm_info for each host. group: name, size, hosts, policy, template and members.
    """
    return _guarded("group_found", find, results, group, unread)


def group_adoptions(result: _Dict, group: _Dict) -> t.List[t.Dict[str, t.Any]]:
    """Return entries of the module vm that mark the VMs of a host which the group adopts.

    result: what vm_info returned for the host.
    """
    return _guarded("group_adoptions", adoptions, result, group["adopt"])


def group_entries(
    members: t.Sequence[_Dict], group: _Dict, recreate: bool = False, more: t.Optional[_Dict] = None
) -> t.List[t.Dict[str, t.Any]]:
    """Return the entries of the module vm for members.

    members: those that group_found has found. more: further options of each entry that deletes no member.
    """
    return _guarded("group_entries", template.entries, members, group, recreate, more or {})


def group_members(
    members: t.Sequence[_Dict],
    checks: t.Mapping[str, _Dict],
    serving: t.Sequence[str],
    size: int,
    recreate: bool = False,
) -> t.List[t.Dict[str, t.Any]]:
    """Return the members as group_plan takes them.

    checks: the result of vm in check mode for each host. serving: names of the members whose gate says yes.
    """
    return _guarded("group_members", judged, members, checks, serving, size, recreate)


def group_ended(result: _Dict) -> t.List[str]:
    """Return the names of the members that are as the task wants them. result: what vm returned."""
    return _guarded("group_ended", ended, result)


def group_batch(members: t.Sequence[_Dict], actions: t.Sequence[_Dict]) -> t.List[t.Dict[str, t.Any]]:
    """Return the members of a step, with what is done to them.

    members: those that group_found has found. actions: those of the step.
    """
    return _guarded("group_batch", batch_of, members, actions)


def group_former(members: t.Sequence[_Dict]) -> t.List[t.Dict[str, t.Any]]:
    """Return entries that bring members back to what they were before a step.

    members: those of the step, as group_batch has returned them before it.
    """
    return _guarded("group_former", template.formers, members)


def group_table(log: t.Sequence[_Dict], failed: t.Sequence[str] = (), reverted: t.Sequence[str] = ()) -> t.List[str]:
    """Return a table of what a run has done.

    log: actions of group_plan, each with step and seconds. failed and reverted: names of members.
    """
    return _guarded("group_table", done_table, log, failed, reverted)


def group_lease_place(
    looks: t.Mapping[str, _Dict],
    hosts: t.Sequence[str],
    group: str,
    host: str = "",
    without: t.Sequence[str] = (),
    take_over: bool = False,
) -> t.Dict[str, t.Any]:
    """Return the pool of each host in which the run takes the lease, or the problems that keep it from doing so.

    looks: the result of group_lease with state=reported for each host. hosts: all that could have the lease. host: that
    of a lease that lies nowhere yet. without: hosts that are off and need not be asked.
    """
    wanted = {"group": group, "host": host, "without": without, "take_over": take_over}
    return _guarded("group_lease_place", lease.lease_place, looks, hosts, wanted)


def group_lease_lost(answers: t.Mapping[str, _Dict], places: t.Mapping[str, str]) -> t.List[str]:
    """Return the reasons why the run does not have the lease; none if it has it.

    answers: the result of group_lease for each host. places: as group_lease_place has returned them.
    """
    return _guarded("group_lease_lost", lease.lost, answers, places)


def group_pauses(seconds: int, ttl: int) -> t.List[int]:
    """Return the parts of a pause, between which the lease is renewed. ttl: seconds until the lease expires."""
    return _guarded("group_pauses", lease.slices, seconds, ttl)


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
        return _core.filters(
            {
                "group_found": group_found,
                "group_adoptions": group_adoptions,
                "group_entries": group_entries,
                "group_members": group_members,
                "group_ended": group_ended,
                "group_batch": group_batch,
                "group_former": group_former,
                "group_table": group_table,
                "group_lease_place": group_lease_place,
                "group_lease_lost": group_lease_lost,
                "group_pauses": group_pauses,
            }
        )
