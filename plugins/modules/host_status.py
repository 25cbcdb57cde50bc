#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Report what is half done on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_status
short_description: Report what is half done on a host
version_added: 0.3.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Reports interrupted runs, moves and failovers that have not ended, tombstones, transfers that have not ended, leases
    of groups, drained members, overlays, and disks that are kept after a failover.
  - The playbook C(status) shows this for all hosts, each with what goes on and what gives it up, as far as that is
    certain.
  - Nothing is changed.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.reads
options: {}
seealso:
  - module: flexdisk.hypervisor.disk_verify
  - module: flexdisk.hypervisor.host_metrics
  - module: flexdisk.hypervisor.vm_info
"""

EXAMPLES = r"""
- name: Ask what is half done
  flexdisk.hypervisor.host_status:
  register: status

- name: Fail if a run was interrupted
  ansible.builtin.assert:
    that: status.half_done | selectattr('kind', 'eq', 'run') | rejectattr('works') | length == 0
"""

RETURN = r"""
host:
  description: What the host calls itself.
  returned: success
  type: str
  sample: hv01
pools:
  description: The pools of the host. If two names of the inventory have the same pool, they mean one host.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the pool.
      type: str
      returned: always
    guid:
      description: Number by which ZFS knows the pool's root dataset.
      type: int
      returned: always
vms:
  description: The VMs of the host, each with C(uuid) and C(alias). Those that are about to come are not among them.
  returned: success
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
transfers:
  description: >-
    UUIDs of the VMs that this host replicates or moves at the moment. The host that receives does not know of it, so a
    transfer there may be at work, too.
  returned: success
  type: list
  elements: str
half_done:
  description: What is half done.
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description: >-
        V(run) for an interrupted run; V(leaves), V(comes) and V(tombstone) of a move; V(taken_over) and V(takes_over)
        of a failover; V(replica) for a transfer; V(restore) for a restored
        disk that is not whole yet; V(lease) of a group; V(drained) for a member that is out of service;
        V(overlay) for a volume that the list of disks hides; V(stopped) for a VM with failover for which nobody has
        asked since the boot; V(diverged) for a disk that is kept after a failover; V(unreadable) for a record of a
        move or failover that cannot be read.
      type: str
      returned: always
    text:
      description: What is half done, as a sentence.
      type: str
      returned: always
    vm:
      description: UUID of the VM. Empty for a lease.
      type: str
      returned: always
    alias:
      description: Alias of the VM, if the host knows it.
      type: str
      returned: always
    since:
      description: When it began, by the clock of the host. Empty if that is not known.
      type: str
      returned: always
    host:
      description: The other host of a move, or of a replica.
      type: str
      returned: always
    group:
      description: The group of a lease, of a drained member, or of a member that a run was making or deleting.
      type: str
      returned: always
    volume:
      description: The dataset concerned.
      type: str
      returned: always
    repair:
      description: The task that goes on, or puts it right, or null.
      type: dict
      returned: always
    repairable:
      description: Whether M(flexdisk.hypervisor.disk_verify) does that.
      type: bool
      returned: always
    creates:
      description: The name of the VM that the run was making.
      type: str
      returned: always
    deletes:
      description: The name of the VM that the run was deleting.
      type: str
      returned: always
    unfinished:
      description: Whether the hypervisor has the VM, and has made or deleted only a part of it.
      type: bool
      returned: always
    inherit:
      description: A property and its dataset. C(zfs inherit) of them gives it up. Empty if something else does.
      type: list
      elements: str
      returned: always
    restoring:
      description: >-
        The disks of an interrupted restore in place whose volumes change places, as M(flexdisk.hypervisor.vm_info)
        returns them.
      type: list
      elements: dict
      returned: always
    works:
      description: Whether a task of this host works on it, or may work on it, at the moment.
      type: bool
      returned: always
"""

import typing as t

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine.modules.host_status import run
from ..module_utils._flexdisk.engine.run.arguments import HOST
from ..module_utils._flexdisk.engine.run.module_run import Answer, Call, run_module, unparsed
from ..module_utils._flexdisk.engine.run.reading import READING
from ..module_utils._flexdisk.zfs.copies import Copies


def main() -> None:
    """Read the arguments, and do what host_status does."""
    module = AnsibleModule(argument_spec={**HOST}, supports_check_mode=True)
    run_module(module, __version__, "", unparsed, body, reads=True, drivers=READING)


def body(call: Call, _params: t.Mapping[str, t.Any]) -> Answer:
    """The run of host_status."""
    result, warnings = run(call.zfs, Copies(call.runner), call.hypervisor, call.pool)
    return Answer(result, warnings=warnings)


if __name__ == "__main__":
    main()
