# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action start_order: its documentation, and what it reads of the hosts of a play."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.action import start_order
from ansible_collections.flexdisk.hypervisor.plugins.modules import start_order as documented
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _controller

from .actions import plain

LOOK = {"vms": [{"vm": "a", "peers": ["hv02", "hv03"]}], "moved": []}
THERE = {"vms": [{"vm": "a", "peers": []}, {"vm": "b", "peers": []}], "moved": []}


def test_the_options_are_as_documented():
    told = plain(yaml.safe_load(documented.DOCUMENTATION)["options"], told=True)
    assert told == plain(start_order.ARGUMENTS)


@pytest.fixture
def order(monkeypatch):
    """The action in a play of hv01, which has said LOOK."""
    monkeypatch.setattr(_controller._core, "check", lambda: None)
    monkeypatch.setattr(_controller.ActionBase, "run", lambda *_any: {})
    hostvars = {
        "hv01": {"_flexdisk_seen": LOOK, "_flexdisk_heard": LOOK},
        "hv02": {},
        **{f"hv0{n}": {} for n in (3, 4, 5)},
    }
    variables = {"ansible_play_hosts": ["hv01"], "hostvars": hostvars}

    def run(hosts=None, **given):
        for host, more in (hosts or {}).items():
            hostvars[host].update(more)
            variables["ansible_play_hosts"] = [*dict.fromkeys([*variables["ansible_play_hosts"], host])]
        action = start_order.ActionModule(SimpleNamespace(args=given, check_mode=False), *[None] * 5)
        defaults = {key: option.get("default") for key, option in start_order.ARGUMENTS.items()}
        monkeypatch.setattr(action, "validate_argument_spec", lambda **_spec: (None, {**defaults, **given}))
        return action.run(None, variables)

    return run


def test_whom_it_asks(order):
    assert order(do="ask", every=["hv01", "hv02", "hv03", "hv06"])["hosts"] == {"hv01": ["hv02", "hv03"]}


def test_the_hosts_of_the_run_share_the_others(order):
    """Each asks some, and none is asked twice."""
    found = order({"hv02": {"_flexdisk_seen": LOOK}}, do="ask", every=["hv01", "hv03", "hv04", "hv05", "hv06"])["hosts"]
    assert found == {"hv01": ["hv03", "hv05"], "hv02": ["hv04"]}, "hv06 is not in the inventory"


def test_what_hosts_are_told(order):
    asked = [{**THERE, "item": "hv02"}, {"item": "hv03", "unreachable": True}]
    assert order({"hv01": {"_flexdisk_asked": {"results": asked}}}, do="decide")["claims"] == {
        "hv01": {"hv01": LOOK["vms"], "hv02": THERE["vms"][:1], "hv03": ""}
    }
