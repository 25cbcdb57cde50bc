# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Both machines of the lab as the hosts of one inventory."""

from __future__ import annotations

import configparser
import json
import shlex
from typing import Any

import boot
from harness import Completed, Lab

# No port that listens, and not the connection that is open already.
_OUT_OF_REACH = {"ansible_port": "1", "ansible_ssh_args": "-F none -o ControlPath=none -o BatchMode=yes"}


class Both:
    """Playbooks on both machines, with these variables of all hosts."""

    def __init__(self, lab: Lab, peer: Lab, **variables: Any) -> None:
        self.lab = lab
        self._hosts = {one.name: _host(one) for one in (lab, peer)}
        self._variables = variables
        self._inventory = lab.workdir / "both.json"
        self.hide("")

    def hide(self, name: str) -> None:
        """From now on, playbooks cannot reach this machine; "": they reach both."""
        hosts = {one: {**variables, **(_OUT_OF_REACH if one == name else {})} for one, variables in self._hosts.items()}
        self._inventory.write_text(json.dumps({"hypervisors": {"hosts": hosts, "vars": self._variables}}))

    def argv(self, playbook: str, *options: str) -> list[str]:
        """The command line of a playbook of this collection."""
        program, _i, _inventory = self.lab.ansible_argv("ansible-playbook")
        return [program, "-i", str(self._inventory), f"flexdisk.hypervisor.{playbook}", *options]

    def play(self, playbook: str, *options: str) -> Completed:
        """Run it; a failure is an exit status."""
        return self.lab.local(self.argv(playbook, *options), self.lab.workdir, self.lab.environment())


def changed(printed: str) -> bool:
    """Whether a play has changed something on the first machine."""
    return " changed=0 " not in next(line for line in printed.splitlines() if line.startswith("lab01"))


def _host(lab: Lab) -> dict[str, str]:
    """The variables of a machine, which its own inventory has for a group."""
    parser = configparser.ConfigParser(interpolation=None, allow_no_value=True, delimiters=("=",))
    parser.read(lab.inventory)
    (line,) = (line for line in lab.inventory.read_text().splitlines() if line.startswith(lab.name + " "))
    variables = dict(word.split("=", 1) for word in shlex.split(line)[1:])
    return {**parser["hypervisors:vars"], **variables, "flexdisk_transfer_address": boot.peer_address(lab.name)}
