# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Metrics as text, in the format that Prometheus reads (exposition format 0.0.4)."""

from __future__ import annotations

import typing as t

_ESCAPED = {"\\": "\\\\", "\n": "\\n", '"': '\\"'}

Labels = t.Mapping[str, str]


class Family(t.NamedTuple):
    """All samples of one gauge."""

    name: str
    """With the unit, such as C(_bytes)."""
    meaning: str
    samples: t.Sequence[t.Tuple[Labels, int]]


def render(families: t.Iterable[Family]) -> str:
    """Return the families as text. A family without samples is left out."""
    lines: t.List[str] = []
    for family in families:
        if family.samples:
            lines += [f"# HELP {family.name} {family.meaning}", f"# TYPE {family.name} gauge"]
            lines += [f"{family.name}{_braced(labels)} {value}" for labels, value in family.samples]
    return "".join(f"{line}\n" for line in lines)


def _braced(labels: Labels) -> str:
    parts = [f'{name}="{_escaped(value)}"' for name, value in labels.items()]
    return f"{{{','.join(parts)}}}" if parts else ""


def _escaped(text: str) -> str:
    return "".join(_ESCAPED.get(char, char) for char in text)
