# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of our own: never worse than hail's, and possible in every order that they allow; and the program."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.iallocator import answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.iallocator_read import read
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.places import Places
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from . import clusters
from .compare import options_of, replayed
from .execution import first_lack
from .test_hail import CASES, FIRST, REQUESTS, hail

PROGRAM = Path(__file__).resolve().parents[3] / "extensions" / "iallocator" / "flexdisk-iallocator"
__all__ = ["hail"]


def score(raw, options, jobs):
    """The score of all hosts after the jobs, None for a job with one of hail's quirks."""
    places = Places(read(raw, options.kvm_memory), force=True)
    for job in jobs:
        moved = replayed(places, job[0]["instance_name"], job)
        if isinstance(moved, str):
            return None
        places.settle(moved)
    return places.score().after()


def requests(make):
    for seed in range(FIRST, FIRST + REQUESTS):
        raw, words = make(seed)
        if raw["request"]["type"] in ("node-evacuate", "change-group"):
            yield seed, raw, words


@pytest.mark.parametrize("make", [clusters.request, clusters.tight])
def test_a_plan_is_never_worse_than_that_of_hail(hail, make):
    more, gains, bound, lacking = 0, [], 0, 0
    for seed, raw, words in requests(make):
        done = subprocess.run([hail, *words, "-"], input=json.dumps(raw), capture_output=True, text=True, check=False)
        theirs, options = json.loads(done.stdout)["result"], options_of(words)._replace(like_hail=False)
        ours = answer(raw, options)["result"]
        named = [sorted(name for name, *_rest in [*result[0], *result[1]]) for result in (ours, theirs)]
        assert named[0] == named[1] == sorted(raw["request"]["instances"])
        moved = [{name for name, *_rest in result[0]} for result in (ours, theirs)]
        assert moved[0] >= moved[1], seed
        assert first_lack(raw, ours[2], seed) == "", seed
        bound += any("depends" in code for job in ours[2] for code in job)
        loose = [[{key: value for key, value in code.items() if key != "depends"} for code in job] for job in ours[2]]
        lacking += first_lack(raw, loose, seed) != ""
        if moved[0] > moved[1]:
            more += 1
            continue
        scores = [score(raw, options, result[2]) for result in (ours, theirs)]
        if scores[1] is not None and moved[1]:
            assert scores[0] <= scores[1] + 1e-9, seed
            gains.append(1 - scores[0] / scores[1])
    mean = sum(gains) / len(gains)
    print(f"more VMs moved in {more}, else the score is {mean:.2%} lower in {len(gains)}, {bound} with depends")
    assert mean > 0
    if make is clusters.tight:
        assert more >= REQUESTS // 4
        assert bound >= lacking >= REQUESTS // 200


@pytest.mark.parametrize("name", ["ne-all-drbd-spread", "ne-n1-no-room", "cg-plain"])
def test_a_refusal_names_hosts_and_figures(name):
    raw = CASES[name]["request"]
    found = answer(raw, options_of(())._replace(like_hail=False))["result"]
    for vm, why in found[1]:
        kind = raw["instances"][vm]["disk_template"]
        assert ": " in why, why
        assert kind in why or "MiB needed" in why, why
    assert name == "ne-all-drbd-spread" or found[1]


def program(*arguments, stdin=None):
    done = subprocess.run([PROGRAM, *arguments], input=stdin, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_program_answers_a_file_and_standard_input(tmp_path):
    case = CASES["ne-primary-drbd"]
    (tmp_path / "request").write_text(json.dumps(case["request"]))
    code, out, err = program(tmp_path / "request", "--like-hail")
    assert (code, json.loads(out), err) == (0, case["answer"], "")
    assert program("-", "--like-hail", stdin=json.dumps(case["request"])) == (0, out, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "flexdisk-iallocator: -: Expecting property name"),
        ("[]", "flexdisk-iallocator: request is [], but must be an object with cluster_tags"),
        ("{}", "flexdisk-iallocator: request has no cluster_tags; it has nothing"),
    ],
)
def test_the_program_refuses_what_is_no_request(text, said):
    code, out, err = program("-", stdin=text)
    assert (code, out) == (1, "")
    assert err.startswith(said)


def test_options_that_are_wrong_are_refused():
    request = json.dumps(CASES["al-plain"]["request"])
    assert program("-", "--static-kvm-node-memory=x", stdin=request)[0] == 2
    code, _out, err = program("-", "--restrict-allocation-to=nowhere", stdin=request)
    assert (code, err) == (1, "flexdisk-iallocator: request: no such node: nowhere\n")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("instances", "vm0", "disks"), [7], "instance vm0, disk is 7, but must be an object with size"),
        (
            ("instances", "vm0", "nics"),
            [{"network": 1}],
            "instance vm0, nic: network is 1, which is not of the right type",
        ),
        (("nodegroups", "uuid-0", "ipolicy", "vcpu-ratio"), float("nan"), "node group uuid-0: vcpu-ratio is nan"),
        (("request", "instances"), [3], "request: instances has 3, which is not a string"),
        (("request", "instances"), ["vm0", "vm0"], "request: named more than once: vm0"),
    ],
)
def test_what_is_wrong_inside_is_named(path, value, said):
    raw, _words = clusters.tight(1)
    place = raw
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(FlexdiskError) as caught:
        answer(raw, options_of(())._replace(like_hail=False))
    assert caught.value.message.startswith(said)
