#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of a sync on the host that has the VMs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: replica_send
short_description: Plan a sync of replicas, and send what they lack
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Does the steps of a sync on the host that has the VMs. The role P(flexdisk.hypervisor.vm_replica#role) puts them
    together with those of M(flexdisk.hypervisor.replica_receive) on the other host. Use the role, unless you build a
    sync of your own.
  - A sync takes one snapshot of all disks of a VM at one moment, and brings it to the other host. Afterwards each side
    has exactly this one, and the home also a bookmark of it. Snapshots of users travel with it.
  - A transfer that takes longer shows how far it has come, about every 10 seconds, or less often on a slow host. It
    runs in the background on the host. If the play is killed meanwhile, the transfer goes on to its end.
  - Every step looks again. If a sync was killed, the same steps go on with it, also in the middle of a stream.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.lock
  - flexdisk.hypervisor._flexdisk.attributes
attributes:
  check_mode:
    support: full
    details:
      - O(step=send) and O(step=finish) do nothing in check mode, because they need what O(step=prepare) has really
        done.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  step:
    description:
      - Which step is done.
    type: str
    required: true
    choices:
      prepare: >-
        Plans the sync of O(vms), and refuses it with all reasons before anything is changed. Then takes the snapshots,
        and makes a key for each disk that has something to send. In check mode, only plans.
      announce: >-
        Plans the last sync of a VM that moves, and makes the keys for it and for a question whether it has come. The
        snapshots are not taken before M(flexdisk.hypervisor.vm_move) has stopped the VM. Needs what
        O(step=prepare) needs.
      send: Sends the streams of O(transfers), one after the other.
      finish: Destroys older snapshots of the sync, and the keys.
      remove: >-
        Destroys the snapshots and bookmarks of the sync of O(vms) with the host O(peer_name). That host is not asked.
  vms:
    description:
      - The VMs, by UUID, unique prefix of one, or alias. Needed for O(step=prepare), O(step=announce) and
        O(step=remove).
      - With O(step=remove) also UUIDs of VMs that are gone and have left detached disks.
    type: list
    elements: str
  peer:
    description:
      - The result of M(flexdisk.hypervisor.replica_info) on the other host. Needed for O(step=prepare) and
        O(step=announce).
    type: dict
  peer_name:
    description:
      - The name of the other host in the inventory. The disks remember it, so a host that has replicas must keep its
        name.
    type: str
    required: true
  peer_pool:
    description:
      - The pool of the replicas on the other host. By default, the one with the name of the VM's own pool.
    type: str
  transfers:
    description:
      - RV(transfers) of O(step=prepare). Needed for O(step=send) and O(step=finish).
    type: list
    elements: dict
  complete:
    description:
      - RV(flexdisk.hypervisor.replica_receive#module:complete) of its step V(close). Needed for O(step=finish).
    type: list
    elements: str
  address:
    description:
      - Where SSH reaches the other host, as C(root). Needed for O(step=send).
      - Given to O(step=prepare), one that this host cannot find is refused before snapshots are taken.
    type: str
  port:
    description:
      - The port of SSH there.
    type: int
    default: 22
  host_keys:
    description:
      - RV(flexdisk.hypervisor.replica_receive#module:host_keys) of its step V(open). Needed for O(step=send). No other
        key of the host is accepted.
    type: list
    elements: str
  bandwidth_limit:
    description:
      - Bytes per second that are sent at most, such as V(50MiB). By default, as many as possible.
    type: str
seealso:
  - module: flexdisk.hypervisor.replica_info
  - module: flexdisk.hypervisor.replica_receive
"""

EXAMPLES = r"""
- name: Ask the other host
  flexdisk.hypervisor.replica_info:
  delegate_to: hv02
  register: there

- name: Plan a sync, and take the snapshots
  flexdisk.hypervisor.replica_send:
    step: prepare
    vms: [db01]
    peer: "{{ there }}"
    peer_name: hv02
  register: sync
"""

RETURN = r"""
msg:
  description: What is done, in one line.
  returned: always
  type: str
transfers:
  description: >-
    What is to be sent and received. In check mode, the guids of new snapshots are V(0), and there are no keys.
  returned: success, with O(step=prepare) and O(step=announce)
  type: list
  elements: dict
stream_bytes:
  description: Bytes that the sync sends, by estimate.
  returned: success, with O(step=prepare) and O(step=announce)
  type: int
rate:
  description: Bytes a second of the last transfer to this peer, as this host has measured it. V(0) if it is not known.
  returned: success, with O(step=prepare)
  type: int
space:
  description: What each pool that is concerned must give for the sync, and has.
  returned: success, with O(step=prepare)
  type: list
  elements: dict
  contains:
    here:
      description: Whether it is a pool of this host, and not of the peer.
      type: bool
      returned: always
    pool:
      description: Name of the pool.
      type: str
      returned: always
    needs:
      description: Bytes that it must give.
      type: int
      returned: always
    available:
      description: Bytes that it has.
      type: int
      returned: always
idle:
  description: Whether the replicas have everything.
  returned: success, with O(step=prepare) and O(step=announce)
  type: bool
sent:
  description: >-
    What became of the VMs that had something to send. C(vm) is the UUID, C(alias) the alias, C(sent_bytes) and
    C(seconds) are how much was sent and how long it took, and C(failure) says why it failed. It is empty if it did not.
  returned: success, with O(step=send)
  type: list
  elements: dict
  sample:
    - vm: 0ab21b0c-66b5-4e04-a5c9-3ea52e5a4a4e
      alias: db01
      sent_bytes: 73400320
      seconds: 4.1
      failure: ""
failures:
  description: Why the step was not done for some VMs. It was done for the others.
  returned: success, with O(step=prepare), O(step=announce) and O(step=finish)
  type: list
  elements: str
failover:
  description: UUIDs of those of O(vms) that have failover.
  returned: success, with O(step=prepare), O(step=announce) and O(step=remove)
  type: list
  elements: str
uuids:
  description: UUIDs of O(vms).
  returned: success, with O(step=remove)
  type: list
  elements: str
names:
  description: Aliases of O(vms), or the UUID of one without.
  returned: success, with O(step=remove)
  type: list
  elements: str
homes:
  description: GUIDs of the pools that O(vms) are in.
  returned: success, with O(step=remove)
  type: list
  elements: int
gone:
  description: Snapshots and bookmarks that are destroyed.
  returned: success, with O(step=remove)
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

from ..module_utils._flexdisk.engine.replication.replica_send_run import Given, parse, run
from ..module_utils._flexdisk.engine.run.arguments import HOST, LOCK
from ..module_utils._flexdisk.engine.run.module_run import run_module

OPTIONS: t.Dict[str, t.Dict[str, t.Any]] = {
    "step": {
        "type": "str",
        "required": True,
        "choices": ["prepare", "announce", "send", "finish", "remove"],
    },
    "vms": {"type": "list", "elements": "str"},
    "peer": {"type": "dict"},
    "peer_name": {"type": "str", "required": True},
    "peer_pool": {"type": "str"},
    "transfers": {"type": "list", "elements": "dict"},
    "complete": {"type": "list", "elements": "str"},
    "address": {"type": "str"},
    "port": {"type": "int", "default": 22},
    "host_keys": {"type": "list", "elements": "str", "no_log": False},
    "bandwidth_limit": {"type": "str"},
}
NEEDED = [
    ("step", "prepare", ["vms", "peer"]),
    ("step", "announce", ["vms", "peer"]),
    ("step", "remove", ["vms"]),
    ("step", "send", ["transfers", "address", "host_keys"]),
    ("step", "finish", ["transfers", "complete"]),
]


def main() -> None:
    """Read the arguments, and do what replica_send does."""
    spec = {**OPTIONS, **HOST, **LOCK}
    module = AnsibleModule(argument_spec=spec, required_if=NEEDED, supports_check_mode=True)
    params = module.params
    task = f"replica_send of {', '.join(params['vms'] or [])} to {params['peer_name']}"
    given = Given(params, module.log)
    run_module(module, __version__, task, parse, lambda call, told: run(call, given, told), reads=given.long)


if __name__ == "__main__":
    main()
