# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checked access to untyped input."""

from __future__ import annotations

import typing as t

from ...model.errors import FlexdiskError

_Raw = t.Mapping[str, t.Any]


def typed_value(raw: _Raw, label: str, key: str, kind: t.Any, default: t.Any = None) -> t.Any:
    """Return raw[key], which must have the type. Raises FlexdiskError InvalidArgument if there is none."""
    if not isinstance(raw, dict):
        raise FlexdiskError("InvalidArgument", f"{label} is {raw!r}, but must be an object with {key}")
    if key not in raw and default is not None:
        return default
    if key not in raw:
        raise FlexdiskError("InvalidArgument", f"{label} has no {key}; it has {', '.join(sorted(raw)) or 'nothing'}")
    value = raw[key]
    fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if not fits:
        raise FlexdiskError("InvalidArgument", f"{label}: {key} is {value!r}, which is not of the right type")
    return value


def string_list(raw: _Raw, label: str, key: str, default: t.Any = None) -> t.List[str]:
    """Return a list of strings. Raises FlexdiskError InvalidArgument if it is none."""
    values: t.List[str] = typed_value(raw, label, key, list, default)
    for value in values:
        if not isinstance(value, str):
            raise FlexdiskError("InvalidArgument", f"{label}: {key} has {value!r}, which is not a string")
    return values
