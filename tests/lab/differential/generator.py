# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes sequences: what comes next is drawn from the simulator's present, and what it does is foretold."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from simnode import Node

from differential import model
from differential.model import MIB, POOL, Command, Script, Step
from differential.profile import GENERAL, Profile
from differential.provoke import no_room_for_write
from differential.world import World

LENGTH = 60
ATTEMPTS = 12
PATIENCE = 5
"""Draws of a command that would fail unasked, before one is taken."""


SURE = frozenset(
    ("set user property", "set readonly", "inherit", "hold", "release", "rename snapshot", "destroy",
     "destroy snapshot", "destroy -r", "guest discard", "bookmark", "destroy bookmark", "receive -A")
)  # fmt: skip
"""Kinds of commands that no lack of space refuses."""


def kind_of(argv: Sequence[str]) -> str:
    """What a command counts as."""
    if argv[0] == "stream":
        return _stream_kind(argv)
    operands = [operand for operand in argv[1:] if not operand.startswith("-")]
    verb, flags = operands[0], argv[2:]
    if argv[0] == "guest":
        return "guest write" if verb == "write" else "guest discard"
    if verb == "create":
        volume = "-V" in flags
        return "create sparse volume" if volume and "-s" in flags else f"create {'volume' if volume else 'filesystem'}"
    if verb == "set":
        names = [operand.partition("=")[0] for operand in operands[1:] if "=" in operand]
        if len(names) > 1:
            return "set several"
        return "set user property" if ":" in names[0] else f"set {names[0]}"
    if verb == "rename":
        return "rename snapshot" if "@" in operands[1] else "rename dataset"
    if verb == "receive":
        return "receive -A"
    if verb == "destroy" and "#" in operands[1]:
        return "destroy bookmark"
    if verb == "destroy":
        below = "-r" in flags or "-R" in flags
        return "destroy -r" if below else "destroy snapshot" if "@" in operands[1] else "destroy"
    return "snapshot -r" if verb == "snapshot" and "-r" in flags else verb


def _stream_kind(argv: Sequence[str]) -> str:
    sending = argv[: argv.index("|")]
    made = "rest" if "-t" in sending else "increment" if "-i" in sending else "full"
    return f"cut {made} stream" if argv[1] != "0" else f"{made} stream"


def generate(seed: int, usable: int, length: int = LENGTH, profile: Profile = GENERAL) -> Script:
    """The sequence of that seed, for a pool whose datasets may use `usable` bytes."""
    rng = random.Random(seed)
    node = model.new_node(usable)
    world = World(node, rng, profile.crowd)
    script = Script(seed)
    counts: Counter[str] = Counter()
    for line in ("create difftest/a", "create -o quota=700M difftest/b", "create -V 64M difftest/a/disk0"):
        argv = ("zfs", *line.split())
        script.steps.append(Step(Command(kind_of(argv), argv), model.run(node, argv)))
    while len(script.steps) < length:
        step = _next(world, counts, profile)
        script.steps.append(step)
        if step.last:
            break
    if not script.steps[-1].last:
        final = no_room_for_write(world)
        if final and (step := foretell(node, final)).last and not step.close:
            script.steps.append(step)
    script.contents = {} if script.steps[-1].last else model.contents_of(node)
    return script


def replay(lines: Sequence[Sequence[str]], usable: int, seed: int = 0) -> Script:
    """The sequence of these command lines."""
    node = model.new_node(usable)
    script = Script(seed)
    for argv in lines:
        script.steps.append(foretell(node, argv))
        if script.steps[-1].last:
            return script
    script.contents = model.contents_of(node)
    return script


def _next(world: World, counts: Counter[str], profile: Profile) -> Step:
    for attempt in range(ATTEMPTS):
        wanted_outcome = (
            _rarest(world, counts, profile.wishes, profile.often) if world.rng.random() < profile.provoked else ""
        )
        counts[wanted_outcome] += 1
        maker = (
            profile.wishes[wanted_outcome]
            if wanted_outcome
            else profile.makers[_rarest(world, counts, profile.makers, profile.plenty)]
        )
        argv = maker(world)
        if argv is None:
            continue
        failed = model.run(model.copy_of(world.node), argv).rc
        patient = not wanted_outcome and attempt < PATIENCE and not kind_of(argv).startswith("cut ")
        if failed and (argv[0] == "guest" or patient):
            continue
        step = foretell(world.node, argv)
        counts[step.command.kind] += 1
        return step
    return foretell(world.node, ("zfs", "set", f"{world.user()}={world.text()}", POOL))


def _rarest(world: World, counts: Counter[str], names: Mapping[str, object], plenty: Mapping[str, float]) -> str:
    """One of the names, rather one that has been used less than wished for."""
    weights = [(plenty.get(name, 1) / (1 + counts[name])) ** 2 for name in names]
    return world.rng.choices(list(names), weights)[0]


def foretell(node: Node, argv: Sequence[str]) -> Step:
    """Run a command on the simulated node and say how sure that is."""
    command = Command(kind_of(argv), tuple(argv))
    before = None if command.kind in SURE else model.copy_of(node)
    near = _near_quota(node, argv)
    seen = model.run(node, argv)
    if before and not near:
        near = any(_biased(before, argv, sign) != _outcome(argv, seen.rc, seen.stderr) for sign in (-1, 1))
    near |= (
        command.kind == "destroy -r" and seen.error == "Busy" and "@" not in argv[-1] and _with_datasets(node, argv[-1])
    )
    # ZFS destroys a clone whose properties failed, unless its device is still being made: then it stays.
    near |= command.kind == "clone" and seen.rc != 0 and argv[-1] in seen.state and not _there(before, argv[-1])
    return Step(command, seen, near, command.argv[0] == "guest" and seen.rc != 0)


# -- how sure ----------------------------------------------------------------------------------------------------------


def tolerance(value: float) -> float:
    """How far a space figure may be off: 1 MiB and 1 %."""
    return MIB + abs(value) / 100


def _there(node: Node | None, name: str) -> bool:
    return node is None or name in node.pools.pools[POOL].datasets


def _with_datasets(node: Node, name: str) -> bool:
    dataset_of_pool = node.pools.pools[POOL].datasets[name]
    return bool(dataset_of_pool.children) or any(snap.clones for snap in dataset_of_pool.snapshots)


def _biased(node: Node, argv: Sequence[str], sign: int) -> tuple[int, str]:
    """What would happen if space figures were off by as much as they may be."""
    copy = model.copy_of(node)
    _bias(copy.pools.pools[POOL], sign)
    seen = model.run(copy, argv)
    return _outcome(argv, seen.rc, seen.stderr)


def _outcome(argv: Sequence[str], rc: int, stderr: str) -> tuple[int, str]:
    if argv[0] == "guest":
        return rc, ""  # a guest's write says how far it came
    return rc, stderr.partition("    zfs send -t")[0]


def _bias(pool: Any, sign: int) -> None:
    """Let a pool find more or less room everywhere."""
    exact = type(pool).room
    depth = 0

    def room(dataset: Any, ancestor: Any = None, delta: int = 0) -> int:
        nonlocal depth
        depth += 1
        try:
            found: int = exact(pool, dataset, ancestor, delta)
        finally:
            depth -= 1
        return found if depth else max(0, math.floor(found + sign * tolerance(found)))

    pool.size += sign * 4 * MIB  # the pool's own metadata grows with what happens
    pool.room = room


def _near_quota(node: Node, argv: Sequence[str]) -> bool:
    """Whether a quota or refquota lies near the use that it must not go below.

    Use is that after the other properties of the command: a refreservation may come before the quota.
    """
    if tuple(argv[:2]) != ("zfs", "set"):
        return False
    limits = [word for word in argv[2:-1] if word.partition("=")[0] in ("quota", "refquota")]
    others = [word for word in argv[2:-1] if word not in limits]
    if others and limits:
        node = model.copy_of(node)
        node.run(["zfs", "set", *others, argv[-1]])
    named = node.pools.pools[POOL].datasets.get(argv[-1])
    for word in limits:
        name, _equals, value = word.partition("=")
        if named is not None and value.isdigit():
            use = named.used if name == "quota" else named.referenced
            if abs(int(value) - use) <= tolerance(use):
                return True
    return False
