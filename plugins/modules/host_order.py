#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the action host_order, which runs on the controller. There is nothing to run on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_order
short_description: Decide what a playbook does on which host (internal)
version_added: 0.3.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Finds the VMs and disks that a user names, on all hosts of the play together, and decides what the playbook does on
    which host. It fails, before anything is changed, if the playbook must refuse what was asked for.
  - It is a part of the playbooks for operators, which register what it reads. Nobody else has to call it.
  - It runs on the controller and touches no host. Its options and results can change with each version.
  - Its results for C(create_vm) are not shown, because they can hold secrets of new VMs.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.reads
options:
  playbook:
    description:
      - The playbook.
    type: str
    required: true
    choices:
      - add_disk
      - adopt
      - apply
      - attach_disk
      - change_package
      - create_vm
      - delete_vm
      - detach_disk
      - list_disks
      - list_replicas
      - plan
      - recalculate_quota
      - remove_disk
      - replicate
      - resize_disk
      - restart_vm
      - restore_disk
      - restore_vm
      - rollback
      - snapshot
      - start_vm
      - stop_vm
      - verify_disks
  read:
    description:
      - Whether each host was read.
    type: bool
    default: false
  orphans:
    description:
      - Whether the orphaned volumes of the VM were read, too.
    type: bool
    default: false
  placed:
    description:
      - The hosts that were chosen for new VMs, by VM.
    type: dict
seealso:
  - module: flexdisk.hypervisor.vm_info
"""

EXAMPLES = r"""
- name: Decide what each host does
  flexdisk.hypervisor.host_order:
    playbook: add_disk # it has registered what it has read
    read: true
  register: _flexdisk_order
  run_once: true
"""

RETURN = r"""
reads:
  description: Whether each host must be read first.
  returned: success
  type: bool
orphans:
  description: The VM, by its host, whose orphaned volumes must be read first.
  returned: success
  type: dict
place:
  description: The new VMs that each host may get, if hosts must be chosen for them first.
  returned: success
  type: dict
calls:
  description: The arguments of the module that the playbook calls, by host. A host without any is left alone.
  returned: success
  type: dict
lines:
  description: What the playbook shows beside the result of that module, by host.
  returned: success
  type: dict
here:
  description: The named VMs or disks of each host.
  returned: success
  type: dict
left_out:
  description: What is wrong with names that the playbook leaves out. It fails for them at the end.
  returned: success
  type: list
  elements: str
without:
  description: Which hosts have none of them, as a sentence.
  returned: success
  type: str
"""
