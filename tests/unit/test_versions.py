# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The check that all versions agree, on small trees with one fault each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))

import versions

LOG = "changelogs/changelog.yaml"
OLD = "plugins/modules/old.py"
FILTER = "plugins/filter/new.yml"
PART = "roles/part/meta/main.yml"
ROLE = "roles/part/meta/argument_specs.yml"
ADDED = "version_added"
FORM = "has to be like 1.2.3 or 1.2.3-dev"
NEEDS = "meta/runtime.yml requires 2.19"

RELEASED = {
    "galaxy.yml": "version: 0.1.0\n",
    "CHANGELOG.md": "# Notes\n\n## v0\\.1\\.0\n",
    "README.md": "- Controller: ansible-core 2.19 or later.\n",
    "docs/install.md": "    python3 -m pip install 'ansible-core>=2.19'\n",
    "meta/runtime.yml": "requires_ansible: '>=2.19.0'\n",
    "changelogs/changelog.yaml": """
releases:
  0.1.0:
    modules: [{name: old}]
    objects: {role: [{name: part}]}
""",
    "changelogs/fragments/.keep": "",
    "roles/part/meta/main.yml": "galaxy_info: {min_ansible_version: 2.19.0}\n",
    "roles/part/meta/argument_specs.yml": """
argument_specs:
  main:
    version_added: 0.1.0
    options: {part_size: {type: str}}
""",
    "plugins/modules/old.py": """
DOCUMENTATION = '''
module: old
version_added: 0.1.0
extends_documentation_fragment: [flexdisk.hypervisor._shared, flexdisk.hypervisor._shared.more]
options:
  disks:
    suboptions: {size: {type: str}}
'''
""",
    "plugins/doc_fragments/_shared.py": """
class ModuleDocFragment:
    DOCUMENTATION = 'options: {pool: {type: str}}'
    MORE = 'options: {wait: {type: int}}'
""",
}

# What has been added since, and is right
DEVELOPED = {
    "galaxy.yml": "version: 0.2.0-dev\n",
    "changelogs/fragments/one.yml": "minor_changes: [new - is new.]\n",
    "plugins/filter/new.yml": """
DOCUMENTATION:
  name: new
  version_added: 0.2.0
  options: {_input: {type: raw}, kept: {type: str, version_added: 0.1.0}}
""",
    "plugins/modules/old.py": """
DOCUMENTATION = '''
module: old
version_added: 0.1.0
extends_documentation_fragment: [flexdisk.hypervisor._shared, flexdisk.hypervisor._shared.more]
options:
  disks:
    suboptions: {size: {type: str}, name: {type: dict, version_added: 0.2.0, suboptions: {first: {type: str}}}}
'''
""",
}

NEXT = {
    **DEVELOPED,
    "galaxy.yml": "version: 0.2.0\n",
    "CHANGELOG.md": "# Notes\n\n## v0\\.2\\.0\n\n## v0\\.1\\.0\n",
    "changelogs/changelog.yaml": """
releases:
  0.1.0:
    modules: [{name: old}]
    objects: {role: [{name: part}]}
  0.2.0:
    plugins: {filter: [{name: new}]}
""",
    "changelogs/fragments/one.yml": None,
}


def write(root: Path, files: dict[str, str | None]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(text)


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def commit(root: Path, files: dict[str, str | None]) -> None:
    write(root, files)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "a change")


@pytest.fixture
def tree(tmp_path):
    """A tree whose first release is in its history, by file name."""
    git(tmp_path, "init", "--quiet")
    commit(tmp_path, RELEASED | {"changelogs/changelog.yaml": "releases: {0.0.1: {}}\n"})
    commit(tmp_path, RELEASED)
    return tmp_path


def changed(files: dict[str, str | None], name: str, old: str, new: str) -> dict[str, str | None]:
    text = {**RELEASED, **files}[name]
    assert text is not None
    assert text.count(old) == 1
    return {**files, name: text.replace(old, new)}


@pytest.mark.parametrize("files", [DEVELOPED, NEXT], ids=["developed", "released"])
@pytest.mark.parametrize("commits", [False, True], ids=["uncommitted", "committed"])
def test_trees_in_which_all_agree(tree, files, commits):
    write(tree, files)
    if commits:
        commit(tree, {})
    assert versions.problems(tree) == []


def test_a_release_that_is_made_again_after_more_was_merged(tree):
    commit(tree, NEXT)
    more = changed(NEXT, "plugins/modules/old.py", "size: {type: str}", "size: {type: str}, boot: {type: str}")
    write(tree, more)
    wrong = "module old: disks.boot: version_added is missing, and has to be 0.2.0"
    assert versions.problems(tree) == [wrong]
    more = changed(more, "plugins/modules/old.py", "boot: {type: str}", "boot: {version_added: 0.2.0}")
    commit(
        tree,
        changed(more, "changelogs/changelog.yaml", "  0.2.0:", "  0.2.0:\n    changes: {minor_changes: [old - boot.]}"),
    )
    assert versions.problems(tree) == []
    write(tree, {"galaxy.yml": "version: 0.3.0-dev\n"})
    assert versions.problems(tree) == [], "what the last commit of a release has is not new"


@pytest.mark.parametrize(
    ("base", "name", "old", "new", "said"),
    [
        (DEVELOPED, "galaxy.yml", "0.2.0-dev", "0.2", f"galaxy.yml: version is 0.2, and {FORM}"),
        (DEVELOPED, "galaxy.yml", "0.2.0-dev", "v0.2.0", f"galaxy.yml: version is v0.2.0, and {FORM}"),
        (NEXT, "CHANGELOG.md", "## v0\\.2\\.0", "## later", f"CHANGELOG.md begins with 0.1.0, and {LOG} with 0.2.0"),
        (NEXT, "README.md", "2.19", "2.18", f"README.md: ansible-core 2.18, but {NEEDS}"),
        (NEXT, "README.md", "ansible-core 2.19", "Ansible", f"README.md: ansible-core of no version, but {NEEDS}"),
        (NEXT, "docs/install.md", "2.19", "2.20", f"docs/install.md: ansible-core 2.20, but {NEEDS}"),
        (NEXT, PART, "2.19.0", "2.18.0", f"{PART}: min_ansible_version is 2.18.0, but {NEEDS}.0"),
        (
            NEXT, "meta/runtime.yml", ">=2.19.0", ">2.18",
            "meta/runtime.yml: requires_ansible is >2.18, and has to be like >=2.19.0",
        ),
        (DEVELOPED, FILTER, "_added: 0.2.0", "_added: 0.1.0", f"filter new: {ADDED} is 0.1.0, and has to be 0.2.0"),
        (DEVELOPED, FILTER, "  version_added: 0.2.0\n", "", f"filter new: {ADDED} is missing, and has to be 0.2.0"),
        (
            DEVELOPED, FILTER, "version_added: 0.1.0", "version_added: 0.3.0",
            "filter new: kept: version_added is 0.3.0, and has to be left out",
        ),
        (
            DEVELOPED, OLD, "version_added: 0.2.0", "version_added: 0.3.0",
            "module old: disks.name: version_added is 0.3.0, and has to be 0.2.0",
        ),
        (
            DEVELOPED, OLD, "size: {type: str}", "size: {version_added: 0.2.0}",
            "module old: disks.size: version_added is 0.2.0, and was missing",
        ),
        (
            DEVELOPED, "plugins/doc_fragments/_shared.py", "{wait: {type: int}}", "{wait: {}, after: {type: int}}",
            "module old: after: version_added is missing, and has to be 0.2.0",
        ),
        (NEXT, ROLE, "_added: 0.1.0", "_added: 0.2.0", f"role part: {ADDED} is 0.2.0, and has to be 0.1.0"),
        (
            NEXT, ROLE, "{part_size: {type: str}}", "{part_size: {type: str}, part_name: {}}",
            "role part: part_name: version_added is missing, and has to be 0.2.0",
        ),
        (NEXT, LOG, "{filter: [{name: new}]}", "{}", f"filter new: no release in {LOG} lists it as new"),
    ],
)  # fmt: skip
def test_a_tree_with_one_fault(tree, base, name, old, new, said):
    write(tree, changed(base, name, old, new))
    assert versions.problems(tree) == [said]


def test_a_version_that_is_not_the_newest_release(tree):
    write(tree, changed(NEXT, "galaxy.yml", "0.2.0", "0.3.0"))
    assert versions.problems(tree)[0] == (
        "galaxy.yml: version is 0.3.0, but the newest release in changelogs/changelog.yaml is 0.2.0"
    )
    write(tree, changed(NEXT, "galaxy.yml", "0.2.0", "0.2.0-dev"))
    assert versions.problems(tree)[0] == "galaxy.yml: version is 0.2.0-dev, but 0.2.0 has been released"


def test_a_release_with_fragments_that_wait(tree):
    write(tree, {**NEXT, "changelogs/fragments/two.yml": "bugfixes: [old - is mended.]\n"})
    assert versions.problems(tree) == [
        "galaxy.yml: version is 0.2.0, a release, but fragments wait for the next one: two.yml"
    ]


def test_a_history_without_the_last_release(tree, capsys):
    commit(tree, NEXT)
    clone = tree / "clone"
    git(tree, "clone", "--quiet", "--depth", "1", tree.as_uri(), str(clone))
    shallow = "this clone is shallow, so nothing can be compared with the last release: git fetch --unshallow"
    assert versions.problems(clone, releasing=True) == [shallow]
    assert versions.problems(clone) == []
    assert capsys.readouterr().out == f"note: {shallow}\n"
    git(clone, "fetch", "--unshallow")
    assert versions.problems(clone) == []


def test_a_tarball_of_another_version(tree):
    commit(tree, {**NEXT, "docs/awx.md": "flexdisk-hypervisor-0.2.0.tar.gz flexdisk-hypervisor:0.1.0\n"})
    assert versions.problems(tree) == ["docs/awx.md: names version 0.1.0, but galaxy.yml has 0.2.0"]


def test_a_tree_without_an_earlier_release(tmp_path):
    git(tmp_path, "init", "--quiet")
    commit(tmp_path, {**RELEASED, "galaxy.yml": "version: 0.1.0\n"})
    assert versions.problems(tmp_path, releasing=True) == [
        "no commit has changelogs/changelog.yaml as it was before 0.1.0, so nothing can be compared with it"
    ]
