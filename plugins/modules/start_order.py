#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the action start_order, which runs on the controller. There is nothing to run on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: start_order
short_description: Decide whom start_host asks, and what each host is told (internal)
version_added: 0.3.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Decides which hosts are asked before VMs with failover start, and what each host is told of the others.
  - It is internal to the playbook C(flexdisk.hypervisor.start_host). Use that. Its options and results may change with
    any release.
  - It runs on the controller, once for all hosts, and touches no host. What the hosts of the play have said is taken
    from the variables C(_flexdisk_seen) and C(_flexdisk_heard), and what others have told them from C(_flexdisk_asked).
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.reads
options:
  do:
    description:
      - V(ask) says which other hosts are asked. V(decide) says what each host of the play is told.
    type: str
    choices: [ask, decide]
    required: true
  every:
    description:
      - All hosts, also those that C(--limit) leaves out.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Decide which other hosts are asked
  flexdisk.hypervisor.start_order:
    do: ask
    every: "{{ query('ansible.builtin.inventory_hostnames', 'hypervisors') }}"
  register: _flexdisk_to_ask
  run_once: true
"""

RETURN = r"""
hosts:
  description: The other hosts that each host of the play asks, by its name.
  returned: with O(do=ask)
  type: dict
claims:
  description: What each host of the play is told of the others, by the names of both. C("") of a host that has not said
    anything.
  returned: with O(do=decide)
  type: dict
"""
