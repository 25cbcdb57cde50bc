#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Report VMs and their disks."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vm_info
short_description: Report VMs and their disks
version_added: 0.1.0
author:
  - flexdisk.hypervisor contributors (@flexdisk)
description:
  - Reports the VMs of a ZFS hypervisor with their disks, and the disks that are parked outside any VM.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: N/A
    details:
      - Nothing is changed.
  idempotent:
    support: full
options:
  vms:
    description:
      - VMs by UUID, alias or unique UUID prefix. Without it all VMs of the host.
    type: list
    elements: str
  space:
    description:
      - Also report figures that need the accounting of snapshots, RV(vms[].free_space), RV(vms[].allocatable),
        RV(vms[].snapshots), and C(pinned) and C(snapshots) of every disk.
    type: bool
    default: false
seealso:
  - module: flexdisk.hypervisor.vm_disks
  - plugin: flexdisk.hypervisor.vms
    plugin_type: inventory
"""

EXAMPLES = r"""
- name: What is there
  flexdisk.hypervisor.vm_info:
  register: hypervisor

- name: How much can the disks of one VM still get
  flexdisk.hypervisor.vm_info:
    vms:
      - web01
    space: true
  register: web01
"""

RETURN = r"""
vms:
  description: The VMs. Keys are those of RV(flexdisk.hypervisor.vm_disks#module:vms) that describe the VM.
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
    tags:
      description: Tags of the VM, values that are no text as JSON.
      type: dict
      returned: always
      sample:
        role: web
    package:
      description: Name of the package that M(flexdisk.hypervisor.vm) gave the VM last, empty for none.
      type: str
      returned: always
    memory:
      description: MiB.
      type: int
      returned: always
    vcpus:
      description: Number of virtual CPUs.
      type: int
      returned: always
    indestructible:
      description: Whether the VM is protected from deletion, and its disks from removal and shrinking.
      type: bool
      returned: always
    disk_template:
      description: The type of all disks, V(thick), V(sparse) or V(file); else V(mixed), or V(diskless).
      type: str
      returned: always
    disks:
      description:
        - The attached disks; sizes in MiB. With O(space=true) C(pinned) is what their snapshots hold at once, and
          C(snapshot_size) what ZFS charges to these so far.
      type: list
      elements: dict
      returned: always
    free_space:
      description: MiB by RFD 154's formula.
      type: int
      returned: with O(space=true)
    allocatable:
      description: MiB that disks can really still get.
      type: int
      returned: with O(space=true)
    snapshots:
      description: Snapshots of the whole VM, as RV(flexdisk.hypervisor.vm_snapshot#module:vms[].snapshots) has them.
      type: list
      elements: dict
      returned: with O(space=true)
    intent:
      description:
        - What an interrupted run of M(flexdisk.hypervisor.vm_disks) wrote down before it changed the VM, or null. The
          next run on the same host that lists the VM takes it up and clears it.
        - By hand it is cleared with C(zfs inherit flexdisk:intent.UUID POOL/flexdisk).
      type: dict
      returned: always
      sample:
        readable: true
        plan: 0ab21b0c-66b5-4e04-a5c9-3ea52e5a4a4e
        host: node1
        since: "2026-01-01T00:00:00Z"
        state: running
        autoboot: true
        stops: true
        steps:
          - stop
        moves: []
intents:
  description:
    - Intents of VMs that are not there, with C(vm) and C(pool). They are never executed.
  returned: always
  type: list
  elements: dict
parked:
  description: Disks outside any VM; C(vm) is the UUID of the VM that had the disk last.
  returned: always
  type: list
  elements: dict
skipped_vms:
  description: VMs of other brands, and VMs without a dataset, each with the reason.
  returned: always
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine import door, lock
from ..module_utils._flexdisk.engine.arguments import HOST
from ..module_utils._flexdisk.engine.info import info
from ..module_utils._flexdisk.engine.runner import SubprocessRunner
from ..module_utils._flexdisk.model.errors import FlexdiskError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "vms": {"type": "list", "elements": "str"},
            "space": {"type": "bool", "default": False},
            **HOST,
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        zfs, hypervisor = door.open_host(params, SubprocessRunner())
        found = info(zfs, hypervisor, params["vms"], params["pool"], params["space"])
    except FlexdiskError as exc:
        module.fail_json(**door.error(exc))
    for warning in lock.busy(params["pool"]):
        module.warn(warning)
    if found.problems:
        module.fail_json(**door.refusal(found.problems))
    module.exit_json(
        changed=False, vms=found.vms, parked=found.parked, skipped_vms=found.skipped, intents=found.intents
    )


if __name__ == "__main__":
    main()
