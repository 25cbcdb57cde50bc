#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the action next_turn, which runs on the controller. There is nothing to run on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: next_turn
short_description: Decide what the hosts of a move or a failover do next (internal)
version_added: 0.3.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Decides what the hosts of a play do next, from what they have said, and does the part of one host.
  - It is internal to the playbooks C(flexdisk.hypervisor.move_vm) and
    C(flexdisk.hypervisor.failover_vm), whose tasks are a loop around it. Use these playbooks. Its options and
    results may change with any release.
  - A decision is not shown, because it can hold secrets of a VM.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.changes
options:
  do:
    description:
      - V(begin) decides what comes first, V(decide) what comes next. V(call) does the call of the last decision on the
        host of the task. C(module_defaults) of its module apply.
      - The decision and the answers to it are taken from the variables C(_flexdisk_turn) and C(_flexdisk_heard), for
        arguments of tasks can be shown.
    type: str
    required: true
    choices: [begin, decide, call]
  flow:
    description:
      - V(relocate) finds out where a VM is that moves, V(recover) is a failover. Needed without O(do=call).
    type: str
    choices: [relocate, recover]
  arguments:
    description:
      - The variables of the playbook. Needed without O(do=call).
    type: dict
"""

EXAMPLES = r"""
- name: Work out what comes first
  flexdisk.hypervisor.next_turn:
    do: begin
    flow: "{{ _flexdisk_flow }}"
    arguments: "{{ _flexdisk_arguments }}"
  register: _flexdisk_turn
  run_once: true
"""

RETURN = r"""
calls:
  description:
    - The call of each host that has one. It is empty at the end.
  returned: success, without O(do=call)
  type: dict
says:
  description:
    - What the user is told.
  returned: success, without O(do=call)
  type: raw
result:
  description:
    - What the playbook goes on with.
  returned: at the end
  type: dict
turn:
  description:
    - Which decision this is the answer to, and whether the module has failed.
  returned: with O(do=call)
  type: dict
"""
