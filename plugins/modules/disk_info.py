#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Report disks, wherever they are."""

from __future__ import annotations

DOCUMENTATION = r"""
module: disk_info
short_description: Report disks, attached to VMs or not
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Reports every disk of a ZFS hypervisor. These are the disks of VMs, detached disks, and volumes below a VM's
    dataset that the VM's configuration does not list.
  - With several filters, a disk must match all of them.
  - Everything is read at once, regardless of the number of disks.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.reads
options:
  uuid:
    description:
      - Only the disk with this UUID.
    type: str
  name:
    description:
      - Only disks with this name. Names are unique within a VM only.
    type: str
  vm:
    description:
      - Only disks of this VM, given by UUID, alias or unique UUID prefix. These are disks attached to it, orphaned in
        it or detached from it.
      - The UUID of a deleted VM finds the disks that were detached from it.
    type: str
  state:
    description:
      - Only disks in one of these states.
    type: list
    elements: str
    choices:
      attached: In the disk list of a VM.
      detached: Kept outside any VM, below the dataset C(POOL/flexdisk).
      orphaned: A volume below a VM's dataset that the VM's configuration does not list.
  type:
    description:
      - Only disks of one of these types.
    type: list
    elements: str
    choices:
      thick: The pool reserves the whole size for the disk.
      sparse: The disk takes only the space that is written.
      file: A raw file in a file system of its own.
  tags:
    description:
      - Only disks that have all of these tags with these values. A tag without a value (V(null)) matches any value.
    type: dict
  space:
    description:
      - Also report how much space destroying each disk would free, and what prevents its destruction.
    type: bool
    default: false
  hidden:
    description:
      - Also report disks that the platform itself has added to VMs.
    type: bool
    default: false
seealso:
  - module: flexdisk.hypervisor.disk_verify
  - module: flexdisk.hypervisor.vm_info
"""

EXAMPLES = r"""
- name: Report all disks
  flexdisk.hypervisor.disk_info:
  register: found

- name: Report the detached disks of one project, and the space that they take
  flexdisk.hypervisor.disk_info:
    state:
      - detached
    tags:
      project: shop
    space: true

- name: Report disks that have an owner
  flexdisk.hypervisor.disk_info:
    tags:
      owner:
"""

RETURN = r"""
disks:
  description: The disks, grouped by VM, followed by the detached disks.
  returned: always
  type: list
  elements: dict
  contains:
    uuid:
      description: UUID of the disk. Empty for a volume without a UUID.
      type: str
      returned: always
    name:
      description: Name of the disk. Empty if it has none.
      type: str
      returned: always
    state:
      description: V(attached), V(detached) or V(orphaned).
      type: str
      returned: always
    vm:
      description: UUID of the VM that has the disk or had it last. Empty if there is none.
      type: str
      returned: always
    alias:
      description: Alias of that VM. Empty if the VM no longer exists.
      type: str
      returned: always
    vm_state:
      description: State of the VM that has the disk. Empty for a detached disk.
      type: str
      returned: always
    type:
      description: V(thick), V(sparse) or V(file).
      type: str
      returned: always
    size:
      description: MiB.
      type: int
      returned: always
    block_size:
      description: Bytes.
      type: int
      returned: always
    refreservation:
      description: MiB that are reserved for the disk, rounded up.
      type: int
      returned: always
    boot:
      description: Whether the VM boots from it.
      type: bool
      returned: always
    pci_slot:
      description: The current or last PCI slot of the disk.
      type: str
      returned: always
    key:
      description: The key of an attached disk in the configuration of Proxmox VE.
      type: str
      returned: with Proxmox VE
      sample: virtio1
    model:
      description: Device model that the guest sees.
      type: str
      returned: always
    image:
      description: UUID of the image that the disk was made from. Empty if there is none.
      type: str
      returned: always
    index:
      description: Index of the disk in its VM.
      type: int
      returned: always
    path:
      description: Path of its device in the VM's configuration. Empty if the disk is not attached.
      type: str
      returned: always
    volume:
      description: The ZFS volume.
      type: str
      returned: always
    preserve:
      description: Whether the disk is kept when it is no longer declared.
      type: bool
      returned: always
    description:
      description: Free text of the owner.
      type: str
      returned: always
    tags:
      description: Tags.
      type: dict
      returned: always
    remaining:
      description: Whether the disk was given all remaining space.
      type: bool
      returned: always
    compression:
      description: Compression of the volume.
      type: str
      returned: always
    hidden:
      description: Whether the platform added the disk.
      type: bool
      returned: always
    adopted:
      description: Whether a task gave the volume its identity.
      type: bool
      returned: always
    replicas:
      description: The hosts that have replicas of the disk, in the order of their names.
      type: list
      elements: dict
      returned: always
      contains:
        host:
          description: Name of the host in the inventory.
          type: str
          returned: always
        synced:
          description: When the replica last had all that the disk had, by the clock of the disk's host.
          type: str
          returned: always
        age:
          description: >-
            Seconds since then. Null if that is not known. After a move it is not, until the next sync.
          type: int
          returned: always
    never_used:
      description: Whether nothing has been written to the disk and it was not made as a copy.
      type: bool
      returned: always
    serial_no:
      description: How often the disk was changed.
      type: int
      returned: if known
    ctime:
      description: When the disk was created or adopted (UTC).
      type: str
      returned: if known
    mtime:
      description: When the disk was last changed (UTC).
      type: str
      returned: if known
    snapshots:
      description: Number of its snapshots.
      type: int
      returned: with O(space=true)
    pinned:
      description: MiB that are held only by its snapshots.
      type: int
      returned: with O(space=true)
    clones:
      description: Datasets cloned from a snapshot of the disk. They must be destroyed before the disk.
      type: list
      elements: str
      returned: with O(space=true)
    held_snapshots:
      description: Snapshots with holds. The holds must be released before the disk can be destroyed.
      type: list
      elements: str
      returned: with O(space=true)
    frees_bytes:
      description: How much space destroying only this disk, with its snapshots, would free.
      type: dict
      returned: with O(space=true)
      contains:
        pool:
          description:
            - How much more space the pool would have for others. For a detached disk this is all the space it takes.
            - A VM's quota is reserved for the VM. So for an attached disk it is the part by which the quota law
              lowers the quota, which is what ZFS needs for the disk's metadata. For a disk of a VM without flexible
              disk space it is nothing. With Proxmox VE it is what the volume takes.
          type: int
          returned: always
        allocatable:
          description:
            - How much space other disks of the VM could then get. Null for a detached disk, and for a VM without
              flexible disk space.
          type: int
          returned: always
        reserved:
          description:
            - How much space a VM without flexible disk space keeps as room for another disk.
              M(flexdisk.hypervisor.zfs_quota) with O(flexdisk.hypervisor.zfs_quota#module:reclaim=true) returns it to
              the pool. Null for other VMs.
          type: int
          returned: always
      sample:
        pool: 8650752
        allocatable: 2147483648
        reserved: null
skipped_vms:
  description:
    - The VMs whose disks are not listed because this collection does not manage them, each with the reason. Only
      without O(uuid), O(name), O(vm), O(state), O(type) and O(tags).
  returned: always
  type: list
  elements: dict
  version_added: "0.3.0"
"""

import typing as t

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine.modules.disk_info import STATES, TYPES, Filters, disks_info
from ..module_utils._flexdisk.engine.run.arguments import HOST
from ..module_utils._flexdisk.engine.run.module_run import Answer, Call, run_module
from ..module_utils._flexdisk.engine.run.reading import READING
from ..module_utils._flexdisk.model.errors import Problem, refusal


def main() -> None:
    """Read the arguments, and do what disk_info does."""
    module = AnsibleModule(
        argument_spec={
            "uuid": {"type": "str"},
            "name": {"type": "str"},
            "vm": {"type": "str"},
            "state": {"type": "list", "elements": "str", "choices": [*STATES]},
            "type": {"type": "list", "elements": "str", "choices": [*TYPES]},
            "tags": {"type": "dict"},
            "space": {"type": "bool", "default": False},
            "hidden": {"type": "bool", "default": False},
            **HOST,
        },
        supports_check_mode=True,
    )
    run_module(module, __version__, "", filters, body, reads=True, drivers=READING)


def filters(params: t.Mapping[str, t.Any]) -> t.Tuple[t.Tuple[Filters, t.Mapping[str, t.Any]], t.Sequence[Problem]]:
    """Which disks are wanted, and the arguments."""
    wanted = {key: params[key] for key in ("uuid", "name", "vm", "state", "type")}
    return (Filters(**wanted, tags=params["tags"] or {}), params), ()


def body(call: Call, given: t.Tuple[Filters, t.Mapping[str, t.Any]]) -> Answer:
    """The run of disk_info."""
    wanted, params = given
    disks = disks_info(call.zfs, call.hypervisor, wanted, call.pool, params["space"], params["hidden"])
    result = {"changed": False, "disks": disks.disks, "skipped_vms": disks.skipped}
    return Answer(result, refusal(disks.problems) if disks.problems else None)


if __name__ == "__main__":
    main()
