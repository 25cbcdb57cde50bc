# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check variables of list_disks: columns that do not exist, and a layout without a table."""

from __future__ import annotations

import re
import typing as t

LAYOUT = ("flexdisk_list_fields", "flexdisk_list_long", "flexdisk_list_header")


def problems(variables: t.Mapping[str, t.Any], columns: t.Sequence[str]) -> t.List[str]:
    """Return what is wrong. variables: those that are set. columns: all that a table can have."""
    result = []
    sort = [re.sub("^-", "", str(column)) for column in variables.get("flexdisk_list_sort", ())]
    strange = [column for column in sort if column not in columns]
    if strange:
        result.append(f"flexdisk_list_sort has {', '.join(strange)}, but the columns are {', '.join(columns)}")
    layout = [name for name in variables if name in LAYOUT]
    if layout and variables.get("flexdisk_list_format", "table") != "table":
        result.append(f"{', '.join(layout)} works only with a table; flexdisk_list_format=json shows everything")
    if "flexdisk_list_long" in variables and "flexdisk_list_fields" in variables:
        result.append(
            "flexdisk_list_fields names the columns, so flexdisk_list_long does nothing; leave one of them out"
        )
    return result
