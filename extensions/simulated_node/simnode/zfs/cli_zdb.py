# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The `zdb` command: `zdb -C POOL`, as far as it tells of sector sizes."""

from __future__ import annotations

from typing import List, Tuple

from simnode.zfs.model import Pool
from simnode.zfs.reservation import Vdev
from simnode.zfs.storage import Storage


def main(storage: Storage, argv: List[str]) -> Tuple[int, str, str]:
    """Run `zdb` with these arguments; exit status, stdout, stderr."""
    if len(argv) != 2 or argv[0] != "-C":
        return 2, "", "Usage:\tzdb -C <poolname>\n"
    pool = storage.pools.get(argv[1])
    if pool is None:
        return 1, "", f"zdb: can't open '{argv[1]}': No such file or directory\n"
    lines = [
        "\nMOS Configuration:",
        "        version: 5000",
        f"        name: '{pool.name}'",
        "        state: 0",
        f"        pool_guid: {pool.guid}",
        f"        vdev_children: {len(pool.vdevs)}",
        "        vdev_tree:",
        "            type: 'root'",
        "            id: 0",
    ]
    for index, vdev in enumerate(pool.vdevs):
        lines += _top(index, vdev, pool)
    return 0, "\n".join([*lines, "        features_for_read:", ""]), ""


def _top(index: int, vdev: Vdev, pool: Pool) -> List[str]:
    kind = vdev.type.split(":")[0].rstrip("123") if vdev.is_parity else vdev.type
    lines = [f"children[{index}]:", f"    type: '{kind}'", f"    id: {index}"]
    if vdev.is_parity:
        lines.append(f"    nparity: {vdev.parity}")
    lines += [f"    ashift: {pool.ashift}", "    is_log: 0"]
    for member in range(vdev.disks if vdev.type != "disk" else 0):
        lines += [f"    children[{member}]:", "        type: 'disk'", f"        id: {member}"]
    return [" " * 12 + line for line in lines]
