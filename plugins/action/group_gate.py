# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action group_gate: whether members of a group serve. It runs on the controller and probes over own sockets."""

from __future__ import annotations

import time
import typing as t
from dataclasses import replace

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.gate import parse_gate
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.watch import Clock, watch
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import refusal
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._controller import ControllerAction
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._display import show_now
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._probing import probe_all

MEMBER: t.Dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "index": {"type": "int"},
    "host": {"type": "str"},
    "address": {"type": "str"},
    "running": {"type": "bool", "default": True},
    "guest_agent": {"type": "str", "default": "", "choices": ["connected", "disconnected", ""]},
}
TCP: t.Dict[str, t.Any] = {
    "port": {"type": "raw", "required": True},
    "address": {"type": "str"},
    "timeout": {"type": "raw", "default": 3},
}
HTTP: t.Dict[str, t.Any] = {
    "url": {"type": "str", "required": True},
    "status": {"type": "list", "elements": "int", "default": [200]},
    "timeout": {"type": "raw", "default": 3},
    "validate_certs": {"type": "bool", "default": True},
}
ARGUMENTS: t.Dict[str, t.Any] = {
    "members": {"type": "list", "elements": "dict", "options": MEMBER, "required": True},
    "tcp": {"type": "dict", "options": TCP},
    "http": {"type": "dict", "options": HTTP},
    "guest_agent": {"type": "bool", "default": False},
    "retries": {"type": "int", "default": 0},
    "delay": {"type": "raw", "default": 5},
    "stable_for": {"type": "raw", "default": 0},
    "limit": {"type": "int", "default": 0},
}


class ActionModule(ControllerAction):
    """The action. It changes nothing, so check mode asks too, but once: what would serve later cannot be waited for."""

    arguments = ARGUMENTS

    def decide(self, given: t.Dict[str, t.Any], variables: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
        """Probe the members and return the result of the task. It fails if the gate is refused."""
        gate, problems = parse_gate(given)
        if problems:
            return {**refusal(problems, noun=""), "failed": True}
        if self._task.check_mode:
            gate = replace(gate, retries=0, stable_for=0)
        return watch(gate, probe_all, Clock(time.monotonic, time.sleep), self._notify)

    def _notify(self, text: str) -> None:
        show_now(self._display, f"group_gate: {text}")
