#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the action group_turn, which runs on the controller. There is nothing to run on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: group_turn
short_description: Decide what the role instance_group does next
version_added: 0.3.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Decides what comes next in a run of the role C(flexdisk.hypervisor.instance_group), from what the hosts have said.
    The role calls it after each thing that it does. Nobody else has to. To plan a group without the role, use
    M(flexdisk.hypervisor.group_plan).
  - It runs on the controller and touches no host. Its options and results can change with each version.
  - Its results are not shown, because they can hold secrets of the template.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.reads
options:
  group:
    description:
      - The variables of the role, without C(instance_group_).
    type: dict
    required: true
  last:
    description:
      - The result of this action before. Without it, a run begins.
    type: dict
    default: {}
  answers:
    description:
      - The result of the last module, by host.
    type: dict
    default: {}
  serving:
    description:
      - The members whose gate says yes.
    type: list
    elements: str
    default: []
  bad:
    description:
      - The members for which a hook has failed.
    type: list
    elements: str
    default: []
  placed:
    description:
      - The hosts that were chosen for new members, by member.
    type: dict
    default: {}
seealso:
  - module: flexdisk.hypervisor.group_plan
"""

EXAMPLES = r"""
- name: Begin
  flexdisk.hypervisor.group_turn:
    group: "{{ _instance_group_declared }}" # the role has it
  register: _instance_group_turn
  run_once: true
"""

RETURN = r"""
do:
  description: The task file of the role that comes next. It is empty at the end.
  returned: success
  type: str
reasons:
  description: Why the run fails.
  returned: always
  type: list
  elements: str
table:
  description: What was done, as the lines of a table.
  returned: success
  type: list
  elements: str
"""
