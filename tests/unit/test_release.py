# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A release of a small tree, made, and made again after more was merged."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
GALAXY = "namespace: flexdisk\nname: hypervisor\nversion: 0.2.0-dev\nreadme: README.md\nauthors: [nobody]\n"


@pytest.fixture
def tree(tmp_path):
    for name in ("tests/tools/release.py", "tests/tools/versions.py", "tests/tools/tree.py", "changelogs/config.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name, text in {
        ".gitignore": ".venv\n",
        "galaxy.yml": GALAXY,
        "README.md": "Needs ansible-core 2.19 or later.\n",
        "docs/install.md": "Needs ansible-core 2.19 or later.\n",
        "docs/awx.md": "flexdisk-hypervisor-0.1.0.tar.gz\n",
        "meta/runtime.yml": "requires_ansible: '>=2.19.0'\n",
        "CHANGELOG.md": "## v0\\.1\\.0\n",
        "changelogs/changelog.yaml": "ancestor: null\nreleases: {0.1.0: {release_date: '2026-01-01'}}\n",
        "changelogs/fragments/release_summary.yml": "release_summary: In plain words.\n",
        "changelogs/fragments/one.yml": "bugfixes: [vm - the first.]\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "--all"], cwd=tmp_path, check=True)
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, "commit", "--quiet", "--message", "a tree"], cwd=tmp_path, check=True)
    return tmp_path


def release(tree: Path, version: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(tree / "tests" / "tools" / "release.py"), version]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)


def test_a_release_is_made_and_made_again(tree):
    done = release(tree, "0.2.0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tree / "galaxy.yml").read_text() == GALAXY.replace("0.2.0-dev", "0.2.0")
    assert (tree / "docs" / "awx.md").read_text() == "flexdisk-hypervisor-0.2.0.tar.gz\n"
    changes = {"release_summary": "In plain words.", "bugfixes": ["vm - the first."]}
    assert (
        yaml.safe_load((tree / "changelogs" / "changelog.yaml").read_text())["releases"]["0.2.0"]["changes"] == changes
    )
    (tree / "changelogs" / "fragments" / "two.yml").write_text("bugfixes: [vm - the second.]\n")
    done = release(tree, "0.2.0")
    assert done.returncode == 0, done.stdout + done.stderr
    changes["bugfixes"] = ["vm - the first.", "vm - the second."]
    assert (
        yaml.safe_load((tree / "changelogs" / "changelog.yaml").read_text())["releases"]["0.2.0"]["changes"] == changes
    )
    assert list((tree / "changelogs" / "fragments").iterdir()) == []
    told = (tree / "CHANGELOG.md").read_text()
    assert [told.count(text) for text in ("## v0\\.2\\.0\n", "In plain words\\.", "the second")] == [1, 1, 1]


def test_a_release_of_another_version_is_refused(tree):
    done = release(tree, "0.3.0")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "galaxy.yml has version 0.2.0-dev: this tree is not what becomes 0.3.0\n"
    assert (tree / "galaxy.yml").read_text() == GALAXY


def test_a_release_that_does_not_agree_fails(tree):
    (tree / "README.md").write_text("Needs ansible-core 2.18 or later.\n")
    done = release(tree, "0.2.0")
    assert done.returncode == 1
    assert done.stderr.endswith("README.md: ansible-core 2.18, but meta/runtime.yml requires 2.19\n")
