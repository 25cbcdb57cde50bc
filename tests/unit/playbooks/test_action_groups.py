# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action groups for module_defaults: what the page says of each, and its example run by Ansible."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.basic import AnsibleModule
from simnode import scenarios
from simnode.__main__ import install_programs

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "variables.md").read_text().split("\n## Defaults for modules\n")[1]
GROUPS = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text())["action_groups"]
MODULES = "ansible_collections.flexdisk.hypervisor.plugins.modules."


def options_of(module, monkeypatch):
    """The names of a module's options, as it hands them to Ansible."""
    seen = []

    def stop(_self, argument_spec, **_more):
        seen.extend(argument_spec)
        raise SystemExit

    monkeypatch.setattr(AnsibleModule, "__init__", stop)
    with pytest.raises(SystemExit):
        import_module(MODULES + module).main()
    return set(seen)


@pytest.mark.parametrize("group", GROUPS)
def test_every_module_of_a_group_has_its_options(group, monkeypatch):
    rows = re.findall(r"^\| `flexdisk\.hypervisor\.(\w+)` \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE)
    said = {name: (set(re.findall(r"`(\w+)`", options)), words) for name, options, words in rows}
    assert set(said) == set(GROUPS)
    options, words = said[group]
    told = set(re.findall(r"`(\w+)`", words))
    members = set(GROUPS["all"]) - told if words.startswith("all") else told
    assert set(GROUPS[group]) == members
    having = {module for module in GROUPS["all"] if options <= options_of(module, monkeypatch)}
    assert having == members


def test_the_example_runs(tmp_path):
    """On the demo node, with ansible-playbook itself: an option of one group must not reach a module without it."""
    scenarios.build("demo", tmp_path / "node").save()
    install_programs(tmp_path / "node")
    (play,) = yaml.safe_load(re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0])
    path = f"{tmp_path / 'node' / 'bin'}:{os.environ['PATH']}"
    (tmp_path / "play.yml").write_text(yaml.safe_dump([{**play, "environment": {"PATH": path}}]))
    hosts = {"hv01": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"hypervisors": {"hosts": hosts}}))
    folder = tmp_path / "collections" / "ansible_collections" / "flexdisk"
    folder.mkdir(parents=True)
    (folder / "hypervisor").symlink_to(ROOT)
    env = dict(os.environ, ANSIBLE_COLLECTIONS_PATH=str(tmp_path / "collections"), ANSIBLE_NOCOLOR="1")
    command = [sys.executable, "-m", "ansible.cli.playbook", "-vvv", "-i", "hosts.yml", "play.yml"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"hv01 +: ok=3 ", done.stdout)
    assert done.stdout.count('"lock_timeout": 300') == 2
    assert done.stdout.count('"stop_timeout": 60') == 1
    assert done.stdout.count('"on_refusal": "continue"') == 2
    assert done.stdout.count('"hypervisor": "vmadm"') == 3
    assert len(list(Path(os.environ["FLEXDISK_BUILT"]).glob("*.flexdisk.hypervisor.*-none"))) >= 2, "not built once"
