# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules that may change something are refused on a node of Proxmox VE, before anything, in check mode, too."""

from __future__ import annotations

import inspect
import os

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run import module_run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.whole_vms import LEFT_TO_PROXMOX
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import pve_vms
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.protocol import Hypervisor
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from tests.unit.test_payload import BUDGET

from .conftest import WEB
from .test_reading import READING

WITHOUT_HOST = {"guest_growth", "guest_growth_info", "progress_info"}  # they run in guests, or ask no hypervisor
CHANGING = {"disk", "disk_adopt", "vm_disks", "vm_snapshot"}
REFUSED = {
    "disk_verify": ({"repair": ["orphan_volume"]}, module_run.NOT_THERE),
    "group_lease": ({"group": "web", "token": WEB, "holder": "deploy"}, module_run.NOT_THERE),
    "vm": ({"vms": [{"vm": "web"}]}, LEFT_TO_PROXMOX),
}


def test_every_module_is_read_only_or_refused():
    """host_step has a test of its own, because it has many arguments."""
    assert set(READING) | set(REFUSED) | WITHOUT_HOST | CHANGING | {"host_step"} == set(BUDGET)


@pytest.mark.parametrize("hypervisor", ["auto", "proxmox"])
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("module", sorted(REFUSED))
def test_what_may_change_something_is_refused(pve, module, check, hypervisor):
    before = pve.everything()
    args, sentence = REFUSED[module]
    failed = pve(module, check=check, hypervisor=hypervisor, **args)
    assert failed["msg"] == f"{sentence} [NotSupported]"
    assert pve.commands == []
    assert pve.everything() == before


def test_no_lease_lies_there(pve):
    """Runs for groups look for leases on all hosts, and go on with the others."""
    found = pve("group_lease", group="web", state="reported", token=WEB)
    assert (found["leases"], found["places"], found["changed"]) == ([], [], False)


STEPS = {
    "move": {"vm": "web", "name": "hv01"},
    "failover": {},
}


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("run", sorted(STEPS))
def test_no_step_of_a_move_or_a_failover(pve, run, check):
    """Not even one that only looks."""
    before = pve.everything()
    failed = pve("host_step", check=check, run=run, step="look", arguments=STEPS[run])
    assert (failed["msg"], pve.commands) == (f"{LEFT_TO_PROXMOX} [NotSupported]", [])
    assert pve.everything() == before


def test_the_driver_itself_changes_nothing(tmp_path):
    """Even if a module got past the first refusal."""
    reads = {"vms", "vm", "resources", "boot_id"}
    driver = pve_vms.ProxmoxVms(str(tmp_path))
    changing = [
        (name, method)
        for name, method in inspect.getmembers(Hypervisor, inspect.isfunction)
        if not name.startswith("_") and name not in reads
    ]
    assert len(changing) == 8
    for name, method in changing:
        with pytest.raises(FlexdiskError, match="not supported"):
            getattr(driver, name)(*[None] * (len(inspect.signature(method).parameters) - 1))


def test_a_host_with_both_is_not_guessed(pve, monkeypatch, tmp_path):
    """On a simulated node, the socket of a libvirtd is that of another host."""
    assert not pve("vm_info").get("failed")
    exists = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: path in module_run._SOCKETS or exists(path))
    assert not pve("vm_info").get("failed")
    monkeypatch.setattr(module_run, "beside_zfs", lambda _name: "")
    monkeypatch.setattr(module_run, "_CLUSTER", str(tmp_path))
    failed = pve("vm_info")
    assert failed["error_code"] == "InvalidArgument"
    assert "say which one has the VMs: hypervisor: proxmox, or hypervisor: libvirt" in failed["msg"]


def test_qm_alone_is_no_proxmox(pve, monkeypatch, tmp_path):
    monkeypatch.setattr(module_run, "beside_zfs", lambda _name: "")
    monkeypatch.setattr(module_run, "_CLUSTER", str(tmp_path / "none"))
    monkeypatch.setattr(module_run, "_SOCKETS", ())
    assert pve("vm_info")["error_code"] == "CommandNotFound"
