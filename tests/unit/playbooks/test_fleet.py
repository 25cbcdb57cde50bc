# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet with hosts that are lost, slow, or refused: what is done on the others, and what is said at the end.

FLEXDISK_FLEET=100x20 takes so many hosts with so many VMs each, and half an hour on two busy cores; it is 20x5 without.
"""

from __future__ import annotations

import json
import os
import re

import pytest

from .nodes import Nodes

HOSTS, VMS = map(int, os.environ.get("FLEXDISK_FLEET", "20x5").split("x"))
NAMES = [f"hv{number:03}" for number in range(HOSTS)]
LOST = NAMES[1 : 1 + max(1, HOSTS // 20)]
REFUSED = NAMES[-2:]
SLOW = NAMES[:1] + NAMES[HOSTS // 2 :][: HOSTS // 50]
WELL = [name for name in NAMES if name not in (*LOST, *REFUSED)]

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Each VM gets a disk. Two hosts are asked for more than a VM has."""
    made = Nodes(tmp_path_factory.mktemp("fleet"), dict.fromkeys(NAMES, ""))
    made.variables["all"] = {"flexible_disks_allow_restart": True, "flexdisk_host_count": HOSTS}
    for host in NAMES:
        for number in range(VMS):
            made.create(host, f"{host}-{number}", 512, 2, {}, flexible=8)
        size = "1TiB" if host in REFUSED else "1GiB"
        disks = [{"name": "root", "boot": True}, {"name": "data", "size": size}]
        vms = [{"vm": f"{host}-{number}", "disks": disks} for number in range(VMS)]
        made.variables[host] = {"flexible_disks_vms": vms}
    for host in SLOW:
        (made.folder / host / "slow").touch()
    for host in LOST:
        (made.folder / host / "dead").touch()
    return made


def said(printed):
    """The lines of the table of hosts that failed."""
    found = re.search(r"TASK \[Say which hosts failed, and why\].*?\"msg\": (\[.*?\n    \])", printed, re.DOTALL)
    return json.loads(found[1]) if found else []


def disks(fleet, host):
    return [len(vm["disks"]) for vm in json.loads(fleet.run(host, "vmadm", "lookup", "-j"))]


def recap(printed, word):
    """The hosts of which Ansible counts something at the end."""
    lines = printed.split("PLAY RECAP")[1].splitlines()
    return [line.split()[0] for line in lines if re.search(rf"\b{word}=[1-9]", line)]


def test_a_plan_says_what_is_missing_and_apply_does_nothing_without_it(fleet):
    status, printed = fleet.play("plan")
    assert status != 0
    for host in (*LOST, *REFUSED):
        assert f"{host}: NO PLAN: " in printed
    digests = dict(re.findall(r"(hv\d+): .*?, digest (\w+)", printed))
    assert sorted(digests) == WELL
    status, printed = fleet.play("apply", "-e", json.dumps({"flexdisk_plan_digests": digests}))
    assert status != 0
    assert f"{LOST[0]} has declared VMs, but flexdisk_plan_digests has no digest of it." in printed
    assert disks(fleet, WELL[0]) == [1] * VMS


def test_converge_changes_the_others_and_says_in_one_table_who_failed(fleet):
    status, printed = fleet.play("converge")
    assert status != 0
    head, *reasons = said(printed)
    assert head == f"{len(LOST) + len(REFUSED)} hosts failed:"
    assert reasons[0] == f"{', '.join(LOST)}: unreachable: the host does not answer"
    assert [reason.split(": ")[0] for reason in reasons[1:]] == REFUSED
    assert all("data" in reason for reason in reasons[1:])
    assert recap(printed, "changed") == WELL
    assert disks(fleet, WELL[-1]) == [2] * VMS
    assert disks(fleet, REFUSED[0]) == [1] * VMS


def test_the_second_run_changes_nothing(fleet):
    _status, printed = fleet.play("converge")
    assert recap(printed, "changed") == []
    assert len(said(printed)) == 1 + 1 + len(REFUSED)


@pytest.mark.parametrize("playbook", ["report", "verify_disks", "list_disks"])
def test_what_only_reads_says_who_was_not_read(fleet, playbook):
    status, printed = fleet.play(playbook)
    assert status != 0
    assert said(printed) == [
        f"{len(LOST)} host{'s' if len(LOST) > 1 else ''} failed:",
        f"{', '.join(LOST)}: unreachable: the host does not answer",
    ]


def test_a_host_that_is_back_is_brought_to_its_declaration(fleet):
    for host in LOST:
        (fleet.folder / host / "dead").unlink()
    _status, printed = fleet.play("converge")
    assert recap(printed, "changed") == LOST
    assert said(printed)[0] == f"{len(REFUSED)} hosts failed:"
