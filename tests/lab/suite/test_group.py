# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A group of three on real ZFS rolls to another image, and is killed twice on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import remote
from harness import Lab

BOOK = Path(__file__).resolve().parents[3] / "playbooks" / "update_group.yml"
IMAGES = ["aaaaaaaa-0000-4000-8000-000000000181", "aaaaaaaa-0000-4000-8000-000000000182"]
MEMBERS = ["web-0", "web-1", "web-2"]
CHANGE = "Change the members"
# A module comes by standard input and has no name of its own, but it is what runs vmadm.
WAIT = "until pgrep -f '[v]madm (stop|update)'; do sleep 0.1; done"
KILL = "until kill -KILL $(ps -o ppid= -p $(pgrep -of '[v]madm (stop|update)')); do sleep 0.1; done"


class Group:
    """The group in the lab."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def arguments(self, image: str, **policy: Any) -> list[str]:
        """The command line of a run. A hook does nothing but make members carry their marks."""
        hook = self.lab.workdir / "hook.yml"
        hook.write_text("- name: Do nothing\n  ansible.builtin.debug:\n    msg: '{{ instance_group_member.name }}'\n")
        disks = [{"name": "root"}, {"name": "data", "size": 16, "preserve": True}]
        group = {
            "name": "web",
            "size": 3,
            "template": {"package": "small", "image": image, "disks": disks},
            "policy": {"action_ceiling": "recreate", **policy},
            "before_member": [str(hook)],
            "after_member": [str(hook)],
        }
        packages = [{"name": "small", "disk": 256, "flexible_disk": True, "memory": 128, "vcpus": 1}]
        words = {"flexdisk_group": "web", "flexdisk_groups": [group], "flexdisk_packages": packages}
        return [str(BOOK), "-e", json.dumps({**words, "instance_group_hypervisor": "vmadm"})]

    def vms(self) -> dict[str, dict[str, Any]]:
        """Each VM as vm_info reports it, by its name."""
        said = self.lab.ad_hoc("flexdisk.hypervisor.vm_info", "hypervisor=vmadm").stdout
        found: dict[str, Any] = json.loads(said[said.index("{") :])
        return {vm["alias"]: vm for vm in found["vms"]}

    def hashes(self) -> list[str]:
        """The contents of the data disks."""
        paths = [f"/dev/zvol/{self.lab.pool}/{vm['uuid']}/disk1" for _name, vm in sorted(self.vms().items())]
        return [self.lab.run(["sha256sum", path]).stdout.split()[0] for path in paths]

    def killed_in(self, number: int, arguments: list[str], *, module: bool) -> int:
        """The status of a run. Its change of that number is killed: the module in the lab, or the whole controller."""
        argv = self.lab.ansible_argv("ansible-playbook", *arguments)
        with subprocess.Popen(
            argv, cwd=self.lab.workdir, env=self.lab.environment(), stdout=subprocess.PIPE, text=True
        ) as running:
            assert running.stdout is not None
            for line in running.stdout:
                number -= line.startswith("TASK") and CHANGE in line
                if number == 0:
                    break
            assert number == 0, "the run ended before"
            self.lab.run(["sh", "-c", WAIT])
            if module:
                self.lab.run(["sh", "-c", KILL])
                running.stdout.read()
            else:
                for process in [running.pid, *descendants(running.pid)]:
                    os.kill(process, signal.SIGKILL)
            return running.wait()


def descendants(process: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    children = [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    return [found for child in children for found in [child, *descendants(child)]]


@pytest.mark.full
def test_a_new_image_with_disks_kept_and_two_kills(lab: Lab) -> None:
    lab.reset()
    for image in IMAGES:
        command = [
            "env",
            f"PYTHONPATH={remote.NODE_TARGET}",
            "python3",
            "-m",
            "simnode.real",
            "image-import",
            image,
            "64",
        ]
        lab.run(command)
    group = Group(lab)
    lab.playbook(*made(group.arguments(IMAGES[0], max_batch_size=3, max_down_per_host=3)))
    vms = group.vms()
    assert sorted(vms) == MEMBERS
    for name in MEMBERS:
        volume = f"/dev/zvol/{lab.pool}/{vms[name]['uuid']}/disk1"
        lab.run(["sh", "-c", f"yes {name} | head -c 16777216 > {volume}"])
    hashes = group.hashes()
    assert len(set(hashes)) == 3
    roll = group.arguments(IMAGES[1], min_in_service=2, max_batch_size=1)
    assert group.killed_in(1, roll, module=True) == 2
    assert group.killed_in(2, roll, module=False) == -signal.SIGKILL
    done = lab.playbook(*made(roll))
    assert "web-0" in done.stdout
    after = group.vms()
    assert {name: vm["uuid"] for name, vm in after.items()} == {name: vm["uuid"] for name, vm in vms.items()}
    for vm in after.values():
        assert (vm["state"], vm["drained"], vm["intent"]) == ("running", False, None)
        assert [disk["image"] for disk in vm["disks"] if disk["boot"]] == [IMAGES[1]]
        assert [disk["image"] for disk in vm["parked"]] == [IMAGES[0]]
    assert group.hashes() == hashes
    again = lab.playbook(*made(roll))
    assert "changed=0" in again.stdout
    assert "nothing to do" in again.stdout


def made(arguments: list[str]) -> tuple[Path, *tuple[str, ...]]:
    """The arguments as Lab.playbook takes them."""
    return Path(arguments[0]), *arguments[1:]
