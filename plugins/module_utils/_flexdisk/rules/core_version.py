# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which ansible-core this collection needs. Ansible itself only warns of another one."""

from __future__ import annotations

import re

FLOOR = (2, 19)
_VERSION = re.compile(r"([0-9]+)\.([0-9]+)")


def refusal(version: str) -> str:
    """Return why this version of ansible-core is too old, "" if it is not or cannot be told."""
    match = _VERSION.match(version)
    if match is None or tuple(map(int, match.groups())) >= FLOOR:
        return ""
    what_to_do = "Update ansible-core on the controller, or in the execution environment"
    return "flexdisk.hypervisor needs ansible-core %d.%d or later; this is %s. %s" % (*FLOOR, version, what_to_do)
