#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the action move_jobs, which runs on the controller. There is nothing to run on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: move_jobs
short_description: Decide which moves of a plan run when (internal)
version_added: 0.3.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Decides which moves run at the same time, whether one may begin, and what became of it, and of all together.
  - It is internal to the playbooks C(evacuate_host), C(change_group) and C(rebalance). Its options and results may
    change with any release.
  - It runs on the controller and touches no host.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.reads
options:
  do:
    description:
      - V(queue) makes the hosts of a play of the jobs of O(stage). V(begin) fails if O(job) cannot begin. V(end) says
        what became of a job, V(tell) what became of all.
    type: str
    choices: [queue, begin, end, tell]
    required: true
  stage:
    description:
      - V(begun) are moves that an earlier run has left, V(planned) those of O(plan), V(left) those that have not ended
        since.
    type: str
    choices: [begun, planned, left]
  hosts:
    description:
      - What is known of hosts, as in M(flexdisk.hypervisor.move_plan).
    type: list
    elements: dict
    default: []
  vms:
    description:
      - As in M(flexdisk.hypervisor.move_plan).
    type: list
    elements: str
    default: []
  vm_tags:
    description:
      - As in M(flexdisk.hypervisor.move_plan).
    type: dict
    default: {}
  from_hosts:
    description:
      - As in M(flexdisk.hypervisor.move_plan).
    type: list
    elements: str
    default: []
  from_groups:
    description:
      - As in M(flexdisk.hypervisor.move_plan).
    type: list
    elements: str
    default: []
  plan:
    description:
      - The result of M(flexdisk.hypervisor.move_plan).
    type: dict
    default: {}
  digest:
    description:
      - The digest of the plan that was approved. Without it, any is.
    type: str
    default: ''
  forks:
    description:
      - The number of moves at the same time, at most.
    type: int
    default: 5
  job:
    description:
      - The job of this host.
    type: dict
  downtime:
    description:
      - The seconds for which the VM was down.
    type: raw
  outlook:
    description:
      - What check mode tells of the move.
    type: dict
  failed:
    description:
      - The result of the task that failed.
    type: dict
  last:
    description:
      - The result of V(queue) in the stage before.
    type: dict
    default: {}
  unplanned:
    description:
      - Why there is no plan.
    type: str
    default: ''
"""

EXAMPLES = r"""
- name: Put together what has become of the moves
  flexdisk.hypervisor.move_jobs:
    do: tell
    last: "{{ _flexdisk_queue }}"
  register: _flexdisk_told_in_the_end
  run_once: true
"""

RETURN = r"""
hosts:
  description: The hosts of the play, batch by batch. Each job is one host.
  returned: with O(do=queue)
  type: list
  elements: dict
sizes:
  description: How many hosts each batch has.
  returned: with O(do=queue)
  type: list
  elements: int
fine:
  description: Whether the job is done.
  returned: with O(do=end)
  type: bool
table:
  description: What became of all jobs, as the lines of a table.
  returned: with O(do=tell)
  type: list
  elements: str
failure:
  description: Why the run fails.
  returned: with O(do=tell)
  type: str
"""
