#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of a sync on the host that has the replicas."""

from __future__ import annotations

DOCUMENTATION = r"""
module: replica_receive
short_description: Let replicas in, and give them up
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Does the steps of a sync on the host that has the replicas. The role P(flexdisk.hypervisor.vm_replica#role) puts
    them together with those of M(flexdisk.hypervisor.replica_send) on the host that has the VMs. Use the role, unless
    you build a sync of your own.
  - A replica is C(POOL/flexdisk/replica/UUID), by the UUID of its disk. It is read-only, and has no device. It reserves
    as much space as its disk, so that there is room for a VM on the day that it is needed.
  - Streams come by SSH. For each disk, a key of its own opens one command, which receives into one dataset. The key is
    removed when the sync has ended. Before that, it expires by itself after an hour, or after more for much data.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.lock
  - flexdisk.hypervisor._flexdisk.attributes
attributes:
  check_mode:
    support: full
    details:
      - O(step=open) and O(step=close) do nothing in check mode, because they need what the other host has really done.
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
      open: Prepares the replicas of O(transfers) for their streams, and lets the keys in.
      close: >-
        Removes the keys, and takes stock. Replicas that came get their reservations. If all replicas of a VM have the
        new set of snapshots, it is held, and older ones are destroyed.
      remove: Destroys the replicas of O(vms).
  transfers:
    description:
      - RV(flexdisk.hypervisor.replica_send#module:transfers) of its step V(prepare). Needed for O(step=open) and
        O(step=close).
    type: list
    elements: dict
  since:
    description:
      - RV(flexdisk.hypervisor.replica_info#module:collected) of this host, from before the sync was planned. The
        replicas count as up to date since then. Needed for O(step=close).
    type: int
  vms:
    description:
      - UUIDs of the VMs whose replicas are destroyed. Needed for O(step=remove).
    type: list
    elements: str
  authorized_keys:
    description:
      - The file of keys that SSH accepts on this host.
    type: path
    default: ~/.ssh/authorized_keys
  ssh_directories:
    description:
      - Directories with the public keys of this host, such as C(ssh_host_ed25519_key.pub). The first that has any
        counts.
    type: list
    elements: path
    default: [/etc/ssh, /var/ssh]
  homes:
    description:
      - GUIDs of pools. O(step=remove) destroys only replicas of disks in these pools. By default, of disks in any pool.
    type: list
    elements: int
    default: []
seealso:
  - module: flexdisk.hypervisor.replica_info
  - module: flexdisk.hypervisor.replica_send
"""

EXAMPLES = r"""
- name: Let the streams in
  flexdisk.hypervisor.replica_receive:
    step: open
    transfers: "{{ sync.transfers }}"
  delegate_to: hv02
  register: opened

- name: Give the replicas of a VM up
  flexdisk.hypervisor.replica_receive:
    step: remove
    vms: [0ab21b0c-66b5-4e04-a5c9-3ea52e5a4a4e]
  delegate_to: hv02
"""

RETURN = r"""
msg:
  description: What is done, in one line.
  returned: always
  type: str
host_keys:
  description: The public keys of this host.
  returned: success, with O(step=open)
  type: list
  elements: str
complete:
  description: UUIDs of the VMs whose replicas all have the set of this sync.
  returned: success, with O(step=close)
  type: list
  elements: str
failures:
  description: Why stock could not be taken for some VMs. It was taken for the others.
  returned: success, with O(step=close)
  type: list
  elements: str
gone:
  description: Datasets that are destroyed.
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

from ..module_utils._flexdisk.engine.replication.replica_receive_run import parse, run
from ..module_utils._flexdisk.engine.run.arguments import HOST, LOCK
from ..module_utils._flexdisk.engine.run.module_run import run_module

OPTIONS: t.Dict[str, t.Dict[str, t.Any]] = {
    "step": {"type": "str", "required": True, "choices": ["open", "close", "remove"]},
    "transfers": {"type": "list", "elements": "dict"},
    "since": {"type": "int"},
    "vms": {"type": "list", "elements": "str"},
    "authorized_keys": {"type": "path", "default": "~/.ssh/authorized_keys", "no_log": False},
    "ssh_directories": {"type": "list", "elements": "path", "default": ["/etc/ssh", "/var/ssh"]},
    "homes": {"type": "list", "elements": "int", "default": []},
}
NEEDED = [
    ("step", "open", ["transfers"]),
    ("step", "close", ["transfers", "since"]),
    ("step", "remove", ["vms"]),
]


def main() -> None:
    """Read the arguments, and do what replica_receive does."""
    spec = {**OPTIONS, **HOST, **LOCK}
    module = AnsibleModule(argument_spec=spec, required_if=NEEDED, supports_check_mode=True)
    step = module.params["step"]
    run_module(
        module, __version__, f"replica_receive, step {step}", parse, lambda call, told: run(call, module.params, told)
    )


if __name__ == "__main__":
    main()
