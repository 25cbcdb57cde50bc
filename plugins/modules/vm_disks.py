#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Converge the disks of VMs."""

from __future__ import annotations

import typing as t

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine.modules.vm_disks import converge
from ..module_utils._flexdisk.engine.run.arguments import APPROVAL, DISK, HOST, LOCK, POWER, REFUSAL, policy
from ..module_utils._flexdisk.engine.run.changing import CHANGING
from ..module_utils._flexdisk.engine.run.module_run import Answer, Call, run_module, unparsed
from ..module_utils._flexdisk.engine.run.results import answer

VM = {
    "vm": {"type": "str", "required": True},
    "flexible_disk_size": {"type": "raw"},
    "quota": {"type": "str"},
    "unlisted": {"type": "str", "default": "refuse", "choices": ["refuse", "keep", "detach", "destroy"]},
    "adopt": {"type": "bool", "default": False},
    "disks": {"type": "list", "elements": "dict", "options": DISK},
}


def main() -> None:
    """Read the arguments, and do what vm_disks does."""
    module = AnsibleModule(
        argument_spec={
            "vms": {"type": "list", "elements": "dict", "required": True, "options": VM},
            **POWER,
            "matching": {"type": "str", "default": "name", "choices": ["name", "order"]},
            **REFUSAL,
            **APPROVAL,
            **HOST,
            **LOCK,
        },
        supports_check_mode=True,
    )
    task = f"vm_disks of {', '.join(vm['vm'] for vm in module.params['vms'])}"
    run_module(module, __version__, task, unparsed, body, drivers=CHANGING)


def body(call: Call, params: t.Mapping[str, t.Any]) -> Answer:
    """The run of vm_disks."""
    permitted = policy(params, matching=params["matching"])
    return answer(converge(call.zfs, call.hypervisor, params["vms"], permitted, call.pool, call.check_mode))


if __name__ == "__main__":
    main()
