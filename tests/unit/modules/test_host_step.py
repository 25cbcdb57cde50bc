# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of moves, failovers and syncs: one table has their arguments, and all that is wrong is said at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover import vm_failover
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.moves import vm_move
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import replica_send_run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.arguments import HOST, LOCK
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication import host_steps
from ansible_collections.flexdisk.hypervisor.plugins.modules import host_step

from .conftest import VM


def test_the_table_is_whole():
    assert set(host_steps.STEPS) == set(host_step.OPTIONS["run"]["choices"])
    assert set(host_steps.STEPS["failover"]) == set(vm_failover._STEPS)
    assert set(host_steps.STEPS["move"]) == {"look", *vm_move._DONE}
    assert set(host_steps.STEPS["send"]) == set(replica_send_run._STEPS)
    assert set(host_steps.OF_HOST) == {*HOST, *LOCK}
    used = {name for steps in host_steps.STEPS.values() for one in steps.values() for name in (*one.needs, *one.may)}
    assert used == set(host_steps.ARGUMENTS)
    assert not used & {*host_step.OPTIONS, *HOST, *LOCK}
    for run, steps in host_steps.STEPS.items():
        assert set(host_step.of_run(run).reads) <= set(steps)


@pytest.mark.parametrize(
    ("run", "step", "arguments", "said"),
    [
        ("move", "fly", {}, ["move, fly: step fly: move has look, expect, "]),
        (
            "move",
            "leave",
            {"vm": VM, "name": "hv01"},
            ["address, digest, host_keys, peer_name, transfer"],
        ),
        ("receive", "close", {"transfers": [], "since": "soon"}, ["receive, close: ", "since", "int"]),
        (
            "move",
            "arrive",
            {"records": [], "unasked": "perhaps", "host_keys": []},
            ["move, arrive: ", "peer_name, vm", "host_keys, records", "unasked"],
        ),
    ],
)
def test_what_is_wrong_with_a_step_is_said_at_once(host, run, step, arguments, said):
    before = host.state()
    for check in (True, False):
        result = host("host_step", check=check, run=run, step=step, arguments=arguments)
        assert (result["failed"], result["error_code"]) == (True, "InvalidArgument")
        for words in said:
            assert words in result["msg"]
    assert host.state() == before


def test_an_argument_that_is_given_is_what_the_step_gets(host):
    result = host("host_step", run="move", step="look", arguments={"vm": "web01", "name": "hv01"})
    assert (result["vm"], result["move"], result["changed"]) == (VM, None, False)
    assert not host("host_step", run="failover", step="look")["vms"][0]["failover"]


def test_a_timeout_is_seconds_or_iso_8601(host):
    def stays(value):
        return host("host_step", check=True, run="move", step="stay", arguments={"vm": VM, "stop_timeout": value})

    assert {stays(value)["msg"] for value in (60, "60", "PT1M")} == {"no move of the VM has begun here"}
    assert "stop_timeout: 'soon' is not a duration" in stays("soon")["msg"]
    assert "stop_timeout 0: from 1 to 86400" in stays(0)["msg"]


def test_durations_of_roles_are_seconds_or_iso_8601():
    """What takes seconds only says so by its type."""
    roles = Path(__file__).resolve().parents[3] / "roles"
    options = {}
    for path in roles.glob("*/meta/argument_specs.yml"):
        options.update(yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"])
    kinds = {name: option["type"] for name, option in options.items() if name.endswith(("_timeout", "_ttl"))}
    assert len(kinds) >= 12
    assert set(kinds.values()) == {"raw"}


def test_a_call_has_the_options_of_the_module():
    given = {"step": "look", "vm": "a", "hypervisor": "vmadm", "lock_timeout": 5, "pool": None, "peers": None}
    assert host_steps.options("move", given) == {
        "run": "move", "step": "look", "arguments": {"vm": "a"}, "hypervisor": "vmadm", "lock_timeout": 5,
    }  # fmt: skip
