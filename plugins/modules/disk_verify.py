#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find what is wrong with disks, and repair what needs no guess."""

from __future__ import annotations

DOCUMENTATION = r"""
module: disk_verify
short_description: Find what is wrong with disks, and repair it
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Compares what the hypervisor's configuration, the volumes and their properties say of each other, and reports what
    does not fit, each finding with what it means and the task that repairs it.
  - Repairs the kinds of findings that are named in O(repair). Nothing is ever destroyed by that, no VM is stopped, and
    what would have to be guessed is left to people.
  - Everything is read at once, however many disks there are.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.lock
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  vms:
    description:
      - Only findings of these VMs, and of disks that were detached from them; by UUID, alias or unique UUID prefix.
        Without it everything, also what concerns no VM.
    type: list
    elements: str
  repair:
    description:
      - Kinds of findings to repair.
      - What these repairs themselves may leave when they are cut off is repaired with them, so V(orphan_volume) also
        lifts guards and applies the quota law, and each that forgets an intent also puts their list right.
    type: list
    elements: str
    default: []
    choices:
      parked_still_configured: Takes a disk that is detached already out of the configuration of its stopped VM.
      uuid_mismatch: Writes the hypervisor's UUID to the volume, unless another disk has the one that it carries.
      stale_copy: Copies slot, model, index and the like from the hypervisor to the volume.
      inherited_property: Takes a property that belongs to volumes away from the dataset above them.
      received_property: Sets what came with C(zfs receive) on the volume itself.
      orphan_volume: Detaches volumes that no configuration knows, so that they outlive the VM.
      parked_place: Gives a detached volume a UUID if it has none, and renames it to that.
      quota_drift: Applies the quota law, as M(flexdisk.hypervisor.zfs_quota) does.
      reservation_off_auto: Sets reservations of thick volumes to C(auto), and applies the quota law.
      guard: Lifts guards that an interrupted detach has left.
      from_mark: Takes away the mark of a move that has come to its end.
      intent_of_other_host: Forgets what interrupted runs on other hosts have written down.
      intent_unreadable: Forgets what interrupted runs have written down and nobody can read.
      intent_without_vm: Forgets interrupted runs on VMs that are not there.
      intent_index: Writes the list of interrupted runs anew.
  unused_days:
    description:
      - Detached disks to which nothing was ever written are reported when they are older than so many days.
    type: int
    default: 30
  fail_on:
    description:
      - Fail if there are findings of this severity or a worse one, those that were repaired aside.
    type: str
    default: never
    choices:
      never: Findings are no failure.
      warning: Fail on warnings and errors.
      error: Fail on errors.
seealso:
  - module: flexdisk.hypervisor.disk_info
  - module: flexdisk.hypervisor.zfs_quota
notes:
  - The kinds, and what to do about each, are in the collection's C(docs/disks-verify.md).
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
    - The task in one line. It counts the VMs concerned, those that change and those that are restarted; then come the
      space that disks take from the pool or give back (by their sizes), and the size of what is destroyed.
    - With C(--diff) it is the first line of the diff when something changes.
  returned: unless the task fails; then it says why
  type: str
  sample: "3 VMs: 2 change, 1 restarts, +50 GiB, 0 B destroyed"
findings:
  description: What is wrong, after the repairs.
  returned: always
  type: list
  elements: dict
  contains:
    kind:
      description: What it is; it stays the same from release to release.
      type: str
      returned: always
      sample: stale_copy
    severity:
      description: V(error), V(warning) or V(info).
      type: str
      returned: always
    vm:
      description: UUID of the VM concerned, empty for none.
      type: str
      returned: always
    alias:
      description: Alias of the VM, empty if it is not there.
      type: str
      returned: always
    disk:
      description: Name of the disk concerned, else what it is known by, empty for none.
      type: str
      returned: always
    volume:
      description: The dataset concerned.
      type: str
      returned: always
    message:
      description: What is found, and why it is not repaired if that is so.
      type: str
      returned: always
      sample: slot is 0:4:1, not 0:9:0
    meaning:
      description: What that means.
      type: str
      returned: always
    repair:
      description:
        - The task that repairs it, arguments by name of the module, or null where that is to be decided by people.
      type: dict
      returned: always
      sample:
        flexdisk.hypervisor.disk_verify:
          vms:
            - cccccccc-0000-4000-8000-00000000000c
          repair:
            - stale_copy
    repairable:
      description: Whether this module repairs it when its kind is named in O(repair).
      type: bool
      returned: always
repaired:
  description: What was repaired (in check mode, what would be), with the keys of RV(findings).
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
  description: What was done (in check mode, what would be), step by step.
  returned: always
  type: list
  elements: dict
guard:
  description: What protected the volumes that were moved out of VMs.
  returned: when any was, not in check mode
  type: str
"""

import time

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine import door
from ..module_utils._flexdisk.engine.arguments import HOST, LOCK
from ..module_utils._flexdisk.engine.runner import SubprocessRunner
from ..module_utils._flexdisk.engine.verify import failure, result, verify
from ..module_utils._flexdisk.model.errors import FlexdiskError
from ..module_utils._flexdisk.rules.findings import REPAIRABLE


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "vms": {"type": "list", "elements": "str"},
            "repair": {"type": "list", "elements": "str", "default": [], "choices": [*REPAIRABLE]},
            "unused_days": {"type": "int", "default": 30},
            "fail_on": {"type": "str", "default": "never", "choices": ["never", "warning", "error"]},
            **HOST,
            **LOCK,
        },
        supports_check_mode=True,
    )
    params = module.params
    runner = SubprocessRunner()
    names, repair, pool = params["vms"], params["repair"], params["pool"]
    reads = module.check_mode or not repair
    task = "disk_verify of %s" % ", ".join(names or ["all VMs"])
    try:
        zfs, hypervisor = door.open_host(params, runner, __version__)
        with door.turn(runner, params, task, reads) as others:
            found = verify(zfs, hypervisor, names, repair, pool, params["unused_days"], reads, int(time.time()))
    except FlexdiskError as exc:
        module.fail_json(**door.error(exc))
    for warning in others:
        module.warn(warning)
    failed = failure(found, params["fail_on"])
    if failed is not None:
        module.fail_json(**{**result(found), **failed})
    module.exit_json(**result(found))


if __name__ == "__main__":
    main()
