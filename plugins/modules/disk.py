#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Manage disks as objects independent of VMs: create, attach, detach, destroy."""

from __future__ import annotations

DOCUMENTATION = r"""
module: disk
short_description: Manage disks as objects independent of VMs
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - A disk can exist without a VM. It can be attached to a VM, detached with all its data and snapshots, and attached
    to another VM. The options describe where a disk should be and what properties it should have. The other disks of
    a VM are not changed. Use M(flexdisk.hypervisor.vm_disks) to manage the complete disk list of a VM.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.changes
  - flexdisk.hypervisor._flexdisk.lock
  - flexdisk.hypervisor._flexdisk.power
  - flexdisk.hypervisor._flexdisk.refusal
  - flexdisk.hypervisor._flexdisk.approval
attributes:
  check_mode:
    details:
      - The prediction equals the real run, except for C(ctime), C(mtime) and C(serial_no) of disks, and C(uuid) and
        C(volume) of new disks.
  diff_mode:
    details:
      - The diff is the plan in words. It has one block for each VM that changes, and one for the detached disks of a
        pool.
options:
  state: &state
    description:
      - With V(present), or without this option, the disk exists. A missing disk is created detached. An existing disk
        is changed where it is.
      - With V(attached), the disk is attached to O(vm). It never becomes a boot disk.
      - With V(detached), the disk is not attached to any VM. It keeps its data, snapshots, tags, C(serial_no) and
        slot. A boot disk is never detached.
      - With V(absent), the disk is destroyed. Only a detached disk can be destroyed.
    type: str
    choices: [present, attached, detached, absent]
  name: &name
    description:
      - Name of the disk. With O(vm), the module searches the disks of that VM and those detached from it. Without
        O(vm), it searches all disks, and only one of them may have this name.
      - With O(uuid), the name that the disk gets.
    type: str
  uuid: &uuid
    description:
      - UUID of an existing disk. The UUID of a new disk cannot be chosen.
    type: str
  vm: &vm
    description:
      - A VM, given by UUID, unique UUID prefix or alias. With O(state=attached), it is the VM that gets the disk.
        Otherwise it is the VM whose disk is meant. The name of a new disk counts as one of this VM's disk names.
    type: str
  from_vm: &from_vm
    description:
      - With O(state=attached), the VM that has the disk with this name, or had it last.
    type: str
  index: &index
    description:
      - With O(state=attached), the number that the disk gets, V(N) in the volume's name C(diskN). The number stays
        the same while the disk is attached, even if other disks come or go. Without this option, or with V(-1), the
        disk gets the number that it had in the VM, or else the lowest free number.
      - Otherwise, with O(vm) and neither name nor UUID, it selects the disk with this number. V(-1) with
        O(state=present) selects the last disk.
    type: int
  pci_slot: &pci_slot
    description:
      - With O(state=attached), the slot that the disk gets, C(BUS:DEVICE:FUNCTION). Without this option the disk gets
        the slot that it had, if that slot is free. Otherwise it gets the first free slot.
      - Otherwise, with O(vm) and neither name nor UUID, it selects the disk in this slot.
    type: str
  take: &take
    description:
      - Allow O(state=attached) to take the disk from another VM. If either VM must be stopped, O(allow_restart) is
        needed too.
    type: bool
  size: &size
    description:
      - Size of the disk, as a number of MiB or with a unit. A new disk made from an image or from another disk has
        the size of its source.
    type: raw
  block_size: &block_size
    description:
      - Block size of a new disk, in bytes.
    type: int
  type: &type
    description:
      - What backs the disk. V(thick) is a volume whose whole size is reserved. V(sparse) is a volume that takes only
        the space that is written. V(file) is a raw file in a file system of its own. A new disk is V(thick) by
        default.
      - An existing disk of another type is converted. A conversion between volume and file copies the data, and the
        VM must be stopped for it. The copy does not include the disk's snapshots, so O(destroy_snapshots) must allow
        their loss.
      - SmartOS supports only V(thick).
    type: str
  image: &image
    description:
      - UUID of the image from which a new disk is cloned.
    type: str
  source: &source
    description:
      - The disk from which a new disk is made, by UUID, or by name if the name is unique.
    type: str
  source_snapshot: &source_snapshot
    description:
      - The snapshot of O(source) to use, as C(zfs) names it after the C(@). Without this option, the current state of
        the disk is copied. If a guest uses the disk, the copy looks like a disk after a power failure.
      - With O(replica), the snapshot of the replica to use. Without this option, it is the newest one of a sync.
    type: str
  source_method: &source_method
    description:
      - A V(copy), the default, has its own data. A V(clone) is ready at once and shares its data with a snapshot.
        That snapshot cannot be destroyed while the clone exists.
    type: str
    choices: [copy, clone]
  replica: &replica
    description:
      - UUID of a disk of which this host has a replica. The new disk is a copy of a snapshot of this replica. It gets a
        UUID of its own, and needs a name. The replica stays as it is.
      - A second run changes nothing. If a disk of this name exists that was made from something else, or from another
        snapshot, the task is refused.
    type: str
    version_added: 0.3.0
  model: &model
    description:
      - Device model in the VM.
    type: str
  compression: &compression
    description:
      - ZFS compression, V(on), V(off), V(lz4), V(lzjb), V(zle), V(gzip), or V(gzip-1) to V(gzip-9).
    type: str
  preserve: &preserve
    description:
      - Whether the disk is detached instead of destroyed when its VM is deleted.
    type: bool
  description: &description
    description:
      - Free text.
    type: str
  tags: &tags
    description:
      - Free keys and values. The map replaces all existing tags.
    type: dict
  serial_no: &serial_no
    description:
      - The C(serial_no) that the disk had when you read it. Each change of a disk increases this number. If it has
        changed since, the task fails and changes nothing. A task with nothing to change never fails for this reason.
    type: int
  dangerous_allow_shrink: &dangerous_allow_shrink
    description:
      - Allow a smaller O(size). Data beyond the new size is lost.
    type: bool
  min_size_from_guest: &min_size_from_guest
    description:
      - The smallest size that the guest needs, a number of MiB or a size with a binary unit. The module
        M(flexdisk.hypervisor.guest_growth_info) tells it.
      - The disk is not made smaller than that, even with O(dangerous_allow_shrink=true). The task is refused before
        anything changes.
      - It has no effect if the disk does not become smaller. It is never stored.
    type: raw
  destroy_snapshots: &destroy_snapshots
    description:
      - Allow the disk's snapshots to be destroyed with it.
    type: bool
  release_holds: &release_holds
    description:
      - Allow held snapshots to be destroyed as well.
    type: bool
  destroy_clones: &destroy_clones
    description:
      - Names of volumes that are clones of the disk's snapshots and may be destroyed with it. They must be detached
        disks.
    type: list
    elements: str
  disks:
    description:
      - Several disks, each with the options above. A disk may be listed only once. All changes are planned together
        before the first one is made. The module chooses a working order, independent of the order of the list.
    type: list
    elements: dict
    suboptions:
      state: *state
      name: *name
      uuid: *uuid
      vm: *vm
      from_vm: *from_vm
      index: *index
      pci_slot: *pci_slot
      take: *take
      size: *size
      block_size: *block_size
      type: *type
      image: *image
      source: *source
      source_snapshot: *source_snapshot
      source_method: *source_method
      replica: *replica
      model: *model
      compression: *compression
      preserve: *preserve
      description: *description
      tags: *tags
      serial_no: *serial_no
      dangerous_allow_shrink: *dangerous_allow_shrink
      min_size_from_guest: *min_size_from_guest
      destroy_snapshots: *destroy_snapshots
      release_holds: *release_holds
      destroy_clones: *destroy_clones
  on_refusal:
    description:
      - What happens to the other entries of the task when one entry is refused.
      - With V(continue), an entry is also refused if it names or changes the same VM as a refused entry, concerns the
        same disk, or is made from that disk. So a VM is changed completely as declared, or not at all. RV(disks)
        contains the other entries.
      - If a pool has too little space for all entries, V(continue) refuses the VM or detached disk that takes the
        most space, and repeats this until the rest fits.
    choices:
      stop: Nothing is changed.
      continue: The other entries are carried out. The task still fails and reports every problem.
  pool:
    description:
      - The ZFS pool where new disks are created. Only VMs of this pool are read, with C(proxmox) with their disks in
        other pools. Without this option, all pools that have VMs are read. A new disk is then created in the pool of
        its VM, with C(vmadm) in V(zones), or else in the only pool.
seealso:
  - module: flexdisk.hypervisor.vm_disks
  - module: flexdisk.hypervisor.vm_info
"""

EXAMPLES = r"""
- name: Create a disk without a VM
  flexdisk.hypervisor.disk:
    name: archive
    size: 200GiB
    preserve: true
    tags:
      owner: sales

- name: Attach it to a VM
  flexdisk.hypervisor.disk:
    name: archive
    vm: web01
    state: attached
    pci_slot: "0:4:5"
    allow_restart: true

- name: Move it and another disk from the old VM to the new one
  flexdisk.hypervisor.disk:
    disks:
      - {name: archive, from_vm: web01, vm: web02, state: attached, take: true}
      - {name: data, from_vm: web01, vm: web02, state: attached, take: true}
    allow_restart: true

- name: Detach it and keep it
  flexdisk.hypervisor.disk:
    name: archive
    vm: web02
    state: detached
    allow_restart: true

- name: Make a disk from the replica of a disk of another host
  flexdisk.hypervisor.disk:
    name: data-restored
    replica: 7c1e6f2a-9a44-4a6e-b0c5-2f3f0f9b7d11

- name: Destroy it, unless it has been changed since it was read
  flexdisk.hypervisor.disk:
    uuid: 0d3ff1b6-41bb-4b6c-8d5f-8f5f2a1f0d54
    state: absent
    serial_no: 7
    destroy_snapshots: true
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
disks:
  description:
    - The disk, or one result for each entry of O(disks). With O(on_refusal=continue), refused entries have no result.
  returned: always
  type: list
  elements: dict
  contains:
    uuid:
      description: Its UUID.
      type: str
      returned: if known
    name:
      description: Its name.
      type: str
      returned: always
    state:
      description: >-
        V(attached), V(detached), V(absent), or V(orphaned) for a disk below a VM's dataset that the VM's
        configuration does not list.
      type: str
      returned: always
    vm:
      description: UUID of the VM that has the disk or had it last. Empty if there is none.
      type: str
      returned: always
    changed:
      description: Whether it was changed.
      type: bool
      returned: always
    size:
      description: MiB.
      type: int
      returned: if the disk exists
    serial_no:
      description: How often the disk was changed.
      type: int
      returned: if the disk exists, not in check mode
vms:
  description:
    - The VMs that were read, with everything that M(flexdisk.hypervisor.vm_disks) returns for them.
  returned: always
  type: list
  elements: dict
guard:
  description:
    - How disks were protected while they were taken out of VMs, V(libzfs_core), V(cli) or V(none).
  returned: >-
    if a disk was detached or destroyed, but not with libvirt, which never destroys a disk that it removes from a VM
  type: str
destroyed_by:
  description:
    - How volumes were destroyed, V(libzfs_core) (in the same transaction that compared them with the plan) or V(cli).
  returned: if a volume was destroyed
  type: str
"""

import typing as t

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine.modules.disk import run
from ..module_utils._flexdisk.engine.run.arguments import APPROVAL, DISK, HOST, LOCK, POWER, REFUSAL, policy
from ..module_utils._flexdisk.engine.run.changing import CHANGING
from ..module_utils._flexdisk.engine.run.module_run import Answer, Call, run_module, unparsed
from ..module_utils._flexdisk.engine.run.results import answer

ENTRY = {
    **{key: {"type": spec["type"]} for key, spec in DISK.items() if not key.startswith(("boot", "recreate"))},
    "state": {"type": "str", "choices": ["present", "attached", "detached", "absent"]},
    "vm": {"type": "str"},
    "from_vm": {"type": "str"},
    "index": {"type": "int"},
    "take": {"type": "bool"},
    "source": {"type": "str"},
    "source_snapshot": {"type": "str"},
    "source_method": {"type": "str", "choices": ["copy", "clone"]},
    "replica": {"type": "str"},
    "serial_no": {"type": "int"},
    "release_holds": {"type": "bool"},
    "destroy_clones": {"type": "list", "elements": "str"},
}


def main() -> None:
    """Read the arguments, and do what disk does."""
    module = AnsibleModule(
        argument_spec={
            "disks": {"type": "list", "elements": "dict", "options": ENTRY},
            **ENTRY,
            **POWER,
            **REFUSAL,
            **APPROVAL,
            **HOST,
            **LOCK,
        },
        mutually_exclusive=[("disks", key) for key in ENTRY],
        supports_check_mode=True,
    )
    task = f"disk of {', '.join(str(disk['name'] or disk['uuid'] or disk['vm']) for disk in entries(module.params))}"
    run_module(module, __version__, task, unparsed, body, drivers=CHANGING)


def entries(params: t.Mapping[str, t.Any]) -> t.List[t.Dict[str, t.Any]]:
    """The disks of the task: a list, or one that its arguments name."""
    return params["disks"] or [{key: params[key] for key in ENTRY}]


def body(call: Call, params: t.Mapping[str, t.Any]) -> Answer:
    """The run of disk."""
    outcome = run(call.zfs, call.hypervisor, entries(params), policy(params), call.pool, call.check_mode)
    return answer(outcome, disks=outcome.disks)


if __name__ == "__main__":
    main()
