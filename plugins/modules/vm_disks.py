#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Converge the disks of VMs."""

from __future__ import annotations

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine import module_run
from ..module_utils._flexdisk.engine.arguments import DISK, HOST, LOCK, POWER, REFUSAL, policy
from ..module_utils._flexdisk.engine.runner import SubprocessRunner
from ..module_utils._flexdisk.engine.vm_disks import converge
from ..module_utils._flexdisk.model.errors import FlexdiskError

VM = {
    "vm": {"type": "str", "required": True},
    "flexible_disk_size": {"type": "raw"},
    "quota": {"type": "str"},
    "unlisted": {"type": "str", "default": "refuse", "choices": ["refuse", "keep", "detach", "destroy"]},
    "adopt": {"type": "bool", "default": False},
    "disks": {"type": "list", "elements": "dict", "options": DISK},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "vms": {"type": "list", "elements": "dict", "required": True, "options": VM},
            **POWER,
            "matching": {"type": "str", "default": "name", "choices": ["name", "order"]},
            **REFUSAL,
            **HOST,
            **LOCK,
        },
        supports_check_mode=True,
    )
    params = module.params
    permitted = policy(params, matching=params["matching"])
    runner = SubprocessRunner()
    task = "vm_disks of %s" % ", ".join(vm["vm"] for vm in params["vms"])
    try:
        zfs, hypervisor = module_run.open_host(params, runner, __version__)
        with module_run.turn(runner, params, task, module.check_mode) as others:
            outcome = converge(zfs, hypervisor, params["vms"], permitted, params["pool"], module.check_mode)
    except FlexdiskError as exc:
        module.fail_json(**module_run.error(exc))
    for warning in others + outcome.warnings:
        module.warn(warning)
    failed = module_run.ending(outcome)
    if failed is not None:
        module.fail_json(**failed)
    module.exit_json(**module_run.result(outcome))


if __name__ == "__main__":
    main()
