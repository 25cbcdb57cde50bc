# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several nodes in one folder that reach each other, with what Ansible needs to know of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Sequence

from simnode import scenarios, ssh
from simnode.node import Node

INVENTORY = """\
hypervisors:
  vars:
    ansible_connection: local
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
    flexdisk_environment: # the simulated programs of each host
      PATH: "{{ inventory_dir }}/{{ inventory_hostname }}/bin:{{ lookup('ansible.builtin.env', 'PATH') }}"
    flexdisk_transfer_address: "{{ inventory_hostname }}"
    flexdisk_transfer_ssh_directories: ["{{ inventory_dir }}/{{ inventory_hostname }}/ssh"]
    flexdisk_transfer_authorized_keys: "{{ inventory_dir }}/{{ inventory_hostname }}/ssh/authorized_keys"
  hosts:
"""
CONFIGURATION = """\
[defaults]
inventory = hosts.yml
collections_path = collections
display_skipped_hosts = false

[connection]
pipelining = true
"""


def make(folder: Path, names: Sequence[str], proxmox: bool = False) -> None:
    """Make the nodes, hosts.yml and ansible.cfg.

    Raises ValueError for names that are no good, and if one is there. proxmox: nodes of Proxmox VE.
    """
    from simnode.__main__ import install_programs

    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}", name) or names.count(name) > 1:
            raise ValueError(f"{name!r} is not the name of a host, or is given twice")
    there = [name for name in (*names, "hosts.yml", "ansible.cfg") if (folder / name).exists()]
    if there:
        raise ValueError(f"{folder} has {', '.join(there)} already; remove them to begin anew")
    for number, name in enumerate(names):
        node = _node(folder / name, number, proxmox)
        node.save()
        install_programs(folder / name)
    for name in names:
        for other in names:
            if other != name:
                ssh.connect(folder / name, other, folder / other)
    (folder / "hosts.yml").write_text(INVENTORY + "".join(f"    {name}:\n" for name in names))
    (folder / "ansible.cfg").write_text(CONFIGURATION)


def _node(directory: Path, number: int, proxmox: bool) -> Node:
    """Return a new node. The first one has VMs."""
    if not proxmox:
        return scenarios.build("empty" if number else "demo", directory, number + 1)
    return (
        scenarios.proxmox_node(directory, number + 1, ("rpool",)) if number else scenarios.build("proxmox", directory)
    )
