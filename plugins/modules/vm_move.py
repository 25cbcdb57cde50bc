#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of a move of a VM to another host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vm_move
short_description: Do the steps of a move of a VM to another host
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Does the steps of a move on the host that the VM leaves, and on the host that it comes to. The role
    P(flexdisk.hypervisor.vm_move#role) puts them together with those of a sync. Use the role, unless you build a move
    of your own.
  - Each step can be repeated. What it needs to know lies with the data, so a move that was killed goes on with the next
    run. At no instant both hosts have the VM with its disks.
  - On the host that the VM leaves, its disks become replicas, and a tombstone takes the place of the VM. Until it is
    given up with O(step=forget), no other task makes a VM of this name or UUID there.
  - O(step=leave) shows how far a long transfer has come, as M(flexdisk.hypervisor.replica_send) does.
  - This works between hosts with the same hypervisor.
  - A domain of libvirt keeps its XML. What in it belongs to the host is refused, and so is what the other host lacks.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.lock
  - flexdisk.hypervisor._flexdisk.attributes
attributes:
  check_mode:
    support: full
    details:
      - In check mode, O(step=expect) says whether the VM can come, O(step=go) and O(step=arrive) with O(peers) whether
        the move may go on, and O(step=forget) whether the tombstone may go. The other steps but O(step=look) do
        nothing.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  step:
    description:
      - Which step is done.
    type: str
    required: true
    choices:
      look: Tells what this host has of the VM. Nothing is changed.
      expect: Prepares the host that the VM comes to, and makes the VM there without disks.
      leave: >-
        On the host that the VM leaves, stops it, sends what it has written last, and asks the other host. If that has
        everything and still expects the VM, makes replicas of the disks, and deletes the VM without them. Once a disk
        has left, the move only goes forward.
      stay: Gives the move up as long as the VM has its disks. The VM gets back what it had.
      cancel: Removes what O(step=expect) has made, if O(step=stay) has given up the move that it was made for.
      stop: >-
        Only stops the VM, as O(step=leave) does. A VM with UEFI variables is stopped before O(step=renew).
      renew: >-
        Takes the UEFI variables of O(record) on the host that the VM comes to. The guest may have changed them until it
        was stopped. Only needed if RV(record) of O(step=look) has C(description.variables).
      go: Ends O(step=leave), if that was interrupted after the first disk had left.
      arrive: Makes the replicas the disks of the VM, and starts it if it was running.
      tidy: Destroys the snapshots of older syncs, on the host that the VM has left.
      forget: Removes the tombstone, if another host has the VM.
  vm:
    description:
      - The VM, by its UUID. O(step=look) and O(step=forget) also take its name, or a unique prefix of the UUID.
    type: str
    required: true
  name:
    description:
      - The name of this host for the other one. Needed for O(step=look), O(step=stop) and O(step=leave), and for
        O(step=arrive) with O(peers). Messages of O(step=expect) have it, too.
    type: str
  peer_name:
    description:
      - The name of the other host. Needed for O(step=stop), O(step=leave), O(step=go) and O(step=arrive). With it,
        O(step=look) also says whether the VM has replicas on other hosts.
    type: str
  digest:
    description:
      - RV(digest) that O(step=look) has told. A VM that has changed since is refused. Needed for O(step=stop)
        and O(step=leave).
    type: str
  stayed:
    description:
      - RV(stayed) that O(step=stay) has told on the host that has the VM. A move that has begun after that is not
        cancelled, for the VM may have left already. Needed for O(step=cancel).
    type: int
    version_added: 0.3.0
  term:
    description:
      - RV(term) that O(step=stay) has told. A move that has begun before a failover of the VM is cancelled whatever its
        number is. Needed for O(step=cancel).
    type: int
    version_added: 0.3.0
  target_pool:
    description:
      - The pool for the VM on this host. Needed for O(step=expect).
    type: str
  record:
    description:
      - RV(record) of the host that the VM leaves. It may hold secrets of the VM. Needed for O(step=expect) and
        O(step=renew).
    type: dict
  variables:
    description:
      - RV(variables) that O(step=renew) has told. O(step=leave) needs it if the VM has UEFI variables.
    type: str
  transfer:
    description:
      - The entry of this VM in RV(flexdisk.hypervisor.replica_send#module:transfers) of the step V(announce). Needed
        for O(step=stop) and O(step=leave).
    type: dict
  address:
    description:
      - Where SSH reaches the other host, as C(root). Needed for O(step=leave).
    type: str
  port:
    description:
      - The port of SSH there.
    type: int
    default: 22
  host_keys:
    description:
      - RV(flexdisk.hypervisor.replica_receive#module:host_keys) of its step V(open). Needed for O(step=leave). No other
        key of the host is accepted.
    type: list
    elements: str
  bandwidth_limit:
    description:
      - Bytes per second that O(step=leave) sends at most, such as V(50MiB). By default, as many as possible.
    type: str
  authorized_keys:
    description:
      - The file of the keys that may come in as C(root) on this host. O(step=arrive) and O(step=cancel) remove those of
        the move.
    type: path
    default: ~/.ssh/authorized_keys
  incoming_allowed:
    description:
      - What O(step=expect) accepts of a VM that another host describes, beyond what every host accepts. The other
        host could be hostile, so paths of this host, programs, and options of C(vmadm) that give a guest more than its
        zone are refused by name. An entry is an absolute path, for a file or for all below a folder, or a name from the
        refusal, such as V(bhyve_extra_opts) or V(seclabel none).
    type: list
    elements: str
    default: []
    version_added: 0.3.0
  stop_timeout:
    description:
      - Seconds that a guest has to shut down.
    type: int
    default: 180
  allow_force_stop:
    description:
      - Allow a guest that is still running after O(stop_timeout) to be halted.
    type: bool
    default: false
  peers:
    description:
      - RV(vm) and RV(move) that O(step=look) has told on other hosts, by their names. An empty string for a host that
        could not be asked. O(step=forget) is refused unless one of them has the VM, whole.
      - O(step=go) is refused if one of them has the VM, or says that it was taken over, and unless the hosts of
        RV(asks) are among them and could be asked.
      - With it, O(step=arrive) is done without a look at the host that the VM has left. It is refused unless this host
        knows that the VM has left, and in the same cases as O(step=go).
      - With it, RV(refusals) of O(step=look) also say that another host has the VM, or that it is on its way to another
        one.
    type: dict
    version_added: 0.3.0
  unseen:
    description:
      - Allow O(step=forget) although no host of O(peers) has the VM. The disks that this host keeps of it may be all
        that is left. It is still refused while the VM is on its way to one of them.
    type: bool
    default: false
    version_added: 0.3.0
  unasked:
    description:
      - Allow O(step=go) and O(step=arrive) although a host that may have taken the VM over could not be asked.
    type: bool
    default: false
    version_added: 0.3.0
seealso:
  - module: flexdisk.hypervisor.replica_send
  - module: flexdisk.hypervisor.replica_receive
"""

EXAMPLES = r"""
- name: Look what the host has of a VM
  flexdisk.hypervisor.vm_move:
    step: look
    vm: db01
    name: "{{ inventory_hostname }}"
  register: seen
  no_log: true

- name: Give up the tombstone of a VM that has moved away
  flexdisk.hypervisor.vm_move:
    step: forget
    vm: db01
    peers:
      hv02: {vm: "{{ there.vm }}", move: "{{ there.move }}"}  # what step look has told on hv02
"""

RETURN = r"""
msg:
  description: What is done, in one line.
  returned: always
  type: str
vm:
  description: The UUID of the VM if this host has it, else an empty string.
  returned: success, with O(step=look)
  type: str
pool:
  description: The pool of the VM, or an empty string.
  returned: success, with O(step=look)
  type: str
move:
  description:
    - What is written down of the VM here, or none. C(phase) is V(leaving), V(moved) or V(coming), C(host) is the other
      host, C(state) and C(autoboot) are those that the VM had before.
  returned: success, with O(step=look)
  type: dict
asks:
  description: >-
    The hosts that must say that they have not taken the VM over before its move goes on: it has failover, and has left.
  returned: success, with O(step=look)
  type: list
  elements: str
known:
  description: The names of the VMs that this host knows, if it knows none of the name that O(vm) gives.
  returned: success, with O(step=look)
  type: list
  elements: str
  version_added: "0.3.0"
record:
  description: What the other host must know to make the VM again, or none. It may hold secrets of the VM.
  returned: success, with O(step=look)
  type: dict
digest:
  description: A digest of RV(record), or an empty string.
  returned: success, with O(step=look)
  type: str
stayed:
  description: A number that grows each time that O(step=stay) is done for the VM. It may be less after a failover.
  returned: success, with O(step=stay)
  type: int
  version_added: "0.3.0"
term:
  description:
    - How often the VM has been taken over. With O(step=look), V(-1) unless this host has a copy with failover that is
      stopped, and not known to be at home.
  returned: success, with O(step=stay) or O(step=look)
  type: int
  version_added: "0.3.0"
unmanaged:
  description: Why this collection does not manage the VM, although the host has it. Empty otherwise.
  returned: success, with O(step=look)
  type: str
  version_added: "0.3.0"
ready:
  description: Whether the VM can come.
  returned: success, with O(step=expect)
  type: bool
variables:
  description: A digest of the UEFI variables that the host has for the VM now, or an empty string.
  returned: success, with O(step=renew)
  type: str
refusals:
  description: Why the VM cannot be moved. Empty if it can.
  returned: success, with O(step=look)
  type: list
  elements: str
lost:
  description: Snapshots that others have taken of the VM's own dataset. They go with it when the VM leaves.
  returned: success, with O(step=look)
  type: list
  elements: str
  version_added: "0.3.0"
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

from ..module_utils._flexdisk.engine.moves.vm_move import parse, run
from ..module_utils._flexdisk.engine.run.arguments import HOST, LOCK
from ..module_utils._flexdisk.engine.run.module_run import run_module

STEPS = ["look", "expect", "leave", "stay", "cancel", "stop", "renew", "go", "arrive", "tidy", "forget"]
OPTIONS: t.Dict[str, t.Dict[str, t.Any]] = {
    "step": {"type": "str", "required": True, "choices": STEPS},
    "vm": {"type": "str", "required": True},
    "name": {"type": "str"},
    "peer_name": {"type": "str"},
    "digest": {"type": "str"},
    "stayed": {"type": "int"},
    "term": {"type": "int"},
    "target_pool": {"type": "str"},
    "record": {"type": "dict"},
    "variables": {"type": "str"},
    "transfer": {"type": "dict"},
    "address": {"type": "str"},
    "port": {"type": "int", "default": 22},
    "host_keys": {"type": "list", "elements": "str", "no_log": False},
    "bandwidth_limit": {"type": "str"},
    "authorized_keys": {"type": "path", "default": "~/.ssh/authorized_keys", "no_log": False},
    "incoming_allowed": {"type": "list", "elements": "str", "default": []},
    "stop_timeout": {"type": "int", "default": 180},
    "allow_force_stop": {"type": "bool", "default": False},
    "peers": {"type": "dict"},
    "unseen": {"type": "bool", "default": False},
    "unasked": {"type": "bool", "default": False},
}
NEEDED = [
    ("step", "look", ["name"]),
    ("step", "expect", ["record", "target_pool"]),
    ("step", "cancel", ["stayed", "term"]),
    ("step", "stop", ["name", "peer_name", "digest", "transfer"]),
    ("step", "renew", ["record"]),
    ("step", "leave", ["name", "peer_name", "digest", "transfer", "address", "host_keys"]),
    ("step", "go", ["peer_name"]),
    ("step", "arrive", ["peer_name"]),
]


def main() -> None:
    """Read the arguments, and do what vm_move does."""
    spec = {**OPTIONS, **HOST, **LOCK}
    module = AnsibleModule(argument_spec=spec, required_if=NEEDED, supports_check_mode=True)
    step = module.params["step"]
    run_module(
        module,
        __version__,
        f"vm_move of {module.params['vm']}, step {step}",
        parse,
        lambda call, told: run(call, module.log, told),
        reads=step in ("look", "leave"),  # which locks by itself
        every_pool=True,
    )


if __name__ == "__main__":
    main()
