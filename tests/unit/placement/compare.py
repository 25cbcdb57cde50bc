# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compares our answers with those of hail. Where hail has taken another one of equal candidates, the rest is compared
from hail's choice on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti import answers
from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti.evacuation import closed_hosts
from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti.places import GanetiPlaces
from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti.protocol import (
    Options,
    answer,
    group_key,
)
from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti.requests import read
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.hail_allocation import (
    Demand,
    best_group,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.hail_change_group import (
    NO_GROUPS,
    move_to_best,
    possible_groups,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.hail_evacuation import (
    evacuate_one,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.places import Moved, Places
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.score import NEAR
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.ways import (
    FAILOVER,
    REPLACE,
    Operation,
    Solution,
)

from .clusters import Raw

# What hail does otherwise, each with the reason why that is no model.
QUIRKS = {
    "own host": "hail lets a replica go to the host of its own VM, and its books are wrong then; here no host is both",
    "dump": "hail prints all groups as its source code would; the text here says why there is none to go to",
    "partitions": "where no group may be allocated, hail prints the score that it has for hosts in equal parts",
    "indexes": "hail names hosts by numbers that only it knows; the text here has their names",
}
_GROUP = re.compile("Group [^ ]+: error (The )?")
_SCORE = re.compile(r"(?<=score: )([0-9]+\.[0-9]+)")
_SCORES = re.compile(r"score: [0-9]+\.[0-9]+")


def options_of(words: Sequence[str]) -> Options:
    return Options(True, checked="--no-capacity-checks" not in words, soft="--ignore-soft-errors" not in words)


def alike(ours: str, theirs: str) -> bool:
    """Whether texts are the same, up to the last places of scores: a standard deviation near 0 has no more on which we
    agree. A group that cannot take the VM at all is named by hail in some cases only.
    """
    scores, others = _SCORE.findall(ours), _SCORE.findall(theirs)
    words = [_GROUP.sub("", _SCORE.sub("", text)) for text in (ours, theirs)]
    if words[0] != words[1] or len(scores) != len(others):
        return False
    return all(abs(float(score) - float(other)) < 1e-5 for score, other in zip(scores, others, strict=True))


def difference(raw: Raw, words: Sequence[str], said: Raw) -> tuple[str, set[str]]:
    """How our answer differs from what hail said, "" if it does not; and which ties and quirks there were."""
    if raw["request"]["type"] in ("node-evacuate", "change-group"):
        return _moves(raw, options_of(words), said)
    ours = answer(raw, options_of(words))
    same = (ours["success"], ours["result"]) == (said["success"], said["result"])
    if same and alike(ours["info"], said["info"]):
        return "", set()
    if "score: ([" in said["info"] and not said["success"] and not ours["success"]:
        return "", {"partitions"}
    if " versus " in said["info"] and " versus " in ours["info"]:
        return "", {"indexes"}
    if said["success"] and ours["success"] and _same_scores(ours["info"], said["info"]):
        return "", {"tie"}
    return f"{ours} instead of {said}", set()


def _same_scores(ours: str, theirs: str) -> bool:
    return alike(" ".join(_SCORES.findall(ours)), " ".join(_SCORES.findall(theirs)))


def _moves(raw: Raw, options: Options, said: Raw) -> tuple[str, set[str]]:
    known = read(raw, options.kvm_memory)
    request = raw["request"]
    names = request["instances"]
    seen: set[str] = set()
    evacuates = request["type"] == "node-evacuate"
    places = GanetiPlaces(known, force=evacuates and not options.soft)
    shut = closed_hosts(places, names, request["evac_mode"]) if evacuates else set()
    targets = [] if evacuates else [group_key(known, target) for target in request["target_groups"]]
    keys = [] if evacuates else possible_groups(places, names, targets or None)
    moved, failed, jobs = (list(part) for part in said["result"])
    for name in names:
        if evacuates:
            solution = evacuate_one(places, name, request["evac_mode"], shut)
        else:
            solution = move_to_best(places, name, keys, options.checked)
        if solution.moved is None:
            if not failed or failed[0][0] != name:
                return f"{name} cannot move: {solution.why}, but hail moves it: {moved[:1]} {jobs[:1]}", seen
            why = failed.pop(0)[1]
            if solution.why == NO_GROUPS and why.startswith("no groups for evacuation"):
                seen.add("dump")
            elif not alike(solution.why, why):
                return f"{name}: {solution.why} instead of {why}", seen
            continue
        if not moved or moved[0][0] != name:
            return f"{name} moves: {solution.operations}, but hail says: {failed[:1]}", seen
        theirs, job = moved.pop(0), jobs.pop(0)
        ours = answers.moves(known, [(name, solution)])["result"]
        if (ours[0], ours[2]) != ([theirs], [job]):
            other = replayed(places, name, job)
            if other == "own host":
                return "", seen | {other}
            if isinstance(other, str):
                return f"{name}: hail does {job}, which cannot be: {other}", seen
            far = _further(places, name, keys, other, solution.moved)
            if abs(far) > NEAR:
                return f"{name}: {theirs} is worse by {far} than {ours[0]}", seen
            seen.add("tie")
            solution = Solution(other)
        assert solution.moved is not None
        places.settle(solution.moved)
    return "", seen


def _further(places: Places, name: str, keys: Sequence[str], theirs: Moved, ours: Moved) -> float:
    """How much worse the score is that made hail choose: that of its group, or that of a copy if the groups differ."""
    groups = [places.known.hosts[moved.vm.primary].group for moved in (theirs, ours)]
    if groups[0] == groups[1]:
        return _worth(places, theirs) - _worth(places, ours)
    choices = best_group(places, Demand(places.vms[name], False, moves=True), keys)[1]
    scores = [choices[group].score for group in groups]
    assert scores[0] is not None
    assert scores[1] is not None
    return scores[0] - scores[1]


def _worth(places: Places, moved: Moved) -> float:
    """The score of the group in which a VM is after its move."""
    group = places.known.hosts[moved.vm.primary].group
    return places.score(group).after(places.changes(moved, group))


def replayed(places: Places, name: str, job: list[dict[str, Any]]) -> Moved | str:
    """What is after hail's operations, or why they cannot be."""
    moved: Moved | str = places.begin(name)
    for code in job:
        assert isinstance(moved, Moved)
        operation = Operation(FAILOVER, code.get("target_node", ""))
        if "remote_node" in code:
            operation = Operation(REPLACE, code["remote_node"])
        if operation.target == moved.vm.primary:
            return "own host"
        moved = places.perform(moved, operation)
        if isinstance(moved, str):
            return moved
    return moved
