# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Keeps secrets out of the output. Ansible replaces a secret wherever it occurs, also in sizes, uuids and messages."""

from __future__ import annotations

import re
import typing as t

from ..model.errors import Problem, Problems

# Shorter words also occur in results, as sizes, states, names of steps and groups of a uuid.
SHORTEST = 8
HIDDEN = "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"
OPTIONS = ("secret_metadata", "template")
_SECRET = re.compile(r"(?:^|_)(?:pw|passwd|password|secret|token)\Z", re.IGNORECASE)
_Vm = t.Mapping[str, t.Any]


def problems(vms: t.Sequence[_Vm]) -> t.List[Problem]:
    """Problems of secrets that cannot be kept out of the output without spoiling it, each named by its key."""
    wrong: t.List[Problem] = []
    for vm in vms:
        problems = Problems(str(vm["vm"]))
        for key, value in (vm.get("secret_metadata") or {}).items():
            if not isinstance(value, str):
                problems.add("InvalidArgument", f"secret_metadata {key}: its value must be a string")
            elif len(value) < SHORTEST:
                words = (
                    f"secret_metadata {key}: its value has less than {SHORTEST} characters, so it cannot be "
                    "told from the rest "
                    "of the output; take a longer one, or customer_metadata for what is no secret"
                )
                problems.add("InvalidArgument", words)
        for key in vm.get("customer_metadata") or {}:
            if _SECRET.search(str(key)):
                words = f"customer_metadata {key}: its name says that it is a secret; secret_metadata is masked"
                problems.add("InvalidArgument", words)
        if "vnc_password" in (vm.get("options") or {}):
            problems.add("InvalidArgument", "options vnc_password: options are shown and logged; set it with vmadm")
        if vm.get("template") and "<domain" not in vm["template"]:
            problems.add("InvalidArgument", "template: it has no <domain>, so it is not the XML of a VM")
        wrong += problems
    return wrong


def hidden(vms: t.Sequence[_Vm]) -> t.List[t.Dict[str, t.Any]]:
    """The VMs without their secrets, for an output in which Ansible replaces nothing."""
    return [{key: HIDDEN if vm[key] and key in OPTIONS else vm[key] for key in vm} for vm in vms]
