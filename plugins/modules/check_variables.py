#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the action check_variables, which runs on the controller. There is nothing to run on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: check_variables
short_description: Check the variables of a playbook (internal)
version_added: 0.3.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Refuses wrong, missing and unknown variables of a playbook of this collection, all of them together.
  - It is internal to the playbooks, which begin with it. Its options and results may change with any release.
  - It runs on the controller and touches no host. It templates the variables of the playbook, and no others.
  - Its results are not shown if one of the variables may hold secrets of VMs.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.reads
options:
  playbook:
    description:
      - The name of the playbook.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Check the variables
  flexdisk.hypervisor.check_variables:
    playbook: converge
  register: _flexdisk # flexible_disks_vms is _flexdisk.flexible_disks_vms now
"""

RETURN = r"""
stands:
  description:
    - Where messages find the user, the play and its playbook. Beside it are the variables, as they are meant.
    - For C(plan) and C(apply), also what a slice of the hosts appends to the names of what it hands on, as C(suffix),
      and what is said of digests for hosts of other slices, as C(elsewhere).
    - For C(converge), also whether more is asked for than to change disks, as C(asks_more).
  returned: success
  type: dict
  sample: {"play": "Change the disks of the declared VMs", "playbook": "converge"}
"""
