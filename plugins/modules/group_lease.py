#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take, renew or release the lease of a group."""

from __future__ import annotations

DOCUMENTATION = r"""
module: group_lease
short_description: Let only one run at a time work on a group of VMs
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Takes, renews or releases the lease of a group. A run that changes the members of a group takes it first, renews it
    with every step, and releases it at the end. A second run on the same group is refused with the name of the first.
  - The lease lies on one hypervisor, in a property of C(POOL/flexdisk). All runs on a group must ask the same
    hypervisor and the same pool. The role C(flexdisk.hypervisor.instance_group) finds it with O(state=reported) on all
    hosts. Where there is none yet, the guids of the pools and the name of the group decide where it lies.
  - A lease expires by itself unless it is renewed, because a run that is killed releases nothing. Only the clock of
    the hypervisor counts. If that clock is set forward, a lease expires early. If it is set back, a lease lasts until
    the clock comes to the old time again, or until another run takes it over.
  - If the lease is that of a run of the same controller, given without O(token) and O(holder), and its process is no
    more, it is taken over at once. So the same command goes on after a run was killed.
  - The lease is cooperative. It stops runs that ask for it, and nobody else.
  - The lock of the pool is held for a moment, so the module waits up to O(lock_timeout) for a task that changes VMs of
    the pool.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.changes
  - flexdisk.hypervisor._flexdisk.lock
attributes:
  idempotent:
    details:
      - A renewal writes the new time and is reported as no change.
options:
  group:
    description:
      - Name of the group. The rule for it is that for names of VMs.
    type: str
    required: true
  token:
    description:
      - A UUID that tells the run from all others. It is no secret. By default, it is that of the process of
        C(ansible-playbook), the same for all tasks of a run. Only on a controller with Linux can the next run tell that
        this process has died.
    type: str
  holder:
    description:
      - A text that tells people which run it is, 1 to 200 printable characters. By default, it names the user, the
        controller and the process.
    type: str
  state:
    description:
      - What is wanted of the lease.
    type: str
    default: held
    choices:
      held: The run has the lease. It is taken if nobody has it, or if it has expired. If the run has it, it is renewed.
      reported: >-
        The module reports whether the lease of the group lies in any pool of the host, and where it could lie. It
        changes nothing and takes no lock.
      released: >-
        The run does not have the lease. If another run has it, nothing is done and a warning is given, so this can be
        in the C(always) section of a block.
  ttl:
    description:
      - How long it takes until the lease expires unless it is renewed, in seconds or as V(PT15M), from 10 seconds to a
        day. It should be longer than the longest step.
    type: raw
    default: 900
  take_over:
    description:
      - Take the lease even if another run has it, or if it cannot be read. The next renewal of the other run is
        refused. Until then that run may still be at work, so end it first if you can.
    type: bool
    default: false
  renew:
    description:
      - Only renew. If this run has lost the lease, the task fails even if nobody has it now. Without this option, a run
        that has lost its lease takes it again once the other run has released it.
    type: bool
    default: false
  pool:
    description:
      - The ZFS pool in which the lease lies. Without this option, it is C(zones) with V(vmadm). With V(libvirt), it is
        the only pool that has VMs or detached disks, or the only pool of the host.
seealso:
  - module: flexdisk.hypervisor.group_plan
  - module: flexdisk.hypervisor.vm_info
    description: It reports the leases of a host, with C(leases=true).
"""

EXAMPLES = r"""
- name: Roll web, alone
  module_defaults:
    flexdisk.hypervisor.group_lease:
      group: web
  block:
    - name: Begin
      flexdisk.hypervisor.group_lease:

    - name: Say before each step that the run is still at work
      flexdisk.hypervisor.group_lease:
        renew: true
  always:
    - name: End
      flexdisk.hypervisor.group_lease:
        state: released

- name: Take the lease of a run that hangs
  flexdisk.hypervisor.group_lease:
    group: web
    take_over: true
"""

RETURN = r"""
msg:
  description: Who has the lease, in one line. With C(--diff), it is also the diff if the lease has changed hands.
  returned: always; it gives the reason if the task fails
  type: str
  sample: "web: deploy@ctl1 has the lease until 2026-01-01T00:15:00Z"
pool:
  description: The ZFS pool in which the lease lies.
  returned: always, if the arguments are valid, but not with O(state=reported)
  type: str
  sample: zones
lease:
  description:
    - The lease as it is now, that of another run if the task fails because of it. It is null if there is none, or if
      it cannot be read. All times are UTC, by the clock of the host.
  returned: always, if the arguments are valid, but not with O(state=reported)
  type: dict
  contains: &lease
    token:
      description: The run that has it.
      type: str
      returned: always
    holder:
      description: The same for people.
      type: str
      returned: always
    since:
      description: When that run took it.
      type: str
      returned: always
    renewed:
      description: When that run last renewed it.
      type: str
      returned: always
    expires:
      description: When anybody may take it unless it is renewed.
      type: str
      returned: always
    ttl:
      description: Seconds from RV(lease.renewed) to RV(lease.expires).
      type: int
      returned: always
  sample:
    token: 0ab21b0c-66b5-4e04-a5c9-3ea52e5a4a4e
    holder: deploy@ctl1
    since: "2026-01-01T00:00:00Z"
    renewed: "2026-01-01T00:00:00Z"
    expires: "2026-01-01T00:15:00Z"
    ttl: 900
previous:
  description: The lease as it was found. It is null if there was none, or if it could not be read.
  returned: always, if the arguments are valid, but not with O(state=reported)
  type: dict
  contains: *lease
leases:
  description: The leases of the group that lie on the host.
  returned: with O(state=reported)
  type: list
  elements: dict
  contains:
    pool:
      description: The ZFS pool in which the lease lies.
      type: str
      returned: always
    standing:
      description: V(mine), V(held) by another run, V(expired), or V(unreadable).
      type: str
      returned: always
    died:
      description: Whether the run was one of this controller, and its process has died.
      type: bool
      returned: always
    msg:
      description: Who has the lease, in one line.
      type: str
      returned: always
    lease:
      description: The lease, in the form of RV(lease). It is null if it cannot be read.
      type: dict
      returned: always
places:
  description: The pools of the host in which the lease could lie.
  returned: with O(state=reported)
  type: list
  elements: dict
  contains:
    pool:
      description: Name of the pool.
      type: str
      returned: always
    guid:
      description: Guid of the pool's own file system.
      type: int
      returned: always
error_code:
  description:
    - V(InUse) if another run has the lease, V(LeaseLost) if O(renew=true) and nobody has it, V(LeaseUnreadable) if the
      property has not been written by this collection. Others are in the page of errors.
  returned: if the task fails
  type: str
problems:
  description: All reasons why the task fails.
  returned: if the task fails
  type: list
  elements: dict
"""

import typing as t

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine.modules.group_lease import look, parse, run
from ..module_utils._flexdisk.engine.run.arguments import HOST, LOCK
from ..module_utils._flexdisk.engine.run.module_run import VMS_THAT_ARE_THERE, Answer, Call, run_module
from ..module_utils._flexdisk.engine.run.reading import READING
from ..module_utils._flexdisk.model.errors import refusal
from ..module_utils._flexdisk.rules.lease import REPORT

if t.TYPE_CHECKING:
    from ..module_utils._flexdisk.model.desired import LeaseDeclaration

OPTIONS: t.Dict[str, t.Dict[str, t.Any]] = {
    "group": {"type": "str", "required": True},
    "token": {"type": "str", "no_log": False},
    "holder": {"type": "str"},
    "state": {"type": "str", "default": "held", "choices": ["held", "reported", "released"]},
    "ttl": {"type": "raw", "default": 900},
    "take_over": {"type": "bool", "default": False},
    "renew": {"type": "bool", "default": False},
}


def main() -> None:
    """Read the arguments, and do what group_lease does."""
    module = AnsibleModule(argument_spec={**OPTIONS, **HOST, **LOCK}, supports_check_mode=True)
    looks = module.params["state"] == REPORT
    task = f"group_lease of {module.params['group']}"
    drivers = READING if looks else VMS_THAT_ARE_THERE
    run_module(module, __version__, task, parse, look_at if looks else body, reads=looks, drivers=drivers)


def body(call: Call, wanted: LeaseDeclaration) -> Answer:
    """The run of group_lease."""
    ended = run(call.zfs, call.hypervisor, wanted, call.pool, call.check_mode)
    failure = None if ended.problem is None else {**ended.result, **refusal([ended.problem])}
    return Answer(ended.result, failure, ended.warnings)


def look_at(call: Call, wanted: LeaseDeclaration) -> Answer:
    """The run of group_lease that only looks."""
    return Answer(look(call.zfs, call.hypervisor, wanted, call.pool).result)


if __name__ == "__main__":
    main()
