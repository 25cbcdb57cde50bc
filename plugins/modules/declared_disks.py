#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the action declared_disks, which runs the module vm_disks on the host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: declared_disks
short_description: Do what the role flexible_disks is asked for (internal)
version_added: 0.3.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Reads the variables of the role P(flexdisk.hypervisor.flexible_disks#role), and calls
    M(flexdisk.hypervisor.vm_disks) on the host. Where nothing is declared, it touches no host.
  - It is internal to the role and to the playbooks C(converge), C(plan) and C(apply). Use these. Its options and
    results may change with any release.
  - C(module_defaults) of M(flexdisk.hypervisor.vm_disks) apply.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.changes
options:
  step:
    description:
      - V(plan) changes nothing. V(compare) does not either, and fails if the plan is not the one that
        C(flexible_disks_expect_plan) approves. V(change) changes the disks.
      - The default is V(plan) if C(flexible_disks_plan_only) is true, else V(change).
    type: str
    choices: [plan, compare, change]
  variables:
    description:
      - Variables of the role that count instead of those that are set for the host.
    type: dict
    default: {}
  pools:
    description:
      - Also return the pools of the host, as M(flexdisk.hypervisor.host_info) does.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Change the disks of the declared VMs
  flexdisk.hypervisor.declared_disks:
  register: flexible_disks_result
"""

RETURN = r"""
pools:
  description: The pools of the host. Beside them is the result of M(flexdisk.hypervisor.vm_disks).
  returned: with O(pools=true)
  type: list
  elements: dict
"""
