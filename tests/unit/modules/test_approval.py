# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every module with a plan: the digest of check mode is that of the real run, and another one is refused."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import VM

DISKS = [{"name": "root", "boot": True}, {"name": "data", "pci_slot": "0:4:1"}, {"name": "more", "size": 64}]
NEW = {"vm": "web02", "memory": "512MiB", "image": "aaaaaaaa-0000-4000-8000-000000000001", "disks": [{"name": "root"}]}
TASKS: dict[str, dict[str, Any]] = {
    "vm_disks": {"vms": [{"vm": "web01", "disks": DISKS}]},
    "vm": {"pool": "zones", "vms": [{"vm": "web01", "memory": "2GiB"}, NEW]},
    "disk": {"disks": [{"name": "archive", "size": "64MiB"}, {"name": "other", "size": 8}]},
    "disk_adopt": {"vms": [{"vm": "web01"}]},
    "vm_snapshot": {"vms": ["web01"], "name": "one"},
    "zfs_quota": {"vms": ["web01"]},
}


@pytest.mark.parametrize("module", TASKS)
def test_four_steps(host, module):
    host.node("zfs", "set", "quota=9G", "reservation=9G", "zones/" + VM)
    task, before = TASKS[module], host.state()
    plain = host(module, check=True, **task)
    lines, digest = plain["plan"], plain["plan_digest"]
    assert lines[0] == plain["msg"]
    assert len(lines) > 1
    assert "".join(line + "\n" for line in lines) == plain["diff"]["prepared"]
    other = {"expect_plan": "k" + digest[1:]}
    for check in (True, False):
        for more in (other, {**other, "expect_lines": lines}):
            said = host(module, check=check, **task, **more)
            assert (said["failed"], said["changed"], said["error_code"]) == (True, False, "PlanChanged")
            assert (said["plan"], said["plan_digest"]) == (lines, digest)
            shown = ["nothing that the lines of a plan show"] if "expect_lines" in more else lines
            assert said["msg"].splitlines()[1:] == [*shown[:-1], shown[-1] + " [PlanChanged]"]
    assert host.state() == before
    approved = {"expect_plan": digest, "expect_lines": lines}
    predicted = host(module, check=True, **task, **approved)
    done = host(module, **task, **approved)
    for said in (predicted, done):
        assert (said["changed"], said["plan"], said["plan_digest"]) == (True, lines, digest)
    for check in (True, False):
        again = host(module, check=check, **task, **approved)
        assert (again["changed"], again["plan"]) == (False, [again["msg"]])


def test_how_a_vm_is_stopped_is_approved_with_the_plan(host):
    """Whoever approves that a guest is asked has not approved that it is halted, or asked for a shorter time."""
    host("vm_disks", vms=[{"vm": "web01", "disks": DISKS[:2]}])
    host.node("vmadm", "start", VM)
    entry = {"vm": "web01", "disks": [DISKS[0], {**DISKS[1], "size": "128MiB"}]}

    def digest(**power):
        return host("vm_disks", check=True, vms=[entry], allow_restart=True, **power)["plan_digest"]

    assert digest() == digest(stop_timeout=180) == digest(stop_timeout="PT3M")
    assert len({digest(), digest(stop_timeout=20), digest(allow_force_stop=True)}) == 3


def test_lines_alone_approve_nothing(host):
    said = host("zfs_quota", expect_lines=["1 VM: nothing to change"])
    assert said["error_code"] == "InvalidArgument"
    assert "give expect_plan, too" in said["msg"]
