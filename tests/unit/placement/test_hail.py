# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Placement beside Ganeti's hail 3.0.2: recorded answers to 57 requests, and the real program on random ones."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti.protocol import answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from . import clusters
from .compare import QUIRKS, difference, options_of

CASES = json.loads((Path(__file__).resolve().parents[1] / "data" / "hail.json").read_text())
REQUESTS = 2000 if os.environ.get("FLEXDISK_FULL") else 200
FIRST = int(os.environ.get("FLEXDISK_SEED", "1")) * 1_000_000
SAID = {
    "cg-unknown-group": "request: 0 groups are called uuid-nope",
    "missing-evac-mode": "request has no evac_mode; it has instances, type",
}


def test_there_are_all_kinds_of_cases():
    assert len(CASES) == 57
    assert {case["request"]["request"]["type"] for case in CASES.values()} == {
        *("node-evacuate", "change-group", "allocate", "allocate-secondary", "relocate"),
    }


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["exit"] == 0])
def test_an_answer_is_that_of_hail(name):
    case = CASES[name]
    words = case["command"].split()[1:-1]
    options = options_of(words)
    if "--static-kvm-node-memory=0" in words:
        options = options._replace(kvm_memory=0)
        assert answer(case["request"], options) == case["answer"]
        return
    wrong, seen = difference(case["request"], words, case["answer"])
    assert wrong == ""
    if not seen:
        assert answer(case["request"], options) == case["answer"]
    assert seen <= {"tie", *QUIRKS}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["exit"]])
def test_a_request_that_hail_refuses_is_refused(name):
    with pytest.raises(FlexdiskError) as caught:
        answer(CASES[name]["request"], options_of(()))
    assert (caught.value.code, caught.value.message) == ("InvalidArgument", SAID[name])


def test_a_group_without_limits_is_refused():
    raw, _words = clusters.request(1)
    del raw["nodegroups"]["uuid-0"]["ipolicy"]["minmax"]
    with pytest.raises(FlexdiskError, match=r"^node group uuid-0 has no minmax; it has disk-templates"):
        answer(raw, options_of(()))


def test_random_requests_are_answered_as_hail_answers_them(hail):
    """Some of the requests have ties or one of hail's quirks. Those where the rest is not compared must be few."""
    kinds: dict[str, int] = {}
    seen: dict[str, int] = {}
    moved = failed = 0
    for seed in range(FIRST, FIRST + REQUESTS):
        raw, words = clusters.request(seed)
        done = subprocess.run([hail, *words, "-"], input=json.dumps(raw), capture_output=True, text=True, check=False)
        assert done.returncode == 0, (seed, done.stderr)
        said = json.loads(done.stdout)
        wrong, special = difference(raw, words, said)
        assert wrong == "", f"seed {seed}, {raw['request']}, {words}: {wrong}"
        kinds[raw["request"]["type"]] = kinds.get(raw["request"]["type"], 0) + 1
        for word in special:
            seen[word] = seen.get(word, 0) + 1
        if raw["request"]["type"] in ("node-evacuate", "change-group"):
            moved, failed = moved + len(said["result"][0]), failed + len(said["result"][1])
    print(f"{REQUESTS} requests, {kinds}, {moved} VMs moved, {failed} not, {seen}")
    assert len(kinds) == 4
    assert min(moved, failed) >= REQUESTS // 3
    assert sum(seen.get(word, 0) for word in ("tie", "own host")) <= REQUESTS // 20
