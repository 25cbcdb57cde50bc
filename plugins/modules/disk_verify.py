#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find what is wrong with disks, and repair what needs no guess."""

from __future__ import annotations

DOCUMENTATION = r"""
module: disk_verify
short_description: Find problems with disks and repair them
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Compares the hypervisor's configuration, the volumes and their properties, and reports every mismatch. Each
    finding includes what it means and the task that repairs it.
  - Repairs the kinds of findings that are listed in O(repair). A repair never destroys anything and stops no VM.
    Findings that would need a guess are left to the administrator.
  - Everything is read at once, regardless of the number of disks.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.changes
  - flexdisk.hypervisor._flexdisk.lock
options:
  vms:
    description:
      - Report only findings about these VMs, and about disks that were detached from them. Each VM is given by UUID,
        alias or unique UUID prefix. Without this option, everything is reported, including findings that concern no
        VM.
    type: list
    elements: str
  repair:
    description:
      - Kinds of findings to repair.
      - A repair also cleans up what an interrupted run of the same repair may have left. So V(orphan_volume) also
        lifts guards and applies the quota law, and each repair that forgets an intent also corrects the list of
        intents.
    type: list
    elements: str
    default: []
    choices:
      parked_still_configured: Removes an already detached disk from the configuration of its stopped VM.
      uuid_mismatch: >-
        Writes the hypervisor's UUID to the volume, unless another disk has the UUID that the volume has now.
      stale_copy: Copies slot, model, index and similar values from the hypervisor to the volume.
      inherited_property: Removes a property that belongs on volumes from the dataset above them.
      received_property: Sets properties that came with C(zfs receive) on the volume itself.
      orphan_volume: Detaches volumes that no configuration lists, so that they survive the deletion of the VM.
      parked_place: Gives a detached volume a UUID if it has none, and renames the volume to its UUID.
      quota_drift: Applies the quota law, as M(flexdisk.hypervisor.zfs_quota) does.
      reservation_off_auto: Sets reservations of thick volumes to C(auto), and applies the quota law.
      guard: Lifts guards that an interrupted detach left behind.
      from_mark: Removes the mark of a move that is complete.
      intent_of_other_host: Forgets intents that interrupted runs on other hosts recorded.
      intent_unreadable: Forgets intents of interrupted runs that cannot be read.
      intent_without_vm: Forgets interrupted runs on VMs that do not exist.
      intent_index: Rewrites the list of interrupted runs.
  unused_days:
    description:
      - Report detached disks that were never written to and are older than this number of days.
    type: int
    default: 30
  replica_days:
    description:
      - Report replicas that were not brought up to date for this number of days.
    type: int
    default: 7
    version_added: 0.2.0
  fail_on:
    description:
      - Fail if there are findings of this severity or worse. Repaired findings do not count.
    type: str
    default: never
    choices:
      never: Findings do not fail the task.
      warning: Fail on warnings and errors.
      error: Fail on errors.
seealso:
  - module: flexdisk.hypervisor.disk_info
  - module: flexdisk.hypervisor.zfs_quota
notes:
  - The collection's C(docs/disks-verify.md) describes each kind of finding and what to do about it.
"""

EXAMPLES = r"""
- name: Fail if anything is wrong
  flexdisk.hypervisor.disk_verify:
    fail_on: warning

- name: Show what a repair of the quotas would change
  flexdisk.hypervisor.disk_verify:
    repair:
      - quota_drift
      - reservation_off_auto
  check_mode: true
  diff: true

- name: Detach volumes that no VM knows
  flexdisk.hypervisor.disk_verify:
    repair:
      - orphan_volume
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
findings:
  description: The problems that remain after the repairs.
  returned: always
  type: list
  elements: dict
  contains:
    kind:
      description: Kind of the finding. It stays the same from release to release.
      type: str
      returned: always
      sample: stale_copy
    severity:
      description: V(error), V(warning) or V(info).
      type: str
      returned: always
    vm:
      description: UUID of the VM concerned. Empty if there is none.
      type: str
      returned: always
    alias:
      description: Alias of the VM. Empty if the VM does not exist.
      type: str
      returned: always
    disk:
      description: Name of the disk concerned, or another identifier if it has no name. Empty if no disk is concerned.
      type: str
      returned: always
    volume:
      description: The dataset concerned.
      type: str
      returned: always
    message:
      description: What was found, and why it cannot be repaired if that is the case.
      type: str
      returned: always
      sample: slot is 0:4:1, not 0:9:0
    meaning:
      description: What the finding means.
      type: str
      returned: always
    repair:
      description:
        - The task that repairs the finding, as the name of the module with its arguments, or null if a person must
          decide.
      type: dict
      returned: always
      sample:
        flexdisk.hypervisor.disk_verify:
          vms:
            - cccccccc-0000-4000-8000-00000000000c
          repair:
            - stale_copy
    repairable:
      description: Whether this module repairs the finding if O(repair) lists its kind.
      type: bool
      returned: always
repaired:
  description: The findings that were repaired, or would be in check mode, with the keys of RV(findings).
  returned: always
  type: list
  elements: dict
counts:
  description: Number of findings of each severity.
  returned: always
  type: dict
  sample:
    error: 0
    warning: 1
    info: 0
steps:
  description: The steps that were done, or would be in check mode.
  returned: always
  type: list
  elements: dict
skipped_vms:
  description:
    - The VMs that were not looked at because this collection does not manage them, each with the reason. Only without
      O(vms).
  returned: always
  type: list
  elements: dict
  version_added: "0.3.0"
guard:
  description: How volumes were protected while they were moved out of VMs.
  returned: if a volume was moved out of a VM, not in check mode
  type: str
"""

import time
import typing as t

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine.modules.disk_verify import failure, result, verify
from ..module_utils._flexdisk.engine.run.arguments import HOST, LOCK
from ..module_utils._flexdisk.engine.run.module_run import (
    VMS_THAT_ARE_THERE,
    Answer,
    Call,
    run_module,
    unparsed,
)
from ..module_utils._flexdisk.engine.run.reading import READING
from ..module_utils._flexdisk.rules.findings import REPAIRABLE
from ..module_utils._flexdisk.rules.verify import REPLICA_DAYS, UNUSED_DAYS


def main() -> None:
    """Read the arguments, and do what disk_verify does."""
    module = AnsibleModule(
        argument_spec={
            "vms": {"type": "list", "elements": "str"},
            "repair": {"type": "list", "elements": "str", "default": [], "choices": [*REPAIRABLE]},
            "unused_days": {"type": "int", "default": UNUSED_DAYS},
            "replica_days": {"type": "int", "default": REPLICA_DAYS},
            "fail_on": {"type": "str", "default": "never", "choices": ["never", "warning", "error"]},
            **HOST,
            **LOCK,
        },
        supports_check_mode=True,
    )
    task = f"disk_verify of {', '.join(module.params['vms'] or ['all VMs'])}"
    reads = not module.params["repair"]
    drivers = READING if reads else VMS_THAT_ARE_THERE
    run_module(module, __version__, task, unparsed, body, reads=reads, drivers=drivers)


def body(call: Call, params: t.Mapping[str, t.Any]) -> Answer:
    """The run of disk_verify."""
    verified = verify(
        call.zfs,
        call.hypervisor,
        params["vms"],
        params["repair"],
        call.pool,
        params["unused_days"],
        call.check_mode,
        int(time.time()),
        params["replica_days"],
    )
    failed = failure(verified, params["fail_on"])
    return Answer(result(verified), None if failed is None else {**result(verified), **failed})


if __name__ == "__main__":
    main()
