# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this doc fragment is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

"""Options and attributes that modules share."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragments of flexdisk.hypervisor."""

    DOCUMENTATION = r"""
options:
  hypervisor:
    description:
      - Which hypervisor runs on the host.
    type: str
    default: auto
    choices:
      auto: >-
        V(vmadm) if its program is on the host. Otherwise V(proxmox) if C(qm) and C(/etc/pve) are there, or V(libvirt)
        if a libvirt daemon listens there. It is an error if both are.
      vmadm: SmartOS, bhyve VMs managed by C(vmadm).
      libvirt: >-
        Libvirt domains, QEMU/KVM on Linux. This needs libvirt's Python module (Debian C(python3-libvirt)) on the
        host.
      proxmox: >-
        VMs of Proxmox VE, since 0.3.0. Modules that only read work there,
        M(flexdisk.hypervisor.vm_snapshot), and a part of M(flexdisk.hypervisor.vm_disks). All others are refused.
  libvirt_uri:
    description:
      - URI of the libvirt daemon, with O(hypervisor=libvirt). With C(bhyve:///system), the VM must be stopped for
        every change.
    type: str
    default: qemu:///system
    version_added: 0.2.0
  pool:
    description:
      - Read only the VMs of this ZFS pool. Without this option, all pools that have VMs are read.
      - With C(proxmox), a VM is of the pool that it boots from. It is read with its disks in other pools.
    type: str
"""

    LOCK = r"""
options:
  lock_timeout:
    description:
      - How long to wait while another task changes VMs of the same pools, in seconds or as V(PT1M30S). V(0) fails at
        once.
      - Check mode does not wait. It gives a warning.
    type: raw
    default: 60
    version_added: 0.2.0
"""

    POWER = r"""
options:
  allow_restart:
    description:
      - Allow a running VM to be shut down for steps that need it stopped, and started again.
    type: bool
    default: false
  stop_timeout:
    description:
      - How long a guest has to shut down, in seconds or as V(PT1M30S).
    type: raw
    default: 180
  allow_force_stop:
    description:
      - Allow a guest that is still running after O(stop_timeout) to be halted.
    type: bool
    default: false
"""

    REFUSAL = r"""
options:
  on_refusal:
    description:
      - What happens to the other VMs of the task when one VM is refused.
      - If a pool has too little space for all VMs, V(continue) refuses the VM that takes the most space, and repeats
        this until the rest fits. If several VMs claim the same disk, all of them are refused.
    type: str
    default: stop
    choices:
      stop: No VM is changed.
      continue: The other VMs are changed. The task still fails and reports every problem.
"""

    APPROVAL = r"""
options:
  expect_plan:
    description:
      - The RV(plan_digest) of the plan that was approved, as check mode returned it. A plan with another digest is
        refused before the first change with the error code C(PlanChanged), and the message shows the plan as it is now.
      - A plan that changes nothing is never refused. So a task that is run again after it has done its work succeeds.
      - An empty digest approves nothing, and neither does C(null), as for a host that a dictionary of digests lacks.
    type: str
    version_added: 0.2.0
  expect_lines:
    description:
      - The RV(plan) that was approved. With it, the message of a refusal shows only what is different now. It needs
        O(expect_plan), which alone decides.
    type: list
    elements: str
    version_added: 0.2.0
"""

    DISK_OF_GUEST = r"""
options:
  serial:
    description:
      - The serial number of the disk as the guest sees it. Quote it, because YAML takes some for numbers.
    type: str
  disk_uuid:
    description:
      - UUID of the disk as the hypervisor knows it. The drivers give guests the first 20 hexadecimal digits of it as
        serial number.
    type: str
  pci_address:
    description:
      - PCI address of the disk in the guest, such as V(0000:00:04.1). The domain V(0000) can be left out. Quote it,
        because YAML takes some addresses for numbers.
      - The address of a controller with several disks is refused.
    type: str
"""

    ATTRIBUTES = r"""
options: {}
attributes:
  check_mode:
    description:
      - Can run in C(check_mode) and return changed status prediction without modifying target.
  diff_mode:
    description:
      - Will return details on what has changed (or possibly needs changing in C(check_mode)), when in diff mode.
  idempotent:
    description:
      - When run twice in a row outside check mode, with the same arguments, the second invocation indicates no change.
      - This assumes that the system controlled/queried by the module has not changed in a relevant way.
"""

    # Beside ATTRIBUTES, for a module that changes nothing
    READS = r"""
options: {}
attributes:
  check_mode:
    support: full
  diff_mode:
    support: N/A
    details:
      - Nothing is changed.
  idempotent:
    support: full
"""

    # Beside ATTRIBUTES, for a module that changes something
    CHANGES = r"""
options: {}
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""
