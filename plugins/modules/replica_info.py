#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Report the replicas that a host has."""

from __future__ import annotations

DOCUMENTATION = r"""
module: replica_info
short_description: Report the replicas of disks that a host has
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Reports the replicas that a host has of disks of VMs on other hosts, with their ages.
  - The result is also what a sync must know of the host to which it sends.
  - The role P(flexdisk.hypervisor.vm_replica#role) keeps replicas up to date.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.reads
options:
  pool:
    description:
      - Read only this ZFS pool. Without this option, all pools are read.
    type: str
  ssh_directories:
    description:
      - Fails if none of these directories has a public key of this host, such as C(ssh_host_ed25519_key.pub). Without
        one, no stream is let in.
    type: list
    elements: path
    version_added: 0.3.0
seealso:
  - module: flexdisk.hypervisor.vm_info
"""

EXAMPLES = r"""
- name: Report the replicas
  flexdisk.hypervisor.replica_info:
  register: found

- name: Fail if a replica is older than an hour
  ansible.builtin.assert:
    that: old | length == 0
    fail_msg: "{{ old | map(attribute='dataset') | join(', ') }}"
  vars:
    old: "{{ found.replicas | rejectattr('age', 'none') | selectattr('age', 'gt', 3600) | list }}"
"""

RETURN = r"""
host:
  description: What the host calls itself.
  returned: success
  type: str
collected:
  description: When the reading began, in seconds since 1970 by the clock of the host.
  returned: success
  type: int
pools:
  description: The pools.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the pool.
      type: str
      returned: always
    guid:
      description: GUID of the pool's own dataset.
      type: int
      returned: always
    available_bytes:
      description: Bytes that the pool can still give.
      type: int
      returned: always
    encryption:
      description: Whether the pool can have encrypted datasets, as its feature C(encryption) is enabled.
      type: bool
      returned: always
      version_added: 0.3.0
    locked:
      description:
        - The encryption root whose key is not loaded, so that no dataset is made where replicas lie. Empty if it is.
      type: str
      returned: always
      version_added: 0.3.0
    prepared:
      description: Whether the place of replicas is there. The first sync makes it.
      type: bool
      returned: always
      version_added: 0.3.0
vms:
  description: The VMs, each with C(uuid) and C(alias).
  returned: success
  type: list
  elements: dict
failover:
  description: The UUIDs of the VMs that this host could take over. See the playbook C(failover_vm).
  returned: success
  type: list
  elements: str
replicas:
  description: The replicas, in the order of the names of their datasets.
  returned: success
  type: list
  elements: dict
  contains:
    uuid:
      description: UUID of the disk. Empty if the dataset does not say that it is a replica.
      type: str
      returned: always
    vm:
      description: UUID of the VM that has the disk.
      type: str
      returned: always
    host:
      description: What the host of the VM calls itself.
      type: str
      returned: always
    home:
      description: GUID of the pool that the disk is in.
      type: int
      returned: always
    dataset:
      description: The ZFS dataset of the replica.
      type: str
      returned: always
    kind:
      description: V(volume), or V(filesystem) for a disk that is a file.
      type: str
      returned: always
    used:
      description: MiB that the replica takes in its pool.
      type: int
      returned: always
    synced:
      description:
        - The replica has all that its disk had at this time, by the clock of this host. Empty before the first complete
          sync.
      type: str
      returned: always
    age:
      description: Seconds since RV(replicas[].synced). Null before the first complete sync.
      type: int
      returned: always
    written_bytes:
      description: Bytes that were written to the replica itself. If there are any, it is no replica any more.
      type: int
      returned: always
    interrupted:
      description: Whether a stream was interrupted. The next sync goes on with it.
      type: bool
      returned: always
    encrypted:
      description: Whether it is encrypted. Replicas of encrypted disks came raw, with the key of their disk.
      type: bool
      returned: always
    key_loaded:
      description: Whether its key is loaded here. A replica needs none, a failover does. True if it is not encrypted.
      type: bool
      returned: always
    snapshots:
      description:
        - Its snapshots that have come from its disk, oldest first. C(synced) is when the disk was like C(name), or
          earlier, by the clock of this host; empty if that is not known. The playbook C(restore_disk) restores a disk
          from one of them.
      type: list
      elements: dict
      returned: always
    sync:
      description: What a sync must know.
      type: dict
      returned: always
"""

import typing as t

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine.replication.replica_info import replica_info
from ..module_utils._flexdisk.engine.replication.trust import host_keys
from ..module_utils._flexdisk.engine.run.arguments import HOST
from ..module_utils._flexdisk.engine.run.module_run import Answer, Call, run_module, unparsed
from ..module_utils._flexdisk.engine.run.reading import READING
from ..module_utils._flexdisk.zfs.copies import Copies

OPTIONS = {"ssh_directories": {"type": "list", "elements": "path"}}


def main() -> None:
    """Read the arguments, and do what replica_info does."""
    module = AnsibleModule(argument_spec={**HOST, **OPTIONS}, supports_check_mode=True)
    run_module(module, __version__, "", unparsed, body, reads=True, drivers=READING)


def body(call: Call, params: t.Mapping[str, t.Any]) -> Answer:
    """The run of replica_info."""
    if params["ssh_directories"] is not None:
        host_keys(params["ssh_directories"])
    return Answer({"changed": False, **replica_info(Copies(call.runner), call.hypervisor, call.pool)})


if __name__ == "__main__":
    main()
