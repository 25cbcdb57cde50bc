# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nouns: commands, what is seen after each of them, and the simulated node they are foretold on."""

from __future__ import annotations

import hashlib
import json
import random
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from simnode import Node, PoolSpec
from simnode.node import Result
from simnode.zfs.storage import Storage
from simnode.zfs.stream import cut

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.errors import classify

MIB = 1 << 20
POOL = "difftest"
IMAGE_MIB = 2048
SLOP = 128 * MIB
KEY_FILE = "/var/tmp/differential.key"
PATTERN_BYTES = 1 << 17

USER = ("test:a", "test:b", "test:c")
EXACT = (
    "type", "volsize", "volblocksize", "refreservation", "quota", "reservation", "refquota", "origin", "readonly",
    "userrefs", "encryptionroot", "receive_resume_token", *USER,
)  # fmt: skip
FIGURES = (
    "used", "available", "referenced", "usedbysnapshots", "usedbydataset", "usedbychildren", "usedbyrefreservation",
)  # fmt: skip
LOOK = (
    "zfs", "get", "-Hpr", "-t", "filesystem,volume,snapshot,bookmark", "-o", "name,property,value,source",
    ",".join((*EXACT, "guid", "written", *FIGURES)), POOL,
)  # fmt: skip

Row = dict[str, tuple[str, str]]
"""Property to (value, source) of one dataset."""
State = dict[str, Row]
"""All datasets and snapshots of the pool by name."""
Contents = dict[str, dict[int, str]]
"""Volume to {MiB: digest of its bytes} for every MiB that is not all zero."""


@dataclass(frozen=True)
class Command:
    """A command line and what it counts as. argv[0] is zfs or guest, or stream. Then the bytes follow after which the
    stream is cut (0: nowhere), the words of `zfs send`, a bar, those of `zfs receive`. `TOKEN:NAME` is the token of a
    dataset.
    """

    kind: str
    argv: tuple[str, ...]

    @property
    def line(self) -> str:
        """As one types it."""
        return shlex.join(self.argv)


@dataclass(frozen=True)
class Seen:
    """What a command did: exit status, stderr, and all properties afterwards."""

    rc: int
    stderr: str
    state: State

    @property
    def error(self) -> str:
        """The kind of error as the collection sees it; '' for success."""
        return classify((), self.rc, self.stderr).code if self.rc else ""


@dataclass
class Step:
    """A command of a sequence with what the simulator foretells.

    `close`: a space decision of this command lies within the tolerance of the figures it rests on, or it fails half-way
    through children in an order that ZFS leaves open, or leaves something behind or not as it happens. `last`: its
    consequences are not foretold, so that nothing may follow (a write that runs out of space).
    """

    command: Command
    foretold: Seen
    close: bool = False
    last: bool = False


@dataclass
class Script:
    """A sequence as generated: seed, steps, and the contents of the volumes at the end."""

    seed: int
    steps: list[Step] = field(default_factory=list)
    contents: Contents = field(default_factory=dict)


def parse_state(text: str) -> State:
    """The output of `zfs get -Hp -o name,property,value,source`. A token is there or not: what it says is left out."""
    state: State = {}
    for line in text.splitlines():
        name, prop, value, source = line.split("\t")
        if prop == "receive_resume_token" and value != "-":
            value = "there"
        state.setdefault(name, {})[prop] = (value, source)
    return state


def new_node(usable: int) -> Node:
    """A simulated node of the lab's release whose pool lets its datasets use `usable` bytes."""
    spec = PoolSpec(name=POOL, size=usable + SLOP, version="2.1")
    return Node.create(None, [spec])


def copy_of(node: Node) -> Node:
    """The same node once more, so that a command can be tried."""
    data = json.loads(json.dumps(node.pools.to_json()))  # what to_json gives shares parts with the node
    return Node(None, Storage.from_json(node.clock, data), {})


def run(node: Node, argv: Sequence[str]) -> Seen:
    """Run a command on the simulated node and look."""
    rc, _out, err = stream(node, argv) if argv[0] == "stream" else node.run(argv)
    return Seen(rc, err, parse_state(node.run(LOOK)[1]))


def stream(node: Node, argv: Sequence[str]) -> Result:
    """Send, cut, and receive on the simulated node. What fails first decides."""
    tokens = [_token(node, word) for word in argv]
    middle = tokens.index("|")
    sent = node.run(["zfs", *tokens[2:middle]])
    if sent[0]:
        return sent
    size = int(tokens[1])
    return node.run(["zfs", *tokens[middle + 1 :]], cut(sent[1], size) if size else sent[1])


def _token(node: Node, word: str) -> str:
    if not word.startswith("TOKEN:"):
        return word
    return node.run(["zfs", "get", "-H", "-o", "value", "receive_resume_token", word.partition(":")[2]])[1].strip()


def pattern(seed: str, index: int) -> bytes:
    """What a guest writes into the MiB of that index, over and over."""
    return random.Random(f"{seed}:{index}").randbytes(PATTERN_BYTES)


def contents_of(node: Node) -> Contents:
    """Digests of what the volumes hold, as the executor computes them from the devices."""
    result: Contents = {}
    for name, dataset in node.pools.pools[POOL].datasets.items():
        if dataset.kind == "volume" and dataset.volsize:  # else it waits for the rest of a stream
            pieces = [piece for piece in dataset.extents if piece[0] >= 0]
            result[name] = dict(_digests(pieces, dataset.volsize))
    return result


def _digests(pieces: list[tuple[int, int, str, int]], size: int) -> Iterator[tuple[int, str]]:
    for index in sorted({at for start, end, *_rest in pieces for at in range(start // MIB, -(-end // MIB))}):
        begin = index * MIB
        block = bytearray(min(MIB, size - begin))
        for start, end, seed, _birth in pieces:
            first, last = max(start - begin, 0), min(end - begin, len(block))
            if first < last:
                block[first:last] = (pattern(seed, index) * (MIB // PATTERN_BYTES))[first:last]
        yield index, hashlib.sha256(block).hexdigest()[:16]
