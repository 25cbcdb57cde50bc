# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why playbooks refuse to change a VM or a disk, with what is to be done instead."""

from __future__ import annotations

import json
import shlex
import typing as t

_Raw = t.Mapping[str, t.Any]


def declared(subject: str, host: str, instead: str) -> str:
    """Return the refusal of a change that the next run for the inventory would undo. subject: C(VM web01)."""
    return (
        f"The inventory declares {subject}, which is on {host}, and the next run for it would undo this change. "
        f"Nothing was changed. {instead}"
    )


def unadopted(vm: str, disk: str) -> str:
    """Return the refusal of a disk that has no name yet."""
    variables = {"flexdisk_adopt_vms": [{"vm": vm}]}
    return (
        f"{disk} of VM {vm} is not adopted: it has no name yet. Nothing was changed. Adopt the disks of the VM first: "
        f"ansible-playbook flexdisk.hypervisor.adopt -e {_extra(variables)}"
    )


def orphaned(host: str, vm: str, disk: str, orphans: t.Sequence[_Raw]) -> str:
    """Return the refusal of a volume below the dataset of a VM that does not know it."""
    variables = {"flexdisk_verify_vms": [vm], "flexdisk_verify_repair": ["orphan_volume"]}
    return (
        f"{disk} of VM {vm} is orphaned: {', '.join(str(one['volume']) for one in orphans)} lies below the VM's "
        "dataset, and the VM does not know it. Nothing was changed. This detaches it with its data, and then it is a "
        f"disk as others: ansible-playbook flexdisk.hypervisor.verify_disks --limit {host} -e {_extra(variables)}"
    )


def run_playbook(playbook: str, *variables: t.Tuple[str, str], limit: str = "") -> str:
    """Return the command that runs a playbook with these variables."""
    argv = ["ansible-playbook", f"flexdisk.hypervisor.{playbook}"]
    argv += [argument for name, value in variables for argument in ("-e", f"{name}={value}")]
    argv += ["--limit", limit] if limit else []
    return " ".join(map(shlex.quote, argv))


def _extra(variables: _Raw) -> str:
    """Variables as a word of a shell."""
    return shlex.quote(json.dumps(variables))
