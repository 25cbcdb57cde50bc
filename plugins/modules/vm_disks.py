#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Converge the disks of VMs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vm_disks
short_description: Make the disks of VMs what the inventory says
version_added: 0.1.0
author:
  - flexdisk.hypervisor contributors (@flexdisk)
description:
  - Creates, grows, shrinks, attaches, detaches and removes disks of VMs on a ZFS hypervisor, keeps their PCI slots, and
    leaves quota and reservation of every VM as the quota law says.
  - One call converges all VMs of a host. Everything is planned before anything is changed; if one declaration must be
    refused, no VM is changed, and all problems are reported together.
  - Nothing is destroyed that the declaration does not give up by name.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.lock
attributes:
  check_mode:
    support: full
    details:
      - The prediction equals the real run in everything but C(uuid) of new disks, C(ctime), C(mtime) and C(serial_no),
        which are absent in check mode, and so is C(free_space) where a disk with snapshots is resized, since only
        ZFS knows what the snapshots alone will hold then.
  diff_mode:
    support: full
    details:
      - The diff is the plan in words, one block for each VM that changes.
  idempotent:
    support: full
options:
  vms:
    description:
      - The VMs and what their disks should be.
      - A key that is left out is not managed.
    type: list
    elements: dict
    required: true
    suboptions:
      vm:
        description:
          - The VM by UUID, by alias, or by a unique prefix of its UUID of at least four characters.
        type: str
        required: true
      flexible_disk_size:
        description:
          - The space that the VM's disks and their snapshots may use together, as a number of MiB or with a unit
            such as
            V(100GiB).
          - Disks that the platform adds by itself (the 16 MiB of cloud-init data) are not part of it.
          - On a VM that has none it converts the VM to flexible disk space. There is no way back.
        type: raw
      quota:
        description:
          - The quota of the VM's own file system, with a unit, for example V(1GiB).
        type: str
      unlisted:
        description:
          - What becomes of attached data disks that no entry of O(vms[].disks) claims.
          - Boot disks, platform disks, CD-ROMs and files are never unlisted.
          - With V(detach) and V(destroy) a volume that an interrupted run of this collection has left in the VM
            unattached is parked; it is never destroyed.
        type: str
        default: refuse
        choices:
          refuse: Refuse, naming them.
          keep: Leave them as they are.
          detach: Park them with their data outside the VM. They come back when they are listed again.
          destroy: >-
            Destroy them, but park those with O(vms[].disks[].preserve), and refuse if a disk has no identity from an
            earlier run.
      disks:
        description:
          - The disks of the VM. Each needs O(vms[].disks[].name) or O(vms[].disks[].uuid).
          - Entries are matched by UUID, then by name; then a disk that has no name yet is found by its slot, by
            being the
            boot disk, or as the only one that fits without a change of size.
        type: list
        elements: dict
        suboptions:
          name:
            description:
              - Name of the disk, unique in its VM.
            type: str
          uuid:
            description:
              - UUID of a disk that is attached or parked. Together with another O(vms[].disks[].name) it renames the
                disk.
            type: str
          state:
            description:
              - V(absent) destroys the disk and its data.
            type: str
            default: present
            choices:
              present: The disk is attached to the VM.
              absent: The disk does not exist, neither attached nor parked.
          size:
            description:
              - A number of MiB, a size with a binary unit such as V(50GiB), or V(remaining) for all that is left of
                O(vms[].flexible_disk_size).
              - Left out on a new disk, the size of O(vms[].disks[].image).
              - V(remaining) is computed when the disk is made, and again only when O(vms[].flexible_disk_size) or the
                sizes of the other disks change.
            type: raw
          boot:
            description:
              - Whether the VM boots from this disk.
            type: bool
          image:
            description:
              - UUID of the image that a new disk is a clone of.
            type: str
          pci_slot:
            description:
              - PCI slot as V(BUS:DEVICE:FUNCTION), V(DEVICE:FUNCTION) or V(DEVICE).
              - A disk keeps the slot it has; a new one gets the lowest free function of device 4.
            type: str
          model:
            description:
              - How the guest sees the disk, V(virtio), V(nvme) or V(ahci).
            type: str
          block_size:
            description:
              - Block size of a new disk in bytes, a power of two from 512 to 131072.
            type: int
          compression:
            description:
              - ZFS compression of the volume.
            type: str
          preserve:
            description:
              - Park the disk instead of destroying it wherever a destruction is not asked for by its name.
            type: bool
          description:
            description:
              - Free text kept with the volume.
            type: str
          tags:
            description:
              - Free keys and values kept with the volume.
            type: dict
          dangerous_allow_shrink:
            description:
              - Permit this disk to become smaller. What lies beyond the new size is lost. Never stored.
            type: bool
            default: false
          destroy_snapshots:
            description:
              - Permit that the disk's snapshots go when the disk is destroyed.
            type: bool
            default: false
          recreate:
            description:
              - Permit that a difference in what is fixed at birth (block size, image) makes a new disk. The old one
                is parked
                if it has O(vms[].disks[].preserve), else destroyed.
              - The new disk gets a UUID of its own, so the entry must name the old one by O(vms[].disks[].name).
            type: bool
            default: false
  allow_restart:
    description:
      - Permit that a running VM is shut down for steps that need it stopped, and started again.
    type: bool
    default: false
  stop_timeout:
    description:
      - Seconds that a guest gets for its shutdown.
    type: int
    default: 180
  allow_force_stop:
    description:
      - Permit that a guest which is still up after O(stop_timeout) is halted.
    type: bool
    default: false
  matching:
    description:
      - How entries and disks without a common UUID find each other.
    type: str
    default: name
    choices:
      name: By name, slot, boot, and the only assignment that changes no size.
      order: First fit in the order of the lists, as instance groups do it; names are not looked at.
  on_refusal:
    description:
      - What a declaration that must be refused means for the other VMs.
    type: str
    default: stop
    choices:
      stop: No VM is changed.
      continue: The other VMs are converged, and the task fails all the same.
seealso:
  - module: flexdisk.hypervisor.vm_info
  - module: flexdisk.hypervisor.zfs_quota
"""

EXAMPLES = r"""
- name: Disks of the web servers
  flexdisk.hypervisor.vm_disks:
    vms:
      - vm: web01
        flexible_disk_size: 100GiB
        disks:
          - name: root
            boot: true
            size: 20GiB
          - name: data
            size: 50GiB
            preserve: true
            pci_slot: "0:4:1"
          - name: scratch
            size: remaining

- name: Take the old data disk out, keep its data, and shut the VM down for it
  flexdisk.hypervisor.vm_disks:
    allow_restart: true
    vms:
      - vm: db01
        unlisted: detach
        disks:
          - name: root
            boot: true

- name: Give one disk and its snapshots up for good
  flexdisk.hypervisor.vm_disks:
    vms:
      - vm: db01
        unlisted: keep
        disks:
          - name: scratch
            state: absent
            destroy_snapshots: true
"""

RETURN = r"""
vms:
  description: The VMs of the task as they are now (in check mode as they would be).
  returned: always
  type: list
  elements: dict
  contains:
    vm:
      description: The VM as the task named it.
      type: str
      returned: always
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
    autoboot:
      description: Whether the VM starts with the host.
      type: bool
      returned: always
    changed:
      description: Whether this VM was changed.
      type: bool
      returned: always
    flexible:
      description: Whether the VM has flexible disk space.
      type: bool
      returned: always
    flexible_disk_size:
      description: MiB that disks and snapshots may use together, without hidden disks.
      type: int
      returned: always
    hidden_disk_size:
      description: MiB of the platform's own disks.
      type: int
      returned: always
    free_space:
      description: MiB by RFD 154's formula, flexible disk size less sizes less space used by snapshots.
      type: int
      returned: always
    allocatable:
      description: MiB that disks can really still get; what snapshots pin is subtracted.
      type: int
      returned: always
    vm_quota:
      description: Bytes of the quota of the VM's own file system.
      type: int
      returned: always
    quota:
      description: C(quota) of the VM's dataset in bytes, V(before) and V(after).
      type: dict
      returned: always
    reservation:
      description: C(reservation) of the VM's dataset in bytes, V(before) and V(after).
      type: dict
      returned: always
    disks:
      description: The attached disks; sizes in MiB, C(block_size) in bytes.
      type: list
      elements: dict
      returned: always
      sample:
        - name: data
          uuid: 5d97c9d6-ab7d-4ed6-bfcc-ae3f001aedac
          size: 51200
          pci_slot: "0:4:1"
          boot: false
          preserve: true
          block_size: 8192
          state: stopped
    parked:
      description: Disks that were detached from this VM, with the same keys.
      type: list
      elements: dict
      returned: always
    unmanaged:
      description: Volumes below the VM's dataset that its configuration does not know.
      type: list
      elements: str
      returned: always
    missing:
      description: Paths in the VM's configuration whose volume does not exist.
      type: list
      elements: str
      returned: always
    steps:
      description: What was done, in order.
      type: list
      elements: dict
      returned: always
      sample:
        - step: grow
          disk: data
          text: "~ data 20 GiB -> 50 GiB"
          destroys: false
    recovered:
      description:
        - What was found of an interrupted run (C(found)) and which steps end it (C(done)), with its C(plan) and time
          (C(since)). Empty where there is none.
      type: list
      elements: dict
      returned: always
    warnings:
      description: What is odd about the VM or its declaration.
      type: list
      elements: str
      returned: always
guard:
  description:
    - What protected disks while they were taken out of VMs, V(libzfs_core) (a hold bound to the process), V(cli) or
      V(none).
  returned: when a disk was detached or destroyed
  type: str
error_code:
  description: Name of the first problem, as RFD 154 calls it where it has a name for it.
  returned: on failure
  type: str
  sample: InsufficientSpace
problems:
  description: All reasons to refuse, each with V(code), V(message), V(vm) and V(disk).
  returned: on failure
  type: list
  elements: dict
failure:
  description: The step that failed, and of every step whether it was done.
  returned: when a step failed
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine import door
from ..module_utils._flexdisk.engine.converge import converge
from ..module_utils._flexdisk.engine.runner import SubprocessRunner
from ..module_utils._flexdisk.model.desired import Policy
from ..module_utils._flexdisk.model.errors import FlexdiskError

DISK = {
    "name": {"type": "str"},
    "uuid": {"type": "str"},
    "state": {"type": "str", "default": "present", "choices": ["present", "absent"]},
    "size": {"type": "raw"},
    "boot": {"type": "bool"},
    "image": {"type": "str"},
    "pci_slot": {"type": "str"},
    "model": {"type": "str"},
    "block_size": {"type": "int"},
    "compression": {"type": "str"},
    "preserve": {"type": "bool"},
    "description": {"type": "str"},
    "tags": {"type": "dict"},
    "dangerous_allow_shrink": {"type": "bool", "default": False},
    "destroy_snapshots": {"type": "bool", "default": False},
    "recreate": {"type": "bool", "default": False},
}
VM = {
    "vm": {"type": "str", "required": True},
    "flexible_disk_size": {"type": "raw"},
    "quota": {"type": "str"},
    "unlisted": {"type": "str", "default": "refuse", "choices": ["refuse", "keep", "detach", "destroy"]},
    "disks": {"type": "list", "elements": "dict", "options": DISK},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "vms": {"type": "list", "elements": "dict", "required": True, "options": VM},
            "allow_restart": {"type": "bool", "default": False},
            "stop_timeout": {"type": "int", "default": 180},
            "allow_force_stop": {"type": "bool", "default": False},
            "matching": {"type": "str", "default": "name", "choices": ["name", "order"]},
            "on_refusal": {"type": "str", "default": "stop", "choices": ["stop", "continue"]},
            "hypervisor": {"type": "str", "default": "auto", "choices": ["auto", "vmadm"]},
            "pool": {"type": "str"},
            "lock_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    params = module.params
    policy = Policy(
        allow_restart=params["allow_restart"],
        stop_timeout=params["stop_timeout"],
        allow_force_stop=params["allow_force_stop"],
        matching=params["matching"],
        continue_on_refusal=params["on_refusal"] == "continue",
    )
    runner = SubprocessRunner()
    task = "vm_disks of %s" % ", ".join(vm["vm"] for vm in params["vms"])
    try:
        zfs, hypervisor = door.open_host(params["hypervisor"], runner)
        with door.turn(runner, params, task, module.check_mode) as others:
            outcome = converge(zfs, hypervisor, params["vms"], policy, params["pool"], module.check_mode)
    except FlexdiskError as exc:
        module.fail_json(**door.error(exc))
    for warning in others + outcome.warnings:
        module.warn(warning)
    failed = door.ending(outcome)
    if failed is not None:
        module.fail_json(**failed)
    module.exit_json(**door.result(outcome))


if __name__ == "__main__":
    main()
