# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of `make bench` about placement, with small clusters: its requests are answered, and a miss is told."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def bench(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "tools"))
    found = import_module("tests.bench.placement")
    monkeypatch.setattr(found, "WORK", tmp_path)
    return found


def test_every_request_is_measured_beside_hail(hail, bench, monkeypatch, capsys):
    monkeypatch.setattr(bench, "MOST_MEMORY", 100)
    small = [
        one._replace(nodes=min(one.nodes, 8), groups=min(one.groups, 2), all=4, sampled=2, times=(0, 1e9))
        for one in bench.REQUESTS
    ]
    assert bench.placement(tuple(small), (4,)) == [f"{one.name}, --like-hail" for one in bench.REQUESTS]
    said = capsys.readouterr().out
    assert said.count("(from 2 of 4 VMs), ours ") == len(bench.REQUESTS)
    assert "by the number of nodes: 4: " in said


def test_a_vm_that_does_not_move_is_no_measurement(bench):
    found = bench.cluster(2, 1, "drbd")
    with pytest.raises(SystemExit, match="did not move all VMs"):
        bench.ours(bench.written(found, "change-group", 1))
