#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Report what a host has and what its VMs take of it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_info
short_description: Report what a host has and what its VMs take of it
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Reports memory, CPUs and pools of a ZFS hypervisor, and what each VM takes of them. This is what one must know to
    decide where a VM can go.
  - What there is and what is free is rounded down to whole MiB, and what is taken is rounded up.
  - Everything is read at once, regardless of the number of VMs.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.reads
options: {}
notes:
  - On SmartOS, C(sysinfo) tells the memory and the number of CPUs, and C(kstat) the number of free pages, which are
    4 KiB each.
  - On a host with libvirt, libvirt tells all of it. Memory that the buffers and the cache of the host's kernel would
    give back counts as free.
  - The cache of ZFS (ARC) never counts as free, although ZFS gives some of it back.
seealso:
  - module: flexdisk.hypervisor.vm_info
  - module: flexdisk.hypervisor.disk_info
"""

EXAMPLES = r"""
- name: Report what the host has
  flexdisk.hypervisor.host_info:
  register: found

- name: Stop if the pool cannot take another 100 GiB
  ansible.builtin.assert:
    that: pool.available >= 100 * 1024
  vars:
    pool: "{{ found.host.pools | selectattr('name', 'eq', 'zones') | first }}"

- name: Report a pool that has neither VMs nor detached disks yet
  flexdisk.hypervisor.host_info:
    pool: tank
"""

RETURN = r"""
host:
  description: The host.
  returned: always
  type: dict
  contains:
    driver:
      description: The hypervisor that runs on the host, V(vmadm), V(libvirt) or V(proxmox).
      type: str
      returned: always
    collected:
      description: When the reading began, in seconds since 1970 by the clock of the host.
      type: int
      returned: always
    memory:
      description: The memory of the host.
      type: dict
      returned: always
      contains:
        total:
          description: MiB of physical memory.
          type: int
          returned: always
        own:
          description: >-
            MiB that the host needs for itself. This is RV(host.memory.total), less RV(host.memory.free), less the
            memory of all RV(host.vms) with the state V(running), and at least 0. So it includes the memory of
            everything that is not in RV(host.vms), such as VMs of other brands.
          type: int
          returned: always
        free:
          description: MiB that nobody uses now.
          type: int
          returned: always
      sample:
        total: 65536
        own: 4096
        free: 53248
    cpus:
      description: Number of the host's CPUs. Each thread counts.
      type: int
      returned: always
    pools:
      description: >-
        The pools that have VMs or a C(POOL/flexdisk), and on SmartOS also the pool C(zones). With O(pool), only
        that pool.
      type: list
      elements: dict
      returned: always
      contains:
        name:
          description: Name of the pool.
          type: str
          returned: always
        guid:
          description: GUID of the pool's own dataset.
          type: int
          returned: always
        size:
          description: MiB that are used or available, by ZFS's figures of the pool's own dataset.
          type: int
          returned: always
        available:
          description: MiB that the pool can still give.
          type: int
          returned: always
        parked:
          description: MiB that detached disks take.
          type: int
          returned: always
        replicas:
          description: MiB that C(POOL/flexdisk/replica) takes. V(0) without this dataset.
          type: int
          returned: always
    vms:
      description: The VMs, in the order of their UUIDs. Those that M(flexdisk.hypervisor.vm_info) skips are missing.
      type: list
      elements: dict
      returned: always
      contains:
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
        memory:
          description: MiB.
          type: int
          returned: always
        vcpus:
          description: Number of virtual CPUs.
          type: int
          returned: always
        drained:
          description: Whether the VM is marked as taken out of service.
          type: bool
          returned: always
        disks:
          description:
            - MiB that the VM takes, by the name of the pool. It is the quota that the quota law demands. Without
              flexible disk space, that is the quota of the VM's own file system and what ZFS reserves for each disk
              of this size, whether the disk is V(thick) or not.
            - It is never less than what the VM uses now.
          type: dict
          returned: always
          sample:
            zones: 31746
        tags:
          description: Tags of the VM. Values that are not text are given as JSON.
          type: dict
          returned: always
          sample:
            role: web
    replicas:
      description:
        - The replicas that this host has of disks of VMs on other hosts. Those of one VM from one home in one pool are
          one entry.
      type: list
      elements: dict
      returned: always
      contains:
        vm:
          description: UUID of the VM.
          type: str
          returned: always
        pool:
          description: The pool of this host that has them.
          type: str
          returned: always
        home:
          description: GUID of the pool from which they have come. V(0) if it is not known.
          type: int
          returned: always
    moves:
      description:
        - What is written down of VMs that leave this host or come to it, in the order of their UUIDs. A VM that has
          left stays here until its tombstone is given up. See the role P(flexdisk.hypervisor.vm_move#role).
      type: list
      elements: dict
      returned: always
      contains:
        uuid:
          description: UUID of the VM.
          type: str
          returned: always
        alias:
          description: Alias of the VM.
          type: str
          returned: always
        phase:
          description: V(leaving), V(moved) or V(coming).
          type: str
          returned: always
        pool:
          description: The pool of this host from which the VM leaves, or to which it comes.
          type: str
          returned: always
        host:
          description: The other host.
          type: str
          returned: always
        since:
          description: When it was written down, by the clock of this host.
          type: str
          returned: always
        memory_saved:
          description:
            - Whether the memory of its guest is saved here, which moves with it. Until it is restored, the disks may be
              read-only.
          type: bool
          returned: always
          version_added: 0.3.0
        asks:
          description: The hosts that must say that they have not taken the VM over before its move goes on.
          type: list
          elements: str
          returned: always
        failover:
          description: Whether this is no move, but one host takes the VM over from the other one.
          type: bool
          returned: always
      sample:
        - uuid: 0ab21b0c-66b5-4e04-a5c9-3ea52e5a4a4e
          alias: db01
          phase: leaving
          host: hv02
          since: "2026-11-26T03:04:05Z"
          asks: []
          failover: false
          memory_saved: false
"""

import typing as t

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine.modules.host_info import host_info
from ..module_utils._flexdisk.engine.run.arguments import HOST
from ..module_utils._flexdisk.engine.run.module_run import Answer, Call, run_module, unparsed
from ..module_utils._flexdisk.engine.run.reading import READING


def main() -> None:
    """Read the arguments, and do what host_info does."""
    module = AnsibleModule(argument_spec={**HOST}, supports_check_mode=True)
    run_module(module, __version__, "", unparsed, body, reads=True, drivers=READING)


def body(call: Call, params: t.Mapping[str, t.Any]) -> Answer:
    """The run of host_info."""
    return Answer({"changed": False, "host": host_info(call.zfs, call.hypervisor, call.pool)})


if __name__ == "__main__":
    main()
