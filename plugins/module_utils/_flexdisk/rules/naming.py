# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find VMs and disks by name, and check names for invisible characters."""

from __future__ import annotations

import difflib
import typing as t

from ..model.errors import Problems
from ..model.text import hidden_characters, visible
from . import identity


class Identifiers(t.NamedTuple):
    """The names by which a VM or a disk can be addressed."""

    uuid: str
    alias: str


class _Named(t.Protocol):
    @property
    def uuid(self) -> str: ...

    @property
    def alias(self) -> str: ...


_N = t.TypeVar("_N", bound=_Named)
_LONGEST = 80  # characters of a wrong name that a message shows
_NAMED = 5  # so many hidden characters, or similar names, are named
_SIMILAR = 0.75  # of difflib: one of four letters may be another one


def find_by_name(wanted: str, things: t.Iterable[_N], prefixes: bool = True) -> t.List[_N]:
    """Return the objects with this uuid, else those with this alias or with a uuid that begins with it."""
    every, lower = list(things), wanted.lower()
    begins = prefixes and identity.begins_uuid(lower)
    return [thing for thing in every if wanted and thing.uuid == lower] or [
        thing for thing in every if wanted and (thing.alias == wanted or (begins and thing.uuid.startswith(lower)))
    ]


def names_volume(wanted: str, name: str, volume: str) -> bool:
    """Whether a name means a disk without a name by the last part of its volume, as reports show it: C((disk1))."""
    return not name and bool(wanted) and wanted.strip("()") == volume.rsplit("/", 1)[-1]


def similar(name: str, known: t.Mapping[str, t.Iterable[str]]) -> str:
    """Return C(Did you mean db01 on hv01?), "" without a similar name. known: the existing names, by host."""
    return did_you_mean(name, {one: f"{one} on {host}" for host, names in known.items() for one in names})


def did_you_mean(name: str, known: t.Mapping[str, str]) -> str:
    """Return a question about an unknown name, "" without a similar one. known: the label of each existing name."""
    labels = {one.lower(): label for one, label in known.items()}
    matches = difflib.get_close_matches(name.lower(), labels, _NAMED, _SIMILAR)
    return f"Did you mean {' or '.join(labels[one] for one in matches)}?" if matches else ""


def why_not_seen(option: str, name: str) -> str:
    """Return what is wrong with a name that has invisible characters, "" if it has none. option: where it was given."""
    hidden = hidden_characters(name)
    if not hidden:
        return ""
    shown = visible(name if len(name) <= _LONGEST else name[:_LONGEST] + "...")
    return (
        f'{option} "{shown}" has {", ".join(hidden[:_NAMED])}: a name has no control characters and no invisible ones'
    )


def check_names(options: t.Mapping[str, t.Any], problems: Problems, text: t.Collection[str] = ()) -> None:
    """Check all text among the options, at any depth. text: options with text that is no name."""
    for key, value in options.items():
        if key not in text:
            _check(str(key), value, problems, text)


def _check(option: str, value: object, problems: Problems, text: t.Collection[str]) -> None:
    if isinstance(value, t.Mapping):
        for name in value:
            _check(option, name, problems, text)
        check_names(value, problems, text)
    elif isinstance(value, (list, tuple)):
        for one in value:
            _check(option, one, problems, text)
    elif isinstance(value, str):
        wrong = why_not_seen(option, value)
        if wrong:
            problems.add("InvalidArgument", wrong)
