# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""What planners return for a reader: lines of a table, and the text of a refusal."""

from __future__ import annotations

import typing as t

from ..model.errors import Problem


def aligned(columns: t.Sequence[str], rows: t.Sequence[t.Sequence[str]]) -> t.List[str]:
    """The lines of a table with its head; none without rows."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in (columns, *rows)) for column in range(len(columns))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in (columns, *rows)]


def refusal(problems: t.Sequence[Problem]) -> t.Dict[str, t.Any]:
    """The keys of a result that refuses, with all problems in its message."""
    lines = [f"{problem.vm + ': ' if problem.vm else ''}{problem.message} [{problem.code}]" for problem in problems]
    return {
        "msg": "\n".join(lines),
        "error_code": problems[0].code,
        "problems": [problem.as_dict() for problem in problems],
    }
