# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a pool of an export is made of: its vdevs from `zpool status`, their sector size from `zdb -C`."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Tuple

from simnode.zfs.reservation import Vdev

_NUMBERED = re.compile(r"(raidz[123]?|mirror|draid\S*)-\d+\Z")
_TOP = re.compile(r"^( *)children\[0\]:$", re.MULTILINE)


class ExportError(Exception):
    """The export cannot be understood or rebuilt."""


def layout(status: str, pool: str) -> List[Dict[str, Any]]:
    """Return the pool's top-level data vdevs from the output of `zpool status`, one plain disk if there are none."""
    vdevs: List[Dict[str, Any]] = []
    for depth, name in _data(status, pool):
        numbered = _NUMBERED.match(name)
        if depth == 1:
            vdevs.append({"type": numbered.group(1), "disks": 0} if numbered else {"type": "disk", "disks": 1})
        elif depth == 2 and vdevs[-1]["type"] != "disk":
            vdevs[-1]["disks"] += 1
    return vdevs or [{"type": "disk", "disks": 1}]


def _data(status: str, pool: str) -> Iterator[Tuple[int, str]]:
    """(depth, name) of what stands below the pool itself, not below its logs, spares and the like."""
    shown, above, margin = "", "", -1
    for line in status.expandtabs().splitlines():
        fields = line.split()
        indent = len(line) - len(line.lstrip())
        if fields[:1] == ["pool:"]:
            shown, above, margin = fields[-1], "", -1
        elif fields[:2] == ["NAME", "STATE"]:
            margin = indent
        elif shown == pool and fields and 0 <= margin <= indent:
            if indent == margin:
                above = fields[0]
            elif above == pool:
                yield (indent - margin) // 2, fields[0]


def sector_size(zdb: str, pool: str, vdevs: List[Dict[str, Any]]) -> int:
    """The pool's ashift in the output of `zdb -C`: that of its raidz and dRAID vdevs, since theirs alone matters.

    0 if it is not told and does not matter. `zpool get ashift` would not do: it is what a vdev added now would get,
    and 0 on most pools.
    """
    named = re.split(r"(?m)^ *name: '(.*)'$", zdb)
    tops = list(_tops(dict(zip(named[1::2], named[2::2])).get(pool, "")))
    wide = {ashift for kind, ashift in tops if kind in ("raidz", "draid")}
    if len(wide) > 1:
        sizes = ", ".join(str(1 << ashift) for ashift in sorted(wide))
        raise ExportError(f"{pool} has vdevs with sectors of {sizes} bytes, but a simulated pool has one size")
    if not any(wide) and any(Vdev(vdev["type"]).is_parity for vdev in vdevs):
        raise ExportError(f"{pool} has raidz or dRAID vdevs: their sector size is needed (zdb -C {pool})")
    return max(wide or [ashift for _kind, ashift in tops], default=0)


def _tops(config: str) -> Iterator[Tuple[str, int]]:
    """Type and ashift of each top-level vdev that holds data."""
    first = _TOP.search(config)
    if first is None:
        return
    margin = "(?m)^" + first.group(1)
    for block in re.split(margin + r"children\[[0-9]+\]:$", config)[1:]:
        facts = dict(re.findall(margin + r"    (type|ashift|is_log): '?([a-z]+|[0-9]{1,2})'?$", block))
        ashift = facts.get("ashift", "")
        if facts.get("is_log") != "1" and facts.get("type") not in ("hole", "indirect") and ashift.isdigit():
            yield facts.get("type", ""), int(ashift)
