# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether several names of an inventory mean one host: by the pools that they have."""

from __future__ import annotations

import typing as t


def same_host_problems(guids: t.Mapping[str, t.Iterable[object]]) -> t.List[str]:
    """Return what is wrong with hosts that have the same pool. guids: of the pools of each host, 0 for one not known.

    Such a host has all its VMs twice, its space counts twice, and two runs on it are taken for runs on two hosts.
    """
    owners: t.Dict[int, t.List[str]] = {}
    for host, known in guids.items():
        for guid in {int(str(guid or 0)) for guid in known} - {0}:
            owners.setdefault(guid, []).append(host)
    return [
        f"{' and '.join(hosts)} have the same pool (guid {guid}), so they are one host with several names"
        for guid, hosts in owners.items()
        if len(hosts) > 1
    ]
