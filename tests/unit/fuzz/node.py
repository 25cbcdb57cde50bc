# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A small node for arguments and properties of any kind; every command that reaches it must be one of ours."""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer, changes
from tests.unit.engine.conftest import IMAGE, VM, Simulated

from .grammar import check_command

FAST = settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))

HOSTILE = st.sampled_from([
    "", "-", "--", "-r", "-rf", "--help", "..", "../..", "/", "/etc/passwd", "@", "a@b", "a/../b", "root@final", "a b",
    "a\nb", "a\n", "\n", "a\tb", "a\0b", "\0", "$(id)", "; id", "`id`", "%", "%s", "%2D", "a=b", "=", "'", '"', "\\",
    "\u00fc", "\u202e", "\U0001f4a9", "\u0661", "x" * 64, "x" * 65, "x" * 9000, "none", "null", "remaining",
    "zones", "zones/x", f"zones/{VM}", VM, VM.upper(), VM[:8], IMAGE, "0:4:1", "4:1", "0:4:8", "0:31:0", "web01",
    "root", "a", "1", "-1", "0", "1.5", "1e400", "9" * 30, "9" * 5000, "1KiB", "20GiB", "0x10", "true", "yes", "lz4",
    "virtio",
])  # fmt: skip
TEXTS = st.one_of(HOSTILE, HOSTILE, st.text(max_size=20))
NUMBERS = st.one_of(
    st.integers(-2, 300), st.sampled_from([-(1 << 63), 1 << 31, 1 << 53, 1 << 63, 1 << 64, 10**30, -1, 0]), st.floats()
)
ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=5,
)


class Watched(Simulated):
    """web01 with root, a (128 MiB) and b (64 MiB), adopted, data on all of them; b has a snapshot, p is detached."""

    def __init__(self, node: bytes) -> None:
        super().__init__()
        self.node = pickle.loads(node)

    def runner(self, argv: Any, stdin: str = "", timeout: float = 300) -> Answer:
        check_command(argv, stdin)
        return super().runner(argv, stdin, timeout)

    def destroying(self) -> list[list[str]]:
        """The commands so far that took something away. What a run itself placed as a guard does not count."""
        found = [c for c in self.calls if c[:2] == ["zfs", "destroy"] and not c[-1].endswith("@flexdisk-guard")]
        return found + [c for c in self.calls if changes(c) and "-F" in c]


@cache
def _prepared(adopted: bool) -> bytes:
    sim = Simulated()
    sim.create(flexible=20480, sizes=(128, 64, 32))
    disks = [{"name": "root", "boot": True}, {"name": "a", "size": 128}, {"name": "b", "size": 64}]
    if adopted:
        assert not sim.converge({"vm": "web01", "disks": [*disks, {"name": "p", "size": 32}]}).problems
        assert not sim.converge({"vm": "web01", "disks": disks, "unlisted": "detach"}).problems
    for volume in ("disk0", "disk1", "disk2"):
        sim.write(f"zones/{VM}/{volume}", 7, 0, 20)
    sim.run("zfs", "snapshot", f"zones/{VM}/disk2@kept")
    return pickle.dumps(sim.node)


def watched(adopted: bool = True) -> Watched:
    return Watched(_prepared(adopted))
