# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What start_vm, stop_vm and restart_vm do with a domain. Autostart is what its operator has set."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm as vms
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from tests.unit.four_steps import four_steps

from .conftest import VM

RESTART = Policy(allow_restart=True, stop_timeout=1)


@pytest.fixture(params=[True, False])
def web(request, linux):
    """A stopped domain with a dataset, that starts with its host, or does not."""
    linux.adopted(32)
    linux.domains.autostarts[VM] = request.param
    linux.autostart = request.param
    return linux


def go(web, state, check=False, policy=RESTART):
    return vms.run(web.zfs(), web.driver(), [{"vm": "web01", "state": state}], [], policy, "tank", check)


def now(web):
    return web.domains.status(VM).state, web.domains.status(VM).autostart


def test_start_and_stop(web):
    """In four steps."""
    for state in ("running", "stopped", "running"):
        four_steps(web, lambda check, state=state: go(web, state, check))
        assert now(web) == (state, web.autostart)


@pytest.mark.parametrize("first", ["running", "stopped"])
def test_restart(web, first):
    """It is another run of the domain, each time. One that is stopped is started."""
    go(web, first)
    for starts in (1, 2):
        before = web.domains.starts
        assert go(web, "restarted", check=True).changed
        assert web.domains.starts == before
        done = go(web, "restarted")
        assert (done.problems, done.failure, done.changed) == ([], None, True)
        assert (web.domains.starts - before, now(web)) == (1, ("running", web.autostart)), starts


def test_a_guest_that_does_not_listen(web):
    """It runs on, unless it may be halted."""
    go(web, "running")
    web.domains.deaf.add(VM)
    for state in ("stopped", "restarted"):
        assert go(web, state).failure["error_code"] == "VmNotStopped"
        assert now(web) == ("running", web.autostart)
    done = go(web, "stopped", policy=Policy(allow_restart=True, stop_timeout=1, allow_force_stop=True))
    assert (done.failure, now(web)) == (None, ("stopped", web.autostart))


@pytest.mark.parametrize("state", ["running", "stopped", "restarted"])
def test_saved_memory_is_not_lost(web, state):
    """The message names both ways."""
    go(web, "running")
    web.domains.save(VM)
    for check in (True, False):
        (problem,) = go(web, state, check).problems
        assert problem.code == "VmInTransition"
        assert "virsh start web01" in problem.message
        assert "virsh managedsave-remove web01" in problem.message
    assert now(web)[0] == "saved"
