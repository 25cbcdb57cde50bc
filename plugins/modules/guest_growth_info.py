#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tell how small a guest's disk can become."""

from __future__ import annotations

DOCUMENTATION = r"""
module: guest_growth_info
short_description: Tell how small a disk of a Linux guest can become
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Tells the smallest size to which a disk can shrink without cutting a partition, a partition table or a file system.
    It runs in the guest and changes nothing there.
  - Hand RV(min_size_mib) to O(flexdisk.hypervisor.vm_disks#module:vms[].disks[].min_size_from_guest). Then the disk is
    not made smaller than that.
  - Partitions count as they lie in the table, whatever is on them. What lies outside of partitions does not count.
  - Knows tables of type GPT and MBR. On disks without a table, it knows ext2, ext3 and ext4, mounted XFS and Btrfs,
    physical volumes of LVM and open LUKS devices. Everything else takes the whole disk.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.reads
  - flexdisk.hypervisor._flexdisk.disk_of_guest
seealso:
  - module: flexdisk.hypervisor.guest_growth
  - module: flexdisk.hypervisor.vm_disks
notes:
  - Needs C(sfdisk), C(lsblk), C(blkid), C(blockdev) and C(findmnt) of util-linux. The size of what is on a disk
    without a table is only known with its own tools.
  - The collection's C(docs/guests.md) says what is to be done in the guest before and after a shrink.
"""

EXAMPLES = r"""
- name: Ask the guest how small its data disk can become
  flexdisk.hypervisor.guest_growth_info:
    disk_uuid: 11c1a5a7-aaaa-4bbb-8ccc-000000000001
  delegate_to: guest01
  become: true
  register: data_disk

- name: Make it smaller, but never smaller than that
  flexdisk.hypervisor.vm_disks:
    allow_restart: true
    vms:
      - vm: web01
        unlisted: keep
        disks:
          - name: data
            size: 20GiB
            dangerous_allow_shrink: true
            min_size_from_guest: "{{ data_disk.min_size_mib }}"
"""

RETURN = r"""
msg:
  description: The answer in one line.
  returned: always; it gives the reason if the task fails
  type: str
  sample: "/dev/vdb: 50 GiB, can shrink to 10242 MiB"
device:
  description: The device that the disk has in the guest now.
  returned: success
  type: str
  sample: /dev/vdb
size_bytes:
  description: The size of the disk.
  returned: success
  type: int
table:
  description: The type of its partition table, V(gpt) or V(dos). Empty if it has none, or one that is not known.
  returned: success
  type: str
  sample: gpt
content:
  description: What is on a disk without a partition table, as C(blkid) calls it. Empty if that is not known.
  returned: success
  type: str
  sample: ""
end_bytes:
  description: The end of the last partition, or of what is on a disk without a partition table.
  returned: success
  type: int
  sample: 10738466816
backup_bytes:
  description: The room that a GPT needs at the end of the disk for its second header. V(0) without a GPT.
  returned: success
  type: int
  sample: 16896
min_size_bytes:
  description: The smallest size to which the disk can shrink now. The size of the disk, if it cannot.
  returned: success
  type: int
  sample: 10738484224
min_size_mib:
  description: The same in MiB, rounded up.
  returned: success
  type: int
  sample: 10242
relocate:
  description:
    - A command that must be run in the guest before the disk can shrink as far as its partitions allow. It moves the
      second header of a GPT behind the last partition, and lets the first header end there. If the protective MBR is
      active, a second command behind V(&&) makes it so again.
    - Empty if it would gain nothing.
  returned: success
  type: str
  sample: sfdisk --relocate gpt-bak-mini /dev/vdb
relocated_min_size_mib:
  description: What RV(min_size_mib) becomes by the command in RV(relocate). The same without one.
  returned: success
  type: int
  sample: 10242
reason:
  description: Why the disk cannot shrink. Empty if it can.
  returned: success
  type: str
  sample: ""
error_code:
  description: The name of the error. The collection's C(docs/errors.md) explains each.
  returned: failure
  type: str
problems:
  description: The error as a list of one item.
  returned: failure
  type: list
  elements: dict
"""

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine.guest.guest_growth_info import run_guest_growth_info


def main() -> None:
    """Read the arguments, and do what guest_growth_info does."""
    module = AnsibleModule(
        argument_spec={
            "serial": {"type": "str"},
            "disk_uuid": {"type": "str"},
            "pci_address": {"type": "str"},
        },
        mutually_exclusive=[("serial", "disk_uuid", "pci_address")],
        required_one_of=[("serial", "disk_uuid", "pci_address")],
        supports_check_mode=True,
    )
    run_guest_growth_info(module, __version__)


if __name__ == "__main__":
    main()
