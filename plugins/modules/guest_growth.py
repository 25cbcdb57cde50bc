#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Let a guest use the space of a grown disk."""

from __future__ import annotations

DOCUMENTATION = r"""
module: guest_growth
short_description: Let a Linux guest use the space of a grown disk
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Grows the last partition of a disk and what lies on it to the size that the disk has now. It runs in the guest,
    which goes on meanwhile. Nothing is unmounted and nothing restarts.
  - If a swap partition is the last one, the partition before it grows. The swap moves to the end of the disk and keeps
    its size, UUID, label and, in a GPT, the UUID of the partition. It is turned off for a moment.
  - Knows tables of type GPT and MBR, with a logical partition at the end too, and disks without a table. On them,
    mounted ext2, ext3, ext4, XFS and Btrfs file systems, LVM, LUKS, and ZFS pools whose device is a vdev of its own.
    Everything else is refused with what was found.
  - Less than 16 MiB is left as it is.
  - Each run plans everything from what the guest says. So the same task ends the work of a run that was killed.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.changes
  - flexdisk.hypervisor._flexdisk.disk_of_guest
options:
  logical_volume:
    description:
      - Name of the logical volume that gets the free space of the disk's physical volume. This includes space that was
        free before the disk grew.
      - Without this option, the only volume of the group gets it, and a group with several volumes is refused.
      - V("") leaves the space free in the volume group.
    type: str
  luks_passphrase:
    description:
      - A passphrase of the LUKS device on the disk. It is needed if the kernel's keyring holds the key, as is usual
        with LUKS2. It is given to C(cryptsetup) on its standard input, and tested before anything changes, in check
        mode too.
    type: str
  backup_dir:
    description:
      - The directory in the guest where the partition table is saved before it is changed.
    type: path
    default: /var/lib/flexdisk
seealso:
  - module: flexdisk.hypervisor.vm_disks
notes:
  - Needs C(sfdisk), C(partx), C(lsblk), C(blkid), C(blockdev) and C(findmnt) of util-linux, and the tools of the file
    systems, LVM, LUKS and ZFS that are there.
  - The collection's C(docs/guests.md) says what is refused, and why.
"""

EXAMPLES = r"""
- name: Show what would grow
  flexdisk.hypervisor.guest_growth:
    disk_uuid: 11c1a5a7-aaaa-4bbb-8ccc-000000000001
  check_mode: true
  diff: true

- name: Let the root file system have the space of the first disk
  flexdisk.hypervisor.guest_growth:
    pci_address: "0000:00:04.0"

- name: Let the volume home have the space of an encrypted disk
  flexdisk.hypervisor.guest_growth:
    serial: "22c1a5a7aaaa4bbb8ccc"
    logical_volume: home
    luks_passphrase: "{{ vault_luks_passphrase }}"
"""

RETURN = r"""
msg:
  description: What was done, in one line.
  returned: always; it gives the reason if the task fails
  type: str
  sample: "/dev/vda: ~ vda2 20 GiB -> 50 GiB; ~ ext4 on vda2 at / 20 GiB -> 50 GiB"
device:
  description: The device that the disk has in the guest now.
  returned: success
  type: str
  sample: /dev/vda
size_bytes:
  description: The size of the disk.
  returned: success
  type: int
steps:
  description: What was done, or would be done in check mode, one line for each thing that changes.
  returned: success
  type: list
  elements: str
  sample:
    - "~ vda2 20 GiB -> 49 GiB"
    - "> swap vda3 moves to the end, 1 GiB, UUID kept"
    - "~ ext4 on vda2 at / 20 GiB -> 49 GiB"
backup:
  description: The file with the partition table as it was, for C(sfdisk). Empty if the table was not changed.
  returned: success
  type: str
  sample: /var/lib/flexdisk/ceecce69-7c49-1b4b-b09a-4a0b547f31ad-1a2b3c4d.sfdisk
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

from ..module_utils._flexdisk.engine.guest.guest_growth import run_guest_growth


def main() -> None:
    """Read the arguments, and do what guest_growth does."""
    module = AnsibleModule(
        argument_spec={
            "serial": {"type": "str"},
            "disk_uuid": {"type": "str"},
            "pci_address": {"type": "str"},
            "logical_volume": {"type": "str"},
            "luks_passphrase": {"type": "str", "no_log": True},
            "backup_dir": {"type": "path", "default": "/var/lib/flexdisk"},
        },
        mutually_exclusive=[("serial", "disk_uuid", "pci_address")],
        required_one_of=[("serial", "disk_uuid", "pci_address")],
        supports_check_mode=True,
    )
    run_guest_growth(module, __version__)


if __name__ == "__main__":
    main()
