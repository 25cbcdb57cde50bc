# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole VMs on the node: made exactly as predicted, changed by their packages, deleted without what was to be kept."""

from __future__ import annotations

import json

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine import report
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.vms import run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from .conftest import IMAGE, Simulated

PACKAGES = [
    {"name": "flexible", "disk": 102400, "flexible_disk": True, "memory": 1024, "vcpus": 2},
    {"name": "larger", "disk": "200GiB", "flexible_disk": True, "memory": 2048, "vcpus": 4},
    {"name": "smaller", "disk": 40960, "flexible_disk": True, "memory": 1024, "vcpus": 2},
    {"name": "tiny", "disk": 11264, "flexible_disk": True, "memory": 1024, "vcpus": 1},
    {"name": "whole", "disk": 30720, "flexible_disk": True, "memory": 1024, "disks": [{"size": "remaining"}]},
    {"name": "boot-only", "disk": 30720, "flexible_disk": True, "memory": 1024, "disks": [{}]},
    {"name": "mixed", "disk": 30720, "flexible_disk": True, "memory": 1024, "disks": [{}, {"size": 512}]},
    {"name": "inflexible", "disk": 4096, "memory": 1024, "vcpus": 1},
]
DEFAULTS = {
    "name": "web01",
    "state": "present",
    "unlisted": "refuse",
    "destroy_disks": False,
    "destroy_snapshots": False,
}


def go(sim, *vms, check=False, **policy):
    zfs, hypervisor = Zfs(sim.runner, lambda seconds: None), Vmadm(sim.runner)
    return run(zfs, hypervisor, [{**DEFAULTS, **vm} for vm in vms], PACKAGES, Policy(**policy), None, check)


def cleaned(results):
    found = json.loads(json.dumps(results))
    for result in found:
        for disk in result["disks"] + result["parked"]:
            for key in report.VOLATILE:
                disk.pop(key, None)
    return found


def unlike(one, other):
    """The keys that differ, with both values."""
    pairs = [(a.get(k), b.get(k), k) for a, b in zip(one, other, strict=True) for k in sorted({*a, *b})]
    return [(k, a, b) for a, b, k in pairs if a != b]


def four_steps(sim, *vms, **policy):
    before = sim.fingerprint()
    predicted = go(sim, *vms, check=True, **policy)
    assert (predicted.problems, sim.fingerprint()) == ([], before)
    done = go(sim, *vms, **policy)
    assert (done.problems, done.failure) == ([], None)
    assert (done.changed, done.diff) == (predicted.changed, predicted.diff)
    assert unlike(cleaned(done.vms), cleaned(predicted.vms)) == []
    for check in (True, False):
        again = go(sim, *vms, check=check, **policy)
        assert (again.problems, again.changed, again.diff) == ([], False, "")
    return done


def refusal(sim, code, *vms, **policy):
    before = sim.fingerprint()
    predicted, refused = (go(sim, *vms, check=check, **policy).problems for check in (True, False))
    assert sim.fingerprint() == before
    assert predicted == refused
    assert {p.code for p in refused} == {code}, refused
    return "; ".join(p.message for p in refused)


def sizes(done):
    return [disk["size"] for disk in done.vms[0]["disks"]]


@pytest.fixture
def sim():
    sim = Simulated(512 << 30)
    sim.run("vmadm", "lookup")
    return sim


@pytest.mark.parametrize(
    ("package", "disks", "expected"),
    [
        ("flexible", None, [10240, 92160]),
        ("flexible", [{}, {"size": 20480}, {"size": "remaining"}], [10240, 20480, 71680]),
        ("flexible", [{}, {"size": "remaining"}, {"size": 512}], [10240, 91648, 512]),
        ("flexible", [{"size": 20480}], [20480]),
        ("whole", None, [30720]),
        ("boot-only", None, [10240]),
        ("mixed", None, [10240, 512]),
        ("mixed", [{}, {"size": "1GiB"}], [10240, 1024]),
        ("inflexible", None, [10240, 4096]),
    ],
)
def test_disks_of_request_package_or_the_usual_ones(sim, package, disks, expected):
    done = four_steps(sim, {"package": package, "image": IMAGE, "disks": disks})
    assert sizes(done) == expected
    vm = sim.vm(done.vms[0]["uuid"])
    assert [disk.size_mib for disk in vm.disks] == expected
    assert (vm.config.memory, vm.package, vm.config.state) == (1024, package, "stopped")
    assert [disk.pci_slot for disk in vm.disks] == [f"0:4:{n}" for n in range(len(expected))]
    assert [disk.boot for disk in vm.disks] == [True] + [False] * (len(expected) - 1)
    sim.assert_lawful(vm.config.uuid)
