#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the action group_plan, which runs on the controller. There is nothing to run on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: group_plan
short_description: Plan the rolling update of a group of VMs
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Plans how a group of VMs is brought to its template and its size, batch by batch, without ever having fewer members
    in service than the policy allows.
  - It runs on the controller and touches no host. All that it knows of the members is in O(members).
  - It remembers nothing. Each call plans the whole roll from the members as they are. So do the first step only, look
    at the members again, and call it again, until RV(next) is empty. A run that was interrupted goes on in the same
    way.
  - Members are called C(NAME-0), C(NAME-1) and so on.
  - Members that an interrupted run has left out of service come first, then what all members take while they run.
    Of the others, those that are out of service come first, then canaries, new or not, without any other healthy or
    new member, then new members from the lowest index, then the rest from the highest one. A group shrinks from the
    highest index; the batch does not limit how many members are removed at once, but the floor does.
  - A group that cannot be planned fails the task. The message has all reasons.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.reads
options:
  name:
    description:
      - Name of the group.
    type: str
    required: true
  size:
    description:
      - The number of members that the group shall have.
    type: int
    required: true
  policy:
    description:
      - How the group may be changed. All options may be missing.
      - Either C(min_in_service) members stay in service (0) and C(max_batch_size) are changed at a time (1), or
        C(max_unavailable) members may be out of service and C(max_surge) may be there beyond O(size) (a number, or a
        percentage of O(size), V(25%); a percentage of members out of service is rounded down, one of additional
        members up).
      - C(pause_time) is the time between two steps, in seconds or as V(PT1M30S), at most one hour.
      - C(max_down_per_host) members of one host may be out of service at a time (1). C(max_members_per_host) may lie
        on one host.
      - C(canary) names the members that are changed first, or tells how many. C(canary_pause) is the time after them.
      - C(failure_budget) members may fail in the whole run (a number, or a percentage rounded down; 0). Members on
        hosts that cannot be read count.
      - With C(on_failure), V(stop) refuses all further steps if more members have failed (the default), and so does
        V(revert), by which the role C(flexdisk.hypervisor.instance_group) also brings the failed members back to what
        they were. V(continue) goes on with the others, as far as the floor allows it.
      - C(action_ceiling) is the most that may be done to a member, V(live), V(restart) or V(recreate) (V(restart)). A
        member that needs more is refused.
      - C(max_removed) is the number of members that the whole run may delete because O(size) is smaller. By default, it
        is 0 if members keep disks (O(keeps_disks)), else the number that a step may make for a while beyond O(size).
      - C(deadline) is the time that the whole roll may take. Pauses that alone take as long are refused.
    type: dict
  members:
    description:
      - The members that there are, anywhere. One that lies on several hosts is refused.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - Name of the member.
        type: str
        required: true
      host:
        description:
          - The host on which its VM or its detached disks are.
        type: str
      there:
        description:
          - Whether it is a VM. It may be less, if an interrupted run was about to create it again.
        type: bool
        default: true
      in_service:
        description:
          - Whether it runs and its gate says yes.
        type: bool
        default: true
      change:
        description:
          - What the template means for it.
        type: str
        choices:
          nothing: It is as the template says.
          live: It takes its differences while it runs.
          restart: It must be stopped for them.
          recreate: It must be created again.
          refused: It cannot have them.
        default: nothing
      why:
        description:
          - Why it is refused.
        type: list
        elements: str
      marked:
        description:
          - Whether a run has taken it out of service and has not put it back.
        type: bool
        default: false
      reachable:
        description:
          - Whether its host can be read. One that cannot be read counts as out of service.
        type: bool
        default: true
      destroys:
        description:
          - MiB of the disks that the change destroys. The plan shows it.
        type: int
        default: 0
      loses:
        description:
          - The disks that are destroyed if the member is deleted, for people.
        type: list
        elements: str
        version_added: 0.3.0
      keeps:
        description:
          - The disks that stay if the member is deleted, for people.
        type: list
        elements: str
        version_added: 0.3.0
  hosts:
    description:
      - The hosts over which new members are spread, as a list, or the host of each member, as a dictionary. A member
        that lies somewhere stays there.
    type: raw
  keeps_disks:
    description:
      - Whether members have disks that an additional member would not have. If so, no member beyond O(size) is
        created, and a policy that would need one is refused.
    type: bool
    default: true
  only_size:
    description:
      - Whether the run was asked for this size alone. Then C(max_removed) is only a limit if the policy has it.
    type: bool
    default: false
    version_added: 0.3.0
  failed:
    description:
      - Members that have failed in this run. They are left alone, and count against C(failure_budget).
    type: list
    elements: str
  after:
    description:
      - The C(actions) of the step that was done last. Those of its members that are not as the step should have made
        them have failed, too.
    type: list
    elements: dict
    suboptions:
      member:
        description:
          - Name of the member.
        type: str
        required: true
      do:
        description:
          - What was done to it.
        type: str
        choices: [live, restart, recreate, return, finish, heal, create, remove]
        required: true
      host:
        description:
          - Its host. It is not looked at.
        type: str
      destroys:
        description:
          - MiB that it destroys. It is not looked at.
        type: int
seealso:
  - plugin: flexdisk.hypervisor.rolling_batches
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Plan the roll of three members, of which one must be in service
  flexdisk.hypervisor.group_plan:
    name: web
    size: 3
    hosts: [hv01, hv02]
    policy:
      min_in_service: 1
      max_batch_size: 2
      pause_time: PT1M
    members:
      - {name: web-0, host: hv01, change: restart}
      - {name: web-1, host: hv02, change: restart}
  register: roll

- name: Show the whole roll
  ansible.builtin.debug:
    var: roll.table

- name: Look at the first step
  ansible.builtin.assert:
    that:
      - roll.next.actions | map(attribute='member') | list == ['web-2', 'web-1']
      - roll.next.actions | map(attribute='do') | list == ['create', 'restart']
      - roll.in_service == 1
      - roll.pauses == 60
"""

RETURN = r"""
msg:
  description: The roll in one line.
  returned: always
  type: str
  sample: "web: 6 steps, 12 recreated, 2 at a time, at least 10 of 12 in service, pauses 150 s"
done:
  description: Whether the group is as declared, and all its members are in service.
  returned: success
  type: bool
left:
  description: >-
    The members that are not as declared after all RV(steps), because they have failed in this run or cannot be read.
  returned: success
  type: list
  elements: str
failures:
  description: The members that have failed in this run, those of O(failed) and those of O(after).
  returned: always
  type: list
  elements: str
next:
  description: The first of RV(steps). It is empty if there is none.
  returned: success
  type: dict
steps:
  description: All steps, if nothing fails.
  returned: success
  type: list
  elements: dict
  contains:
    actions:
      description: The members of the step.
      type: list
      elements: dict
      contains:
        member:
          description: Name of the member.
          type: str
        host:
          description: Its host.
          type: str
        do:
          description:
            - What is done to it. V(return) puts a member back that an interrupted run has taken out of service, and
              that could serve. V(finish) ends what such a run has begun with a member first. V(heal) brings a member
              back into service that is as the template says. The others are V(live), V(restart), V(recreate),
              V(create) and V(remove).
          type: str
        destroys:
          description: MiB of the disks that it destroys.
          type: int
    in_service:
      description: The number of members in service during the step, at least.
      type: int
    peak:
      description: The number of members during the step, at most.
      type: int
    pause:
      description: Seconds to wait before the next step.
      type: int
peak:
  description: The largest number of members that are there at the same time.
  returned: success
  type: int
in_service:
  description: The number of members in service at a time, at least.
  returned: success
  type: int
pauses:
  description: Seconds of all pauses. There is none after the last step.
  returned: success
  type: int
table:
  description: The roll as the lines of a table.
  returned: success
  type: list
  elements: str
  sample:
    - STEP  MEMBER  HOST  DONE TO IT  IN SERVICE  DESTROYS
    - 1     web-1   hv02  restart     1           -
    - 2     web-0   hv01  restart     1           -
error_code:
  description: Code of the first of RV(problems).
  returned: failure
  type: str
problems:
  description: All reasons why the group is refused.
  returned: failure
  type: list
  elements: dict
"""
