# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pages tell of variables and playbooks what their sources say, and name no variable that does not exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.slices import base_name
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.inventory import Host
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.metrics import families

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("roles/*/README.md")])
PLAYBOOKS = sorted(path.stem for path in ROOT.glob("playbooks/*.yml"))
ROLES = sorted(path.name for path in ROOT.glob("roles/*"))
ARGUMENTS = yaml.safe_load((ROOT / "playbooks" / "vars" / "arguments.yml").read_text())["_flexdisk_arguments"]
NAME = rf"(?<![./\w])((?:flexdisk|{'|'.join(ROLES)})_\w+)"
HINT = "tests/tools/reference.py writes it into the page"


@pytest.fixture
def reference(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "tools"))
    import reference

    return reference


@cache
def options(role):
    specs = yaml.safe_load((ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text())
    return specs["argument_specs"]["main"]["options"]


def rows(page):
    """The cells of each row of a page's generated table."""
    text = page.read_text().split("<!-- generated: begin -->")[1].split("<!-- generated: end -->")[0]
    return {
        cells[1]: cells for cells in (line.split("|") for line in text.splitlines()) if cells[1:2] and "`" in cells[1]
    }


def test_pages_have_what_their_sources_say(reference):
    written = {}
    for page in reference.pages():
        written[page] = page.read_text().split(reference.BEGIN)[1].split(reference.END)[0]
    assert len(written) == len(ROLES) + 3
    assert written == {page: f"\n{part}\n" for page, part in reference.pages().items()}, HINT


def test_the_table_has_every_variable_with_those_who_read_it():
    table = rows(ROOT / "docs" / "variables.md")
    of_playbooks = {name for specs in ARGUMENTS.values() for name in specs}
    of_roles = {name for role in ROLES for name in options(role)}
    assert len(of_playbooks) > 90
    assert len(of_roles) > 100
    assert {name.strip(" `") for name in table} == of_playbooks | of_roles
    for name, cells in table.items():
        readers = cells[-2]
        told = set(re.findall(r"playbook-reference\.md#(\w+)", readers))
        told = {*PLAYBOOKS} - told if "all playbooks" in readers else told
        assert told == {playbook for playbook in PLAYBOOKS if name.strip(" `") in ARGUMENTS[playbook]}
        roles = {role for role in ROLES if name.strip(" `") in options(role)}
        assert set(re.findall(r"roles/(\w+)/README", readers)) == roles


@pytest.mark.parametrize("role", ROLES)
def test_the_page_of_a_role_has_its_variables(role):
    table = rows(ROOT / "roles" / role / "README.md")
    assert [name.strip(" `") for name in table] == sorted(options(role))


def test_each_playbook_is_told_as_its_header_says():
    page = (ROOT / "docs" / "playbook-reference.md").read_text()
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == PLAYBOOKS
    plain = " ".join(re.sub(r"`|\[(\w+(?:\.md)?)\]\([^)]*\)", r"\1", page).split())
    for playbook in PLAYBOOKS:
        header = (ROOT / "playbooks" / f"{playbook}.yml").read_text().split("\n# Usage: ")[1].split("\n\n")[0]
        words = " ".join(line.removeprefix("#").strip() for line in header.splitlines())
        assert words.replace("docs/", "") in plain


def test_defaults_and_choices(reference):
    told = {variable.name: variable.value for variable in reference.variables()}
    assert told["flexible_disks_stop_timeout"] == "seconds or `PT1M30S`; default `180`"
    assert told["flexible_disks_libvirt_uri"] == "str; default `qemu:///system`"
    assert told["flexible_disks_pool"] == "str"
    assert told["flexible_disks_matching"] == "`name`, `order`; default `name`"
    assert told["flexible_disks_allow_restart"] == "bool; default `false`"
    assert told["vm_move_vm"] == "str; required"
    assert told["flexdisk_size"] == "int, 0 to 10000; required"
    assert told["flexdisk_most_steps"] == "int, at least 1"
    assert told["flexdisk_vm"] == "str or dict", "some playbooks do without"
    assert told["flexdisk_list_state"] == "list of `attached`, `detached`, `orphaned`"


def test_markup_becomes_markdown(reference):
    assert reference.markdown("With V(a), as O(x=y) and O(a.b.vm#module:vms[].name) of M(a.b.vm)") == (
        "With `a`, as `x=y` and `vms[].name` of `a.b.vm` of `a.b.vm`"
    )


def test_a_variable_without_a_meaning_is_named(reference, monkeypatch):
    read = reference.read
    known = read("playbooks/vars/meanings.yml")
    del known["flexdisk_size"]
    monkeypatch.setattr(reference, "read", lambda path: known if path.endswith("meanings.yml") else read(path))
    with pytest.raises(SystemExit, match=r"lacks, or is alone with, flexdisk_size$"):
        reference.variables.__wrapped__()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_pages_name_only_variables_that_exist(page):
    known = {name for specs in ARGUMENTS.values() for name in specs} | {
        name for role in ROLES for name in options(role)
    }
    text = page.read_text()
    results = re.findall(NAME, (ROOT / "docs" / "variables.md").read_text().split("<!-- generated: end -->")[1])
    prefixes = {f"{name}_" for name in ("flexdisk", *ROLES)}
    files = {"flexdisk_vms"}
    settings = yaml.safe_load((ROOT / "extensions" / "awx" / "objects" / "settings.yml").read_text())
    metrics = {family.name for family in families(Host((), {}, {}), "vmadm", [], [])}
    names = (
        {base_name(name) for name in re.findall(NAME, text)}
        - known
        - {*results}
        - prefixes
        - {*PLAYBOOKS}
        - files
        - {*settings}
    )
    assert names - (metrics if page.name == "metrics.md" else set()) == set()
