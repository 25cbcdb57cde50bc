# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/variables.md has every variable of the roles and playbooks, and no page has one that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("roles/*/README.md")])
PLAYBOOKS = sorted(ROOT.glob("playbooks/*.yml"))
ROLES = [
    "flexible_disks",
    "disk_registry",
    "virtual_machine",
    "instance_group",
    "vm_placement",
    "vm_replica",
    "vm_move",
    "guest_growth",
]
NAME = rf"(?<![./\w])((?:flexdisk|{'|'.join(ROLES)}|rfd154)_\w+)"
SECTIONS = (ROOT / "docs" / "variables.md").read_text().split("\n## ")


def told_playbooks():
    """Each variable of the playbooks' tables with the playbooks that the table names."""
    names = {path.stem for path in PLAYBOOKS}
    told = {}
    for section in SECTIONS[1:3]:
        for variable, cell in re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE):
            globs = re.findall(r"`([\w*]+)`", cell)
            listed = {name for name in names for glob in globs if re.fullmatch(glob.replace("*", ".*"), name)}
            told[variable] = names - listed if cell.startswith("all") else listed
    return told


def test_the_tables_of_playbooks_are_complete():
    arguments = yaml.safe_load((ROOT / "playbooks" / "vars" / "arguments.yml").read_text())["_flexdisk_arguments"]
    assert set(arguments) == {path.stem for path in PLAYBOOKS}
    variables = {variable for spec in arguments.values() for variable in spec}
    assert len(variables) > 40
    assert told_playbooks() == {v: {name for name, spec in arguments.items() if v in spec} for v in variables}


@pytest.mark.parametrize("role", ROLES)
def test_the_table_of_roles_is_complete(role):
    options = yaml.safe_load((ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text())
    rows = re.findall(r"^\|.*\|$", SECTIONS[3], re.MULTILINE)[2:]
    column = ROLES.index(role) + 1
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[column])]
    assert sorted(told) == sorted(options["argument_specs"]["main"]["options"])


@pytest.mark.parametrize("role", ROLES)
def test_the_page_of_a_role_has_its_variables(role):
    options = yaml.safe_load((ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text())
    page = (ROOT / "roles" / role / "README.md").read_text()
    told = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(told) == sorted(options["argument_specs"]["main"]["options"])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_pages_name_only_variables_that_exist(page):
    known = set(re.findall(NAME, "\n".join(SECTIONS))) | {path.stem for path in PLAYBOOKS} | {"flexdisk_vms"}  # a file
    assert set(re.findall(NAME, page.read_text())) - known == set()
