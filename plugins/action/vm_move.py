# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action vm_move: shows how far a long last transfer of a VM has come."""

from __future__ import annotations

import typing as t

from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._watched import WatchedTransfer


class ActionModule(WatchedTransfer):
    """The action."""

    STEP = "leave"
    pause, rest = 1.0, 1  # the VM is down

    def transfers(self) -> t.Any:
        """That of the VM."""
        return [self._task.args.get("transfer")]
