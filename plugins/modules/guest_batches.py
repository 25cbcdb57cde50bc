#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the action guest_batches, which runs on the controller. There is nothing to run on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: guest_batches
short_description: Choose the guests that grow, and their batches (internal)
version_added: 0.3.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Decides which guests grow in which batch, and whether a batch is begun although others are lost.
  - It is a part of the playbook C(grow_guests), whose variables it reads. Nobody else has to call it.
  - It runs on the controller and touches no host. Its options and results can change with each version.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.reads
options:
  do:
    description:
      - V(choose) returns the batches, and V(look) which guests are lost. V(begin) says whether a guest may grow, and
        V(end) how long to wait after a batch. All but V(begin) need C(run_once).
    type: str
    required: true
    choices:
      - choose
      - look
      - begin
      - end
  batch:
    description:
      - The batch that has ended.
    type: dict
seealso:
  - module: flexdisk.hypervisor.guest_growth
"""

EXAMPLES = r"""
- name: Choose the guests
  flexdisk.hypervisor.guest_batches:
    do: choose
  register: _flexdisk_growth
  run_once: true
"""

RETURN = r"""
batches:
  description: The batches, each with its guests and the pause after it in seconds.
  returned: O(do=choose)
  type: list
  elements: dict
lines:
  description: Which guests are touched, and why others are not.
  returned: O(do=look)
  type: list
  elements: str
unreached:
  description: The guests that cannot be reached.
  returned: O(do=look)
  type: list
  elements: str
stopped_by:
  description: The guests that keep a batch from being begun.
  returned: O(do=begin)
  type: list
  elements: str
pause:
  description: Seconds to wait.
  returned: O(do=end)
  type: int
"""
