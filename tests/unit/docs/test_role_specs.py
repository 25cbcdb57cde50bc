# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The argument specs of thin roles say what the documentation of their modules says."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
THIN = ("disk_registry", "flexible_disks", "virtual_machine")


@pytest.fixture
def role_specs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "tools"))
    import role_specs

    return role_specs


def test_the_roles_are_those_that_are_written(role_specs):
    assert set(role_specs.ROLES) == set(THIN)


@pytest.mark.parametrize("name", THIN)
def test_a_spec_is_that_of_the_modules(role_specs, name):
    role = role_specs.Role(name)
    assert role.text == role.render(), "tests/tools/role_specs.py writes it"


@pytest.mark.parametrize("name", THIN)
def test_words_of_its_own_are_those_of_a_variable(role_specs, name):
    """No name in the list is one that nothing has: its description would be the module's, and nobody would notice."""
    role = role_specs.Role(name)
    short = {option.removeprefix(f"{name}_"): spec for option, spec in role.options.items()}
    for path in role.source.own_words - role_specs.COMMON:
        options, found = short, None
        for part in path.split("."):
            found = options[part]
            options = found.get("options", {})
        assert found is not None, path


def test_what_a_module_gets_comes_to_the_role(role_specs, monkeypatch):
    told = role_specs.documentation("vm_disks")
    told["vms"]["suboptions"]["colour"] = {"description": ["As O(vms[].vm). The task is refused."], "type": "str"}
    told["lock_timeout"]["description"] = ["Changed: with O(stop_timeout)."]
    monkeypatch.setattr(role_specs, "documentation", lambda module: told)
    spec = yaml.safe_load(role_specs.Role("flexible_disks").render())["argument_specs"]["main"]["options"]
    colour = spec["flexible_disks_vms"]["options"]["colour"]
    assert colour == {"description": ["As O(flexible_disks_vms[].vm). The role is refused."], "type": "str"}
    assert spec["flexible_disks_lock_timeout"]["description"] == ["Changed: with O(flexible_disks_stop_timeout)."]


def test_an_option_that_the_role_lacks_is_not_named(role_specs, monkeypatch):
    told = role_specs.documentation("vm")
    told["lock_timeout"]["description"] = ["As O(colour)."]
    monkeypatch.setattr(role_specs, "documentation", lambda module: told)
    with pytest.raises(ValueError, match="virtual_machine has no virtual_machine_colour"):
        role_specs.Role("virtual_machine").render()
