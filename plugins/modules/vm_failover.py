#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of a failover: before the home of a VM fails, when it has failed, and when it comes back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vm_failover
short_description: Do the steps of a failover of a VM to the host with its replicas
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Does the steps of a failover on the home of a VM and on the host with its replicas. The role
    P(flexdisk.hypervisor.vm_replica#role) and the playbooks C(failover_vm) and C(start_host) put them together. Use
    these, unless you build a failover of your own.
  - The hypervisor does not start a VM with failover when its host boots, for another host may have taken it over.
    Whether the VM shall start is a property of its dataset. O(step=start) starts it.
  - Each step can be repeated. What it needs to know lies with the data, so a failover that was killed goes on with the
    next run.
  - This works with C(vmadm) only.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.lock
  - flexdisk.hypervisor._flexdisk.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Only O(step=take_over), O(step=end) and O(step=give_up) have a diff.
  idempotent:
    support: full
options:
  step:
    description:
      - Which step is done.
    type: str
    required: true
    choices:
      mark: >-
        On the home: gives O(vms) failover or takes it from them, as O(failover) says. Tells the records of those that
        have it.
      store: On the host with the replicas, keeps O(records).
      drop: On the host with the replicas, removes the records of O(vms).
      note: >-
        On a host with replicas, writes down in its records of O(vms) that O(peer_name) can take them over, too. Whoever
        takes one over asks that host before each start.
      look: Tells which VMs this host has, and which it could take over. Nothing is changed.
      take_over: >-
        On the host with the replicas, brings O(vm) back. Its home must be down. In check mode, says what would be lost.
      stay: >-
        On the host that has begun to take O(vm) over, gives that up: it keeps its replicas and the record. Refused once
        a disk is a replica no more.
      start: >-
        On the home after its boot, starts the VMs with failover that shall run, unless a host of O(peers) has taken
        them over or could not be asked.
      end: >-
        On the old home of O(vm), ends it there if a host of O(peers) has taken it over. Its disks become replicas.
        Those with data that the new home lacks are kept as C(POOL/flexdisk/diverged/UUID).
      give_up: >-
        On the old home, gives up what was kept. Without a replica, the disk goes back to what the new home has, and
        becomes one. With a replica, it is destroyed.
  vms:
    description:
      - The VMs. O(step=mark) takes UUIDs, unique prefixes or aliases, O(step=drop) and O(step=note) only UUIDs.
      - For O(step=look) with O(vm), UUIDs of VMs that other hosts know by that name. It tells of these, too, whatever
        they are called on this host.
    type: list
    elements: str
  vm:
    description:
      - The VM by UUID, unique prefix of one, or alias. Needed for O(step=take_over), O(step=stay), O(step=end) and
        O(step=give_up). With it, O(step=look) tells only of this VM, and of O(vms).
    type: str
  failover:
    description:
      - Whether the VMs have failover. By default, it stays as it is. VMs without replicas lose it.
    type: bool
  name:
    description:
      - The name of this host for others. Needed for O(step=mark). O(step=start) and O(step=take_over) need it to leave
        out what this host itself has said, if that is among O(peers).
    type: str
  peer_name:
    description:
      - The host that gets the records. The other hosts with replicas are named in them. For O(step=mark) and
        O(step=note).
    type: str
  records:
    description:
      - RV(records) of O(step=mark). They may hold secrets of the VMs. Needed for O(step=store).
    type: list
    elements: dict
  pools:
    description:
      - The pools with the replicas on this host, by the UUIDs of the VMs. Needed for O(step=store).
    type: dict
  homes:
    description:
      - GUIDs of pools. O(step=drop) removes only records of VMs of these pools. By default, of VMs of any pool.
    type: list
    elements: int
    default: []
  max_data_loss:
    description:
      - Seconds. O(step=take_over) is refused if the set that the VM would go back to is older. By default, any age is
        taken.
    type: int
  leave_out:
    description:
      - Names or UUIDs of disks that had left the VM since its record was stored. O(step=take_over) brings the VM back
        without them. Their replicas stay.
    type: list
    elements: str
  elsewhere:
    description:
      - RV(records) and RV(moved) of O(step=look) of other hosts, in one list each, by their names. O(step=take_over) is
        refused if one of them is from after another failover, or names another home. Without O(max_data_loss), also if
        that host could bring back more, or a move to it has brought more there. It is always refused if the VM had left
        its home by that move, and has begun to arrive there.
    type: dict
  left_out:
    description:
      - The hosts that were not asked. RV(lost) of O(step=take_over) names them.
    type: list
    elements: str
    default: []
    version_added: 0.3.0
  authorized_keys:
    description:
      - The file of keys that SSH accepts on this host. O(step=take_over) shuts out the old home, and O(step=end) the
        host that was sending what ends here.
    type: path
    default: ~/.ssh/authorized_keys
  incoming_allowed:
    description:
      - What O(step=take_over) and O(step=store) accept of a VM that another host describes, beyond what every host
        accepts. The other host could be hostile, so paths of this host, programs, and options of C(vmadm) that give a
        guest more than its zone are refused by name. An entry is an absolute path, for a file or for all below a
        folder, or a name from the refusal, such as V(bhyve_extra_opts) or V(seclabel none).
    type: list
    elements: str
    default: []
    version_added: 0.3.0
  peers:
    description:
      - What other hosts said to O(step=look), RV(vms), by their names. An empty string for a host that could not be
        asked. Needed for O(step=start) and O(step=end).
      - O(step=start) and O(step=take_over) also need their RV(moved), in the same lists. For O(step=start), the hosts
        with replicas must be among them. Give all others, too, for the VM can have moved on to any of them.
      - O(step=take_over) is refused if one of them has the VM, or if its home answers. It is also refused if the VM has
        moved on since its record was stored, unless O(max_data_loss) is given and the host where it went is silent.
    type: dict
  boot:
    description:
      - RV(boot) of O(step=look) of this host, from before the other hosts were asked. O(step=start) is refused if the
        host has booted since.
    type: str
    version_added: 0.3.0
  unasked:
    description:
      - Allow O(step=start) to start VMs although a host with replicas could not be asked.
    type: bool
    default: false
  begun:
    description:
      - Allow O(step=end) although the other host has only begun to take O(vm) over. The VM is on neither host then,
        until O(step=take_over) has ended there.
    type: bool
    default: false
  old:
    description:
      - Says that this host is an old home of O(vm). Then O(step=end) ends it here if one host of O(peers) has it, too,
        even if that host does not say that it has taken it over, for example because both hosts have taken it over
        equally often. It is refused if this host has it, and no other one.
    type: bool
    default: false
    version_added: 0.3.0
seealso:
  - module: flexdisk.hypervisor.replica_send
  - module: flexdisk.hypervisor.replica_receive
  - module: flexdisk.hypervisor.vm_move
"""

EXAMPLES = r"""
- name: Look what could be brought back, and what would be lost
  flexdisk.hypervisor.vm_failover:
    step: take_over
    vm: db01
    max_data_loss: 900
  check_mode: true
  diff: true
"""

RETURN = r"""
msg:
  description: What is done, in one line.
  returned: always
  type: str
known:
  description: The names of the VMs that this host knows, if it knows none of the name that O(vm) gives.
  returned: success, with O(step=look)
  type: list
  elements: str
  version_added: "0.3.0"
records:
  description: >-
    With O(step=mark), what another host must know to make the VMs again; it may hold secrets. With O(step=look), the
    VMs that this host could take over, without secrets. C(vm) is the UUID, C(alias) the alias, C(host) the home,
    C(term) how often the VM had been taken over. C(synced) is when the VM was as it would come back, if O(vm) is given.
  returned: success, with O(step=mark) and O(step=look)
  type: list
  elements: dict
gone:
  description: The labels of VMs whose records are gone.
  returned: success, with O(step=drop)
  type: list
  elements: str
noted:
  description: The labels of VMs of whose records that was not known.
  returned: success, with O(step=note)
  type: list
  elements: str
stored:
  description: Whether the records are kept now.
  returned: success, with O(step=store)
  type: bool
failures:
  description: >-
    With O(step=mark), why there are no records of some VMs. With O(step=start), why some that shall run were not
    started, and which run here although another host has taken them over, or has them, too. It was done for the others.
  returned: success, with O(step=mark) and O(step=start)
  type: list
  elements: str
vms:
  description: >-
    The VMs of this host. C(vm) is the UUID, C(alias) the alias. C(failover) says whether the VM has failover,
    C(autoboot) whether it shall start with the host, C(term) how often it was taken over, C(peers) which hosts have
    replicas. C(taking) is the host that it is being taken over from. C(left) says whether the VM has begun to leave.
    C(pool) and C(points) are the GUIDs of its pool and of its snapshots and bookmarks, if O(vm) is given.
  returned: success, with O(step=look)
  type: list
  elements: dict
moved:
  description: >-
    The VMs that this host does not have, but of which something is written down. C(vm) is the UUID, C(alias) the alias.
    C(phase) is C(moved) for one that has left, and C(coming) for one that comes; C(host) is the other host, and
    C(since) the time when it began. C(term) says how often it had been taken over, -1 if that is not known. If O(vm) is
    given, one that comes also has C(home), C(synced), C(points) and C(why_not) as RV(records), and C(begun), whether it
    has begun to arrive here, so that it had left the other host.
  returned: success, with O(step=look)
  type: list
  elements: dict
boot:
  description: The present boot of this host. Empty if it is not known.
  returned: success, with O(step=look)
  type: str
age:
  description: >-
    Seconds since the VM was as it comes back, at most, by the clock of this host. None if that is not known.
  returned: success, with O(step=take_over)
  type: int
lost:
  description: >-
    What the replicas lose beside, because other disks of the VM lack it, which replicas stay because the record lacks
    their disks, to which host the VM has moved on since, and which hosts were not asked.
  returned: success, with O(step=take_over)
  type: list
  elements: str
vm:
  description: The UUID of the VM. Empty if there is nothing to do.
  returned: success, with O(step=end) and O(step=give_up)
  type: str
disks:
  description: What becomes of the disks of the VM on its old home.
  returned: success, with O(step=end) and O(step=give_up)
  type: list
  elements: str
started:
  description: The labels of VMs that were started.
  returned: success, with O(step=start)
  type: list
  elements: str
repaired:
  description:
    - The labels of VMs whose C(autoboot) is turned off. A task had started the VM, and died before it could do that.
  returned: success, with O(step=start)
  type: list
  elements: str
  version_added: "0.3.0"
left:
  description: Which VMs are not to be started, because another host has them, or because they move.
  returned: success, with O(step=start)
  type: list
  elements: str
error_code:
  description: The reason why the task fails. See the page of errors.
  returned: if the task fails
  type: str
problems:
  description: All reasons why the task fails.
  returned: if the task fails
  type: list
  elements: dict
"""

import typing as t

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine.failover.vm_failover import parse, run
from ..module_utils._flexdisk.engine.run.arguments import HOST, LOCK
from ..module_utils._flexdisk.engine.run.module_run import run_module

STEPS = ["mark", "store", "drop", "note", "look", "take_over", "stay", "start", "end", "give_up"]
OPTIONS: t.Dict[str, t.Dict[str, t.Any]] = {
    "step": {"type": "str", "required": True, "choices": STEPS},
    "vms": {"type": "list", "elements": "str"},
    "vm": {"type": "str"},
    "failover": {"type": "bool"},
    "name": {"type": "str"},
    "peer_name": {"type": "str"},
    "records": {"type": "list", "elements": "dict"},
    "pools": {"type": "dict"},
    "homes": {"type": "list", "elements": "int", "default": []},
    "max_data_loss": {"type": "int"},
    "leave_out": {"type": "list", "elements": "str"},
    "left_out": {"type": "list", "elements": "str", "default": []},
    "elsewhere": {"type": "dict"},
    "authorized_keys": {"type": "path", "default": "~/.ssh/authorized_keys", "no_log": False},
    "incoming_allowed": {"type": "list", "elements": "str", "default": []},
    "peers": {"type": "dict"},
    "boot": {"type": "str"},
    "unasked": {"type": "bool", "default": False},
    "begun": {"type": "bool", "default": False},
    "old": {"type": "bool", "default": False},
}
NEEDED = [
    ("step", "mark", ["vms", "name"]),
    ("step", "store", ["records", "pools"]),
    ("step", "drop", ["vms"]),
    ("step", "note", ["vms", "peer_name"]),
    ("step", "take_over", ["vm"]),
    ("step", "stay", ["vm"]),
    ("step", "start", ["peers"]),
    ("step", "end", ["vm", "peers"]),
    ("step", "give_up", ["vm"]),
]


def main() -> None:
    """Read the arguments, and do what vm_failover does."""
    spec = {**OPTIONS, **HOST, **LOCK}
    module = AnsibleModule(argument_spec=spec, required_if=NEEDED, supports_check_mode=True)
    step = module.params["step"]
    run_module(module, __version__, f"vm_failover, step {step}", parse, run, reads=step == "look", every_pool=True)


if __name__ == "__main__":
    main()
