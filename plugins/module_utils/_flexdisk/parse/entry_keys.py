# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find unknown keys in entries. Ansible's own message would show the whole argument specification of the role."""

from __future__ import annotations

import typing as t

from ..rules.naming import did_you_mean

_Options = t.Mapping[str, t.Mapping[str, t.Any]]


def problems(path: str, options: _Options, value: object, names: t.Sequence[str] = ()) -> t.Iterator[str]:
    """Yield problems with the keys of a dictionary, or of the dictionaries in a list, at any depth.

    options: an argument specification. names: of the entries around it.
    """
    if isinstance(value, (list, tuple)):
        for index, entry in enumerate(value):
            yield from problems(f"{path}[{index}]", options, entry, names)
    elif isinstance(value, t.Mapping):
        name = value.get("vm") or value.get("name")
        names = [*names, name] if isinstance(name, str) else names
        for key, inner in value.items():
            if key not in options:
                yield _unknown(f"{path}.{key}", str(key), options, names)
            elif options[key].get("options"):
                yield from problems(f"{path}.{key}", options[key]["options"], inner, names)


def _unknown(path: str, key: str, options: _Options, names: t.Sequence[str]) -> str:
    """C(flexible_disks_vms[0].disks[1].siez (web01, data) is unknown. Did you mean size?)."""
    where = f" ({', '.join(names)})" if names else ""
    instead = did_you_mean(key, {one: one for one in options}) or f"Known are {', '.join(sorted(options))}"
    return f"{path}{where} is unknown. {instead}"
