# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of our own: never worse than hail's, and possible in every order that they allow; and the program."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti.places import GanetiPlaces
from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti.protocol import answer
from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti.requests import read
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from . import clusters
from .compare import options_of, replayed
from .execution import first_lack, impossible
from .test_hail import CASES, FIRST, REQUESTS

PROGRAM = Path(__file__).resolve().parents[3] / "extensions" / "iallocator" / "flexdisk-iallocator"


def score(raw, options, jobs):
    """The score of all hosts after the jobs, None for a job with one of hail's quirks."""
    places = GanetiPlaces(read(raw, options.kvm_memory), force=True)
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


@pytest.mark.parametrize("make", [clusters.request, clusters.tight, clusters.astray])
def test_a_plan_is_never_worse_than_that_of_hail(hail, make):
    more, gains, bound, lacking, refused = 0, [], 0, 0, 0
    for seed, raw, words in requests(make):
        done = subprocess.run([hail, *words, "-"], input=json.dumps(raw), capture_output=True, text=True, check=False)
        theirs, options = json.loads(done.stdout)["result"], options_of(words)._replace(like_hail=False)
        ours = answer(raw, options)["result"]
        named = [sorted(name for name, *_rest in [*result[0], *result[1]]) for result in (ours, theirs)]
        assert named[0] == named[1] == sorted(raw["request"]["instances"])
        moved = [{name for name, *_rest in result[0]} for result in (ours, theirs)]
        cannot = impossible(raw, theirs[2])
        refused += bool(cannot)
        assert moved[0] >= moved[1] - cannot, seed
        assert first_lack(raw, ours[2], seed) == "", seed
        bound += any("depends" in code for job in ours[2] for code in job)
        loose = [[{key: value for key, value in code.items() if key != "depends"} for code in job] for job in ours[2]]
        lacking += first_lack(raw, loose, seed) != ""
        if moved[0] != moved[1] or cannot:
            more += moved[0] > moved[1]
            continue
        scores = [score(raw, options, result[2]) for result in (ours, theirs)]
        if scores[1] is not None and moved[1]:
            assert scores[0] <= scores[1] + 1e-9, seed
            gains.append(1 - scores[0] / scores[1] if scores[1] else 0.0)
    mean = sum(gains) / len(gains)
    print(f"more VMs moved in {more}, else the score is {mean:.2%} lower in {len(gains)}, {bound} with depends")
    assert mean > 0
    assert (refused > REQUESTS // 50) == (make is clusters.astray)
    if make is clusters.tight:
        assert more >= REQUESTS // 4
        assert bound >= lacking >= REQUESTS // 200


OURS = options_of(())._replace(like_hail=False)


def test_hosts_of_other_vms_of_the_request_are_not_closed():
    request = CASES["ne-all-drbd-spread"]["request"]
    assert answer(request, options_of(()))["result"][0] == []
    moved, failed, _jobs = answer(request, OURS)["result"]
    assert (len(moved), failed) == (len(request["request"]["instances"]), [])
    (left,) = set.intersection(*(set(request["instances"][name]["nodes"]) for name, *_rest in moved))
    assert all(left not in hosts for _name, _group, hosts in moved)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ne-n1-no-room", "a3: memory: 4096 MiB needed, 28744 MiB free, 26000 MiB of them kept for failovers"),
        ("cg-plain", "a VM with disks of type plain cannot leave its host: the disks are its host's own"),
        ("ne-secondary-plain", "a VM with disks of type plain cannot leave its host: the disks are its host's own"),
        ("ne-vcpu-ratio", "CPUs: "),
        ("ne-exclusion-tags-primary", "has a VM with the exclusive tag "),
        ("cg-ipolicy-max-memory", "its memory is outside the limits of the group"),
        ("cg-exclusion-tags", "has a VM with the exclusive tag "),
    ],
)
def test_a_refusal_names_hosts_and_figures(name, said):
    failed = answer(CASES[name]["request"], OURS)["result"][1]
    assert failed
    assert all(said in why for _vm, why in failed), failed


def test_a_group_that_is_not_involved_does_not_stand_in_the_way():
    """A VM of another group is on a host that could not be lost: hail moves nothing and makes nothing new then."""
    raw = CASES["cg-third-group-not-n1-drbd"]["request"]
    assert answer(raw, options_of(()))["result"][0] == []
    assert answer(raw, OURS)["result"][0] != []
    vm = next(iter(raw["instances"].values()))
    new = {key: value for key, value in vm.items() if key not in ("nodes", "admin_state")}
    request = {**raw, "request": {**new, "type": "allocate", "name": "new", "group_name": None}}
    assert answer(request, options_of(()))["success"] is False
    assert answer(request, OURS)["success"] is True


def program(*arguments, stdin=None):
    done = subprocess.run([PROGRAM, *arguments], input=stdin, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_program_answers_a_file_and_standard_input(tmp_path):
    case = CASES["ne-primary-drbd"]
    (tmp_path / "request").write_text(json.dumps(case["request"]))
    code, out, err = program(tmp_path / "request", "--like-hail")
    assert (code, json.loads(out), err) == (0, case["answer"], "")
    assert program("-", "--like-hail", stdin=json.dumps(case["request"])) == (0, out, "")
    (tmp_path / "link").symlink_to(PROGRAM)
    linked = subprocess.run([tmp_path / "link", tmp_path / "request", "--like-hail"], capture_output=True, check=True)
    assert linked.stdout.decode() == out


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
