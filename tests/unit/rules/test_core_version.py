# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which versions of ansible-core are refused, and that all who say it say the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleParserError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import core_version
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("version", ["2.19.0", "2.19.0b1", "2.20.1", "2.21.0.dev0", "3.0.0", "10.2"])
def test_taken(version):
    assert core_version.refusal(version) == ""
    _core.check(version)


@pytest.mark.parametrize("version", ["2.9.27", "2.16.19", "2.17.14", "2.18.19rc1", "1.9"])
def test_refused(version):
    said = f"flexdisk.hypervisor needs ansible-core 2.19 or later; this is {version}"
    assert core_version.refusal(version) == said
    with pytest.raises(AnsibleParserError, match=said):
        _core.check(version)


def test_what_ansible_is_told_is_the_same():
    runtime = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text())
    assert runtime["requires_ansible"] == ">=%d.%d.0" % core_version.FLOOR
    tasks = yaml.safe_load((ROOT / "playbooks" / "tasks" / "check_variables.yml").read_text())
    task = tasks[0]["ansible.builtin.assert"]
    assert "version('%d.%d', '>=')" % core_version.FLOOR in task["that"]
    assert task["fail_msg"].replace("{{ ansible_version.full }}", "2.18.0") == core_version.refusal("2.18.0")
