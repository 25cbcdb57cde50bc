# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which call is next, by the answers so far."""

from __future__ import annotations

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import (
    Answer,
    Call,
    CallFailed,
    Message,
    Stopped,
    next_turn,
)

from .controller import Controller
from .test_move import world as world_of_moves
from .world import VM

world = world_of_moves
FIRST, SECOND, UNDO = (Call(name, "hv01", "move", {"step": "look"}) for name in ("first", "second", "undo"))


def flow(first=FIRST):
    answer = yield first
    yield Message("say", f"{answer.msg} is done")
    try:
        yield SECOND
    except Stopped as exc:
        yield UNDO
        raise Stopped(f"it stays: {exc}") from exc
    yield Message("say", "all is done")
    return {"all": True}


def answers(*results):
    return [Answer(result, 0, 1) for result in results]


def test_one_call_after_the_other():
    """A message comes before the call that follows it."""
    assert next_turn(flow(), []).call == FIRST
    turn = next_turn(flow(), answers({"msg": "a"}))
    assert (turn.says, turn.call) == (Message("say", "a is done"), SECOND)
    turn = next_turn(flow(), answers({"msg": "a"}, {}))
    assert (turn.says, turn.call, turn.failure) == (Message("say", "all is done"), None, None)
    assert turn.result == {"all": True}


def test_a_failure_is_raised_where_the_call_was():
    fails = {"failed": True, "msg": "no"}
    turn = next_turn(flow(), answers(fails))
    assert isinstance(turn.failure, CallFailed)
    assert (str(turn.failure), turn.failure.call) == ("no", FIRST)
    assert next_turn(flow(), answers({}, fails)).call == UNDO
    assert str(next_turn(flow(), answers({}, fails, {})).failure) == "it stays: no"


def test_a_failure_that_is_an_answer():
    turn = next_turn(flow(FIRST._replace(may_fail=True)), answers({"failed": True, "msg": "no"}))
    assert turn.says == Message("say", "no is done")


def test_what_may_hold_secrets_is_hidden(world, monkeypatch):
    """Every call whose arguments or result have the record of a VM, in a move and with failover."""
    seen: dict[str, set[str]] = {"shown": set(), "hidden": set()}
    does = Controller._does

    def watched(self, call, check):
        result = does(self, call, check)
        if "root_pw" in repr((call.arguments, result)):
            seen["hidden" if call.hidden else "shown"].add(call.name)
        return result

    monkeypatch.setattr(Controller, "_does", watched)
    controller = Controller(world, {**world.named, world.home_name: world.home, world.peer_name: world.peer})
    sync = controller.sync(world.home_name, world.peer_name, [VM])
    for failover in ("present", "absent"):
        controller.does("keep", {**sync, "failover": failover})
    controller.does("move", {"vm": VM, "sync": sync, "stop_timeout": 9, "allow_force_stop": True})
    assert seen["shown"] == set()
    assert len(seen["hidden"]) > 4
