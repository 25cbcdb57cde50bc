#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make VMs with their disks, change their packages, delete them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vm
short_description: Make VMs with their disks, change their packages, delete them
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - A VM is made with all its disks, or not at all. One that is there is brought to its package, and its disks are
    changed as M(flexdisk.hypervisor.vm_disks) changes them.
  - When a VM is deleted, its disks with C(preserve) are parked first, with their snapshots. Data disks are destroyed
    only with O(vms[].destroy_disks).
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
      - The prediction equals the real run but for C(ctime), C(mtime) and C(serial_no) of disks, and C(uuid) of disks
        that a VM which is there gets.
  diff_mode:
    support: full
    details:
      - The diff is the plan in words, one block for each VM that changes.
  idempotent:
    support: full
options:
  vms:
    description:
      - The VMs.
    type: list
    elements: dict
    required: true
    suboptions:
      vm:
        description:
          - The VM by UUID, by alias (C(vmadm)) or name (libvirt), or by a unique prefix of its UUID. A whole UUID wins.
            An alias of one VM that is the prefix of another's UUID is refused.
          - A new VM gets it as its name, which has up to 64 letters, digits, dots, dashes and underscores. A UUID, or
            eight and more hex digits with which one could begin, is refused as a new name.
          - A prefix of less than eight characters is refused here, since it could be meant as the name of a new VM.
            O(vms[].state=absent) refuses any prefix, since it could mean another VM once this one is deleted.
        type: str
        required: true
        aliases: [name]
      uuid:
        description:
          - UUID of a new VM. Without it one that follows from pool and name, so that a VM that is made anew has the old
            one and finds its parked disks. A VM that is there must have it.
        type: str
      state:
        description:
          - With V(present) the VM is there; it runs or not as before, and a new one is stopped.
          - With V(running) and V(stopped) it is there and runs or does not.
          - With V(absent) it is shut down and deleted.
        type: str
        choices: [present, running, stopped, absent]
        default: present
      package:
        description:
          - Name of one of O(packages).
        type: str
      flexible_disk_size:
        description:
          - What the VM's disks may use together, as a number of MiB or with a unit, where no package says it.
        type: raw
      memory:
        description:
          - Memory as a number of MiB or with a unit, instead of the package's. A running VM gets it at its next start.
        type: raw
      vcpus:
        description:
          - Number of virtual CPUs, instead of the package's. A running VM gets them at its next start.
        type: int
      quota:
        description:
          - Quota of the VM's own file system, with a unit. A new VM gets V(10GiB) from C(vmadm) and V(1MiB) with
            libvirt, where that file system holds nothing but the disks.
        type: str
      image:
        description:
          - UUID of the image that a new VM boots from, the dataset C(POOL/UUID) with its snapshot C(final).
          - For a VM that is there another image than the one that it boots from is refused, as far as that is known.
            So are an image and an empty list of disks.
        type: str
      image_file:
        description:
          - With libvirt, a file on the hypervisor, raw or qcow2, from which O(vms[].image) is imported if it is not
            there yet. C(qemu-img) is needed for that. The image becomes as large as the file says, in whole MiB.
        type: path
      disks:
        description:
          - The disks, each with the options of O(flexdisk.hypervisor.vm_disks#module:vms[].disks). An entry without
            a name is called C(disk0), C(disk1) and so on by its place.
          - A new VM boots from the first one unless another has C(boot); without a size that is as large as the image.
            Without O(vms[].disks) it gets those of its package; without these the image and what remains, or for
            a package without flexible disk space the image and one disk of the package's size.
          - The disks of a VM that is there are left alone without this option.
        type: list
        elements: dict
      unlisted:
        description:
          - What becomes of data disks of a VM that is there and that O(vms[].disks) does not list, as in
            M(flexdisk.hypervisor.vm_disks).
        type: str
        choices: [refuse, keep, detach, destroy]
        default: refuse
      autoboot:
        description:
          - Whether the VM starts with its host.
        type: bool
      indestructible:
        description:
          - Protect the VM against its deletion, and its disks against removal and shrinking. V(false) takes the
            protection away, also for what the same task does.
        type: bool
      destroy_disks:
        description:
          - Permit O(vms[].state=absent) to destroy data disks without C(preserve). The boot disk always goes.
        type: bool
        default: false
      destroy_snapshots:
        description:
          - Permit O(vms[].state=absent) to destroy the snapshots of what is destroyed.
        type: bool
        default: false
      options:
        description:
          - With C(vmadm), more properties of a new VM such as C(nics), C(resolvers) or C(bootrom), as C(vmadm create)
            takes them.
        type: dict
      customer_metadata:
        description:
          - With C(vmadm), metadata of a new VM, for example C(root_authorized_keys). It is no secret; what is goes into
            O(vms[].secret_metadata).
        type: dict
      secret_metadata:
        description:
          - With C(vmadm), more of O(vms[].customer_metadata) of a new VM, for example C(root_pw). Its values are in no
            output. A key of both is refused.
          - Ansible replaces each value wherever its characters occur in the output. So a value is a string of at least
            8 characters, and should be no word.
        type: dict
      template:
        description:
          - With libvirt, the XML of a new VM, without disks. C(${name}), C(${uuid}), C(${memory}) in MiB and
            C(${vcpus}) are filled in. Without it a q35 machine with KVM, root ports for 12 disks, a console and no
            network. It may hold passwords and is in no output.
        type: str
  packages:
    description:
      - The packages, size classes of VMs.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - Its name.
        type: str
        required: true
      disk:
        description:
          - With O(packages[].flexible_disk) what all disks of a VM may use together, else the size of the data disk
            beside the image. MiB, or with a unit.
        type: raw
        required: true
      flexible_disk:
        description:
          - Whether VMs have flexible disk space.
        type: bool
        default: false
      memory:
        description:
          - MiB, or with a unit.
        type: raw
      vcpus:
        description:
          - Number of virtual CPUs.
        type: int
      disks:
        description:
          - Disks of a new VM that declares none, as in O(vms[].disks).
        type: list
        elements: dict
  on_refusal:
    description:
      - What a VM that must be refused means for the other VMs of the task. A package that is wrong refuses all of them.
      - Where a pool has too little room for all, with V(continue) the VM that takes the most of it is refused, until
        the rest fits. VMs that claim the same disk are all refused.
  pool:
    description:
      - The ZFS pool where new VMs are made; with C(vmadm) V(zones) if nothing is said. VMs that are there are found in
        all pools.
seealso:
  - module: flexdisk.hypervisor.vm_disks
  - module: flexdisk.hypervisor.vm_snapshot
"""

EXAMPLES = r"""
- name: Create a web server with 100 GiB for its disks
  flexdisk.hypervisor.vm:
    packages:
      - {name: flexible-100, disk: 100GiB, flexible_disk: true, memory: 8GiB, vcpus: 4}
    vms:
      - vm: web01
        state: running
        package: flexible-100
        image: 9c7cd5a2-bd3f-4c8f-b7ac-6a8c7e3a1c55
        disks:
          - {name: root}
          - {name: data, size: 20GiB, preserve: true}
          - {name: scratch, size: remaining}
        options:
          nics:
            - {nic_tag: admin, ips: [dhcp], primary: true}

- name: Change the VM to a larger package
  flexdisk.hypervisor.vm:
    packages:
      - {name: flexible-200, disk: 200GiB, flexible_disk: true, memory: 16GiB, vcpus: 8}
    vms:
      - {vm: web01, package: flexible-200}

- name: Delete it and park its disk data
  flexdisk.hypervisor.vm:
    vms:
      - {vm: web01, state: absent, destroy_disks: true}
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
vms:
  description:
    - The VMs, with all that M(flexdisk.hypervisor.vm_disks) returns of them and what is below. One that was absent
      before and should be is not among them.
  returned: always
  type: list
  elements: dict
  contains:
    uuid:
      description: UUID of the VM.
      type: str
      returned: always
    state:
      description: State of the VM, V(absent) if it is not there any more.
      type: str
      returned: always
    changed:
      description: Whether this VM was changed.
      type: bool
      returned: always
    steps:
      description:
        - What was done, as in RV(flexdisk.hypervisor.vm_disks#module:vms[].steps). The C(class) of each says whether a
          running VM gets it with V(live), has it once it was stopped with V(restart), or a disk is made anew with
          V(recreate). It is empty for a VM that is made or deleted.
      type: list
      elements: dict
      returned: always
    disks:
      description: The disks of the VM.
      type: list
      elements: dict
      returned: always
    parked:
      description: Disks that this VM had and that lie outside any VM, also those of a deleted one.
      type: list
      elements: dict
      returned: always
    package:
      description: Name of the package that the VM was given last, empty for none.
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
      description: Whether the VM is protected.
      type: bool
      returned: always
"""

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..module_utils._flexdisk.engine import door, secrets
from ..module_utils._flexdisk.engine.arguments import DISK, HOST, LOCK, POWER, REFUSAL, checked_disks, policy
from ..module_utils._flexdisk.engine.runner import SubprocessRunner
from ..module_utils._flexdisk.engine.vms import run
from ..module_utils._flexdisk.model.errors import FlexdiskError

VM = {
    "vm": {"type": "str", "required": True, "aliases": ["name"]},
    "uuid": {"type": "str"},
    "state": {"type": "str", "default": "present", "choices": ["present", "running", "stopped", "absent"]},
    "package": {"type": "str"},
    "flexible_disk_size": {"type": "raw"},
    "memory": {"type": "raw"},
    "vcpus": {"type": "int"},
    "quota": {"type": "str"},
    "image": {"type": "str"},
    "image_file": {"type": "path"},
    "disks": {"type": "list", "elements": "dict"},
    "unlisted": {"type": "str", "default": "refuse", "choices": ["refuse", "keep", "detach", "destroy"]},
    "autoboot": {"type": "bool"},
    "indestructible": {"type": "bool"},
    "destroy_disks": {"type": "bool", "default": False},
    "destroy_snapshots": {"type": "bool", "default": False},
    "options": {"type": "dict"},
    "customer_metadata": {"type": "dict"},
    "secret_metadata": {"type": "dict", "no_log": True},
    "template": {"type": "str", "no_log": True},
}
PACKAGE = {
    "name": {"type": "str", "required": True},
    "disk": {"type": "raw", "required": True},
    "flexible_disk": {"type": "bool", "default": False},
    "memory": {"type": "raw"},
    "vcpus": {"type": "int"},
    "disks": {"type": "list", "elements": "dict"},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "vms": {"type": "list", "elements": "dict", "required": True, "options": VM},
            "packages": {"type": "list", "elements": "dict", "default": [], "options": PACKAGE},
            **POWER,
            **REFUSAL,
            **HOST,
            **LOCK,
        },
        supports_check_mode=True,
    )
    params = module.params
    exposed = secrets.problems(params["vms"])
    if exposed:
        module.no_log_values.clear()
        shown = {"module_args": {**params, "vms": secrets.hidden(params["vms"])}}
        module.fail_json(invocation=shown, **door.refusal(exposed))
    runner = SubprocessRunner()
    task = "vm of %s" % ", ".join(vm["vm"] for vm in params["vms"])
    try:
        disks = ArgumentSpecValidator(DISK)
        vms, packages = (checked_disks(params[k], key, disks) for k, key in (("vms", "vm"), ("packages", "name")))
        zfs, hypervisor = door.open_host(params, runner, __version__)
        # New VMs have a pool, those that are there any.
        with door.turn(runner, {**params, "pool": None}, task, module.check_mode) as others:
            outcome = run(zfs, hypervisor, vms, packages, policy(params), params["pool"], module.check_mode)
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
