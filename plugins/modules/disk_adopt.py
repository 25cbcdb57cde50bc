#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Give existing disks an identity, or remove it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: disk_adopt
short_description: Give existing disks an identity, or remove it
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Turns the disks of existing VMs into managed objects. Each disk gets a UUID, a name, a change counter and the time
    of its adoption, stored as properties of its volume. No VM is stopped. Sizes, quotas and data do not change.
  - A release removes these properties. Their values are kept in a single property of each volume. So a later adoption
    restores everything as it was, even after an interruption or on another host.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.changes
  - flexdisk.hypervisor._flexdisk.lock
  - flexdisk.hypervisor._flexdisk.refusal
  - flexdisk.hypervisor._flexdisk.approval
attributes:
  check_mode:
    details:
      - The prediction equals the real run, except for the disks' C(ctime), C(mtime) and C(serial_no). Check mode
        leaves these out of RV(vms).
  diff_mode:
    details:
      - The diff is the plan in words, with one block for each VM that changes.
options:
  state:
    description:
      - With V(adopted), every disk of the VMs has an identity. A disk that already has one keeps it unchanged.
      - With V(released), no disk of the VMs has an identity, and the VMs lose the names of their packages. Volumes,
        quotas and configurations stay as they are. So do values that the hypervisor itself does not store, which with
        libvirt are the VM's flexible disk size and its protection. A disk that is a file keeps its UUID, because it
        is part of the file's path.
      - V(released) is refused while these VMs have detached disks, because nothing would identify them any more.
        Without O(vms), any detached disk is a reason to refuse. It is also refused while an interrupted task is
        unfinished.
    type: str
    choices: [adopted, released]
    default: adopted
  vms:
    description:
      - The VMs. Without this option, all VMs of the host.
    type: list
    elements: dict
    suboptions:
      vm:
        description:
          - UUID, alias, or a unique UUID prefix of at least four characters.
        type: str
        required: true
      package:
        description:
          - With O(state=adopted), the name of the VM's package, if it has none yet. A release returns this value.
        type: str
      disks:
        description:
          - With O(state=adopted), the properties of single disks. All other disks are adopted too.
          - Each entry selects its disk by O(vms[].disks[].index), O(vms[].disks[].uuid) or O(vms[].disks[].pci_slot).
            If it gives more than one of them, all must match.
        type: list
        elements: dict
        suboptions:
          index:
            description:
              - The number at the end of the volume's name, V(1) for C(disk1).
            type: int
          uuid:
            description:
              - The UUID that the hypervisor has for the disk. With libvirt, a UUID that begins with the disk's serial
                number.
            type: str
          pci_slot:
            description:
              - The PCI slot, in quotes.
            type: str
          name:
            description:
              - Name of the disk. The default is C(disk) followed by the index, and with C(proxmox) the key of the disk
                if another one has that index. A disk that already has another name is refused, not renamed.
            type: str
          preserve:
            description:
              - Whether the disk is kept when its VM or its entry is removed.
            type: bool
          description:
            description:
              - A text about the disk.
            type: str
          tags:
            description:
              - A map of strings.
            type: dict
          ctime:
            description:
              - When the disk was first adopted, as a release returns it. The default is the time of this task.
            type: str
          mtime:
            description:
              - When the disk was last changed, as a release returns it.
            type: str
          serial_no:
            description:
              - How often the disk was changed, as a release returns it. The default is V(1).
            type: int
          remaining:
            description:
              - What the size of the disk was computed from, as a release returns it.
            type: str
  forget:
    description:
      - With O(state=released), delete the saved identities, too. Then only RV(released) of an earlier run, given as
        O(vms), brings back what the disks were.
      - What this very task returns is lost if it is killed. So release first, keep RV(released), and forget then.
    type: bool
    default: false
seealso:
  - module: flexdisk.hypervisor.vm_disks
  - module: flexdisk.hypervisor.vm_info
"""

EXAMPLES = r"""
- name: Show what would be adopted
  flexdisk.hypervisor.disk_adopt:
  check_mode: true
  diff: true

- name: Adopt all disks of web01, two of them with names
  flexdisk.hypervisor.disk_adopt:
    vms:
      - vm: web01
        disks:
          - {index: 0, name: root}
          - {pci_slot: "0:4:1", name: data, preserve: true, tags: {backup: daily}}

- name: Release the identities of all disks of this host
  flexdisk.hypervisor.disk_adopt:
    state: released
  register: release

- name: Restore them, with names, tags and times
  flexdisk.hypervisor.disk_adopt:
    vms: "{{ release.released }}"
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
  description: The VMs, as M(flexdisk.hypervisor.vm_disks) returns them.
  returned: always
  type: list
  elements: dict
released:
  description:
    - What this or an earlier release removed from the disks of each VM, in the form that O(vms) accepts.
    - Empty with O(state=adopted).
  returned: always
  type: list
  elements: dict
  contains:
    vm:
      description: UUID of the VM.
      type: str
      returned: always
    package:
      description: The name of its package.
      type: str
      returned: when it had one
    disks:
      description:
        - Each disk with its C(index) and, if it had them, C(uuid), C(name), C(preserve), C(description), C(tags),
          C(ctime), C(mtime), C(serial_no) and C(remaining).
      type: list
      elements: dict
      returned: always
skipped_vms:
  description: The VMs that this collection does not manage, each with the reason. Only without O(vms).
  returned: always
  type: list
  elements: dict
"""

import typing as t

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine.modules import disk_adopt
from ..module_utils._flexdisk.engine.run.arguments import APPROVAL, HOST, LOCK, REFUSAL, USER_PROPERTIES, approval
from ..module_utils._flexdisk.engine.run.changing import CHANGING
from ..module_utils._flexdisk.engine.run.module_run import Answer, Call, run_module, unparsed
from ..module_utils._flexdisk.engine.run.results import answer

RELEASED_IDENTITY = {
    "index": {"type": "int"},
    "uuid": {"type": "str"},
    "pci_slot": {"type": "str"},
    "name": {"type": "str"},
    **USER_PROPERTIES,
    "ctime": {"type": "str"},
    "mtime": {"type": "str"},
    "serial_no": {"type": "int"},
    "remaining": {"type": "str"},
}


def main() -> None:
    """Read the arguments, and do what disk_adopt does."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "default": "adopted", "choices": ["adopted", "released"]},
            "vms": {
                "type": "list",
                "elements": "dict",
                "options": {
                    "vm": {"type": "str", "required": True},
                    "package": {"type": "str"},
                    "disks": {
                        "type": "list",
                        "elements": "dict",
                        "options": RELEASED_IDENTITY,
                        "required_one_of": [["index", "uuid", "pci_slot"]],
                    },
                },
            },
            "forget": {"type": "bool", "default": False},
            **REFUSAL,
            **APPROVAL,
            **HOST,
            **LOCK,
        },
        supports_check_mode=True,
    )
    names = [entry["vm"] for entry in module.params["vms"] or ()]
    task = f"disk_adopt ({module.params['state']}) of {', '.join(names or ['all VMs'])}"
    run_module(module, __version__, task, unparsed, body, drivers=CHANGING)


def body(call: Call, params: t.Mapping[str, t.Any]) -> Answer:
    """The run of disk_adopt."""
    outcome = disk_adopt.run(
        call.zfs,
        call.hypervisor,
        params["vms"],
        params["state"],
        params["forget"],
        call.pool,
        call.check_mode,
        params["on_refusal"] == "continue",
        approval(params),
    )
    return answer(outcome.outcome, released=outcome.released, skipped_vms=outcome.skipped)


if __name__ == "__main__":
    main()
