# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Encoding of text and maps of strings as values of ZFS user properties, and the size limit."""

from __future__ import annotations

import json
import typing as t
from urllib.parse import quote, unquote

from ..model.errors import FlexdiskError

# Bytes that a value can have.
LIMIT = 8191
_SAFE = " !#$&'()*+,/:;<=>?@[]^`{|}~\""


def encode_text(text: str) -> str:
    """Encode text: printable ASCII stays as it is, everything else (tabs, newlines, other scripts) is percent-encoded.

    So is a lone dash, which zfs prints where there is no value. Raises FlexdiskError InvalidArgument for lone
    surrogates, which stand for bytes that are not UTF-8.
    """
    try:
        return "%2D" if text == "-" else quote(text, safe=_SAFE)
    except UnicodeEncodeError:
        raise FlexdiskError("InvalidArgument", f"{text[:60]!r} is not Unicode text") from None


def decode_text(value: str) -> str:
    """Return the text that encode_text() has written."""
    return unquote(value, errors="replace")


def encode_json(data: t.Mapping[str, t.Any]) -> str:
    """Return JSON with sorted keys, encoded as text, of any length."""
    return encode_text(json.dumps(dict(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False))


def encode_object(name: str, data: t.Mapping[str, t.Any]) -> str:
    """Return JSON with sorted keys as the value of a property. name: what the message calls it if it is too long."""
    return check_value(name, encode_json(data))


def decode_object(value: str) -> t.Dict[str, t.Any]:
    """Return what encode_object() has written. Raises ValueError for anything else."""
    try:
        data = json.loads(decode_text(value))
    except RecursionError:
        raise ValueError(value[:60]) from None
    if not isinstance(data, dict):
        raise ValueError(value[:60])
    return data


def encode_tags(tags: t.Mapping[str, str]) -> str:
    """Return a map of strings, encoded as text."""
    return encode_json(tags)


def decode_tags(value: str) -> t.Dict[str, str]:
    """Return a map of strings; {} for anything else."""
    try:
        tags = decode_object(value)
    except ValueError:
        return {}
    return tags if all(isinstance(v, str) for v in tags.values()) else {}


def is_tags(value: str) -> bool:
    """Whether the value is a map of strings, even an empty one."""
    return bool(decode_tags(value)) or decode_text(value) == "{}"


def check_value(name: str, value: str) -> str:
    """Return the value if ZFS can store it. Raises FlexdiskError InvalidArgument with the figures."""
    if len(value.encode("utf-8")) > LIMIT:
        raise FlexdiskError(
            "InvalidArgument",
            f"{name} takes {len(value.encode('utf-8'))} bytes as a ZFS user property; the limit is {LIMIT}",
        )
    return value
