# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Placeholders in what is declared once for all members of a group: each member fills them with its own facts."""

from __future__ import annotations

import re
import typing as t

from ...model.errors import FlexdiskError

_PLACEHOLDER = re.compile(r"\{instance\.([^{}]*)\}")


def used(value: object) -> t.Set[str]:
    """Return the names of the placeholders in all strings of a value, in those of its lists and dictionaries too.

    Keys of dictionaries are not looked at: they are never filled.
    """
    if isinstance(value, str):
        return set(_PLACEHOLDER.findall(value))
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {name for item in inner for name in used(item)}


def check(value: object, known: t.Collection[str]) -> None:
    """Raises FlexdiskError InvalidArgument for placeholders with other names."""
    unknown = used(value) - set(known)
    if unknown:
        there = f"those here are {_listed(known)}" if known else "there are none here"
        raise FlexdiskError("InvalidArgument", f"{_listed(unknown)}: no such placeholder; {there}")


def filled(value: t.Any, facts: t.Mapping[str, t.Union[str, int]]) -> t.Any:
    """Fill the placeholders of a value. A string that is one placeholder becomes the fact itself, so that a number
    stays a number. Facts are not searched for placeholders.

    Raises FlexdiskError InvalidArgument for placeholders that facts do not have.
    """
    check(value, facts)
    return _filled(value, facts)


def _filled(value: t.Any, facts: t.Mapping[str, t.Union[str, int]]) -> t.Any:
    if isinstance(value, dict):
        return {key: _filled(item, facts) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, facts) for item in value]
    if not isinstance(value, str):
        return value
    single = _PLACEHOLDER.fullmatch(value)
    return facts[single[1]] if single else _PLACEHOLDER.sub(lambda match: str(facts[match[1]]), value)


def _listed(names: t.Iterable[str]) -> str:
    return ", ".join(f"{{instance.{name}}}" for name in sorted(names))
