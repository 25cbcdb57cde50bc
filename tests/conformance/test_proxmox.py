# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulated `qm` and `pvesm` against what the real ones of PVE 9.2.6 did."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.conformance import proxmox

CASES = proxmox.cases()


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
def test_as_the_real_one(case: dict[str, Any]) -> None:
    found = proxmox.differences(case)
    assert not found, "\n\n".join([case["note"], *found])


def test_no_case_is_left_out() -> None:
    assert len(CASES) == 651


@pytest.mark.parametrize("name", [*proxmox.OTHER_COMMANDS])
def test_the_commands_are_left_out_where_they_differ_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxmox, "OTHER_COMMANDS", {})
    [found] = proxmox.differences(CASES[name])
    assert found.startswith("commands:")


CHANGES = {
    "status": lambda case: case.update(rc=0 if case["rc"] else 1),
    "stdout": lambda case: case.update(stdout=case["stdout"] + "more\n"),
    "stderr": lambda case: case.update(stderr=case["stderr"] + "more\n"),
    "a file": lambda case: case["after"].setdefault("config", {}).update({"999": "memory: 128\n"}),
    "a volume": lambda case: case["after"].update(volumes=[{"name": "rpool/data/vm-999-disk-0", "volsize": 1 << 30}]),
    "a command": lambda case: case["zfs"].append(["zfs", "list"]),
    "a running VM": lambda case: case["after"].update(running=[999]),
    "a plugged disk": lambda case: case["after"].setdefault("plugged", {}).update({"999": {"virtio0": 1}}),
    "another file": lambda case: case["after"].update(files={"/etc/pve/jobs.cfg": "more\n"}),
    "the seconds": lambda case: case.update(seconds=100),
}


@pytest.mark.parametrize("what", [*CHANGES])
@pytest.mark.parametrize("name", ["set-001", "set-running-032", "unlink-017", "destroy-002", "snapshot-038"])
def test_a_difference_is_seen(name: str, what: str) -> None:
    case = copy.deepcopy(CASES[name])
    CHANGES[what](case)
    assert proxmox.differences(case)
