# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole run of host_status: observe, and report what is half done."""

from __future__ import annotations

import time
import typing as t

from ...hypervisor.protocol import Hypervisor
from ...rules.half_done import AtWork, half_done
from ...rules.inventory import Host
from ...rules.layout import replicas_container
from ...rules.moves import COMING
from ...rules.verify import REPLICA_DAYS, UNUSED_DAYS, findings
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ..host.journal import host_name
from ..host.lock import busy, transfers_under_way
from ..host.observe import observe
from .group_lease import leases

_Answer = t.Tuple[t.Dict[str, t.Any], t.List[str]]


def run(zfs: Zfs, copies: Copies, hypervisor: Hypervisor, pool: t.Optional[str]) -> _Answer:
    """Return the result, and warnings.

    Who is at work is asked before and after the reading: a task that ends meanwhile has left nothing half done.
    """
    changes, transfers = bool(busy(pool)), transfers_under_way()
    host = observe(zfs, hypervisor, pool, complete=True, all_pools=True)
    lease_results, warnings = leases(zfs, host)
    verify_findings = findings(host, int(time.time()), UNUSED_DAYS, REPLICA_DAYS)
    streams = _streams(copies, host)
    at_work = AtWork(changes or bool(busy(pool)), {*transfers, *transfers_under_way()})
    entries = half_done(host, verify_findings, lease_results, streams, at_work)
    names = {config.uuid: config.alias for config in host.configs}
    arriving = {uuid for uuid, move in host.moves.items() if move.phase == COMING}
    return {
        "changed": False,
        "host": host_name(),
        "pools": [{"name": name, "guid": host.datasets[name].guid} for name in sorted(host.geometry)],
        "vms": [{"uuid": uuid, "alias": names[uuid]} for uuid in sorted(names.keys() - arriving)],
        "transfers": sorted(at_work.transfers),
        "half_done": [dict(entry._asdict(), inherit=list(entry.inherit)) for entry in entries],
    }, warnings


def _streams(copies: Copies, host: Host) -> t.List[str]:
    """The replicas with a token by which their transfer goes on. One process, if there are replicas."""
    places = sorted(name for name in map(replicas_container, host.geometry) if name in host.datasets)
    table = copies.table(places, ("type", "receive_resume_token"), "filesystem,volume", depth=2)
    return [name for name, row in table.items() if row["receive_resume_token"][0] not in ("", "-")]
