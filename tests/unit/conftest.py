# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What takes long has the mark long, by its recorded duration, and comes first. FLEXDISK_RECORD=1 records anew.

What ansible-playbook builds of a module is built once for all tests, and all workers.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))

from tree import built_once

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")  # a busy machine is no failure

RECORD = Path(__file__).with_name("durations.json")
WORTH_RECORDING = 2.0  # seconds
LONG = 3.0
SMOKE = (  # one play each of what users do, which make test has, however long they take
    "playbooks/test_in_process.py::test_they_print_the_same",
    "playbooks/test_plan_and_apply.py::test_what_has_changed_on_one_host_stops_all",
    "playbooks/test_report.py::test_all_hosts_are_on_one_page",
    "playbooks/test_move_vm.py::test_what_check_mode_tells",
    "playbooks/test_failover_vm.py::test_the_new_home_has_renamed_it",
    "rolls/test_rolls.py::test_a_step_that_fails_is_gone_back_on",
)


def recorded() -> dict[str, float]:
    """The seconds of each test that is worth recording, by its name below tests/unit."""
    return dict(json.loads(RECORD.read_text()))


def short(nodeid: str) -> str:
    """The name of a test below tests/unit."""
    return nodeid.removeprefix("tests/unit/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, or one worker would do the last one alone."""
    seconds = recorded()
    for item in items:
        if seconds.get(short(item.nodeid), 0) >= LONG and short(item.nodeid) not in SMOKE:
            item.add_marker("long")
    items.sort(key=lambda item: -seconds.get(short(item.nodeid), 0))


def pytest_collection_finish() -> None:
    """Let the garbage collector leave alone what is there: it took a tenth of the time of tests in process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


class Recorder:
    """Writes down how long each test has taken."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[short(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        fresh = {name: round(took, 1) for name, took in self.seconds.items()}
        kept = {name: took for name, took in {**recorded(), **fresh}.items() if took >= WORTH_RECORDING}
        RECORD.write_text(json.dumps(dict(sorted(kept.items())), indent=0, ensure_ascii=False) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    os.fsync = lambda fd: None  # no machine loses power here, and disks of test machines are slow
    config.addinivalue_line("markers", "long: has been recorded as taking long, and is left to make verify")
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="flexdisk-built-")
        config.add_cleanup(folder.cleanup)
        os.environ.update(built_once(folder.name))
        if os.environ.get("FLEXDISK_RECORD"):
            config.pluginmanager.register(Recorder())
