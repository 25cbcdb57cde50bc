#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recalculate the ZFS quota of VMs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: zfs_quota
short_description: Recalculate quota and reservation of VMs
version_added: 0.1.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Sets quota and reservation of VMs to what the quota law requires. No VM is stopped, and the data of its disks is
    not touched.
  - The quota and reservation of a flexible VM's dataset are the sum of its own quota, its flexible disk size and the
    space that ZFS needs for the metadata of every volume. For a VM without flexible disk size, they are the sum of
    its own quota and the automatic reservation of every volume. Both gain the space for the snapshots of syncs if the
    disks have replicas.
  - The values drift when disks are removed with C(vmadm), when a change is interrupted, and after a rollback past a
    resize.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.changes
  - flexdisk.hypervisor._flexdisk.lock
  - flexdisk.hypervisor._flexdisk.refusal
  - flexdisk.hypervisor._flexdisk.approval
options:
  vms:
    description:
      - VMs by UUID, alias or unique UUID prefix. Without this option, all VMs of the host that the quota law covers.
    type: list
    elements: str
  reclaim:
    description:
      - Also lower the quota of VMs without flexible disk size. The space of a removed disk is the only room for its
        replacement there, so it is kept by default.
    type: bool
    default: false
  on_refusal:
    description:
      - What happens to the other VMs of the task when one VM is refused. In both cases, the drift of every VM is
        returned.
      - If a pool has too little space for all VMs, V(continue) refuses the VM that takes the most space, and repeats
        this until the rest fits.
    version_added: 0.2.0
seealso:
  - module: flexdisk.hypervisor.vm_disks
"""

EXAMPLES = r"""
- name: Report the drift of all VMs
  flexdisk.hypervisor.zfs_quota:
  check_mode: true
  register: quota

- name: Correct it
  flexdisk.hypervisor.zfs_quota:

- name: Correct it, even if a VM holds more than its flexible_disk_size
  flexdisk.hypervisor.zfs_quota:
    on_refusal: continue
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
  description: The VMs that the quota law covers, including those that could not be repaired.
  returned: always, even if the task fails because a VM is refused
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
    flexible:
      description: Whether the VM has flexible disk space.
      type: bool
      returned: always
    changed:
      description: Whether this VM was changed.
      type: bool
      returned: always
    expected_bytes:
      description: The quota and reservation that the quota law gives for the VM as it was found.
      type: int
      returned: always
    actual:
      description: C(quota) and C(reservation) of the VM's dataset as they were found.
      type: dict
      returned: always
      contains: &figures
        quota_bytes:
          description: C(quota) of the dataset.
          type: int
          returned: always
        reservation_bytes:
          description: C(reservation) of the dataset.
          type: int
          returned: always
    drift:
      description: RV(vms[].actual) minus RV(vms[].expected_bytes).
      type: dict
      returned: always
      contains: *figures
    cause:
      description:
        - The cause of the drift, as far as the figures show it. Empty only if there is no drift.
        - V(overhead of a removed disk), V(poisoned flexible_disk_size or lowered by hand), V(half-applied set),
          V(refreservation off auto), V(rollback over a resize), V(disk attached without its overhead), V(volumes that
          the VM does not know) or V(refreservation of the VM's dataset). A cause is named if the drift is exactly
          what it leaves, or within what it can leave. Otherwise the value is V(unknown).
      type: str
      returned: always
      sample: overhead of a removed disk
    after:
      description: C(quota) and C(reservation) of the VM's dataset as they are now.
      type: dict
      returned: always
      contains: *figures
    steps:
      description: What was done.
      type: list
      elements: dict
      returned: always
skipped_vms:
  description: VMs that the quota law does not cover, each with the reason.
  returned: always
  type: list
  elements: dict
"""

import typing as t

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine.modules.zfs_quota import recalculate
from ..module_utils._flexdisk.engine.run.arguments import APPROVAL, HOST, LOCK, REFUSAL, approval
from ..module_utils._flexdisk.engine.run.module_run import Answer, Call, run_module, unparsed
from ..module_utils._flexdisk.engine.run.reading import READING
from ..module_utils._flexdisk.engine.run.results import answer


def main() -> None:
    """Read the arguments, and do what zfs_quota does."""
    module = AnsibleModule(
        argument_spec={
            "vms": {"type": "list", "elements": "str"},
            "reclaim": {"type": "bool", "default": False},
            **REFUSAL,
            **APPROVAL,
            **HOST,
            **LOCK,
        },
        supports_check_mode=True,
    )
    task = f"zfs_quota of {', '.join(module.params['vms'] or ['all VMs'])}"
    # on a host with Proxmox VE it skips every VM
    run_module(module, __version__, task, unparsed, body, drivers=READING)


def body(call: Call, params: t.Mapping[str, t.Any]) -> Answer:
    """The run of zfs_quota."""
    outcome, skipped = recalculate(
        call.zfs,
        call.hypervisor,
        params["vms"],
        call.pool,
        params["reclaim"],
        call.check_mode,
        params["on_refusal"] == "continue",
        approval(params),
    )
    return answer(outcome, skipped_vms=skipped)


if __name__ == "__main__":
    main()
