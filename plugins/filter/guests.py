# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters of the role guest_growth: which disks are meant, and what grew."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet import guest_disks as disks
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

_Dict = t.Mapping[str, t.Any]
_Result = t.TypeVar("_Result")


def guest_disks(
    vm: _Dict, asked: t.Optional[t.Sequence[_Dict]] = None, left_out: t.Sequence[str] = ()
) -> t.Dict[str, t.Any]:
    """vm: flexdisk_vm. asked: guest_growth_disks. left_out: guest_growth_leave_out."""
    return _guarded("guest_disks", disks.find, vm, asked, left_out)


def guest_grown(results: t.Sequence[_Dict], targets: t.Sequence[t.Dict[str, t.Any]], vm: str) -> t.Dict[str, t.Any]:
    """results: of guest_growth, for those of the targets of guest_disks that can be named."""
    return _guarded("guest_grown", disks.report, vm, targets, results)


def _guarded(name: str, work: t.Callable[..., _Result], *args: t.Any) -> _Result:
    """Call work(*args). Malformed input becomes an error of the filter that shows no value."""
    try:
        return work(*args)
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        wanted = f"{name} wants what flexdisk.hypervisor.guest_growth gives it"
        raise AnsibleFilterError(f"{wanted} ({type(exc).__name__})") from exc


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters({"guest_disks": guest_disks, "guest_grown": guest_grown})
