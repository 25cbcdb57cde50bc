# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The same programs as real processes in a node's directory: a few cases, to see that nothing is lost on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance import test_observations, test_resize, test_slots, test_update
from tests.conformance.conftest import add_images
from tests.conformance.support import UUID, Backend, CommandBackend, NodeBackend, Vm, base, data_disk, ok

LIBRARY = Path(__file__).resolve().parents[2] / "extensions" / "simulated_node"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("node")
    environment = {**os.environ, "PYTHONPATH": str(LIBRARY)}
    command = [sys.executable, "-m", "simnode", "--dir", str(path), "init", "--pool", "zones:256G"]
    subprocess.run(command, env=environment, check=True)
    from simnode import Node

    with Node.open(path) as node:
        add_images(NodeBackend(node))
    return path


@pytest.fixture
def processes(directory: Path) -> CommandBackend:
    environment = {"PATH": f"{directory / 'bin'}:/usr/bin:/bin", "LC_ALL": "C"}
    backend = CommandBackend(environment)
    backend.run(["vmadm", "delete", UUID])
    backend.run(["zfs", "destroy", "-r", "zones/flexdisk"])
    return backend


@pytest.mark.parametrize(
    "case",
    [
        test_resize.test_r04_grow_data_disk,
        test_resize.test_r06_shrink_refused_without_its_flag,
        test_resize.test_r16_unknown_path_aborts,
        test_slots.test_p10_collision_at_update,
        test_update.test_m12_path_needs_nocreate,
        test_observations.test_zi1_orphan_is_destroyed,
    ],
)
def test_case_through_processes(processes: CommandBackend, case: Callable[[Backend], None]) -> None:
    case(processes)


def test_payload_from_a_file_and_from_words(processes: CommandBackend, tmp_path: Path) -> None:
    vm = Vm(processes)
    payload = tmp_path / "payload.json"
    payload.write_text(json.dumps(base(data_disk(64), flexible_disk_size=11264)))
    result = ok(processes.run(["vmadm", "create", "-f", str(payload)]))
    assert (result.out, result.err) == ("", f"Successfully created VM {UUID}\n")
    result = ok(processes.run(["vmadm", "update", UUID, "flexible_disk_size=12288", "alias=renamed"]))
    assert (result.out, result.err) == ("", f"Successfully updated VM {UUID}\n")
    found = vm.get()
    assert (found["flexible_disk_size"], found["alias"]) == (12288, "renamed")
    assert json.loads(ok(processes.run(["imgadm", "list", "-j"])).out)[0]["manifest"]["type"] == "zvol"


def test_state_is_shared_between_processes(processes: CommandBackend) -> None:
    vm = Vm(processes)
    ok(vm.create(base(data_disk(64))))
    ok(vm.start())
    assert vm.get()["state"] == "running"
    assert ok(processes.run(["vmadm", "list", "-p", "-o", "uuid,type,state"])).out == f"{UUID}:BHYV:running\n"
