#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take, delete and go back to snapshots of VMs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vm_snapshot
short_description: Take and delete snapshots of VMs, and roll back to them
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - A snapshot captures a VM's own file system and all its disks at the same moment. On SmartOS, C(vmadm) takes and
    lists it.
  - With Proxmox VE, C(qm) takes, deletes and goes back to them. Its snapshots have all disks of a VM one after the
    other, and a rollback also brings back the VM's settings. It destroys no newer snapshot, so O(newer) and
    O(destroy_newer) are of no use there.
  - A snapshot takes part of the VM's flexible disk space at once, because all data that its disks have written must
    remain fully writable. If there is not enough space, the task is refused. The message gives the figures and says
    how much space each possible step would free.
  - After a rollback, the disks have the sizes that they had at the snapshot. Quota and reservation follow the quota
    law.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.lock
  - flexdisk.hypervisor._flexdisk.power
  - flexdisk.hypervisor._flexdisk.refusal
  - flexdisk.hypervisor._flexdisk.approval
attributes:
  check_mode:
    support: full
    details:
      - The prediction equals the real run, except for RV(vms[].allocatable), RV(vms[].snapshots[].created) and
        RV(vms[].snapshots[].frees_bytes). Only ZFS and the clock can give these values. Check mode leaves them out if
        something would change.
  diff_mode:
    support: full
    details:
      - The diff is the plan in words, with one block for each VM that changes.
  idempotent:
    support: partial
    details:
      - A rollback does nothing if no disk was written to or resized since the snapshot, and if there is no newer
        snapshot. Guests write to their disks, and ZFS itself writes a block to a volume that it rolls back. So a
        second run usually rolls back again.
options:
  vms:
    description:
      - The VMs, by UUID, by alias or by a unique UUID prefix of at least four characters.
      - Without this option, all VMs of the host. O(state=rolled_back) requires this option.
    type: list
    elements: str
  vm:
    description:
      - Another way to write O(vms) with one VM. Both together are refused.
    type: list
    elements: str
    version_added: 0.3.0
  name:
    description:
      - Name of the snapshot, 1 to 64 letters, digits and C(-_.:%), without a dash at the beginning.
      - Required, except for O(state=absent) with O(keep). ZFS stores the name with the prefix C(vmsnap-).
      - With Proxmox VE, 2 to 40 letters, digits, C(-) and C(_), a letter first. ZFS stores the name as it is.
    type: str
  state:
    description:
      - With V(present), the snapshot is taken if it does not exist.
      - With V(absent), the snapshot is destroyed if it exists. With O(keep), all snapshots that the rule does not
        keep are destroyed.
      - With V(rolled_back), all disks of the VM that are in the snapshot return to their state at that moment.
        Everything written since then is lost.
    type: str
    choices: [present, absent, rolled_back]
    default: present
  keep:
    description:
      - Destroy the VM's snapshots that the rule counts, except those that it keeps. The newest is always kept, and so
        is O(name) with O(state=present).
      - It counts snapshots that are called like O(name), which means that their names differ from it only in digits.
        With O(keep.names), it counts those that fit a pattern. All others are left alone, and so is every snapshot
        that was not taken by this module or by C(vmadm).
      - With Proxmox VE, it also counts snapshots that somebody has taken there, in the GUI or with C(qm). Names that
        only your tasks use keep it from that.
      - A snapshot that has clones or holds, or that is not the VM's alone, is left, with a warning.
      - Days and weeks are in UTC, and only those with a snapshot count. A week begins on Monday.
    type: dict
    suboptions:
      names:
        description:
          - Patterns of the names of snapshots that the rule counts. C(*) stands for any characters, C(?) for one, and
            C([0-9]) for one of those.
          - Required without O(name).
        type: list
        elements: str
        version_added: 0.3.0
      last:
        description:
          - Keep this number of the newest snapshots.
        type: int
      daily:
        description:
          - Keep the newest snapshot of each of this number of days.
        type: int
      weekly:
        description:
          - Keep the newest snapshot of each of this number of weeks.
        type: int
  newer:
    description:
      - Names of snapshots newer than O(name) that O(state=rolled_back) may destroy. ZFS can roll back only to the
        newest snapshot.
    type: list
    elements: str
  destroy_newer:
    description:
      - Allow O(state=rolled_back) to destroy all newer snapshots.
    type: bool
    default: false
  flexible_disk_size:
    description:
      - With O(state=rolled_back), the flexible disk size to which the VM is raised first, as a number of MiB or with
        a unit. This is needed if the disks were larger at the snapshot.
    type: raw
  packages:
    description:
      - Packages in the form of M(flexdisk.hypervisor.vm). If there is no room for a snapshot, the message names the
        smallest package that has enough.
    type: list
    elements: dict
seealso:
  - module: flexdisk.hypervisor.vm_disks
"""

EXAMPLES = r"""
- name: Take a snapshot of a VM before an upgrade
  flexdisk.hypervisor.vm_snapshot:
    vm: web01
    name: before-upgrade

- name: Go back to it, because the upgrade failed
  flexdisk.hypervisor.vm_snapshot:
    vm: web01
    name: before-upgrade
    state: rolled_back
    allow_restart: true

- name: Take a snapshot each night; keep one a day for a week, one a week for a month
  flexdisk.hypervisor.vm_snapshot:
    vms: [web01, db01]
    name: "{{ now(utc=true, fmt='%Y-%m-%d') }}"
    keep:
      daily: 7
      weekly: 4

- name: Destroy old snapshots of a series that is not continued
  flexdisk.hypervisor.vm_snapshot:
    vm: web01
    state: absent
    keep:
      names: ["hourly-*"]
      last: 3
"""

RETURN = r"""
msg:
  description:
    - A summary of the task in one line. It counts the VMs concerned, those that change and those that are restarted.
      It also gives the space that disks take from the pool or give back (by their sizes), and the size of what is
      destroyed.
    - With C(--diff), it is also the first line of the diff if something changes.
  returned: always; it gives the reason if the task fails
  type: str
  sample: "3 VMs: 2 changes, 1 restart, +50 GiB, 0 B destroyed"
plan:
  description:
    - What is done, or would be done in check mode. The first line is the summary. After it come one block for each VM
      that changes, in the order of their names, and the number of the other VMs. If nothing changes, there is only the
      first line.
  returned: if the task is not refused, or refused with the error code C(PlanChanged)
  type: list
  elements: str
  sample:
    - "3 VMs: 1 change, no restarts, +30 GiB, 0 B destroyed"
    - "web01 (cccccccc-0000-4000-8000-000000000001):"
    - "  ~ data 20 GiB -> 50 GiB"
    - "  quota 31.1 GiB -> 61.6 GiB"
    - "2 VMs unchanged"
  version_added: 0.2.0
plan_digest:
  description:
    - 32 letters and digits that stand for what is to be done. Plans with the same digest do the same to the same disks.
      Check mode and the real run return the same one. O(expect_plan) takes it.
    - The clock, free space and the order of the VMs in the task do not count.
  returned: if the task is not refused, or refused with the error code C(PlanChanged)
  type: str
  sample: kb3d9a40c5517e28f06a7c1d94be2350
  version_added: 0.2.0
vms:
  description: The VMs.
  returned: always
  type: list
  elements: dict
  contains:
    uuid:
      description: UUID of the VM.
      type: str
      returned: always
    alias:
      description: Alias of the VM.
      type: str
      returned: always
    state:
      description: State of the VM.
      type: str
      returned: always
    changed:
      description: Whether this VM was changed.
      type: bool
      returned: always
    steps:
      description: What was done.
      type: list
      elements: dict
      returned: always
    recovered:
      description: What an interrupted rollback left behind.
      type: list
      elements: dict
      returned: always
    flexible_disk_size:
      description: MiB, or null on a VM without flexible disk space.
      type: int
      returned: always
    disks:
      description: Sizes in MiB by the disks' names.
      type: dict
      returned: always
    quota_bytes:
      description: C(quota) of the VM's dataset.
      type: dict
      returned: always
      contains:
        before:
          description: As it was.
          type: int
          returned: always
        after:
          description: As it is now.
          type: int
          returned: always
    allocatable:
      description: MiB that disks and snapshots can still get, or null on a VM without flexible disk space.
      type: int
      returned: if known
    snapshots:
      description: The VM's snapshots, oldest first.
      type: list
      elements: dict
      returned: always
      contains:
        name:
          description: Its name.
          type: str
          returned: always
        disks:
          description: Names of the disks that are in it.
          type: list
          elements: str
          returned: always
        created:
          description: Seconds since 1970.
          type: int
          returned: if known
        frees_bytes:
          description: How much space the VM's disks get back if only this snapshot is deleted.
          type: int
          returned: if known
"""

import time
import typing as t

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine.modules import vm_snapshot
from ..module_utils._flexdisk.engine.run.arguments import APPROVAL, HOST, LOCK, POWER, REFUSAL, policy
from ..module_utils._flexdisk.engine.run.module_run import Answer, Call, run_module
from ..module_utils._flexdisk.engine.run.results import answer
from ..module_utils._flexdisk.engine.run.snapshotting import SNAPSHOTTING
from ..module_utils._flexdisk.model.desired import SnapshotDeclaration
from ..module_utils._flexdisk.model.errors import Problem
from ..module_utils._flexdisk.parse.vm_snapshot import parse_snapshot

_Params = t.Mapping[str, t.Any]
KEEP = {"names": {"type": "list", "elements": "str"}, **{key: {"type": "int"} for key in ("last", "daily", "weekly")}}


def main() -> None:
    """Read the arguments, and do what vm_snapshot does."""
    module = AnsibleModule(
        argument_spec={
            "vms": {"type": "list", "elements": "str"},
            "vm": {"type": "list", "elements": "str"},
            "name": {"type": "str"},
            "state": {"type": "str", "default": "present", "choices": ["present", "absent", "rolled_back"]},
            "keep": {"type": "dict", "options": KEEP},
            "newer": {"type": "list", "elements": "str"},
            "destroy_newer": {"type": "bool", "default": False},
            "flexible_disk_size": {"type": "raw"},
            "packages": {"type": "list", "elements": "dict"},
            **POWER,
            **REFUSAL,
            **APPROVAL,
            **HOST,
            **LOCK,
        },
        mutually_exclusive=[("vm", "vms")],
        supports_check_mode=True,
    )
    if module.params["vms"] is None:
        module.params["vms"] = module.params["vm"]
    task = f"vm_snapshot of {', '.join(module.params['vms'] or ['all VMs'])}"
    run_module(module, __version__, task, parsed, body, drivers=SNAPSHOTTING)


def parsed(params: _Params) -> t.Tuple[t.Tuple[SnapshotDeclaration, _Params], t.Sequence[Problem]]:
    """What is wanted, and the arguments."""
    declared, problems = parse_snapshot(params)
    return (declared, params), problems


def body(call: Call, given: t.Tuple[SnapshotDeclaration, _Params]) -> Answer:
    """The run of vm_snapshot."""
    spec, params = given
    permitted, now = policy(params), int(time.time())
    names, pool = params["vms"], call.pool
    return answer(vm_snapshot.run(call.zfs, call.hypervisor, names, spec, permitted, pool, call.check_mode, now))


if __name__ == "__main__":
    main()
