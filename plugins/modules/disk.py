#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks as objects of their own: made without a VM, attached, detached, destroyed."""

from __future__ import annotations

DOCUMENTATION = r"""
module: disk
short_description: Disks as objects of their own, which VMs come and go from
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - A disk can exist without a VM, be attached to one, leave it with all its data and its snapshots, and be attached to
    another one. The options say of a disk where it should be and what it should be; the other disks of a VM are left
    alone. For the whole list of a VM's disks there is M(flexdisk.hypervisor.vm_disks).
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.lock
  - flexdisk.hypervisor._flexdisk.power
  - flexdisk.hypervisor._flexdisk.refusal
attributes:
  check_mode:
    support: full
    details:
      - The prediction equals the real run but for C(ctime), C(mtime) and C(serial_no) of disks, and C(uuid) and
        C(volume) of disks that are made.
  diff_mode:
    support: full
    details:
      - The diff is the plan in words, a block for each VM that changes and one for the detached disks of a pool.
  idempotent:
    support: full
options:
  state: &state
    description:
      - With V(present), or if nothing is said, the disk is there. If there is none, it is made, detached; else it is
        changed where it is.
      - With V(attached) O(vm) has it. It never becomes a boot disk.
      - With V(detached) no VM has it. Its data, snapshots, tags, C(serial_no) and slot stay with it. A boot disk
        stays where it is.
      - With V(absent) it is destroyed. Only a detached disk is.
    type: str
    choices: [present, attached, detached, absent]
  name: &name
    description:
      - Its name. With O(vm) it is looked for among the disks of that VM and those detached from it, else
        among all disks; then only one may have it.
      - With O(uuid) the name to give it.
    type: str
  uuid: &uuid
    description:
      - The UUID of a disk that is there. That of a new disk cannot be chosen.
    type: str
  vm: &vm
    description:
      - A VM, by UUID, unique prefix of one or alias. With O(state=attached) the one that gets the
        disk, else the one whose disk is meant. A new disk belongs to the names of this VM.
    type: str
  from_vm: &from_vm
    description:
      - With O(state=attached), the VM that has the disk of this name or had it last.
    type: str
  index: &index
    description:
      - With O(state=attached) the number that the disk gets, V(N) in the volume's name C(diskN). It
        stays the same as long as the disk is attached, whatever becomes of others. Without it, or with V(-1),
        the one that it had in the VM, else the lowest free one.
      - Otherwise, with O(vm) and neither name nor UUID, the disk with this number, or with V(-1) and
        O(state=present) the last one.
    type: int
  pci_slot: &pci_slot
    description:
      - With O(state=attached) the slot that the disk gets, C(BUS:DEVICE:FUNCTION). Without it the
        slot that it had, if that is free, else the first free one.
      - Otherwise, with O(vm) and neither name nor UUID, the disk in this slot.
    type: str
  take: &take
    description:
      - Permit that O(state=attached) takes the disk from another VM. What stops the one or the other VM
        needs O(allow_restart).
    type: bool
  size: &size
    description:
      - Its size, as a number of MiB or with a unit. A new disk of an image or another disk has the size of that.
    type: raw
  block_size: &block_size
    description:
      - Block size of a new disk, in bytes.
    type: int
  type: &type
    description:
      - What backs it. V(thick) is a volume whose whole size is reserved, V(sparse) one that takes what is written,
        V(file) a raw file in a file system of its own. A new disk is V(thick) unless this says otherwise.
      - A disk of another type is converted, between volume and file by a copy, for which its VM must be stopped; its
        snapshots do not come along, which O(destroy_snapshots) permits.
      - SmartOS has V(thick) alone.
    type: str
  image: &image
    description:
      - UUID of the image that a new disk is a clone of.
    type: str
  source: &source
    description:
      - UUID, or name if only one disk has it, of a disk that a new one is made of.
    type: str
  source_snapshot: &source_snapshot
    description:
      - The snapshot of O(source) that is meant, as C(zfs) names it after the C(@). Without it a copy is of
        the disk as it is at that moment, which to a guest that uses it is as if its power had failed.
    type: str
  source_method: &source_method
    description:
      - A V(copy), which it is if nothing is said, has its own data. A V(clone) is there at once and shares its data
        with a snapshot, which cannot be destroyed as long as the clone is there.
    type: str
    choices: [copy, clone]
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
      - Whether the deletion of its VM parks the disk instead of destroying it.
    type: bool
  description: &description
    description:
      - Text of your own.
    type: str
  tags: &tags
    description:
      - A map of your own, all of it.
    type: dict
  serial_no: &serial_no
    description:
      - The C(serial_no) that the disk had when you read it. Each change of a disk counts it up; where it is another
        one by now, nothing is changed and the task fails. A task that has nothing to change never fails of it.
    type: int
  dangerous_allow_shrink: &dangerous_allow_shrink
    description:
      - Permit a smaller O(size), which cuts off data.
    type: bool
  destroy_snapshots: &destroy_snapshots
    description:
      - Permit that the disk's snapshots are destroyed with it.
    type: bool
  release_holds: &release_holds
    description:
      - Permit that snapshots which are held are destroyed, too.
    type: bool
  destroy_clones: &destroy_clones
    description:
      - Volumes that are clones of the disk's snapshots and are destroyed with it, by their names. They must be
        detached disks.
    type: list
    elements: str
  disks:
    description:
      - Several disks, each with the options above, none of them twice. All are planned together, before the first
        change, and done in an order that works, whatever that of the list is.
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
      model: *model
      compression: *compression
      preserve: *preserve
      description: *description
      tags: *tags
      serial_no: *serial_no
      dangerous_allow_shrink: *dangerous_allow_shrink
      destroy_snapshots: *destroy_snapshots
      release_holds: *release_holds
      destroy_clones: *destroy_clones
  on_refusal:
    description:
      - What an entry that must be refused means for the other entries of the task.
      - With V(continue) an entry that names or changes the same VM as a refused one, or is about the same disk or made
        of it, is refused with it. So a VM is changed as the task says or not at all. RV(disks) has the others.
      - Where a pool has too little room for all, with V(continue) the VM that takes the most of it is refused, or the
        detached disk, until the rest fits.
    choices:
      stop: No disk and no VM is changed.
      continue: What the other entries say is done, and the task fails all the same, with every problem.
  pool:
    description:
      - The ZFS pool where new disks are made, and the only one that is looked at. Without it all pools that have VMs;
        a new disk is then made in the pool of its VM, with C(vmadm) in V(zones), else in the only pool.
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
    - The task in one line. It counts the VMs concerned, those that change and those that are restarted; then come the
      space that disks take from the pool or give back (by their sizes), and the size of what is destroyed.
    - With C(--diff) it is the first line of the diff when something changes.
  returned: unless the task fails; then it says why
  type: str
  sample: "3 VMs: 2 change, 1 restarts, +50 GiB, 0 B destroyed"
disks:
  description:
    - The disk, or one result for each entry of O(disks). With O(on_refusal=continue) refused entries have none.
  returned: always
  type: list
  elements: dict
  contains:
    uuid:
      description: Its UUID.
      type: str
      returned: when it is known
    name:
      description: Its name.
      type: str
      returned: always
    state:
      description: V(attached), V(detached), V(orphaned) for one that lies in a VM which does not know it, or V(absent).
      type: str
      returned: always
    vm:
      description: UUID of the VM that has it or had it last, empty for none.
      type: str
      returned: always
    changed:
      description: Whether it was changed.
      type: bool
      returned: always
    size:
      description: MiB.
      type: int
      returned: when it is there
    serial_no:
      description: Number of its changes.
      type: int
      returned: when it is there, not in check mode
vms:
  description:
    - The VMs that were looked into, with all that M(flexdisk.hypervisor.vm_disks) returns of them.
  returned: always
  type: list
  elements: dict
guard:
  description:
    - What protected disks while they were taken out of VMs, V(libzfs_core), V(cli) or V(none).
  returned: when a disk was detached or destroyed, not with libvirt, which destroys nothing that it forgets
  type: str
destroyed_by:
  description:
    - What destroyed volumes, V(libzfs_core) (in the transaction that compared them with what was planned) or V(cli).
  returned: when a volume was destroyed
  type: str
"""

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine import door
from ..module_utils._flexdisk.engine.arguments import DISK, HOST, LOCK, POWER, REFUSAL, policy
from ..module_utils._flexdisk.engine.registry import run
from ..module_utils._flexdisk.engine.runner import SubprocessRunner
from ..module_utils._flexdisk.model.errors import FlexdiskError

ENTRY = {
    **{key: {"type": spec["type"]} for key, spec in DISK.items() if key not in ("boot", "recreate")},
    "state": {"type": "str", "choices": ["present", "attached", "detached", "absent"]},
    "vm": {"type": "str"},
    "from_vm": {"type": "str"},
    "index": {"type": "int"},
    "take": {"type": "bool"},
    "source": {"type": "str"},
    "source_snapshot": {"type": "str"},
    "source_method": {"type": "str", "choices": ["copy", "clone"]},
    "serial_no": {"type": "int"},
    "release_holds": {"type": "bool"},
    "destroy_clones": {"type": "list", "elements": "str"},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "disks": {"type": "list", "elements": "dict", "options": ENTRY},
            **ENTRY,
            **POWER,
            **REFUSAL,
            **HOST,
            **LOCK,
        },
        mutually_exclusive=[("disks", key) for key in ENTRY],
        supports_check_mode=True,
    )
    params = module.params
    entries = params["disks"] or [{key: params[key] for key in ENTRY}]
    runner = SubprocessRunner()
    task = "disk of %s" % ", ".join(str(disk["name"] or disk["uuid"] or disk["vm"]) for disk in entries)
    try:
        zfs, hypervisor = door.open_host(params, runner, __version__)
        with door.turn(runner, params, task, module.check_mode) as others:
            outcome = run(zfs, hypervisor, entries, policy(params), params["pool"], module.check_mode)
    except FlexdiskError as exc:
        module.fail_json(**door.error(exc))
    for warning in others + outcome.warnings:
        module.warn(warning)
    failed = door.ending(outcome)
    if failed is not None:
        module.fail_json(**failed, disks=outcome.disks)
    module.exit_json(**door.result(outcome), disks=outcome.disks)


if __name__ == "__main__":
    main()
