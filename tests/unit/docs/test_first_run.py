# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/first-run.md, from the first command to the last, on a simulated node that has the VM of the page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))

from tree import in_forks

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "first-run.md").read_text()
STEP = re.compile(
    r"^```yaml\n# (?P<file>[\w/.]+)\n(?P<content>.*?)^```$|^    (?P<command>ansible-playbook (?:[^\n]*\\\n)*[^\n]*)$",
    re.MULTILINE | re.DOTALL,
)
INVENTORY = """\
hypervisors:
  hosts:
    hv01:
      ansible_connection: local
      ansible_python_interpreter: "{{ ansible_playbook_python }}"
      flexdisk_environment:
        PATH: "{{ inventory_dir }}/../node/bin:{{ lookup('ansible.builtin.env', 'PATH') }}"
"""
CONFIGURATION = "[defaults]\ninventory = inventory\ncollections_path = collections\ndisplay_skipped_hosts = false\n"


@pytest.fixture
def tools(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "tools"))
    import excerpts
    import walk

    return excerpts, walk


@pytest.fixture
def project(tools, tmp_path):
    """Runs a command line in a folder with collection, inventory and configuration."""
    (tmp_path / "collections" / "ansible_collections" / "flexdisk").mkdir(parents=True)
    (tmp_path / "collections" / "ansible_collections" / "flexdisk" / "hypervisor").symlink_to(ROOT)
    (tmp_path / "inventory" / "host_vars").mkdir(parents=True)
    (tmp_path / "inventory" / "hosts.yml").write_text(INVENTORY)
    (tmp_path / "ansible.cfg").write_text(CONFIGURATION)
    env = tools[1].newcomer(tmp_path) | in_forks() | {"PYTHONPATH": str(ROOT / "extensions" / "simulated_node")}
    node = [sys.executable, "-m", "simnode", "--dir", "node", "init", "--scenario", "demo"]
    subprocess.run(node, cwd=tmp_path, env=env, check=True)

    def run(command):
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, tools[0].telling(done.stdout), done.stderr)
        return done.stdout

    return run


def test_the_page_is_a_way_there_and_back(project, tools, tmp_path):
    excerpts, _walk = tools
    printed = {}
    seen = []
    allow = "-e flexible_disks_allow_restart=true"
    for step in STEP.finditer(PAGE):
        if step["file"]:
            (tmp_path / step["file"]).write_text(step["content"])
            continue
        command = step["command"]
        playbook = command.split("flexdisk.hypervisor.")[1].split()[0]
        plan = project(f"{command} {allow}" if playbook == "rollback" else command)
        printed.setdefault(playbook, []).append("\n".join(excerpts.telling(plan)))
        seen.append(playbook)
        if "--check" in command and playbook != "converge":
            real = command.replace(" --check", "")
            project(f"{real} {allow}" if playbook == "rollback" else real)
    assert seen == [
        *("report", "verify_disks", "adopt", "snapshot", "converge", "converge"),
        *("converge", "report", "verify_disks", "rollback", "adopt", "snapshot"),
    ]
    planned, done, again = printed["converge"]
    assert "~ data 20 GiB -> 30 GiB" in planned
    assert done == planned, "the real run does exactly what the plan says"
    assert again == "", "the first must print no plan now"
    before, after = printed["report"]
    assert "(disk1)" in before
    assert re.search(r"data +0:4:1 +30 GiB +yes", after)
    assert "rolled back to before" in printed["rollback"][0]
    assert "data 30 GiB -> 20 GiB" in printed["rollback"][0]
    assert "snapshot before" in printed["snapshot"][1]
