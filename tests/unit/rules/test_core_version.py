# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which versions of ansible-core are refused, and that all who say it say the same."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleError, AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import core_version
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

ROOT = Path(__file__).resolve().parents[3]
PLUGINS = "ansible_collections.flexdisk.hypervisor.plugins"
ALONE = [
    path.stem
    for path in sorted((ROOT / "plugins" / "action").glob("*.py"))
    if "_core.check()" in path.read_text() or not re.search(r"_execute_module|\(Watched", path.read_text())
]
FILTERS = sorted(path.stem for path in (ROOT / "plugins" / "filter").glob("*.py"))


@pytest.mark.parametrize("version", ["2.19.0", "2.19.0b1", "2.20.1", "2.21.0.dev0", "3.0.0", "10.2"])
def test_taken(version):
    assert core_version.refusal(version) == ""
    _core.check(version)


@pytest.mark.parametrize("version", ["2.9.27", "2.16.19", "2.17.14", "2.18.19rc1", "1.9"])
def test_refused(version):
    message = f"flexdisk.hypervisor needs ansible-core 2.19 or later; this is {version}. Update ansible-core on the "
    assert core_version.refusal(version) == message + "controller, or in the execution environment"
    with pytest.raises(AnsibleError, match=message) as caught:
        _core.check(version)
    assert caught.value.message == core_version.refusal(version) + _core.CODE


@pytest.mark.parametrize("name", FILTERS)
def test_filters_are_as_they_are_or_refuse_when_they_are_used(monkeypatch, name):
    plugin = import_module(f"{PLUGINS}.filter.{name}").FilterModule()
    there = plugin.filters()
    monkeypatch.setattr(core_version, "refusal", lambda _version: "too old")
    refusing = plugin.filters()
    assert refusing.keys() == there.keys()
    for word in there:
        assert there[word].__name__ == word
        with pytest.raises(AnsibleFilterError, match=r"too old \[AnsibleTooOld\]"):
            refusing[word]([], some="option")


@pytest.mark.parametrize("path", sorted((ROOT / "plugins" / "modules").glob("*.py")), ids=lambda path: path.stem)
def test_modules_tell_their_core(path):
    """What the run of a module does with it is in the tests of the modules."""
    main = path.read_text().partition("\ndef main()")[2]
    assert ("__version__" in main) != (path.stem in ALONE)


@pytest.mark.parametrize("name", ALONE)
def test_actions_without_a_module_refuse_by_themselves(monkeypatch, name):
    monkeypatch.setattr(core_version, "refusal", lambda _version: "too old")
    action = import_module(f"{PLUGINS}.action.{name}").ActionModule(*[None] * 6)
    with pytest.raises(AnsibleError, match="too old"):
        action.run()


def test_the_callback_refuses(monkeypatch):
    monkeypatch.setattr(core_version, "refusal", lambda _version: "too old")
    with pytest.raises(AnsibleError, match="too old"):
        import_module(f"{PLUGINS}.callback.results").CallbackModule()


def test_what_ansible_is_told_is_the_same():
    runtime = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text())
    assert runtime["requires_ansible"] == ">=%d.%d.0" % core_version.FLOOR


@pytest.mark.parametrize("path", sorted((ROOT / "playbooks").glob("*.yml")), ids=lambda path: path.stem)
def test_playbooks_begin_with_an_action_that_refuses(path):
    plays = yaml.safe_load(path.read_text())
    assert "check_variables" in ALONE
    first = [next(iter(play.get("tasks", [{}]))) for play in plays]
    imported = ["ansible.builtin.import_playbook" in play for play in plays]
    assert "flexdisk.hypervisor.check_variables" in first[0] or imported[0]
