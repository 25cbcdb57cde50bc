# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks of operators, and how each of them decides what it does on which host."""

from __future__ import annotations

import typing as t

from . import one_disk
from .order import Playbook

PLAYBOOKS: t.Mapping[str, Playbook] = {
    "add_disk": Playbook(one_disk.add_disk),
    "resize_disk": Playbook(one_disk.resize_disk),
    "remove_disk": Playbook(one_disk.remove_disk, options={"exact": True}),
    "attach_disk": Playbook(one_disk.attach_disk),
    "detach_disk": Playbook(
        one_disk.detach_disk,
        names=lambda given: [given.get("flexdisk_vm", given["flexdisk_disk"])],
        finds_disks=lambda given: "flexdisk_vm" not in given,
    ),
}
