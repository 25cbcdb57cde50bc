# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters of move_vm and replicate: where the VM is, what check mode shows, and what a run says that ends."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication import (
    outlook,
    places,
    report,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import render_time
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.moves import read_sightings
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.naming import similar
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core


def move_outlook(
    sync: t.Mapping[str, t.Any],
    vm: str,
    source: str,
    target: str,
    running: bool,
    takes: int,
    lost: t.Sequence[str] = (),
) -> t.Dict[str, t.Any]:
    """sync: what flexdisk.hypervisor.replica_send returns of its step prepare."""
    try:
        shown = outlook.lines(sync, vm, outlook.Hosts(source, target), running, takes, lost)
        return {"lines": shown, "downtime": outlook.downtime(sync, running)}
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"move_outlook wants what flexdisk.hypervisor.replica_send returns ({exc!r})") from exc


def move_places(
    seen: t.Mapping[str, t.Mapping[str, t.Any]], vm: str, target: str = "", state: str = "moved", unasked: bool = False
) -> t.Dict[str, t.Any]:
    """seen: what flexdisk.hypervisor.vm_move returns of its step look, by hosts."""
    try:
        told = {host: one for host, one in read_sightings(seen).items() if one is not None}
        found = places.find(told, places.Wanted(vm, target, state, bool(unasked)))
        known = {host: one.get("known") or [] for host, one in seen.items() if one}
        is_there = bool(found.source) or any(one.unmanaged for one in told.values())
        meant = "" if is_there or state == "forgotten" else similar(vm, known)
        return {**found._asdict(), "problems": [*found.problems, *([meant] if meant else [])]}
    except (AttributeError, FlexdiskError, LookupError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"move_places wants what flexdisk.hypervisor.vm_move returns ({exc!r})") from exc


def move_goes_on(seen: t.Mapping[str, t.Any], vm: str, source: str, target: str) -> str:
    """seen: what flexdisk.hypervisor.vm_move returned of its step look on the host that the VM leaves, at first."""
    try:
        return outlook.goes_on(vm, outlook.Hosts(source, target), seen.get("move"))
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"move_goes_on wants what flexdisk.hypervisor.vm_move returns ({exc!r})") from exc


def move_ended(
    seen: t.Mapping[str, t.Any], vm: str, source: str, target: str, stopped: float, now: float
) -> t.Dict[str, t.Any]:
    """seen: as for move_goes_on. stopped and now: seconds since 1970."""
    try:
        move = seen.get("move")
        runs = (move or seen["record"])["state"] == "running"
        return outlook.ended(vm, outlook.Hosts(source, target), move, runs, float(stopped), float(now))._asdict()
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"move_ended wants what flexdisk.hypervisor.vm_move returns ({exc!r})") from exc


def sync_done(
    transfers: t.Sequence[t.Mapping[str, t.Any]],
    sent: t.Sequence[t.Mapping[str, t.Any]],
    complete: t.Sequence[str],
    peer: str,
    began: float,
    now: float,
) -> t.List[str]:
    """transfers and sent: as flexdisk.hypervisor.replica_send returns them. began and now: seconds since 1970."""
    try:
        return report.done(transfers, sent, complete, peer, render_time(float(began)), float(now) - float(began))
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"sync_done wants what flexdisk.hypervisor.replica_send returns ({exc!r})") from exc


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters(
            {
                "move_outlook": move_outlook,
                "move_places": move_places,
                "move_goes_on": move_goes_on,
                "move_ended": move_ended,
                "sync_done": sync_done,
            }
        )
