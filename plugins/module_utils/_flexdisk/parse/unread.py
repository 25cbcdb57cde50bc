# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find variables of -e without effect in a run: only other playbooks read them, or another one excludes them."""

from __future__ import annotations

import re
import typing as t

from ..model.text import cut
from .answers import LEAVE_OUT, Wanted
from .unknown import first_words, option, squeezed_names

_NAMED = 5  # so many readers are named
# AWX hands extra variables of a workflow to all its jobs. These show that a job belongs to one.
_HANDED_ON = ("awx_workflow_job_id", "tower_workflow_job_id")
# Options of modules that messages name, and that are unlikely to be a user's own variables.
_OF_MODULES = (
    "allow_force_stop",
    "allow_restart",
    "dangerous_allow_shrink",
    "destroy_disks",
    "destroy_snapshots",
    "indestructible",
)


class Readers:
    """Which playbook reads which variable. specification: playbooks/vars/arguments.yml."""

    def __init__(self, specification: t.Mapping[str, t.Any]) -> None:
        self.arguments: t.Mapping[str, t.Mapping[str, Wanted]] = specification["_flexdisk_arguments"]
        self._roles: t.Mapping[str, t.Collection[str]] = specification.get("_flexdisk_roles", {})
        self._of_roles = set(specification["_flexdisk_of_roles"])
        self.known = frozenset(self._of_roles.union(specification["_flexdisk_left"], *self.arguments.values()))
        squeezed_names(self.known), first_words(self.known)  # once for all hosts
        self.choosing = re.compile(specification["_flexdisk_choosing"])
        self.secret = re.compile(specification["_flexdisk_secret"])

    def reads(self, playbook: str, name: str) -> bool:
        """Whether this playbook, or a role that it runs, reads the variable."""
        roles = self._roles.get(playbook, ())
        of_role = name in self._of_roles and any(name.startswith(role + "_") for role in roles)
        return of_role or name in self.arguments[playbook]

    def of(self, name: str) -> t.List[str]:
        """Return the playbooks that read the variable."""
        return sorted(playbook for playbook in self.arguments if self.reads(playbook, name))


def problems(extra: t.Mapping[str, object], playbooks: t.Collection[str], readers: Readers) -> t.List[str]:
    """Return problems with extra variables of a run of these playbooks. A variable that is null is not set."""
    if any(name in extra for name in _HANDED_ON):
        return []
    given = {name: value for name, value in extra.items() if name in readers.known and value is not None}
    messages = []
    for name, value in sorted(given.items()):
        mine = [playbook for playbook in playbooks if readers.reads(playbook, name)]
        if not mine:
            messages.append(_unread(name, playbooks, readers))
        elif isinstance(value, str) and not value.strip() and not any(name in readers.arguments[one] for one in mine):
            messages.append(f"{name} is empty{LEAVE_OUT}")
        elif len(playbooks) == 1:
            messages += _idle(name, extra, readers.arguments[mine[0]])
    options = {option(name) for playbook in playbooks for name in readers.arguments[playbook]}
    who = " or ".join(sorted(playbooks))
    strange = [name for name in _OF_MODULES if extra.get(name) is not None and name not in options]
    return messages + [f"{name} is an option of modules, which {who} does not read. Leave it out" for name in strange]


def _idle(name: str, extra: t.Mapping[str, object], specification: t.Mapping[str, Wanted]) -> t.Iterator[str]:
    """C(flexdisk_old_host works only with flexdisk_failover_state=returned or given_up, but that is stays)."""
    for other, values in specification.get(name, {}).get("only", {}).items():
        choices = specification[other]["choices"]
        now = extra.get(other) or choices[0]
        if now in choices and now not in values:
            yield f"{name} works only with {other}={' or '.join(values)}, but that is {now}"


def _unread(name: str, playbooks: t.Collection[str], readers: Readers) -> str:
    """C(flexdisk_target is not read by evacuate_host, but by failover_vm, move_vm. Leave it out)."""
    others = cut(readers.of(name), "playbook", _NAMED)
    by = f", but by {', '.join(others)}" if others else ""
    variables = {one for playbook in playbooks for one in readers.arguments[playbook]}
    meant = sorted(one for one in variables if option(one) == option(name))
    instead = f"Use {' or '.join(meant)}" if meant else "Leave it out"
    return f"{name} is not read by {' or '.join(sorted(playbooks))}{by}. {instead}"
