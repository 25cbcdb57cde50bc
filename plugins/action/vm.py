# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of vm and, by meta/runtime.yml, of all modules with plans: shows progress if flexdisk_progress is set."""

from __future__ import annotations

from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._watched import WatchedPlan


class ActionModule(WatchedPlan):
    """The action."""
