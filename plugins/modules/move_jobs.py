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
  - Decides which hosts must be read for moves, which moves run at the same time, whether one may begin, and what became
    of it, and of all together.
  - It reads the variables of the playbook, and what its tasks have left.
  - It is internal to the playbooks C(evacuate_host), C(change_group) and C(rebalance). Its options and results may
    change with any release.
  - It runs on the controller and touches no host.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.reads
options:
  do:
    description:
      - V(involve) says which host groups must be read before a plan is made, V(follow) which other hosts have to do
        with moves that have begun.
      - V(queue) makes the hosts of a play of the jobs of a stage. V(begin) fails if the job of this host cannot begin.
        V(end) says what became of it, V(tell) what became of all.
    type: str
    choices: [involve, follow, queue, begin, end, tell]
    required: true
  request:
    description:
      - As in M(flexdisk.hypervisor.move_plan). O(do=involve) needs it.
    type: str
  downtime:
    description:
      - The seconds for which the VM was down.
    type: raw
  memory_lost:
    description:
      - Why a guest that was to go on with its memory has booted.
    type: str
    default: ""
  outlook:
    description:
      - What check mode tells of the move.
    type: dict
  failed:
    description:
      - The result of the task that failed.
    type: dict
"""

EXAMPLES = r"""
- name: Put together what has become of the moves
  flexdisk.hypervisor.move_jobs:
    do: tell
  register: _flexdisk_told_in_the_end
  run_once: true
"""

RETURN = r"""
hosts:
  description: The hosts of the play, batch by batch, as dictionaries. Each job is one host. With O(do=follow), names.
  returned: with O(do=queue) and O(do=follow)
  type: list
  elements: raw
groups:
  description: Host groups. With O(do=follow), those of RV(hosts).
  returned: with O(do=involve) and O(do=follow)
  type: list
  elements: str
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
