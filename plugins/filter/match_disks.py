# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter match_disks: what the instance-group algorithm would do to a list of disks."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import instance_group_matching
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core


def match_disks(current: object, desired: object, matching: str = "name") -> t.Dict[str, t.Any]:
    try:
        return instance_group_matching.match_disks(current, desired, matching)
    except FlexdiskError as error:
        raise AnsibleFilterError(f"match_disks: {error.code}: {error.message}") from error


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters({"match_disks": match_disks})
