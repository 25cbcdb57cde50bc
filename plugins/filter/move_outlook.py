# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter move_outlook: what a move will do, as check mode shows it."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication import outlook
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


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters({"move_outlook": move_outlook})
