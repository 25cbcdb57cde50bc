# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter of move_vm: where the VM is."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication import places
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.moves import read_sightings
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.naming import similar
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core


def move_places(
    seen: t.Mapping[str, t.Mapping[str, t.Any]], vm: str, target: str = "", state: str = "moved", unasked: bool = False
) -> t.Dict[str, t.Any]:
    """seen: what the step look of a move returns, by hosts."""
    try:
        told = {host: one for host, one in read_sightings(seen).items() if one is not None}
        found = places.find(told, places.Wanted(vm, target, state, bool(unasked)))
        known = {host: one.get("known") or [] for host, one in seen.items() if one}
        is_there = bool(found.source) or any(one.unmanaged for one in told.values())
        meant = "" if is_there or state == "forgotten" else similar(vm, known)
        return {**found._asdict(), "problems": [*found.problems, *([meant] if meant else [])]}
    except (AttributeError, FlexdiskError, LookupError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"move_places wants what the step look of a move returns ({exc!r})") from exc


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters({"move_places": move_places})
