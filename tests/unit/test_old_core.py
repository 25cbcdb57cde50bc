# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An older ansible-core, really installed: whatever of the collection is used refuses in words, and changes nothing."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PLAYBOOKS = sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml"))
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())
ACTIONS = sorted(path.stem for path in (ROOT / "plugins" / "action").glob("*.py"))
FILTERS = sorted(path.stem for path in (ROOT / "plugins" / "filter").glob("*.yml"))
MODULES = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py"))

VM = "11111111-0000-4000-8000-000000000001"

# With these each role comes to where it would change something
VARIABLES = {
    "flexible_disks_vms": [{"vm": "web01", "disks": [{"name": "more", "size": "1GiB"}]}],
    "virtual_machine_vms": [{"name": "new", "package": "small"}],
    "disk_registry_disks": [{"name": "more", "size": "1GiB"}],
    "guest_growth_disks": [{"serial": "abc"}],
    "instance_group_name": "web",
    "instance_group_size": 1,
    "instance_group_template": {"package": "small"},
    "vm_move_vm": "web01",
    "vm_move_source": "hv01",
    "vm_move_target": "hv02",
    "vm_placement_vms": [{"name": "new"}],
    "vm_replica_home": "hv01",
    "vm_replica_peer": "hv02",
    "vm_replica_vms": ["web01"],
}

# What a module needs to come so far; actions without a module refuse before they look at their arguments
ARGUMENTS: dict[str, dict[str, object]] = {
    "disk": {"name": "more"},
    "group_lease": {"group": "web"},
    "guest_growth": {"serial": "abc"},
    "guest_growth_info": {"serial": "abc"},
    "host_step": {"run": "receive", "step": "remove", "arguments": {"vms": [VM]}},
    "vm": {"vms": []},
    "vm_disks": {"vms": []},
    "vm_snapshot": {"name": "before"},
}

ROLE = """
- hosts: hv01
  gather_facts: false
  environment: "{{ flexdisk_environment }}"
  tasks:
    - ansible.builtin.include_role: {name: "flexdisk.hypervisor.{{ role }}"}
"""

pytestmark = pytest.mark.skipif(
    not os.environ.get("FLEXDISK_FULL"), reason="installs an older ansible-core; FLEXDISK_FULL=1 runs it"
)


class Old:
    """Two simulated nodes, and the programs of an older ansible-core."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "old" / "bin"
        subprocess.run([sys.executable, "-m", "venv", folder / "old"], check=True)
        pip = [str(self.bin / "pip"), "--disable-pip-version-check", "--quiet", "install"]
        subprocess.run([*pip, "--requirement", str(ROOT / "requirements" / "too_old.txt")], check=True)
        link = folder / "ansible_collections" / "flexdisk" / "hypervisor"
        link.parent.mkdir(parents=True)
        link.symlink_to(ROOT)
        hosts = {}
        for host, scenario in (("hv01", "demo"), ("hv02", "empty")):
            command = [sys.executable, "-m", "simnode", "--dir", folder / host, "init", "--scenario", scenario]
            env = {**os.environ, "PYTHONPATH": str(ROOT / "extensions" / "simulated_node")}
            subprocess.run(command, env=env, check=True, capture_output=True)
            path = f"{folder / host / 'bin'}:{os.environ['PATH']}"
            hosts[host] = {
                "ansible_connection": "local",
                "ansible_python_interpreter": sys.executable,
                "flexdisk_environment": {"PATH": path},
            }
        (folder / "hosts.yml").write_text(yaml.safe_dump({"hypervisors": {"hosts": hosts}}))
        (folder / "role.yml").write_text(ROLE)
        (folder / "vms.flexdisk_vms.yml").write_text("plugin: flexdisk.hypervisor.vms\ninventory: [hosts.yml]\n")

    def run(self, program: str, *words: str, **more: str) -> tuple[int, str]:
        """The status of a program and what it says, on one line."""
        env = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(self.folder), "ANSIBLE_NOCOLOR": "1", **more}
        done = subprocess.run(
            [self.bin / program, *words], cwd=self.folder, env=env, capture_output=True, text=True, check=False
        )
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    def state(self) -> str:
        """A digest of all that the nodes have."""
        files = [path for host in ("hv01", "hv02") for path in (self.folder / host).rglob("*") if path.is_file()]
        digest = hashlib.sha256()
        for path in sorted(files):
            digest.update(str(path).encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    return Old(tmp_path_factory.mktemp("old"))


@pytest.fixture
def refused(old):
    """Run a program, and see that it refuses, fails and changes nothing."""
    before = old.state()

    def run(program, *words, status=2, **more):
        code, said = old.run(program, *words, **more)
        assert re.search(
            r"flexdisk\.hypervisor needs ansible-core 2\.19 or later; this is 2\.18\.[0-9]+\. "
            r"Update ansible-core on the controller, or in the execution environment \[AnsibleTooOld\]",
            said,
        ), said
        assert code == status, said

    yield run
    assert old.state() == before


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_a_playbook(refused, name):
    variables = json.dumps({"flexdisk_vm": "web01", "flexdisk_guests": "hypervisors"})
    refused("ansible-playbook", "-i", "hosts.yml", f"flexdisk.hypervisor.{name}", "-e", variables)


@pytest.mark.parametrize("name", ROLES)
@pytest.mark.parametrize("check", [[], ["--check"]], ids=["real", "check"])
def test_a_role(refused, name, check):
    variables = json.dumps({**VARIABLES, "role": name})
    refused("ansible-playbook", "-i", "hosts.yml", "role.yml", "-e", variables, *check)


@pytest.mark.parametrize("name", sorted({*MODULES, *ACTIONS}))
def test_a_module_or_action(refused, name):
    arguments = ["-a", json.dumps(ARGUMENTS[name])] if name in ARGUMENTS else []
    refused("ansible", "-i", "hosts.yml", "hv01", "-m", f"flexdisk.hypervisor.{name}", *arguments)


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter(refused, name):
    message = f"msg={{{{ [] | flexdisk.hypervisor.{name} }}}}"
    refused("ansible", "-i", "hosts.yml", "hv01", "-m", "ansible.builtin.debug", "-a", message)


def test_the_inventory_plugin(refused):
    refused("ansible-inventory", "-i", "vms.flexdisk_vms.yml", "--list", status=0)  # Ansible goes on without its hosts
    refused(
        "ansible-inventory", "-i", "vms.flexdisk_vms.yml", "--list",
        status=1, ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED="1",
    )  # fmt: skip


def test_the_callback(refused, old):
    refused(
        "ansible-playbook", "-i", "hosts.yml", "role.yml",
        status=1, ANSIBLE_STDOUT_CALLBACK="flexdisk.hypervisor.results", FLEXDISK_RESULTS_PATH=str(old.folder / "none"),
    )  # fmt: skip
