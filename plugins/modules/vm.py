#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make VMs with their disks, change their packages, delete them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vm
short_description: Create VMs with their disks, change their packages, delete them
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - A new VM is created with all its disks, or not at all. An existing VM is changed to match its package. Its disks
    are changed in the same way as by M(flexdisk.hypervisor.vm_disks).
  - Before a VM is deleted, its disks with C(preserve) are detached together with their snapshots. Data disks are
    destroyed only with O(vms[].destroy_disks).
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
      - The prediction equals the real run, except for C(ctime), C(mtime) and C(serial_no) of disks, and C(uuid) of
        new disks of existing VMs.
  diff_mode:
    details:
      - The diff is the plan in words, with one block for each VM that changes.
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
          - The VM by UUID, by alias (C(vmadm)) or name (libvirt), or by a unique prefix of its UUID. A complete UUID
            takes precedence. A value that is the alias of one VM and the prefix of another VM's UUID is refused.
          - A new VM gets this value as its name. A name has up to 64 letters, digits, dots, dashes and underscores. A
            new name must not be a UUID, and must not be eight or more hex digits with which a UUID could begin.
          - A UUID prefix of less than eight characters is refused here, because it could be meant as the name of a
            new VM. O(vms[].state=absent) refuses any prefix, because it could match another VM after this one is
            deleted.
          - One of O(vms[].vm) and O(vms[].name) is required.
        type: str
      name:
        description:
          - The same as O(vms[].vm), under its former name. Only one of both can be given.
        type: str
      uuid:
        description:
          - UUID of a new VM. By default it is derived from the pool and the name. So a VM that is created again gets
            its old UUID and finds its detached disks. An existing VM must have this UUID.
        type: str
      state:
        description:
          - With V(present), the VM exists. An existing VM keeps running or stays stopped. A new VM is stopped.
          - With V(running) or V(stopped), the VM exists and is in that state.
          - With V(restarted), a running VM is restarted by each run, which needs O(allow_restart=true), and a stopped
            one is started. Since 0.3.0.
          - A VM with failover whose host has booted is not started. The playbook C(start_host) comes first.
          - With V(absent), the VM is shut down and deleted.
        type: str
        choices: [present, running, stopped, restarted, absent]
        default: present
      package:
        description:
          - Name of one of O(packages).
        type: str
      flexible_disk_size:
        description:
          - The space that the VM's disks may use together, as a number of MiB or with a unit. For VMs whose package
            does not set it.
        type: raw
      memory:
        description:
          - Memory as a number of MiB or with a unit. It replaces the value of the package. A running VM gets it at
            its next start.
        type: raw
      vcpus:
        description:
          - Number of virtual CPUs. It replaces the value of the package. A running VM gets them at its next start.
        type: int
      quota:
        description:
          - Quota of the VM's own file system, with a unit. The default for a new VM is V(10GiB) with C(vmadm) and
            V(1MiB) with libvirt. With libvirt this file system holds only the disks.
        type: str
      image:
        description:
          - UUID of the image that a new VM boots from, the dataset C(POOL/UUID) with its snapshot C(final).
          - For an existing VM, an image other than the one that it boots from is refused, if that image is known. If
            the entry of its boot disk has C(recreate), and C(boot) or the first place, the boot disk is made again from
            the image instead, and everything else stays. The old one is detached. This is refused with libvirt.
          - An image together with an empty list of disks is refused.
        type: str
      image_file:
        description:
          - With libvirt, a raw or qcow2 file on the hypervisor. O(vms[].image) is imported from it if the image does
            not exist yet. This needs C(qemu-img). The image gets the size that the file gives, in whole MiB.
        type: path
      disks:
        description:
          - The disks, each with the options of O(flexdisk.hypervisor.vm_disks#module:vms[].disks). An entry without a
            name is called C(disk0), C(disk1) and so on, according to its position.
          - A new VM boots from the first disk unless another one has C(boot). A boot disk without a size is as large
            as the image. Without O(vms[].disks), a new VM gets the disks of its package. If the package has none, the
            VM gets a boot disk from the image and a disk with the remaining space. For a package without flexible
            disk space, it gets a boot disk from the image and one disk of the package's size.
          - Without this option, the disks of an existing VM are not changed.
        type: list
        elements: dict
      unlisted:
        description:
          - What happens to data disks of an existing VM that O(vms[].disks) does not list. See
            M(flexdisk.hypervisor.vm_disks).
        type: str
        choices: [refuse, keep, detach, destroy]
        default: refuse
      autoboot:
        description:
          - Whether the VM starts when its host starts.
        type: bool
      indestructible:
        description:
          - Protect the VM from deletion, and its disks from removal and shrinking. V(false) removes the protection.
            This already applies to the other changes of the same task.
        type: bool
      drained:
        description:
          - Mark the VM as taken out of service, or remove the mark. The collection does nothing with it.
            M(flexdisk.hypervisor.vm_info) reports it, so that a later run can put back into service what an
            interrupted one has taken out. The mark is a property of the VM's dataset.
        type: bool
        version_added: 0.2.0
      restart:
        description:
          - Restart a running VM whose memory or number of CPUs changes, so that it gets them now. It also needs
            O(allow_restart=true).
        type: bool
        default: false
        version_added: 0.2.0
      generation:
        description:
          - A word for a start of the VM, for example a date. A running VM that was started for another word is
            restarted, which needs O(allow_restart=true). The same word again changes nothing. So a task can restart
            many VMs once, however often it is repeated.
          - Up to 64 letters, digits, dots, colons, underscores, dashes and plus signs. The word is a property of the
            VM's dataset.
        type: str
        version_added: 0.2.0
      member:
        description:
          - The member of a group of VMs that the VM is, V(web-0) for the first one of the group C(web). The role
            C(flexdisk.hypervisor.instance_group) sets it, and changes or deletes no VM that does not have it, however
            the VM is called.
          - With O(vms[].state=absent), the VM is only deleted if it is this member.
          - An empty text means that the VM is a member of no group. Without this option, nothing changes. It is a
            property of the VM's dataset.
        type: str
        version_added: 0.3.0
      destroy_disks:
        description:
          - Allow O(vms[].state=absent) to destroy data disks without C(preserve). The boot disk is always destroyed.
        type: bool
        default: false
      destroy_snapshots:
        description:
          - Allow O(vms[].state=absent) to destroy the snapshots of the disks that are destroyed.
        type: bool
        default: false
      options:
        description:
          - With C(vmadm), further properties of a new VM such as C(nics), C(resolvers) or C(bootrom), in the form
            that C(vmadm create) accepts. Options are shown and logged, so names that tell of a secret are refused, such
            as C(vnc_password) or C(root_pw) in C(internal_metadata).
        type: dict
      customer_metadata:
        description:
          - With C(vmadm), metadata of a new VM, for example C(root_authorized_keys). These values are not secret. Use
            O(vms[].secret_metadata) for secrets, and for C(user-data). Other places for names that tell of a secret are
            refused.
        type: dict
      secret_metadata:
        description:
          - With C(vmadm), metadata of a new VM that is secret, for example C(root_pw). It is added to
            O(vms[].customer_metadata). Its values appear in no output. A key that is in both options is refused.
          - Ansible masks each value wherever its characters occur in the output. So each value must be a string of at
            least 8 characters, and should not be a common word.
        type: dict
      template:
        description:
          - With libvirt, the XML of a new VM, without disks. C(${name}), C(${uuid}), C(${memory}) in MiB and
            C(${vcpus}) are filled in. The default is a q35 machine with KVM, root ports for 12 disks, a console and
            no network. The template may contain passwords, so it appears in no output.
        type: str
  packages:
    description:
      - The packages. A package is a size class of VMs.
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
          - With O(packages[].flexible_disk), the space that all disks of a VM may use together. Otherwise, the size
            of the data disk beside the image. A number of MiB, or a size with a unit.
        type: raw
        required: true
      flexible_disk:
        description:
          - Whether VMs have flexible disk space.
        type: bool
        default: false
      memory:
        description:
          - A number of MiB, or a size with a unit.
        type: raw
      vcpus:
        description:
          - Number of virtual CPUs.
        type: int
      disks:
        description:
          - Disks of a new VM that declares no disks, in the form of O(vms[].disks).
        type: list
        elements: dict
  on_refusal:
    description:
      - What happens to the other VMs of the task when one VM is refused. If a package is wrong, all VMs are refused.
      - If a pool has too little space for all VMs, V(continue) refuses the VM that takes the most space, and repeats
        this until the rest fits. If several VMs claim the same disk, all of them are refused.
  pool:
    description:
      - The ZFS pool where new VMs are created. The default with C(vmadm) is V(zones). Existing VMs are found in all
        pools.
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

- name: Delete it and detach its disk data
  flexdisk.hypervisor.vm:
    vms:
      - {vm: web01, state: absent, destroy_disks: true}
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
  description:
    - The VMs, with everything that M(flexdisk.hypervisor.vm_disks) returns for them and the keys below. A VM that
      should be absent and already was is not included.
  returned: always
  type: list
  elements: dict
  contains:
    uuid:
      description: UUID of the VM.
      type: str
      returned: always
    state:
      description: State of the VM. V(absent) if it no longer exists.
      type: str
      returned: always
    changed:
      description: Whether this VM was changed.
      type: bool
      returned: always
    steps:
      description:
        - What was done, as in RV(flexdisk.hypervisor.vm_disks#module:vms[].steps). The C(class) of each step says
          what it takes. V(live) applies to a running VM, V(restart) takes effect after the VM was stopped, and
          V(recreate) creates a new disk. It is empty for a VM that is created or deleted.
      type: list
      elements: dict
      returned: always
    disks:
      description: The disks of the VM.
      type: list
      elements: dict
      returned: always
    parked:
      description: Disks that belonged to this VM and are now detached outside any VM. A deleted VM can have some too.
      type: list
      elements: dict
      returned: always
    package:
      description: Name of the package that the VM was last given. Empty if there is none.
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
    drained:
      description: Whether the VM is marked as taken out of service.
      type: bool
      returned: always
    generation:
      description: The word for which the VM was started last. Empty if there is none.
      type: str
      returned: always
    member:
      description: >-
        The member of a group of VMs that the VM is. Empty if it was said to be in no group, null if nothing was said.
      type: str
      returned: always
    takes:
      description: >-
        MiB that the quota law reserves for the VM, by the name of the pool. Empty for a VM that no longer exists.
      type: dict
      returned: always
"""

import typing as t

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..module_utils._flexdisk.engine.host import secrets
from ..module_utils._flexdisk.engine.modules.vm import run
from ..module_utils._flexdisk.engine.run.arguments import (
    APPROVAL,
    DISK,
    HOST,
    LOCK,
    POWER,
    REFUSAL,
    checked_disks,
    policy,
)
from ..module_utils._flexdisk.engine.run.module_run import Answer, Call, run_module
from ..module_utils._flexdisk.engine.run.results import answer
from ..module_utils._flexdisk.engine.run.whole_vms import WHOLE_VMS
from ..module_utils._flexdisk.model.errors import Problem, refusal

VM = {
    "vm": {"type": "str"},
    "name": {"type": "str"},
    "uuid": {"type": "str"},
    "state": {"type": "str", "default": "present", "choices": ["present", "running", "stopped", "restarted", "absent"]},
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
    "drained": {"type": "bool"},
    "restart": {"type": "bool", "default": False},
    "generation": {"type": "str"},
    "member": {"type": "str"},
    "destroy_disks": {"type": "bool", "default": False},
    "destroy_snapshots": {"type": "bool", "default": False},
    "options": {"type": "dict"},
    "customer_metadata": {"type": "dict"},
    "secret_metadata": {"type": "dict", "no_log": True},
    "template": {"type": "str", "no_log": True},
}
ONE_NAME = {"mutually_exclusive": [["vm", "name"]], "required_one_of": [["vm", "name"]]}
PACKAGE = {
    "name": {"type": "str", "required": True},
    "disk": {"type": "raw", "required": True},
    "flexible_disk": {"type": "bool", "default": False},
    "memory": {"type": "raw"},
    "vcpus": {"type": "int"},
    "disks": {"type": "list", "elements": "dict"},
}


class Module(AnsibleModule):
    """Ansible logs arguments as Python writes them, but masks secrets as they are. With a line break, a backslash or
    quotes, these are two different texts.
    """

    def _log_invocation(self) -> None:
        self.no_log_values.update([repr(value)[1:-1] for value in self.no_log_values])
        super()._log_invocation()  # type: ignore[no-untyped-call]


def main() -> None:
    """Read the arguments, and do what vm does."""
    module = Module(  # type: ignore[no-untyped-call]
        argument_spec={
            "vms": {"type": "list", "elements": "dict", "required": True, "options": VM, **ONE_NAME},
            "packages": {"type": "list", "elements": "dict", "default": [], "options": PACKAGE},
            **POWER,
            **REFUSAL,
            **APPROVAL,
            **HOST,
            **LOCK,
        },
        supports_check_mode=True,
    )
    vms = named(module.params)
    exposed = secrets.problems(vms)
    if exposed:
        module.no_log_values.clear()
        shown = {"module_args": {**module.params, "vms": secrets.hidden(vms)}}
        module.fail_json(invocation=shown, **refusal(exposed))
    # New VMs have a pool, those that are there any.
    task = f"vm of {', '.join(vm['vm'] for vm in vms)}"
    run_module(module, __version__, task, checked, body, every_pool=True, drivers=WHOLE_VMS)


def named(params: t.Mapping[str, t.Any]) -> t.List[t.Dict[str, t.Any]]:
    """The VMs of the task, each addressed by the same key."""
    return [{**vm, "vm": vm["name"] if vm["vm"] is None else vm["vm"]} for vm in params["vms"]]


def checked(params: t.Mapping[str, t.Any]) -> t.Tuple[t.Dict[str, t.Any], t.Sequence[Problem]]:
    """The arguments, with all disks of VMs and packages as a disk may be. Raises FlexdiskError InvalidArgument."""
    disks = ArgumentSpecValidator(DISK)
    vms = checked_disks(named(params), "vm", disks)
    return {**params, "vms": vms, "packages": checked_disks(params["packages"], "name", disks)}, ()


def body(call: Call, params: t.Dict[str, t.Any]) -> Answer:
    """The run of vm."""
    vms, packages, permitted = params["vms"], params["packages"], policy(params)
    return answer(run(call.zfs, call.hypervisor, vms, packages, permitted, call.pool, call.check_mode))


if __name__ == "__main__":
    main()
