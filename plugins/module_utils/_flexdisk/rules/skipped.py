# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""VMs that no task manages, each with the reason and how to adopt it."""

from __future__ import annotations

import json
import re
import typing as t

from ..model.text import cut
from ..model.vm import VmConfig

_BRAND = "brand "  # what the reason of a VM of another brand begins with
_PLAIN = re.compile(r"[A-Za-z_][\w.-]*")  # needs no quotes in YAML
_Skipped = t.Sequence[t.Mapping[str, t.Any]]


def of_brand(brand: str) -> str:
    """Return why a VM of another brand is not managed."""
    return _BRAND + brand


def adopting(config: VmConfig) -> str:
    """Return how to adopt a VM: the entry of vm_disks, to be copied."""
    name = config.alias if _PLAIN.fullmatch(config.alias) else json.dumps(config.alias or config.uuid)
    stop = "" if config.state == "stopped" else "; stop the VM before"
    return f"vm_disks makes it with the entry - {{vm: {name}, adopt: true}}{stop}"


def lines(skipped: _Skipped, happens: str = "") -> t.List[str]:
    """Return a line for each VM with the reason. VMs of other brands are left out: they are never managed.

    happens: what became of the VM, such as "is left out".
    """
    verb = f" {happens}" if happens else ""
    return [f"{_label(vm)}{verb}: {vm['reason']}" for vm in skipped if not _of_other_brand(vm)]


def not_looked_at(skipped: _Skipped) -> t.List[str]:
    """Return a line for each VM that a report leaves out, and one line for all VMs of other brands."""
    others = [f"{_label(vm)} ({vm['reason'][len(_BRAND) :]})" for vm in skipped if _of_other_brand(vm)]
    last = [f"not looked at, because of their brands: {', '.join(cut(others, 'VM'))}"] if others else []
    return [*lines(skipped, "was not looked at"), *last]


def _of_other_brand(vm: t.Mapping[str, t.Any]) -> bool:
    return str(vm["reason"]).startswith(_BRAND)


def _label(vm: t.Mapping[str, t.Any]) -> str:
    return str(vm["alias"] or vm["uuid"])
