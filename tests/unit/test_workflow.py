# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which ansible-cores and Pythons are tested: the workflow, make_venv.py, requirements and meta/runtime.yml agree."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest
import yaml

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))

from make_venv import CORES, fingerprint, refusal
from stages import TARGETS
from tree import TARGET_PYTHONS

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
JOBS = WORKFLOW["jobs"]
STEPS = [step for job in JOBS.values() for step in job["steps"]]
ROWS = JOBS["test"]["strategy"]["matrix"]["include"]
MAKEFILE = (ROOT / "Makefile").read_text()


def pinned(core: str) -> str:
    found = re.search(r"^ansible-core==(\S+)", (ROOT / "requirements" / f"core-{core}.txt").read_text(), re.MULTILINE)
    assert found
    return found[1]


def test_the_matrix_has_every_core_with_each_of_its_pythons():
    rows = [(row["core"], row["python"]) for row in ROWS]
    assert rows == [(core, python) for core, pythons in CORES.items() for python in pythons]
    assert {python for _core, python in rows} <= set(TARGET_PYTHONS), "which ansible-test is given"


def test_the_cores_are_those_that_the_collection_takes():
    required = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text())["requires_ansible"]
    assert f">={next(iter(CORES))}.0" == required
    assert list(CORES) == sorted(CORES, key=lambda core: [int(part) for part in core.split(".")])
    files = sorted(path.name for path in (ROOT / "requirements").glob("core-*.txt"))
    assert files == [f"core-{core}.txt" for core in CORES]
    assert all(pinned(core).startswith(f"{core}.") for core in CORES)


def test_the_core_of_this_environment_runs_on_the_pythons_that_are_said():
    told = metadata("ansible-core")
    core = ".".join(told["Version"].split(".")[:2])
    assert told["Version"] == pinned(core)
    versions = (re.fullmatch(r".* :: (3\.[0-9]+)", line) for line in told.get_all("Classifier") or ())
    assert CORES[core] == tuple(match[1] for match in versions if match)


def test_the_first_core_is_the_default():
    assert re.search(r"^CORE \?= (\S+)$", MAKEFILE, re.MULTILINE)[1] == next(iter(CORES))
    for rule in ("venv", "demo"):
        assert re.search(
            rf"^{rule}: ; @\$\(PYTHON\) tests/tools/make_venv.py (dev|run) \$\(CORE\)", MAKEFILE, re.MULTILINE
        )


def test_every_step_is_a_target_of_make_or_an_action_at_a_commit():
    targets = {stage for names in TARGETS.values() for stage in names}
    order = ("lint", "sanity", "unit", "long", "conformance", "integration", "molecule")
    called = [step["run"] for step in STEPS if "run" in step]
    assert called == [f"make {name}" for name in order]
    assert targets == {call.split()[1] for call in called} | {"lab-share"}
    uses = [step["uses"] for step in STEPS if "uses" in step]
    assert [use for use in uses if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", use)] == []
    assert JOBS["test"]["env"] == {"CORE": "${{ matrix.core }}"}
    (python,) = (
        step["with"]["python-version"] for step in JOBS["lint"]["steps"] if "setup-python" in step.get("uses", "")
    )
    assert python == CORES[next(iter(CORES))][0]


@pytest.mark.parametrize(
    ("core", "python", "why"),
    [
        ("2.19", "3.11", ""),
        ("2.21", "3.14", ""),
        (
            "2.21",
            "3.11",
            "ansible-core 2.21 runs on Python 3.12, 3.13, 3.14; this is 3.11. Choose with PYTHON= and CORE=",
        ),
        (
            "2.19",
            "3.14",
            "ansible-core 2.19 runs on Python 3.11, 3.12, 3.13; this is 3.14. Choose with PYTHON= and CORE=",
        ),
        ("2.18", "3.11", "CORE is 2.18, and has to be one of 2.19, 2.20, 2.21"),
        ("", "3.11", "CORE is , and has to be one of 2.19, 2.20, 2.21"),
    ],
)
def test_an_environment_that_cannot_be_had_is_refused(core, python, why):
    assert refusal(core, python) == why


def test_a_refusal_makes_nothing(tmp_path):
    tools = tmp_path / "tests" / "tools"
    tools.mkdir(parents=True)
    (tools / "make_venv.py").write_text((ROOT / "tests" / "tools" / "make_venv.py").read_text())
    command = [sys.executable, str(tools / "make_venv.py"), "dev", "2.18"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{refusal('2.18', '3.11')}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["tests"]


def test_another_core_is_another_environment():
    assert len({fingerprint(core) for core in CORES}) == len(CORES)
