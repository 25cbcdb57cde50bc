# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""host_status on the node: interrupted runs, leases and drained members, as tasks leave them."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import lock
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.runner import SubprocessRunner
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import host_status
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import Intent
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import journal
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

from ..conftest import VM

OTHER = "cccccccc-0000-4000-8000-000000000002"
BOX = "zones/flexdisk"
SINCE = "2026-11-29T10:00:00Z"


def ask(sim):
    return host_status.run(Zfs(sim.runner), Copies(sim.runner), Vmadm(sim.runner), None)[0]


def left(sim, **wanted):
    """What is half done, with these values."""
    return [one for one in ask(sim)["half_done"] if wanted.items() <= one.items()]


def interrupted(sim, vm=VM, **entry):
    """Write down that a run of this host was interrupted."""
    known = {"plan": OTHER, "host": ask(sim)["host"], "since": SINCE, "state": "running", "autoboot": True}
    record = Intent(**{**known, "stops": True, **entry})
    sim.run("zfs", "set", f"flexdisk:intent.{vm}={journal.encode(record)}", BOX)
    sim.run("zfs", "set", f"flexdisk:intents={vm}", BOX)


def test_nothing_is_half_done(sim):
    sim.adopted(1024)
    result = ask(sim)
    assert result["half_done"] == []
    assert result["vms"] == [{"uuid": VM, "alias": "web01"}]
    assert not result["changed"]


def test_a_run_that_the_same_task_finishes(sim):
    sim.adopted(1024)
    interrupted(sim)
    (one,) = left(sim, kind="run")
    assert (one["vm"], one["alias"], one["since"], one["works"]) == (VM, "web01", SINCE, False)
    assert one["repair"] == {"flexdisk.hypervisor.vm_disks": {"vms": [{"vm": VM}]}}
    assert one["inherit"] == [f"flexdisk:intent.{VM}", BOX]
    sim.run("zfs", "inherit", *one["inherit"])
    sim.run("zfs", "inherit", "flexdisk:intents", BOX)
    assert left(sim) == []


@pytest.mark.parametrize("which", ["creates", "deletes"])
def test_a_vm_that_was_made_or_deleted(sim, which):
    sim.adopted(1024)
    sim.run("zfs", "create", f"zones/{OTHER}")
    interrupted(sim, OTHER, **{which: "web-3"}, member="web-3")
    (one,) = left(sim, kind="run")
    assert (one[which], one["group"], one["repair"], one["inherit"]) == ("web-3", "web", None, [])


def test_a_run_of_another_host_is_given_up_by_disk_verify(sim):
    sim.adopted(1024)
    interrupted(sim, host="elsewhere", creates="web-3")
    (one,) = left(sim, kind="run")
    assert one["repairable"]
    assert (one["creates"], one["inherit"]) == ("", [])


def test_a_task_that_is_at_work(sim, tmp_path, monkeypatch):
    """Its entry in the journal is nothing that somebody must do anything about."""
    monkeypatch.setattr(lock, "place", lambda: str(tmp_path / "locks"))
    sim.adopted(1024)
    interrupted(sim)
    runner = SubprocessRunner()
    with lock.exclusive(runner, None, 0, "vm_disks of web01"):
        assert [one["works"] for one in left(sim)] == [True]
    assert [one["works"] for one in left(sim)] == [False]
    with lock.transfers(runner, [VM], "move"):
        assert lock.transfers_under_way() == {VM}
        assert ask(sim)["transfers"] == [VM]
        assert [one["works"] for one in left(sim)] == [False]
    assert lock.transfers_under_way() == set()


def test_a_drained_member(sim):
    sim.adopted(1024)
    sim.run("zfs", "set", "flexdisk:drained=true", "flexdisk:member=web-0", f"zones/{VM}")
    (one,) = left(sim)
    assert (one["kind"], one["group"], one["alias"]) == ("drained", "web", "web01")


def test_leases(sim):
    sim.adopted(1024)
    sim.run("zfs", "set", "flexdisk:lease.web=?", BOX)
    (one,) = left(sim)
    assert (one["kind"], one["group"], one["works"]) == ("lease", "web", False)
    assert one["inherit"] == ["flexdisk:lease.web", BOX]
