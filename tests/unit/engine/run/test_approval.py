# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan is looked at in check mode, something may happen, and then exactly that plan is carried out, or none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.outcome import Outcome
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Approval

from ..conftest import VM, Simulated

OTHER = VM[:-1] + "2"
ROOT = {"name": "root", "boot": True}
A = {"name": "a", "size": "3GiB"}
BACK = {"name": "back", "size": 64}
HERE = {"vm": "web01", "unlisted": "keep", "disks": [ROOT, A, BACK]}
THERE = {"vm": "web02", "disks": [ROOT, {"name": "a", "size": 128}]}


@pytest.fixture
def sim() -> Simulated:
    """web01 with a (2 GiB), and with back, which is detached; web02 with a (64 MiB)."""
    node = Simulated()
    node.adopted(2048)
    node.adopted(64, uuid=OTHER, alias="web02")
    for how in ({}, {"unlisted": "detach"}):
        disks = [ROOT, {"name": "a"}, *([] if how else [BACK])]
        assert node.converge({"vm": "web01", "disks": disks, **how}).failure is None
    return node


def expecting(sim: Simulated, approved: Outcome, *vms: dict[str, Any], check: bool = False) -> Outcome:
    return sim.converge(*vms, check=check, approval=Approval(approved.plan_digest, tuple(approved.plan)))


def test_the_plan_that_was_approved_is_carried_out_once(sim: Simulated) -> None:
    approved = sim.converge(HERE, THERE, check=True)
    assert [line.partition(", detached since")[0] for line in approved.plan if not line.startswith("  quota")] == [
        "2 VMs: 2 changes, no restarts, +1.0 GiB, 0 B destroyed",
        f"web01 ({VM}):",
        "  ~ a 2 GiB -> 3 GiB",
        "  + back 64 MiB re-attached at 0:4:2",
        f"web02 ({OTHER}):",
        "  ~ a 64 MiB -> 128 MiB",
    ]
    done = expecting(sim, approved, THERE, HERE)
    assert (done.problems, done.failure, done.changed) == ([], None, True)
    assert (done.plan, done.plan_digest) == (approved.plan, approved.plan_digest)
    again = expecting(sim, approved, THERE, HERE)
    assert (again.problems, again.changed, again.plan) == ([], False, ["2 VMs: nothing to change"])


def grown_by_hand(sim: Simulated) -> None:
    assert sim.converge({"vm": "web01", "disks": [ROOT, {"name": "a", "size": "2560MiB"}]}).failure is None


TAKES_SLOT = {"name": "x", "size": 64, "pci_slot": "0:4:2"}
Between = Callable[[Simulated], Any]
CHANGES: dict[str, tuple[Between, list[str]]] = {
    "a disk of the VM": (grown_by_hand, ["- web01 ({vm}): ~ a 2 GiB -> 3 GiB", "+ web01 ({vm}): ~ a 2.5 GiB -> 3 GiB"]),
    "a slot": (
        lambda sim: sim.converge({"vm": "web01", "disks": [ROOT, {"name": "a"}, TAKES_SLOT]}),
        ["- web01 ({vm}): + back 64 MiB re-attached at 0:4:2", "+ web01 ({vm}): + back 64 MiB re-attached at 0:4:3"],
    ),
    "the pool has lost a detached disk": (
        lambda sim: sim.converge({"vm": "web01", "disks": [ROOT, {"name": "a"}, {"name": "back", "state": "absent"}]}),
        ["+ web01 ({vm}): + back 64 MiB at 0:4:2"],
    ),
    "work is done already": (lambda sim: sim.converge(THERE), ["- web02 ({other}): ~ a 64 MiB", "+ 1 VM unchanged"]),
}


@pytest.mark.parametrize(("between", "lines"), CHANGES.values(), ids=CHANGES)
def test_changed_in_between(sim: Simulated, between: Between, lines: list[str]) -> None:
    approved = sim.converge(HERE, THERE, check=True, allow_restart=True)
    between(sim)
    now = sim.converge(HERE, THERE, check=True)
    refuses(sim, approved, now, lines, HERE, THERE)


def refuses(sim: Simulated, approved: Outcome, now: Outcome, lines: list[str], *vms: dict[str, Any]) -> None:
    before = sim.fingerprint()
    sim.calls.clear()
    for check in (True, False):
        result = expecting(sim, approved, *vms, check=check)
        assert [problem.code for problem in result.problems] == ["PlanChanged"]
        assert (result.changed, result.diff, result.vms, result.failure) == (False, "", [], None)
        assert (result.plan, result.plan_digest) == (now.plan, now.plan_digest)
        text = result.problems[0].message.splitlines()
        assert approved.plan_digest in text[0]
        assert now.plan_digest in text[0]
        for line in lines:
            assert any(word.startswith(line.format(vm=VM, other=OTHER)) for word in text), (line, text)
    assert sim.fingerprint() == before
    assert [call for call in sim.calls if changes(call)] == []


def test_another_declaration(sim: Simulated) -> None:
    approved = sim.converge(HERE, check=True)
    for disk in ({**A, "size": "3073MiB"}, {**A, "pci_slot": "0:4:7"}, {**A, "state": "absent", "size": None}):
        other = {"vm": "web01", "disks": [ROOT, {k: v for k, v in disk.items() if v is not None}, BACK]}
        refuses(sim, approved, sim.converge(other, check=True), [], other)
    more = sim.converge(HERE, THERE, check=True)
    refuses(sim, approved, more, ["+ web02 ({other}): ~ a 64 MiB -> 128 MiB"], HERE, THERE)


SAME: dict[str, Between] = {
    "nothing": lambda sim: None,
    "free space of the pool": lambda sim: sim.run("zfs", "create", "-V", "1G", "zones/foreign"),
    "what a guest has written": lambda sim: sim.write(f"zones/{VM}/disk1", 7),
    "a snapshot of a disk that grows": lambda sim: sim.run("zfs", "snapshot", f"zones/{VM}/disk1@backup"),
}


@pytest.mark.parametrize("between", SAME.values(), ids=SAME)
def test_what_does_not_count(sim: Simulated, between: Between) -> None:
    approved = sim.converge(HERE, THERE, check=True)
    between(sim)
    done = expecting(sim, approved, HERE, THERE)
    assert (done.problems, done.failure, done.changed) == ([], None, True)


def test_without_lines_the_message_has_the_whole_plan(sim: Simulated) -> None:
    approved = sim.converge(HERE, check=True)
    for digest in ("", "k" * 16, approved.plan_digest[:-1]):
        result = sim.converge(HERE, approval=Approval(digest))
        assert result.problems[0].code == "PlanChanged"
        assert result.problems[0].message.splitlines()[1:] == approved.plan


def test_a_refusal_of_the_plan_comes_before_those_of_vms(sim: Simulated) -> None:
    """With on_refusal=continue, the plan is that of the other VMs, and it must be the approved one, too."""
    wrong = {"vm": "web02", "disks": [ROOT]}
    approved = sim.converge(HERE, wrong, check=True, continue_on_refusal=True)
    assert [problem.code for problem in approved.problems] == ["UnlistedDisk"]
    before = sim.fingerprint()
    other = Approval("k" * 16)
    result = sim.converge(HERE, wrong, continue_on_refusal=True, approval=other)
    assert [problem.code for problem in result.problems] == ["PlanChanged", "UnlistedDisk"]
    assert sim.fingerprint() == before
    done = sim.converge(HERE, wrong, continue_on_refusal=True, approval=Approval(approved.plan_digest))
    assert [problem.code for problem in done.problems] == ["UnlistedDisk"]
    assert done.changed


def test_a_task_that_is_refused_has_no_plan(sim: Simulated) -> None:
    result = sim.converge({"vm": "web01", "disks": [ROOT]}, approval=Approval("k" * 16))
    assert [problem.code for problem in result.problems] == ["UnlistedDisk"]
    assert (result.plan, result.plan_digest) == ([], "")


class Killed(BaseException):
    """The task is killed."""


def test_what_a_killed_run_has_left_is_another_plan(sim: Simulated) -> None:
    """Whichever change a run comes to, the rest is done under a digest of its own."""
    approved, plans, left = sim.converge(HERE, check=True), [], 0

    def kill(argv: list[str]) -> None:
        nonlocal left
        left -= changes(argv)
        if left < 0:
            raise Killed

    for number in range(2, 30):
        left, sim.fault = number, kill
        with contextlib.suppress(Killed):
            expecting(sim, approved, HERE)
        sim.fault = None
        now = sim.converge(HERE, check=True)
        plans.append(now.plan)
        if not now.changed:
            break
        assert "  = interrupted run of" in "\n".join(now.plan)
        refuses(sim, approved, now, [], HERE)
        approved = now
    assert len(plans) > 2
    assert plans[-1] == ["1 VM: nothing to change"]


def test_a_restart_must_be_approved(sim: Simulated) -> None:
    colder = {"vm": "web02", "disks": [ROOT, {"name": "a", "model": "nvme"}]}
    approved = sim.converge(colder, check=True)
    sim.run("vmadm", "start", OTHER)
    lines = approved.plan[0], "1 VM: 1 change, 1 restart, +0 B, 0 B destroyed"
    result = sim.converge(colder, allow_restart=True, approval=Approval(approved.plan_digest, tuple(approved.plan)))
    shown = ["- " + lines[0], "+ " + lines[1], f"+ web02 ({OTHER}): stop", f"+ web02 ({OTHER}): start"]
    assert set(result.problems[0].message.splitlines()[1:]) == set(shown)


def test_another_snapshot_of_the_image_is_another_plan(sim: Simulated) -> None:
    """Not the name C(@final) counts. One that is exchanged after the last look is not cloned either."""
    image = VM.replace("c", "e")
    sim.admin("image-import", image, "64")
    final = f"zones/{image}@final"

    def exchange() -> None:
        sim.run("zfs", "destroy", final)
        sim.run("zfs", "snapshot", final)

    wanted = {"vm": "web01", "unlisted": "keep", "disks": [ROOT, {"name": "more", "image": image}]}
    approved = sim.converge(wanted, check=True)
    exchange()
    assert [problem.code for problem in expecting(sim, approved, wanted).problems] == ["PlanChanged"]
    known, approved = sim.runner, sim.converge(wanted, check=True)

    def runner(argv: Any, stdin: str = "", timeout: float = 300) -> Any:
        if list(argv[:2]) == ["zfs", "get"] and argv[-1] == final:
            exchange()
        return known(argv, stdin, timeout)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sim, "runner", runner)
        assert (expecting(sim, approved, wanted).failure or {})["error_code"] == "Changed"
    assert "more" not in sim.disks()
