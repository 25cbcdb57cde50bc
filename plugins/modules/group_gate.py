#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the action group_gate, which runs on the controller. There is nothing to run on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: group_gate
short_description: Ask members of a group of VMs whether they serve
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Asks the members of a group whether they are in service, all at once (at most 50 at a time), and again those that
    say no, until all say yes or the attempts are used up.
  - It runs on the controller, which must reach the members. It connects to no managed host.
  - It does not fail because a member says no. What that means is for the task that reads RV(failing) to decide.
  - Without O(tcp), O(http) and O(guest_agent), a member is in service if it runs. With several, it must say yes to all.
  - V({instance.name}), V({instance.index}), V({instance.host}) and V({instance.address}) stand for what O(members)
    says of the member that is asked.
  - Durations are whole seconds or ISO 8601 (V(PT1M30S)), at most one hour.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.reads
attributes:
  check_mode:
    details:
      - Members are asked once, without O(retries) and O(stable_for).
options:
  members:
    description:
      - The members to ask. Their names are different.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - Name of the member.
        type: str
        required: true
      index:
        description:
          - The number of the member, for V({instance.index}).
        type: int
      host:
        description:
          - The host on which it lies, for V({instance.host}).
        type: str
      address:
        description:
          - Its address or the name of it. By default, its O(members[].name).
        type: str
      running:
        description:
          - Whether its VM runs. If not, it says no without being asked, once and for all.
        type: bool
        default: true
      guest_agent:
        description:
          - What RV(flexdisk.hypervisor.vm_info#module:vms[].guest_agent) says of it. Only O(guest_agent) needs it.
        type: str
        choices:
          - connected
          - disconnected
          - ""
        default: ""
  tcp:
    description:
      - Asks whether a port takes connections.
    type: dict
    suboptions:
      port:
        description:
          - The port. It may have placeholders, V(80{instance.index}).
        type: raw
        required: true
      address:
        description:
          - The address. It may have placeholders. By default, V({instance.address}).
        type: str
      timeout:
        description:
          - How long to wait for the connection, at least one second.
        type: raw
        default: 3
  http:
    description:
      - Asks a URL by GET. Only the status of the answer counts. A redirect is not followed, proxies are not used.
    type: dict
    suboptions:
      url:
        description:
          - The URL, V(http) or V(https). It may have placeholders. Put an IPv6 address into brackets,
            V(http://[{instance.address}]/).
        type: str
        required: true
      status:
        description:
          - The statuses that mean yes.
        type: list
        elements: int
        default: [200]
      timeout:
        description:
          - How long to wait for the whole answer, at least one second.
        type: raw
        default: 3
      validate_certs:
        description:
          - Whether the certificate must be valid for the URL.
        type: bool
        default: true
  guest_agent:
    description:
      - A member is not in service unless its O(members[].guest_agent) is V(connected). Nobody is asked again for that.
      - A running member of which the hypervisor cannot tell is refused.
    type: bool
    default: false
  retries:
    description:
      - How often a member that says no is asked again. Each no counts, those after a yes during O(stable_for) too.
    type: int
    default: 0
  delay:
    description:
      - The time between two attempts.
    type: raw
    default: 5
  stable_for:
    description:
      - How long a member must say yes, without a no in between, before it counts. It is asked each O(delay), and once
        more at the end.
    type: raw
    default: 0
  limit:
    description:
      - Seconds after which the gate ends. Members that are not decided by then have failed it. With V(0), there is no
        limit.
    type: int
    default: 0
    version_added: 0.3.0
seealso:
  - module: flexdisk.hypervisor.group_plan
"""

EXAMPLES = r"""
- name: Wait up to two minutes, until the members have answered for ten seconds
  flexdisk.hypervisor.group_gate:
    members:
      - {name: web-0, index: 0, host: hv01, address: 192.0.2.10, running: true}
      - {name: web-1, index: 1, host: hv02, address: 192.0.2.11, running: true}
      - {name: web-2, index: 2, host: hv01, running: false}
    tcp: {port: 8080}
    http:
      url: http://{instance.address}:8080/health
      status: [200, 204]
    retries: 24
    delay: 5
    stable_for: 10
  register: gate

- name: Look at the answers
  ansible.builtin.assert:
    that:
      - gate.serving == ['web-0', 'web-1']
      - gate.failing == ['web-2']
      - "gate.msg == '2 of 3 members in service; web-2: not running'"
"""

RETURN = r"""
msg:
  description: The answers in one line.
  returned: always
  type: str
  sample: "3 of 4 members in service; web-2: http http://192.0.2.12:8080/health: status 503, not 200"
members:
  description: The members, in the order of O(members).
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the member.
      type: str
    in_service:
      description: Whether it is in service.
      type: bool
    why:
      description: Why it is not, by its last answer. Empty if it is.
      type: str
serving:
  description: Names of the members that are in service.
  returned: success
  type: list
  elements: str
failing:
  description: Names of the others.
  returned: success
  type: list
  elements: str
error_code:
  description: Code of the first of RV(problems).
  returned: failure
  type: str
problems:
  description: All reasons why the gate is refused.
  returned: failure
  type: list
  elements: dict
"""
