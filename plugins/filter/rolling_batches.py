# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters rolling_batches and duration: what a rolling update of a group would do, and how long a duration is."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.batches import (
    INDEXED,
    sequence,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.members import MAX_MEMBERS
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.durations import parse_seconds
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

KEYS = ("current", "requested", "min_in_service", "max_batch_size")


def rolling_batches(figures: t.Mapping[str, int], flavour: str = INDEXED) -> t.Dict[str, t.Any]:
    """The steps from figures, which are whole numbers by the names in KEYS."""
    if not isinstance(figures, t.Mapping) or set(figures) != set(KEYS):
        raise AnsibleFilterError(f"rolling_batches: needs a dictionary of {', '.join(KEYS)}; got {figures!r}")
    for key, value in figures.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise AnsibleFilterError(f"rolling_batches: {key} is {value!r}, which is not a whole number")
        if value > MAX_MEMBERS:
            raise AnsibleFilterError(
                f"rolling_batches: {key} is above {MAX_MEMBERS}, the most members that a group has"
            )
    try:
        roll = sequence(**figures, flavour=flavour)
    except FlexdiskError as error:
        raise AnsibleFilterError(f"rolling_batches: {error.code}: {error.message}") from error
    return {
        "batches": [[step.size, step.batch] for step in roll.batches],
        "peak": roll.peak,
        "untouched_min": roll.untouched_min,
        "final_resize_to": roll.final_size,
        "pauses": roll.pauses,
    }


def duration(value: t.Union[int, str]) -> int:
    """The seconds of a duration as policies write it."""
    try:
        return parse_seconds(value)
    except FlexdiskError as error:
        raise AnsibleFilterError(f"duration: {error.code}: {error.message}") from error


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters({"rolling_batches": rolling_batches, "duration": duration})
