# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter find_vms: on which host of a play each VM is that somebody names."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators import find
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core


def find_vms(read: t.Mapping[str, t.Any], *names: t.Any, **options: t.Any) -> t.Dict[str, t.Any]:
    """read: the result of vm_info for each host."""
    try:
        return find.find_vms(read, *names, **options)._asdict()
    except (AttributeError, LookupError, TypeError) as exc:
        raise AnsibleFilterError(f"find_vms needs a result of vm_info for each host ({exc!r})") from exc


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters({"find_vms": find_vms})
