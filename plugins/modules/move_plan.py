#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the action move_plan, which runs on the controller. There is nothing to run on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: move_plan
short_description: Plan which VMs move to which hosts
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Plans which VMs go to which hosts, and in which order, so that a host or a host group is emptied, hosts are used
    more evenly, or new VMs get a host.
  - It runs on the controller, touches no host, and moves nothing. All that it knows of the hosts is in O(hosts).
  - Moves are planned for VMs whose disks are copied from host to host. The disks stay on the host that a VM leaves
    until they are given up there, so a plan counts no space of a pool as free again.
  - A VM goes to a pool of the same name.
  - Everything that is wrong with the request is reported together. A VM that can go to no host has a reason for each
    host.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.reads
options:
  request:
    description:
      - What shall be planned.
    type: str
    required: true
    choices:
      place: The O(new_vms) get a host.
      change_group: VMs leave their host group.
      evacuate: VMs leave the O(from_hosts), and stay in their host group.
      rebalance: VMs move within their host group if that lowers the score.
  hosts:
    description:
      - The hosts that the plan may use, and those that VMs leave.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - Name of the host.
        type: str
        required: true
      group:
        description:
          - Its host group. Either all hosts have one, or none has; then they are one group.
        type: str
      info:
        description:
          - RV(flexdisk.hypervisor.host_info#module:host). Without it, the host counts as one that could not be read. It
            takes no VMs, and its VMs are not known.
        type: dict
      error:
        description:
          - Why the host could not be read.
        type: str
      drained:
        description:
          - Whether it takes no VMs. Its VMs can leave it.
        type: bool
        default: false
      tags:
        description:
          - A VM moves only to a host that has all of these, unless O(allowed_moves) says otherwise.
        type: list
        elements: str
      locations:
        description:
          - Its failure domains, such as a rack. VMs with the same exclusive tag are spread over them.
        type: list
        elements: str
  host_groups:
    description:
      - What is special about host groups.
    type: list
    elements: dict
    suboptions:
      name:
        description:
          - Name of the host group.
        type: str
        required: true
      alloc_policy:
        description:
          - Whether VMs come into the group. This does not concern moves within it.
        type: str
        choices:
          preferred: They do.
          last_resort: They do if no preferred group takes them.
          unallocable: They do not.
        default: preferred
      cpu_ratio:
        description:
          - How many virtual CPUs one CPU may have. Without it there is no limit.
        type: float
  vms:
    description:
      - The VMs that shall move, by alias or UUID. A name must mean exactly one VM of all hosts.
    type: list
    elements: str
  vm_tags:
    description:
      - The tags of the VMs that shall move. A VM must have all of them. With the value V(null), any value will do.
    type: dict
  from_hosts:
    description:
      - The hosts that VMs shall leave. No VM goes to one of them.
    type: list
    elements: str
  from_groups:
    description:
      - The host groups whose VMs shall move.
    type: list
    elements: str
  to_groups:
    description:
      - The host groups where VMs may go. Without it, that is any other group.
    type: list
    elements: str
  new_vms:
    description:
      - VMs that do not exist yet.
    type: list
    elements: dict
    suboptions:
      name:
        description:
          - Name of the VM. No host may have a VM of this name.
        type: str
        required: true
      memory:
        description:
          - MiB, or a size with a unit.
        type: raw
      vcpus:
        description:
          - Number of virtual CPUs.
        type: int
      disks:
        description:
          - What the VM takes of a pool, by the name of the pool, in MiB or as a size with a unit. See
            RV(flexdisk.hypervisor.host_info#module:host.vms[].disks).
        type: dict
      running:
        description:
          - Whether it will run.
        type: bool
        default: true
      tags:
        description:
          - Its tags.
        type: dict
      spread:
        description:
          - The name of a set of VMs that are spread over the hosts. The VM gets one of the hosts that have the fewest
            of them.
        type: str
      hosts:
        description:
          - The only hosts that it may get. Without it, that is any host.
          - By the name of each host there is a dictionary, which can be empty. C(refused) says why this host cannot
            take the VM. C(memory), C(vcpus) and C(disks) say what it takes there. C(beside) is the number of VMs of the
            set O(new_vms[].spread) that the host has already.
        type: dict
  answers:
    description:
      - What M(flexdisk.hypervisor.vm) says of new VMs in check mode, by the name of each host. It stands for
        O(new_vms).
      - C(vms) has the entries that the host may get, C(checks) the results for them. C(beside) is the number of VMs of
        the set C(spread) that the host has already.
    type: dict
    version_added: 0.3.0
  exclusive_tags:
    description:
      - Keys of VM tags. No VM goes to a host that has another one with the same value.
    type: list
    elements: str
  allowed_moves:
    description:
      - Moves between hosts with different C(tags) that are allowed.
    type: list
    elements: dict
    suboptions:
      from:
        description:
          - A tag of the host that VMs leave.
        type: str
        required: true
      to:
        description:
          - A tag of the host where they go.
        type: str
        required: true
  redundancy:
    description:
      - Whether a VM may not come to a group if the VMs of one of its hosts could not all be taken by its other hosts
        then. A host for which this is so already does not count.
    type: bool
    default: false
  max_age:
    description:
      - Seconds that the facts of a host may be old. Older ones are refused.
    type: int
    default: 900
  max_moves:
    description:
      - The number of moves of V(rebalance), at most. Without it, that is 10.
    type: int
  min_gain:
    description:
      - How much each move of V(rebalance) must lower the score. Without it, that is 0.01.
    type: float
  moves_per_host:
    description:
      - The number of moves from and to one host at a time. V(0) is no limit.
    type: int
    default: 0
  moves_between_groups:
    description:
      - The number of moves between two host groups at a time. V(0) is no limit.
    type: int
    default: 0
  allow_partial:
    description:
      - Whether a plan that lacks some VMs is a plan. If not, the task fails then.
    type: bool
    default: false
seealso:
  - module: flexdisk.hypervisor.host_info
"""

EXAMPLES = r"""
- name: Plan that hv01 is emptied
  flexdisk.hypervisor.move_plan:
    request: evacuate
    from_hosts: [hv01]
    hosts:
      - name: hv01
        info: &info
          collected: "{{ now().timestamp() | int }}"
          memory: {total: 32768, own: 2048, free: 26624}
          cpus: 8
          pools: [{name: zones, guid: 1, size: 1048576, available: 900000, parked: 0, replicas: 0}]
          vms:
            - {uuid: 44444444-0000-4000-8000-000000000001, alias: web, state: running, memory: 4096, vcpus: 2,
               drained: false, disks: {zones: 20480}, tags: {role: web}}
      - name: hv02
        info: "{{ info | combine({'memory': empty, 'vms': [], 'pools': [pool2]}) }}"
      - name: hv03
        error: Connection timed out
  register: plan
  vars:
    info: *info
    empty: {total: 32768, own: 2048, free: 30720}
    pool2: {name: zones, guid: 2, size: 1048576, available: 1000000, parked: 0, replicas: 0}

- name: Look at the plan
  ansible.builtin.assert:
    that:
      - plan.moved | map(attribute='name') == ['web']
      - plan.moved[0].to == 'hv02'
      - plan.failures == []
      - plan.unread.hv03 == 'Connection timed out'

- name: Plan where a new VM goes, and tolerate that there is no room
  flexdisk.hypervisor.move_plan:
    request: place
    allow_partial: true
    hosts:
      - name: hv01
        info: *info
    new_vms:
      - {name: big, memory: 64GiB, vcpus: 4, disks: {zones: 20GiB}}
  register: placed

- name: Show why
  ansible.builtin.assert:
    that: "placed.failures[0].hosts.hv01 == 'memory: 64 GiB needed, 26 GiB free'"

- name: Plan where a VM goes that one host can take and another one refuses
  flexdisk.hypervisor.move_plan:
    request: place
    hosts: [{name: hv01}, {name: hv02}] # info would say what they have
    answers:
      hv01: {vms: [{vm: web}], checks: [{vms: [{vm: web, memory: 1024, vcpus: 2, takes: {zones: 10240}}]}], beside: 0}
      hv02: {vms: [{vm: web}], checks: [{problems: [{vm: web, message: there is no such image}]}], beside: 0}
    allow_partial: true
  register: placed

- name: Show why
  ansible.builtin.assert:
    that: "'there is no such image' in placed.failures[0].reason"
"""

RETURN = r"""
msg:
  description: The plan in one line.
  returned: always
  type: str
  sample: "evacuate: 3 VMs move, score 2.104 -> 1.811"
moved:
  description: The VMs that move, or get a host, in the order of RV(jobs).
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Alias of the VM, or its UUID if it has none.
      type: str
    uuid:
      description: UUID of the VM. Empty for a new one.
      type: str
    from:
      description: The host that it leaves. Empty for a new VM.
      type: str
    to:
      description: The host where it goes.
      type: str
    group:
      description: The host group of RV(moved[].to).
      type: str
failures:
  description: The other VMs that were asked for. RV(moved) and these are all of them.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Alias of the VM, or its UUID if it has none.
      type: str
    uuid:
      description: UUID of the VM. Empty for a new one.
      type: str
    reason:
      description: Why it cannot go to any host.
      type: str
    hosts:
      description: The reason for each host.
      type: dict
jobs:
  description: The moves, in an order in which they can be carried out.
  returned: success
  type: list
  elements: dict
  contains:
    job:
      description: Number of the job, from 1.
      type: int
    name:
      description: Alias of the VM, or its UUID if it has none.
      type: str
    operations:
      description:
        - What is done, one after the other. C(do) is V(move) or V(create), C(vm) the VM's UUID or the name of a new VM,
          C(from) and C(to) are hosts, and C(disks) has the MiB that the VM takes, by the name of the pool.
      type: list
      elements: dict
    depends:
      description: The numbers of the jobs that must have ended before this one begins.
      type: list
      elements: int
    needs:
      description: The numbers of the jobs that must have moved their VMs, because that makes room for this one.
      type: list
      elements: int
digest:
  description: A digest of RV(jobs). Plans with the same digest do the same.
  returned: success
  type: str
  sample: 209feafc1eebde78
score:
  description: The score C(before) and C(after). The lower it is, the more evenly hosts are used.
  returned: success
  type: dict
unread:
  description: The hosts that could not be read, with the reason.
  returned: success
  type: dict
table:
  description: The jobs as the lines of a table, and below it the VMs that have no host, with the reasons.
  returned: success
  type: list
  elements: str
error_code:
  description: Code of the first of RV(problems), or V(NoHost) if a plan lacks VMs and O(allow_partial) is false.
  returned: failure
  type: str
problems:
  description: All reasons why the request is refused.
  returned: failure
  type: list
  elements: dict
"""
