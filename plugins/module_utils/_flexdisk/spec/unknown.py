# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Variables that a playbook does not have: misspelt ones, and options of modules. Nobody would miss them in silence."""

from __future__ import annotations

import difflib
import re
import typing as t

_ALIKE = 0.86  # of difflib: one wrong, missing or added letter in ten, or two that have changed places
_MARKED = "flexdisk_"  # only variables of playbooks begin so
# How names of this collection begin, or almost; all others are somebody else's.
_OURS = re.compile(r"flex|virtual_?m|instance_?g|disks?_?r|rfd|vm_?[mr]|guests?_?g")


class Names(t.NamedTuple):
    """Names of variables."""

    own: t.Sequence[str]
    """Those of the playbook."""
    others: t.Collection[str]
    """Those of other playbooks, and what playbooks leave for plays that follow."""
    roles: t.Collection[str]
    """Those that roles read, or leave."""


def problems(given: t.Iterable[str], names: Names, choosing: str) -> t.List[str]:
    """Return what is wrong with the names of variables that are set. choosing: a regular expression of those that a
    playbook must not have for nothing, since without them it takes more.
    """
    known = {*names.own, *names.others, *names.roles}
    options = {_option(name): name for name in names.own if "_" in _option(name)}
    found, unknown = [], []
    for name in sorted(given):
        astray = re.match(choosing, name) and name not in names.own
        if name.startswith(_MARKED) and (astray or name not in {*names.own, *names.others}):
            unknown.append(name)
        elif name in known:
            continue
        elif name in options:
            found.append(f"{name} is an option of modules. This playbook has {options[name]}")
        elif _OURS.match(name):
            found += [f"{name} is unknown. Did you mean {meant}?" for meant in _alike(name, known)]
    if unknown:
        meant = [word for name in unknown for word in _alike(name, names.own)]
        words = f" Did you mean {' and '.join(meant)}?" if meant else ""
        found.append(f"{', '.join(unknown)} is unknown.{words} This playbook has {', '.join(names.own)}")
    return found


def _option(name: str) -> str:
    """What a module calls the option of a variable: allow_restart for flexible_disks_allow_restart."""
    return re.sub(r"^(flexdisk|flexible_disks|virtual_machine|instance_group|disk_registry|rfd154)_", "", name)


def _alike(name: str, known: t.Collection[str]) -> t.List[str]:
    """The one known name that this one was meant to be, if it is clear."""
    return difflib.get_close_matches(name, [one for one in known if one != name], 1, _ALIKE)
