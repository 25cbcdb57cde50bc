# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The integration targets, which run on the simulated node too, on real OpenZFS: same scenarios, same proofs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import remote
import yaml
from harness import Lab

PLAYBOOK = Path(__file__).resolve().parents[2] / "integration" / "lab.yml"
SCENARIOS = [
    "absent",
    "adopt",
    "flexible",
    "image",
    "move",
    "order",
    "properties",
    "remaining",
    "restart",
    "shrink",
    "slots",
    "two_to_four",
]
ROOT = PLAYBOOK.parents[2]
EXAMPLES = ROOT / "examples" / "rfd154"
RFD154 = ["create_machine", "image_sizes", "default_disks", "reuse_slot", "grow", "shrink"]
RFD154_IMAGE = "aaaaaaaa-0000-4000-8000-000000000154"
VM = "cccccccc-0000-4000-8000-00000000000c"


def run(lab: Lab, tag: str, *arguments: str) -> None:
    """Run one target and make sure that it did something."""
    done = lab.playbook(PLAYBOOK, "--tags", tag, *arguments)
    assert "failed=0" in done.stdout
    assert "ok=0 " not in done.stdout


@pytest.mark.full
@pytest.mark.parametrize("name", SCENARIOS)
def test_vm_disks(lab: Lab, name: str) -> None:
    run(lab, "vm_disks", "-e", f"flexdisk_tests={name}")


@pytest.mark.full
@pytest.mark.parametrize("name", SCENARIOS)
def test_vm_disks_of_libvirt(lab: Lab, name: str) -> None:
    lab.reset()  # the other driver's VMs have the same UUIDs
    run(lab, "vm_disks", "-e", f"flexdisk_tests={name}", "-e", "flexdisk_hypervisor=libvirt")


@pytest.mark.full
def test_molecule(lab: Lab) -> None:
    argv = [sys.executable, str(remote.ROOT / "tests" / "tools" / "run_molecule.py"), "libvirt"]
    done = lab.local(argv, remote.ROOT, {**os.environ, "FLEXDISK_LAB_INVENTORY": str(lab.inventory)})
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.parametrize("hypervisor", ["vmadm", "libvirt"])
@pytest.mark.parametrize("example", RFD154)
def test_rfd154(lab: Lab, example: str, hypervisor: str) -> None:
    """One of the RFD's examples at 1:100; it leaves nothing."""
    lab.reset()
    size = 10240 // 100
    lab.run(
        [
            "env",
            f"PYTHONPATH={remote.NODE_TARGET}",
            "python3",
            "-m",
            "simnode.real",
            "image-import",
            RFD154_IMAGE,
            f"{size}",
        ]
    )
    template = yaml.safe_load((PLAYBOOK.parent / "targets" / "vm" / "defaults" / "main.yml").read_text())["vm_template"]
    words = {
        "rfd154_image": RFD154_IMAGE,
        "rfd154_scale": 100,
        "rfd154_quota": "1GiB",
        "flexible_disks_hypervisor": hypervisor,
        "flexible_disks_pool": lab.pool,
        **({"rfd154_template": template} if hypervisor == "libvirt" else {}),
    }
    done = lab.playbook(EXAMPLES / f"{example}.yml", "-e", json.dumps(words))
    assert "failed=0" in done.stdout
    left = lab.zfs("list", "-H", "-o", "name", "-d", "1", lab.pool).split()
    assert set(left) <= {lab.pool, f"{lab.pool}/{RFD154_IMAGE}", f"{lab.pool}/flexdisk"}


def test_every_example_of_rfd154_is_run() -> None:
    assert sorted(RFD154) == sorted(path.stem for path in EXAMPLES.glob("*.yml"))


@pytest.mark.full
@pytest.mark.parametrize("hypervisor", ["vmadm", "libvirt"])
def test_vm_in_full(lab: Lab, hypervisor: str) -> None:
    lab.reset()
    run(lab, "vm", "-e", f"flexdisk_hypervisor={hypervisor}")


def test_every_scenario_of_vm_disks_is_run() -> None:
    tests = PLAYBOOK.parent / "targets" / "vm_disks" / "tasks" / "tests"
    assert sorted(SCENARIOS) == sorted(path.stem for path in tests.glob("*.yml"))


@pytest.mark.full
@pytest.mark.parametrize("hypervisor", ["vmadm", "libvirt"])
@pytest.mark.parametrize(
    "target",
    [
        "disk",
        "disk_adopt",
        "disk_info",
        "disk_types",
        "disk_verify",
        "host_info",
        "vm_disks_refusals",
        "vm_info",
        "vm_snapshot",
        "zfs_quota",
        "role_flexible_disks",
    ],
)
def test_target_in_full(lab: Lab, target: str, hypervisor: str) -> None:
    lab.reset()
    run(lab, target, "-e", f"flexdisk_hypervisor={hypervisor}")


@pytest.mark.full
@pytest.mark.parametrize(("host", "hypervisor"), [("hv01", "vmadm"), ("hv02", "vmadm"), ("hv01", "libvirt")])
def test_playbooks(lab: Lab, host: str, hypervisor: str) -> None:
    """Of the two hosts that the target has one is the lab, the other one a simulated node."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    words = {"playbooks_lab_is": host, "playbooks_lab_hypervisor": hypervisor}
    done = lab.playbook(PLAYBOOK, "--tags", "playbooks", "-e", json.dumps(words), PATH=path)
    assert "failed=0" in done.stdout
    control = {"vmadm": ["vmadm"], "libvirt": ["python3", "/var/tmp/domains.py"]}[hypervisor]
    left = json.loads(lab.run([*control, "lookup", "-j"]).stdout)
    assert sorted(vm["alias"] for vm in left) == {"hv01": ["web01"], "hv02": ["db01", "db02"]}[host]


def test_a_detach_is_guarded_by_libzfs_core(lab: Lab) -> None:
    """The distribution's library works here, so the hold is bound to the module's process, and none is left."""
    lab.reset()
    payload = {
        "uuid": VM,
        "alias": "guarded",
        "brand": "bhyve",
        "autoboot": False,
        "flexible_disk_size": 1024,
        "disks": [{"size": 256, "boot": True, "model": "virtio"}, {"size": 64, "model": "virtio"}],
    }
    lab.run(["vmadm", "create"], stdin=json.dumps(payload))
    declared = {"vm": "guarded", "unlisted": "detach", "disks": [{"name": "root", "boot": True}]}
    done = lab.ad_hoc("flexdisk.hypervisor.vm_disks", json.dumps({"vms": [declared]}))
    assert '"guard": "libzfs_core"' in done.stdout
    parked = lab.zfs("list", "-H", "-o", "name", "-r", "-t", "volume,snapshot", f"{lab.pool}/flexdisk").splitlines()
    assert len(parked) == 1
