# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters of the playbook move_vm: move_places, where the VM is, and move_outlook, what check mode shows."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication import outlook, places
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.moves import read_sightings
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
        return places.find(told, places.Wanted(vm, target, state, bool(unasked)))._asdict()
    except (AttributeError, FlexdiskError, LookupError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"move_places wants what flexdisk.hypervisor.vm_move returns ({exc!r})") from exc


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters({"move_outlook": move_outlook, "move_places": move_places})
