# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What make test and make verify consist of, and which parts of the second a change asks for."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))

import parts
import stages

from . import conftest

ROOT = Path(__file__).resolve().parents[2]
CODE = ("plugins/", "roles/", "playbooks/", "extensions/simulated_node/", "extensions/guests/", "extensions/awx/")
SHARED = parts.SHARED


def test_every_stage_is_a_target_of_make_and_has_its_minutes():
    wanted = [stage for names in stages.TARGETS.values() for stage in names]
    assert sorted(wanted) == sorted(stages.MINUTES)
    for stage in wanted:
        assert re.search(rf"^{stage}: venv ; ", (ROOT / "Makefile").read_text(), re.MULTILINE), stage
    for target, limit in (("test", 15), ("verify", 50)):
        assert sum(stages.MINUTES[stage] for stage in stages.TARGETS[target]) <= limit


def test_places_of_long_tests_are_those_of_the_table():
    places = {name.split("/")[0].split("::")[0] for name, took in conftest.recorded().items() if took >= conftest.LONG}
    assert {f"tests/unit/{place}" for place in places} == set(parts.LONG)


def test_smoke_plays_exist():
    for name in conftest.SMOKE:
        file, test = name.split("::")
        assert f"def {test}(" in (ROOT / "tests" / "unit" / file).read_text()


def test_files_of_the_table_exist():
    for name, files in {**parts.LONG, **parts.OTHERS}.items():
        for file in files:
            assert (ROOT / file).exists(), (name, file)


@pytest.mark.parametrize(
    ("changed", "some"),
    [
        ("roles/instance_group/tasks/main.yml", {"tests/unit/rolls", "tests/unit/playbooks", "integration"}),
        (f"{SHARED}zfs/exact.py", {"tests/unit/engine", "tests/unit/replication", "lab-share"}),
        (f"{SHARED}engine/host/lock.py", {"tests/unit/engine", "lab-share"}),
        ("tests/unit/rolls/farm.py", {"tests/unit/rolls"}),
        ("docs/moves.md", {"tests/unit/docs"}),
        ("requirements/run.txt", set()),
    ],
)
def test_a_change_asks_for_parts(changed, some):
    found = set(parts.parts([changed]))
    assert some <= found
    assert bool(found) == bool(some)


def test_what_the_lab_takes_from_other_tests_asks_for_the_lab():
    taken = set()
    for path in (ROOT / "tests" / "lab").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
                where = node.module.replace(".", "/")
                inner = [f"{where}/{name.name}" for name in node.names]
                taken.update(f"{name}.py" for name in (where, *inner) if (ROOT / f"{name}.py").exists())
    assert len(taken) > 8
    assert [path for path in sorted(taken) if "lab-share" not in parts.parts([path])] == []


def test_no_code_waits_for_the_night():
    listed = subprocess.run(["git", "ls-files", *CODE], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    without = [path for path in listed.splitlines() if not parts.parts([path])]
    assert len(listed.splitlines()) > 300
    assert [path for path in without if "/doc_fragments/" not in path and not path.endswith((".md", ".txt"))] == []


def test_parts_become_stages(capsys):
    folders = "TESTS=tests/unit/docs tests/unit/lab"
    assert stages.added(["docs/moves.md", "tests/lab/boot.py"]) == [("long", [folders]), ("lab-share", [])]
    assert stages.added([]) == []
    assert stages.added(None) == []
    assert "no main branch" in capsys.readouterr().out


def test_a_stage_over_its_target_is_shown():
    assert stages.row("unit", 0, 7.04) == "unit         ok       7.0 min of 8"
    assert stages.row("unit", 2, 8.1) == "unit         FAILED   8.1 min of 8, over its target"


def test_changed_files_are_those_since_the_branch_and_those_not_committed(tmp_path, monkeypatch):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.com", *words], cwd=tmp_path, check=True)

    monkeypatch.setattr(parts, "ROOT", tmp_path)
    assert parts.changed_files() is None
    git("init", "-q", "-b", "main")
    (tmp_path / "old").write_text("")
    git("add", "."), git("commit", "-qm", "one"), git("checkout", "-qb", "mine")
    assert parts.changed_files() == []
    (tmp_path / "new").write_text("")
    git("add", "."), git("commit", "-qm", "two")
    (tmp_path / "old").write_text("changed")
    (tmp_path / "fresh").write_text("")
    assert parts.changed_files() == ["fresh", "new", "old"]
