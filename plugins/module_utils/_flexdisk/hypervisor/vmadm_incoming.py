# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Refuse dangerous options of a bhyve VM that another host describes, unless this host's inventory allows them."""

from __future__ import annotations

import re
import typing as t

from ..rules.incoming import NAMES, allows_path

# A zone may have fewer privileges than the default, not more.
_FEWER = re.compile(r"default(,[!-][a-z_]+)*")
_CONSOLE = re.compile(r"/dev/zconsole|socket,/tmp/[A-Za-z0-9._-]{1,64}")
_USUAL: t.Mapping[str, t.Callable[[str], bool]] = {
    "bootrom": lambda value: "/" not in value or (value.startswith("/usr/share/bhyve/") and ".." not in value),
    "com1": lambda value: bool(_CONSOLE.fullmatch(value)),
    "com2": lambda value: bool(_CONSOLE.fullmatch(value)),
    "limit_priv": lambda value: bool(_FEWER.fullmatch(value)),
}


def refused(options: t.Mapping[str, t.Any], known: t.Collection[str], allowed: t.Collection[str]) -> t.List[str]:
    """Return the refused options, each with its value. known: those that vmadm create accepts from a task.

    allowed: names and paths, as rules/incoming.py checks them.
    """
    refusals = []
    for key, value in sorted(options.items()):
        if key not in known:
            refusals.append(f"{key}, which is no option of a bhyve VM")
        elif key in NAMES and value not in (None, "", [], {}) and key not in allowed:
            text = value if isinstance(value, str) else ""
            usual = _USUAL.get(key)
            if not (text and usual is not None and usual(text)) and not allows_path(allowed, text):
                refusals.append(f"{key} {text or 'of the other host'}"[:200])
    return [*refusals, *_of_nics(options.get("nics"), allowed)]


def _of_nics(nics: t.Any, allowed: t.Collection[str]) -> t.Iterator[str]:
    """Return what the NICs may do beyond sending from their own addresses."""
    asked = {key for nic in nics or () if isinstance(nic, dict) for key, value in nic.items() if value}
    yield from sorted(key for key in asked if key.startswith("allow_") and key not in allowed)
