# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""indestructible_zoneroot and indestructible_delegated: a held snapshot."""

from __future__ import annotations

from simnode.vmadm.host import VmadmHost, ZfsFailed, zfs

TAG = "do_not_destroy"


def protect(host: VmadmHost, dataset: str, protected: bool) -> None:
    if protected:
        _make_indestructible(host, dataset + "@indestructible")
    else:
        _make_destructible(host, dataset + "@indestructible")


def _make_indestructible(host: VmadmHost, snapshot: str) -> None:
    try:
        zfs(host, "snapshot", snapshot)
    except ZfsFailed as error:
        if "dataset already exists" not in error.stderr:
            raise
    try:
        zfs(host, "hold", TAG, snapshot)
    except ZfsFailed as error:
        if "tag already exists on this dataset" not in error.stderr:
            raise


def _make_destructible(host: VmadmHost, snapshot: str) -> None:
    for line in zfs(host, "holds", snapshot).splitlines():
        fields = line.split()
        if len(fields) > 1 and fields[0] != "NAME":
            try:
                zfs(host, "release", fields[1], snapshot)
            except ZfsFailed as error:
                if "no such tag on this dataset" not in error.stderr:
                    raise
    try:
        zfs(host, "destroy", snapshot)
    except ZfsFailed as error:
        if "could not find any snapshots to destroy" not in error.stderr:
            raise
