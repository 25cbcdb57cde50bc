# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables as aligned lines of text."""

from __future__ import annotations

import typing as t

from ..model.text import visible


def aligned(columns: t.Sequence[str], rows: t.Sequence[t.Sequence[str]]) -> t.List[str]:
    """Return the lines of a table with its head; none without rows."""
    if not rows:
        return []
    lines = [[visible(cell) for cell in row] for row in (columns, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in lines]
