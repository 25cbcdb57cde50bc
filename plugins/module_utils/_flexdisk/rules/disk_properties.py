# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of disk properties: what a user declares of a disk and only a ZFS user property holds.

Options, parsing, the identity of a disk, released identities, results, differences and plans follow from this table: an
entry may declare each property at any time, a task changes what differs, every result returns it, and a release keeps
it. A new property is one line in PROPERTIES and its description in the documentation of the modules.
"""

from __future__ import annotations

import typing as t

from ..model.errors import Problems
from .property_text import check_value, decode_tags, decode_text, encode_tags, encode_text, is_tags

# Any: each kind has values of its own type, which the table keeps together with what reads and writes them.
Values = t.Mapping[str, t.Any]


class Kind(t.NamedTuple):
    """A property of a disk that users declare."""

    # The type of the values in Ansible.
    option: str
    type: type
    # The value of a disk that carries none.
    default: t.Any
    # Returns a declared value, or None after it has added a problem.
    parse: t.Callable[[Problems, str, str, t.Any], t.Any]
    # Returns the value of the user property, "" if it should not be set.
    encode: t.Callable[[t.Any], str]
    decode: t.Callable[[str], t.Any]
    # Whether this collection would write such a value of the user property.
    is_valid: t.Callable[[str], bool]


def _parse_flag(problems: Problems, label: str, name: str, value: bool) -> bool:
    return value


def _parse_text(problems: Problems, label: str, name: str, text: str) -> t.Optional[str]:
    return text if problems.attempt(label, lambda: check_value(name, encode_text(text))) is not None else None


def _parse_strings(
    problems: Problems, label: str, name: str, values: t.Mapping[t.Any, t.Any]
) -> t.Optional[t.Dict[str, str]]:
    """Check a map of strings. YAML reads some values as another type, which would be stored in another form."""
    wrong = [message for message in (_wrong_pair(key, value) for key, value in values.items()) if message]
    for message in wrong:
        problems.add("InvalidArgument", f"{name}: {message}", label)
    if wrong:
        return None
    problems.attempt(label, lambda: check_value(name, encode_tags(values)))
    return dict(values)


def _wrong_pair(key: t.Any, value: t.Any) -> str:
    """Return why this is not a tag, "" if it is one."""
    if not isinstance(key, str):
        return f"the key {key!r} is not a string; quote it"
    if isinstance(value, (bool, int, float)):
        return f"the value {value!r} of {key} is not a string; quote it"
    if not isinstance(value, str):
        return f"the value {value!r} of {key} is not a string; a tag holds one string"
    return ""


FLAG = Kind(
    option="bool",
    type=bool,
    default=False,
    parse=_parse_flag,
    encode=lambda flag: "true" if flag else "false",
    decode=lambda value: value == "true",
    is_valid=("true", "false").__contains__,
)
TEXT = Kind(
    option="str",
    type=str,
    default="",
    parse=_parse_text,
    encode=encode_text,
    decode=decode_text,
    is_valid=lambda value: True,
)
STRINGS = Kind(
    option="dict",
    type=dict,
    default={},
    parse=_parse_strings,
    encode=lambda values: encode_tags(values) if values else "",
    decode=decode_tags,
    is_valid=is_tags,
)

PROPERTIES: t.Mapping[str, Kind] = {
    "preserve": FLAG,
    "description": TEXT,
    "tags": STRINGS,
}


def parsed(problems: Problems, label: str, raw: Values) -> t.Dict[str, t.Any]:
    """Return the properties that an entry declares. Problems are added to problems; label is the disk in them."""
    values = {name: kind.parse(problems, label, name, raw[name]) for name, kind in _declared(raw)}
    return {name: value for name, value in values.items() if value is not None}


def _declared(raw: Values) -> t.List[t.Tuple[str, Kind]]:
    return [(name, kind) for name, kind in PROPERTIES.items() if raw.get(name) is not None]


def completed(declared: Values) -> t.Dict[str, t.Any]:
    """Return all properties of a new disk: the declared values, else the defaults."""
    return {name: declared.get(name, kind.default) for name, kind in PROPERTIES.items()}


def decoded(user: t.Mapping[str, str]) -> t.Dict[str, t.Any]:
    """Return the properties that a volume's user properties hold."""
    return {name: kind.decode(user.get(name, "")) for name, kind in PROPERTIES.items()}


def encoded(values: Values) -> t.Dict[str, str]:
    """Return the user properties for these values. An empty one is not set."""
    return {name: kind.encode(value) for (name, kind), value in zip(PROPERTIES.items(), completed(values).values())}


def storable(values: Values) -> t.Dict[str, t.Any]:
    """Return the properties that a release saves: those that are set on the volume."""
    return {name: value for name, value in values.items() if PROPERTIES[name].encode(value)}


def result(values: Values) -> t.Dict[str, t.Any]:
    """Return the properties of a disk as results show them."""
    return copied(completed(values))


def copied(values: Values) -> t.Dict[str, t.Any]:
    """Return the same values with maps of their own."""
    return {name: PROPERTIES[name].type(value) for name, value in values.items()}


def differing(declared: Values, values: Values) -> t.Dict[str, t.Tuple[t.Any, t.Any]]:
    """Return the declared properties that differ, each as (is, declared)."""
    now = completed(values)
    return {name: (now[name], value) for name, value in declared.items() if value != now[name]}
