#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Report VMs and their disks."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vm_info
short_description: Report VMs and their disks
version_added: 0.1.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Reports the VMs of a ZFS hypervisor with their disks, and the disks that are detached outside any VM.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.reads
options:
  vms:
    description:
      - VMs by UUID, alias or unique UUID prefix. Without this option, all VMs of the host.
    type: list
    elements: str
  space:
    description:
      - Also report figures that depend on the space used by snapshots. These are RV(vms[].free_space),
        RV(vms[].allocatable), RV(vms[].snapshots), and C(pinned) and C(snapshots) of every disk.
    type: bool
    default: false
  leases:
    description:
      - Also report the leases of groups. This takes one more process for each pool with a C(POOL/flexdisk).
    type: bool
    default: false
    version_added: 0.2.0
seealso:
  - module: flexdisk.hypervisor.vm_disks
  - plugin: flexdisk.hypervisor.vms
    plugin_type: inventory
"""

EXAMPLES = r"""
- name: Report all VMs
  flexdisk.hypervisor.vm_info:
  register: hypervisor

- name: Report how much space the disks of one VM can still get
  flexdisk.hypervisor.vm_info:
    vms:
      - web01
    space: true
  register: web01
"""

RETURN = r"""
vms:
  description: The VMs.
  returned: always
  type: list
  elements: dict
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
      description: State of the VM. With libvirt, V(saved) is off, with an image of its memory for the next start.
      type: str
      returned: always
    autoboot:
      description: Whether the VM starts when the host starts.
      type: bool
      returned: always
    flexible:
      description: Whether the VM has flexible disk space.
      type: bool
      returned: always
    flexible_disk_size:
      description: >-
        MiB that disks and snapshots may use together, without hidden disks. Null on a VM without flexible disk space.
      type: int
      returned: always
    hidden_disk_size:
      description: MiB of the platform's own disks.
      type: int
      returned: always
    vm_quota_bytes:
      description: Quota of the VM's own file system.
      type: int
      returned: always
    tags:
      description: Tags of the VM. Values that are not text are given as JSON.
      type: dict
      returned: always
      sample:
        role: web
    package:
      description: Name of the package that M(flexdisk.hypervisor.vm) last gave the VM. Empty if there is none.
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
      description: Whether the VM is protected from deletion, and its disks from removal and shrinking.
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
    guest_agent:
      description: >-
        V(connected) or V(disconnected), if the VM runs and has a channel for QEMU's guest agent. Empty otherwise, and
        always with C(vmadm).
      type: str
      returned: always
      sample: connected
    proxmox:
      description: What only Proxmox VE knows of its VMs.
      type: dict
      returned: with Proxmox VE
      contains:
        vmid:
          description: Number of the VM.
          type: int
          returned: always
        lock:
          description: What has locked the VM, such as V(backup). Empty if it is not locked.
          type: str
          returned: always
        protection:
          description: Whether the VM and its disks are protected from removal.
          type: bool
          returned: always
        pending:
          description: Keys whose change waits for the VM to be stopped.
          type: list
          elements: str
          returned: always
        snapshots:
          description: Names of the snapshots that C(qm snapshot) has taken.
          type: list
          elements: str
          returned: always
        unfinished:
          description: The snapshots that are half made or half deleted.
          type: list
          elements: str
          returned: always
        unused:
          description: Volumes that the VM has but does not use, by their keys.
          type: dict
          returned: always
          sample:
            unused0: rpool/data/vm-100-disk-1
        ha:
          description: Whether HA manages the VM.
          type: bool
          returned: always
        replication:
          description: Names of the replication jobs of the VM.
          type: list
          elements: str
          returned: always
        left_alone:
          description: Disks that are not listed as disks of the VM, each with the reason.
          type: list
          elements: str
          returned: always
        unreadable:
          description: Lines of the VM's file that Proxmox VE drops whenever it writes the file, whatever is in them.
          type: list
          elements: str
          returned: always
    disk_template:
      description: >-
        The common type of all disks, V(thick), V(sparse) or V(file). V(mixed) if the types differ, V(diskless) if
        there are no disks.
      type: str
      returned: always
    restoring:
      description: >-
        The disks whose restore in place was interrupted while volumes changed places. Only the same playbook, with the
        same variables, ends it.
      type: list
      elements: dict
      returned: always
      contains:
        disk:
          description: UUID of the disk.
          type: str
          returned: always
        name:
          description: Name of the disk.
          type: str
          returned: always
        new_name:
          description: Name that what the disk had before gets.
          type: str
          returned: always
        volume:
          description: Dataset of the disk.
          type: str
          returned: always
        snapshot:
          description: The snapshot that it is restored from, after the C(@).
          type: str
          returned: always
        together:
          description: Number of disks that are restored together.
          type: int
          returned: always
    parked:
      description: Disks that were detached from this VM.
      type: list
      elements: dict
      returned: always
      contains: &disk
        name:
          description: Name of the disk. Empty if it has none.
          type: str
          returned: always
        uuid:
          description: UUID of the disk.
          type: str
          returned: if known
        state:
          description: State of the VM that has the disk. V(parked) for a detached disk.
          type: str
          returned: always
        type:
          description: V(thick), V(sparse) or V(file).
          type: str
          returned: always
        size:
          description: MiB.
          type: int
          returned: always
        block_size:
          description: Bytes.
          type: int
          returned: always
        refreservation:
          description: MiB that are reserved for the disk, rounded up.
          type: int
          returned: always
        boot:
          description: Whether the VM boots from it.
          type: bool
          returned: always
        pci_slot:
          description: The current or last PCI slot of the disk.
          type: str
          returned: always
        key:
          description: The key of an attached disk in the configuration of Proxmox VE.
          type: str
          returned: with Proxmox VE
          sample: virtio1
        model:
          description: Device model that the guest sees.
          type: str
          returned: always
        image:
          description: UUID of the image that the disk was made from. Empty if there is none.
          type: str
          returned: always
        index:
          description: Index of the disk in its VM.
          type: int
          returned: always
        path:
          description: Path of its device in the VM's configuration. Empty if the disk is not attached.
          type: str
          returned: always
        volume:
          description: The ZFS volume.
          type: str
          returned: always
        preserve:
          description: Whether the disk is kept when it is no longer declared.
          type: bool
          returned: always
        description:
          description: Free text of the owner.
          type: str
          returned: always
        tags:
          description: Tags.
          type: dict
          returned: always
        remaining:
          description: Whether the disk was given all remaining space.
          type: bool
          returned: always
        compression:
          description: Compression of the volume.
          type: str
          returned: always
        hidden:
          description: Whether the platform added the disk.
          type: bool
          returned: always
        serial_no:
          description: How often the disk was changed.
          type: int
          returned: if known
        ctime:
          description: When the disk was created or adopted (UTC).
          type: str
          returned: if known
        mtime:
          description: When the disk was last changed (UTC).
          type: str
          returned: if known
        snapshots:
          description: Number of its snapshots.
          type: int
          returned: with O(space=true)
        pinned:
          description: MiB that are held only by its snapshots.
          type: int
          returned: with O(space=true)
    disks:
      description: The attached disks.
      type: list
      elements: dict
      returned: always
      contains:
        <<: *disk
        replicas:
          description: The hosts that have replicas of the disk, in the order of their names.
          type: list
          elements: dict
          returned: always
          contains:
            host:
              description: Name of the host in the inventory.
              type: str
              returned: always
            synced:
              description: When the replica last had all that the disk had, by the clock of the disk's host.
              type: str
              returned: always
            age:
              description: >-
                Seconds since then. Null if that is not known. After a move it is not, until the next sync.
              type: int
              returned: always
        snapshot_size:
          description: MiB that ZFS charges to its snapshots so far.
          type: int
          returned: with O(space=true)
    unmanaged:
      description: Volumes below the VM's dataset that its configuration does not list.
      type: list
      elements: str
      returned: always
    missing:
      description: Paths in the VM's configuration whose volume does not exist.
      type: list
      elements: str
      returned: always
    free_space:
      description: MiB by RFD 154's formula. Null on a VM without flexible disk space.
      type: int
      returned: with O(space=true)
    allocatable:
      description: MiB that disks can still actually get. Null on a VM without flexible disk space.
      type: int
      returned: with O(space=true)
    snapshots:
      description: >-
        Snapshots of the whole VM, in the form of RV(flexdisk.hypervisor.vm_snapshot#module:vms[].snapshots).
      type: list
      elements: dict
      returned: with O(space=true)
      contains:
        name:
          description: Its name.
          type: str
          returned: always
        disks:
          description: Names of the disks that are in it.
          type: list
          elements: str
          returned: always
        created:
          description: Seconds since 1970.
          type: int
          returned: always
        frees_bytes:
          description: How much space the VM's disks get back if only this snapshot is deleted.
          type: int
          returned: always
    intent:
      description:
        - The intent that an interrupted run of M(flexdisk.hypervisor.vm_disks) recorded before it changed the VM, or
          null. The next run on the same host that lists the VM finishes and clears it.
        - To clear it by hand, use C(zfs inherit flexdisk:intent.UUID POOL/flexdisk).
      type: dict
      returned: always
      contains: &intent
        readable:
          description: Whether the intent can be read. If not, no other key is returned.
          type: bool
          returned: always
        plan:
          description: Id of the run's plan.
          type: str
          returned: if it can be read
        host:
          description: The host of the run. Only this host can finish the run.
          type: str
          returned: if it can be read
        since:
          description: When it was recorded (UTC).
          type: str
          returned: if it can be read
        state:
          description: State of the VM that the run shall end with, as the task declares it, else as it was before.
          type: str
          returned: if it can be read
        autoboot:
          description: Whether the VM shall start with the host after the run.
          type: bool
          returned: if it can be read
        stops:
          description: Whether the run had stopped the VM, or was about to.
          type: bool
          returned: if it can be read
        steps:
          description: The planned steps in words.
          type: list
          elements: str
          returned: if it can be read
        moves:
          description: Volumes that were to be renamed.
          type: list
          elements: dict
          returned: if it can be read
          contains:
            guid:
              description: The GUID by which ZFS identifies the volume.
              type: int
              returned: always
            from:
              description: Where it was.
              type: str
              returned: always
            to:
              description: Where it was to be.
              type: str
              returned: always
        rollback:
          description: Name of the snapshot that the VM was being rolled back to. Empty if there is none.
          type: str
          returned: if it can be read
        creates:
          description: Name of the VM that was being created. Empty if there is none.
          type: str
          returned: if it can be read
        deletes:
          description: Name of the VM that was being deleted. Empty if there is none.
          type: str
          returned: if it can be read
          version_added: 0.3.0
        boots:
          description: Whether the VM had a boot disk before the run.
          type: bool
          returned: if it can be read
        member:
          description: The member of a group that the VM becomes that was being created. Empty if it becomes none.
          type: str
          returned: if it can be read
        asked:
          description:
            - Which start of the VM it was whose guest the run asked to shut down. Empty if the run asked none.
          type: str
          returned: if it can be read
        late:
          description:
            - Whether the run has failed because the guest did not shut down in time. If it shut down later, the next
              run starts the VM again.
          type: bool
          returned: if it can be read
      sample:
        readable: true
        plan: 0ab21b0c-66b5-4e04-a5c9-3ea52e5a4a4e
        host: node1
        since: "2026-01-01T00:00:00Z"
        state: running
        autoboot: true
        stops: true
        steps:
          - stop
        moves: []
        rollback: ""
        creates: ""
        deletes: ""
        boots: true
        member: ""
        asked: "2025-12-31T22:14:05.000Z"
        late: false
intents:
  description: Intents of VMs that do not exist. They are never executed. Empty with O(vms).
  returned: always
  type: list
  elements: dict
  contains:
    <<: *intent
    vm:
      description: UUID of the VM.
      type: str
      returned: always
    pool:
      description: The ZFS pool in which the intent lies.
      type: str
      returned: always
moves:
  description:
    - What is written down of VMs that leave this host, have left it, or come to it. Empty with O(vms). See
      RV(flexdisk.hypervisor.host_info#module:host.moves).
  returned: always
  type: list
  elements: dict
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
leases:
  description:
    - Leases of groups, as M(flexdisk.hypervisor.group_lease) takes them. One that a killed run has left is here, too,
      until another run takes it. O(vms) does not limit them.
  returned: with O(leases=true)
  type: list
  elements: dict
  contains:
    group:
      description: Name of the group.
      type: str
      returned: always
    pool:
      description: The ZFS pool in which the lease lies.
      type: str
      returned: always
    readable:
      description: Whether the lease can be read. The collection has not written one that cannot.
      type: bool
      returned: always
    token:
      description: The run that has it, by its O(flexdisk.hypervisor.group_lease#module:token).
      type: str
      returned: if it can be read
    holder:
      description: Who has the lease.
      type: str
      returned: if it can be read
    since:
      description: When that run took it, by the clock of the host.
      type: str
      returned: if it can be read
    renewed:
      description: When that run last renewed it.
      type: str
      returned: if it can be read
    expires:
      description: When anybody may take it unless it is renewed.
      type: str
      returned: if it can be read
    expired:
      description: Whether that time has come.
      type: bool
      returned: if it can be read
  sample:
    - group: web
      pool: zones
      readable: true
      holder: deploy@ctl1
      since: "2026-01-01T00:00:00Z"
      renewed: "2026-01-01T00:05:00Z"
      expires: "2026-01-01T00:20:00Z"
      expired: false
parked:
  description: Disks outside any VM.
  returned: always
  type: list
  elements: dict
  contains:
    <<: *disk
    vm:
      description: UUID of the VM that had the disk last.
      type: str
      returned: always
progress:
  description: >-
    Where tasks are that change the host, in the form of RV(flexdisk.hypervisor.progress_info#module:progress). That
    module tells it without reading the VMs.
  returned: always
  type: list
  elements: dict
pools:
  description: The pools that were read.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Name of the pool.
      type: str
      returned: always
    guid:
      description: GUID of the pool's own dataset. The UUIDs of new VMs are derived from it.
      type: int
      returned: always
skipped_vms:
  description: VMs of other brands, and VMs without a dataset. Empty with O(vms).
  returned: always
  type: list
  elements: dict
  contains:
    uuid:
      description: UUID of the VM.
      type: str
      returned: always
    alias:
      description: Alias of the VM.
      type: str
      returned: always
    reason:
      description: Why it is skipped.
      type: str
      returned: always
"""

import typing as t

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine.host.lock import under_way
from ..module_utils._flexdisk.engine.modules.vm_info import info
from ..module_utils._flexdisk.engine.run.arguments import HOST
from ..module_utils._flexdisk.engine.run.module_run import Answer, Call, run_module, unparsed
from ..module_utils._flexdisk.engine.run.reading import READING
from ..module_utils._flexdisk.model.errors import refusal


def main() -> None:
    """Read the arguments, and do what vm_info does."""
    module = AnsibleModule(
        argument_spec={
            "vms": {"type": "list", "elements": "str"},
            "space": {"type": "bool", "default": False},
            "leases": {"type": "bool", "default": False},
            **HOST,
        },
        supports_check_mode=True,
    )
    run_module(module, __version__, "", unparsed, body, reads=True, drivers=READING)


def body(call: Call, params: t.Mapping[str, t.Any]) -> Answer:
    """The run of vm_info."""
    vms = info(call.zfs, call.hypervisor, params["vms"], call.pool, params["space"], params["leases"])
    keys = {
        "vms": vms.vms,
        "parked": vms.detached,
        "skipped_vms": vms.skipped,
        "intents": vms.intents,
        "pools": vms.pools,
        "moves": vms.moves,
        "progress": under_way(call.pool),
    }
    failure = refusal(vms.problems) if vms.problems else None
    more = {} if vms.leases is None else {"leases": vms.leases}
    return Answer({"changed": False, **keys, **more}, failure, vms.warnings)


if __name__ == "__main__":
    main()
