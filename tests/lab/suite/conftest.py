# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fixtures of the tests that run in the lab."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import boot
import machines
from failures import Failures
from harness import Lab


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of what only `lab.py full` runs, and what says failures at once."""
    config.addinivalue_line("markers", "full: takes long, left out of make verify")
    config.pluginmanager.register(Failures(config))


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The running lab, for this suite alone."""
    if boot.pid() is None:
        pytest.fail("the lab is down: python3 tests/lab/lab.py up (or run the suite through `lab.py test`)")
    with boot.alone():
        yield Lab(tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="session")
def peer(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The second machine, booted for this suite unless it is up."""
    with boot.machine(boot.MACHINES[1]):
        was_up = boot.pid() is not None
        machines.bring_up()
    yield Lab(tmp_path_factory.mktemp("peer"), boot.MACHINES[1])
    with boot.machine(boot.MACHINES[1]):
        if not was_up:
            boot.stop()


@pytest.fixture
def scratch(lab: Lab, request: pytest.FixtureRequest) -> Iterator[str]:
    """A file system of its own for one test, destroyed afterwards."""
    name = f"{lab.pool}/test-{request.node.name.replace('[', '-').replace(']', '')}"
    lab.zfs("create", name)
    yield name
    gone = f"udevadm settle; zfs destroy -R {name}"  # a device that was renamed last is looked into yet once more
    lab.run(["sh", "-c", f"{gone} || {{ sleep 2; {gone}; }}"])
