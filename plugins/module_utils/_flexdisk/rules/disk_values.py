# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""What the values of a disk may be, wherever they come from: a task, or what a release has kept."""

from __future__ import annotations

import typing as t

from ..model.errors import Collector
from . import identity


def check_uuid(problems: Collector, label: str, uuid: str) -> None:
    """Whether it is a UUID; "" is none."""
    if uuid and not identity.is_uuid(uuid):
        problems.add("InvalidArgument", f"disk uuid {uuid!r} is not a uuid", label)


def check_name(problems: Collector, label: str, name: str) -> bool:
    """Whether a disk can have the name; "" is none."""
    if name and not identity.DISK_NAME.match(name):
        problems.add(
            "InvalidArgument",
            f"disk name {name!r} is not valid: use up to 64 letters, digits, dots, dashes and underscores, the first a "
            "letter or digit",
            label,
        )
        return False
    return True


def check_new_name(problems: Collector, label: str, name: str) -> None:
    """A name that a disk does not have yet. Disks that have a mistakable one keep it until they are renamed."""
    why = identity.mistakable(name)
    if why:
        problems.add(
            "InvalidArgument", f"disk name {name!r} is not valid: {why}; add a letter, as in disk-{name}", label
        )


def check_description(problems: Collector, label: str, text: t.Optional[str]) -> None:
    """Whether a property can hold the description; None is none."""
    if text is not None:
        problems.attempt(label, lambda: identity.check_value("description", identity.encode_text(text)))


def parse_tags(
    problems: Collector, label: str, tags: t.Optional[t.Mapping[t.Any, t.Any]]
) -> t.Optional[t.Dict[str, str]]:
    """Strings by strings. What has lost its type in YAML would be stored as something else than was written."""
    if tags is None:
        return None
    wrong = [words for words in (_wrong_tag(key, value) for key, value in tags.items()) if words]
    for words in wrong:
        problems.add("InvalidArgument", f"tags: {words}", label)
    if wrong:
        return None
    problems.attempt(label, lambda: identity.check_value("tags", identity.encode_tags(tags)))
    return dict(tags)


def _wrong_tag(key: t.Any, value: t.Any) -> str:
    """Why this is no tag, "" if it is one."""
    if not isinstance(key, str):
        return f"the key {key!r} is not a string; quote it"
    if isinstance(value, (bool, int, float)):
        return f"the value {value!r} of {key} is not a string; quote it"
    if not isinstance(value, str):
        return f"the value {value!r} of {key} is not a string; a tag holds one string"
    return ""
