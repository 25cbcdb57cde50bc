#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Give existing disks their identity, and take it away again."""

from __future__ import annotations

DOCUMENTATION = r"""
module: disk_adopt
short_description: Give existing disks their identity, and take it away again
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Makes the disks of VMs that are there already objects of their own, each with UUID, name, serial number of its
    changes and time of its adoption, as properties of its volume. No VM is stopped, no size and no quota changes, and
    no data is touched.
  - A release takes these properties away again. What they were stays as papers, one property of each volume, so that
    an adoption later finds everything as it was, also where it is run after an interruption or on another host.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.lock
  - flexdisk.hypervisor._flexdisk.refusal
attributes:
  check_mode:
    support: full
    details:
      - The prediction equals the real run but for the disks' C(ctime), C(mtime) and C(serial_no), which check mode
        leaves out of RV(vms).
  diff_mode:
    support: full
    details:
      - The diff is the plan in words, one block for each VM that changes.
  idempotent:
    support: full
options:
  state:
    description:
      - With V(adopted) every disk of the VMs has an identity. One that has it keeps all of it.
      - With V(released) none has, and neither do the VMs have their packages' names. Volumes, quotas, configurations
        and what the hypervisor itself does not keep of a VM, with libvirt its flexible disk size and its protection,
        stay as they are, and so does the uuid of a disk that is a file, since it is the file's path.
      - V(released) is refused while there are parked disks of these VMs, or without O(vms) any, since nobody would
        know them any more, and while an interrupted task is not finished.
    type: str
    choices: [adopted, released]
    default: adopted
  vms:
    description:
      - The VMs. Without it all VMs of the host.
    type: list
    elements: dict
    suboptions:
      vm:
        description:
          - UUID, alias or unique prefix of the UUID of at least four characters.
        type: str
        required: true
      package:
        description:
          - With O(state=adopted), the name of the VM's package, if it has none. As a release returns it.
        type: str
      disks:
        description:
          - With O(state=adopted), what is to be known of single disks; the others are adopted, too.
          - Each entry says by O(vms[].disks[].index), O(vms[].disks[].uuid) or O(vms[].disks[].pci_slot) which disk
            it is about. If it gives more than one, all must match.
        type: list
        elements: dict
        suboptions:
          index:
            description:
              - The number at the end of the volume's name, V(1) for C(disk1).
            type: int
          uuid:
            description:
              - The UUID that the hypervisor has for the disk, or with libvirt one that its serial number is the
                beginning of.
            type: str
          pci_slot:
            description:
              - The PCI slot, in quotes.
            type: str
          name:
            description:
              - Its name, C(disk) and the index if nothing is said. A disk that has another name already is not renamed
                but refused.
            type: str
          preserve:
            description:
              - Whether the disk is kept when its VM or its entry goes.
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
              - When the disk was adopted first, as a release returns it. The moment of this task if nothing is said.
            type: str
          mtime:
            description:
              - When it was changed last, as a release returns it.
            type: str
          serial_no:
            description:
              - Number of its changes, as a release returns it. V(1) if nothing is said.
            type: int
          remaining:
            description:
              - What its size was computed from, as a release returns it.
            type: str
  forget:
    description:
      - With O(state=released), take the papers away, too. Then only RV(released) of an earlier run, given as
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
    - The task in one line. It counts the VMs concerned, those that change and those that are restarted; then come the
      space that disks take from the pool or give back (by their sizes), and the size of what is destroyed.
    - With C(--diff) it is the first line of the diff when something changes.
  returned: unless the task fails; then it says why
  type: str
  sample: "3 VMs: 2 change, 1 restarts, +50 GiB, 0 B destroyed"
vms:
  description: The VMs, as M(flexdisk.hypervisor.vm_disks) returns them.
  returned: always
  type: list
  elements: dict
released:
  description:
    - What was taken from the disks of each VM now or by an earlier release, in the form that O(vms) takes it.
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
        - Each disk with its C(index) and, as far as there were any, C(uuid), C(name), C(preserve), C(description),
          C(tags), C(ctime), C(mtime), C(serial_no) and C(remaining).
      type: list
      elements: dict
      returned: always
skipped_vms:
  description: Without O(vms), the VMs that this collection does not manage, each with the reason.
  returned: always
  type: list
  elements: dict
"""

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine import door, identities
from ..module_utils._flexdisk.engine.arguments import HOST, LOCK, REFUSAL
from ..module_utils._flexdisk.engine.runner import SubprocessRunner
from ..module_utils._flexdisk.model.errors import FlexdiskError

PAPERS = {
    "index": {"type": "int"},
    "uuid": {"type": "str"},
    "pci_slot": {"type": "str"},
    "name": {"type": "str"},
    "preserve": {"type": "bool"},
    "description": {"type": "str"},
    "tags": {"type": "dict"},
    "ctime": {"type": "str"},
    "mtime": {"type": "str"},
    "serial_no": {"type": "int"},
    "remaining": {"type": "str"},
}


def main() -> None:
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
                        "options": PAPERS,
                        "required_one_of": [["index", "uuid", "pci_slot"]],
                    },
                },
            },
            "forget": {"type": "bool", "default": False},
            **REFUSAL,
            **HOST,
            **LOCK,
        },
        supports_check_mode=True,
    )
    params = module.params
    runner = SubprocessRunner()
    names = [entry["vm"] for entry in params["vms"] or ()]
    task = "disk_adopt (%s) of %s" % (params["state"], ", ".join(names or ["all VMs"]))
    try:
        zfs, hypervisor = door.open_host(params, runner, __version__)
        with door.turn(runner, params, task, module.check_mode) as others:
            found = identities.run(
                zfs,
                hypervisor,
                params["vms"],
                params["state"],
                params["forget"],
                params["pool"],
                module.check_mode,
                params["on_refusal"] == "continue",
            )
    except FlexdiskError as exc:
        module.fail_json(**door.error(exc))
    for warning in others + found.outcome.warnings:
        module.warn(warning)
    failed = door.ending(found.outcome)
    if failed is not None:
        module.fail_json(released=found.released, skipped_vms=found.skipped, **failed)
    module.exit_json(released=found.released, skipped_vms=found.skipped, **door.result(found.outcome))


if __name__ == "__main__":
    main()
