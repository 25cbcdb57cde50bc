# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Detect several names of an inventory that mean the same host, by the guids of its pools."""

from __future__ import annotations

import typing as t


def same_host_problems(guids: t.Mapping[str, t.Iterable[object]]) -> t.List[str]:
    """Return what is wrong with hosts that have the same pool. guids: of the pools of each host, 0 if not known.

    All VMs and all space of such a host would count twice, and two runs on it would look like runs on two hosts.
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
