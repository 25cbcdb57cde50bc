# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory and CPUs of a host."""

from __future__ import annotations

import typing as t

from .errors import FlexdiskError


class Resources(t.NamedTuple):
    """memory and free_memory (not in use) are MiB, rounded down; cpus is the number of threads that are online."""

    memory: int
    free_memory: int
    cpus: int


def checked(resources: Resources, source: str) -> Resources:
    """Return the figures. Raises FlexdiskError UnexpectedOutput if no host can have them. source: who reported them."""
    if resources.memory < 1 or resources.cpus < 1 or not 0 <= resources.free_memory <= resources.memory:
        text = f"{resources.memory} MiB of memory, {resources.free_memory} MiB of them free, and {resources.cpus} CPUs"
        raise FlexdiskError("UnexpectedOutput", f"{source} tells of {text}")
    return resources
