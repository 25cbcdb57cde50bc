#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One step of a move, a failover or a sync on one host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_step
short_description: Do one step of a move, a failover or a sync on a host (internal)
version_added: 0.3.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Does one step on the host of the task. It is internal to the roles P(flexdisk.hypervisor.vm_move#role) and
    P(flexdisk.hypervisor.vm_replica#role), and to the playbooks C(move_vm), C(replicate), C(failover_vm),
    C(restore_disk) and C(start_host), which put the steps of several hosts together. Use these. Its steps, their
    arguments and results may change with any release.
  - Each step can be repeated. What it needs to know lies with the data, so what was killed goes on with the next run.
  - The code has a table with the arguments of each step, C(fleet/replication/host_steps.py).
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.lock
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.changes
attributes:
  check_mode:
    details:
      - Steps that need what an earlier one has really done do nothing in check mode.
options:
  run:
    description:
      - What the step belongs to. V(send) and V(receive) are the two sides of a sync.
    type: str
    required: true
    choices: [move, failover, send, receive, restore]
  step:
    description:
      - Which step is done.
    type: str
    required: true
  arguments:
    description:
      - Those of the step. They may hold secrets of a VM.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Destroy the replicas of a VM on this host
  flexdisk.hypervisor.host_step:
    run: receive
    step: remove
    arguments:
      vms: [0ab21b0c-66b5-4e04-a5c9-3ea52e5a4a4e]
"""

RETURN = r"""
msg:
  description: What is done, in one line. Further results depend on the step, and may hold secrets of a VM.
  returned: always
  type: str
error_code:
  description: The reason why the task fails. See the page of errors.
  returned: if the task fails
  type: str
problems:
  description: All reasons why the task fails.
  returned: if the task fails
  type: list
  elements: dict
"""

import typing as t

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..module_utils._flexdisk.engine.run.arguments import HOST, LOCK
from ..module_utils._flexdisk.engine.run.host_run import HostRun, checked, run_step

OPTIONS: t.Dict[str, t.Dict[str, t.Any]] = {
    "run": {"type": "str", "required": True, "choices": ["move", "failover", "send", "receive", "restore"]},
    "step": {"type": "str", "required": True},
    "arguments": {"type": "dict", "default": {}},
}

# A call needs one of them, and would take longer if all were imported.


def of_run(name: str) -> HostRun:
    """Return the steps of a run."""
    if name == "move":
        from ..module_utils._flexdisk.engine.moves.vm_move import MOVE

        return MOVE
    if name == "failover":
        from ..module_utils._flexdisk.engine.failover.vm_failover import FAILOVER

        return FAILOVER
    if name == "send":
        from ..module_utils._flexdisk.engine.replication.replica_send_run import SEND

        return SEND
    if name == "restore":
        from ..module_utils._flexdisk.engine.replication.restore_run import RESTORE

        return RESTORE
    from ..module_utils._flexdisk.engine.replication.replica_receive_run import RECEIVE

    return RECEIVE


def main() -> None:
    """Read the arguments, and do the step."""
    module = AnsibleModule(argument_spec={**OPTIONS, **HOST, **LOCK}, supports_check_mode=True)
    module.params = checked(module, ArgumentSpecValidator)
    run_step(module, __version__, of_run(module.params["run"]))


if __name__ == "__main__":
    main()
