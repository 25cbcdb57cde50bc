#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the action next_call, which runs on the controller. There is nothing to run on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: next_call
short_description: Do the next call of a move or a sync (internal)
version_added: 0.3.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Does one call of a module of this collection on the host of the task, and tells which call is next, on which host.
  - It is internal to the roles P(flexdisk.hypervisor.vm_move#role) and P(flexdisk.hypervisor.vm_replica#role), whose
    tasks are a loop around it. Use these roles. Its options and results may change with any release.
  - The first task is without O(shown). It only tells the first call.
  - It fails if the module fails and the task ends with that. C(module_defaults) of the module apply.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.changes
options:
  task:
    description:
      - V(move) is the role P(flexdisk.hypervisor.vm_move#role), V(keep) and V(give_up) are the states C(present) and
        C(absent) of the role P(flexdisk.hypervisor.vm_replica#role). V(restore) is of the
        playbooks C(restore_disk) and C(restore_vm).
    type: str
    choices: [move, keep, replicate, give_up, restore]
    required: true
  arguments:
    description:
      - The variables of the role.
    type: dict
    required: true
  shown:
    description:
      - The result of the last task whose result is shown.
    type: dict
  hidden:
    description:
      - The result of the last task with C(no_log), which may hold secrets of a VM.
    type: dict
"""

EXAMPLES = r"""
- name: Work out the first call
  flexdisk.hypervisor.next_call:
    task: "{{ _vm_replica_task }}"
    arguments: "{{ _vm_replica_arguments }}"
  register: _vm_replica_shown
"""

RETURN = r"""
answers:
  description:
    - What this run has been told so far, by the numbers of the calls. The results of tasks with C(no_log) have that of
      calls with secrets, the others that of the rest.
  returned: success
  type: dict
next:
  description:
    - C(file) is the file with the next task in the role P(flexdisk.hypervisor.vm_replica#role). C(name) and C(host) are
      those of the next call. C(says) is a message before it. C(result) or C(msg) is how all has ended.
  returned: success
  type: dict
"""
