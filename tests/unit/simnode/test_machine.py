# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Memory and CPUs of the node, and the programs that tell of them."""

from __future__ import annotations

import json

import pytest
from simnode.vmadm.admin import COMMANDS

from .vmadm_support import UUID, Machine

FREE = "unix:0:system_pages:freemem"


@pytest.fixture
def machine():
    return Machine()


def free(machine):
    """MiB."""
    status, out, err = machine.node.run(["kstat", "-p", FREE])
    assert (status, err) == (0, "")
    name, _tab, pages = out.rstrip("\n").partition("\t")
    assert name == FREE
    return int(pages) * 4096 / (1 << 20)


def test_sysinfo(machine):
    status, out, err = machine.node.run(["sysinfo"])
    assert (status, err) == (0, "")
    told = json.loads(out)
    assert (told["MiB of Memory"], told["CPU Total Cores"]) == ("65536", 16)
    machine.admin("machine", "memory=2048", "own=1024", "cpus=3")
    told = json.loads(machine.node.run(["sysinfo", "-f"])[1])
    assert (told["MiB of Memory"], told["CPU Total Cores"]) == ("2048", 3)
    assert machine.node.run(["sysinfo", "-x"])[0] == 2


def test_running_vms_take_memory(machine):
    disks = [{"size": 64, "boot": True, "model": "virtio"}]
    machine.good("create", uuid=UUID, brand="bhyve", ram=1024, autoboot=False, disks=disks)
    assert free(machine) == 65536 - 4096
    machine.good("start", UUID)
    assert free(machine) == 65536 - 4096 - 1024
    machine.admin("machine", "memory=4500")
    assert free(machine) == 0
    machine.good("stop", UUID, "-F")
    assert free(machine) == 404


def test_kstat_knows_one_statistic(machine):
    assert machine.node.run(["kstat", "-p", "unix:0:system_pages:nothing"]) == (1, "", "")
    assert machine.node.run(["kstat"])[0] == 2


@pytest.mark.parametrize(
    ("argv", "status"),
    [([], 2), (["size=1"], 2), (["memory"], 2), (["memory=x"], 2), (["cpus=-1"], 2), (["own=65537"], 1)],
)
def test_what_no_machine_is(machine, argv, status):
    before = json.dumps(machine.node.state)
    assert COMMANDS["machine"](machine.node, argv)[0] == status
    assert json.dumps(machine.node.state) == before
