# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A short way to drive the simulated zfs in tests."""

from __future__ import annotations

import shlex
from typing import Any

from simnode import Node, PoolSpec

MIB = 1 << 20
GIB = 1 << 30
VM = "zones/vm"


def mib(size: float) -> int:
    return int(size * MIB)


class Zfs:
    """Commands on a fresh node in memory."""

    def __init__(self, **spec: Any) -> None:
        spec.setdefault("size", 64 * GIB)
        self.node = Node.create(None, [PoolSpec(**spec)])

    def run(self, line: str, stdin: str = "") -> tuple[int, str, str]:
        return self.node.run(shlex.split(line), stdin)

    def ok(self, line: str) -> str:
        """stdout of a `zfs` command that succeeds without a word on stderr."""
        code, out, err = self.run("zfs " + line)
        assert (code, err) == (0, ""), (line, code, err)
        return out

    def bad(self, line: str, code: int = 1) -> str:
        """stderr of a `zfs` command that fails without a word on stdout."""
        status, out, err = self.run("zfs " + line)
        assert (status, out) == (code, ""), (line, status, out, err)
        return err

    def get(self, name: str, prop: str) -> str:
        return self.ok(f"get -Hp -o value {prop} {name}").rstrip("\n")

    def num(self, name: str, prop: str) -> int:
        return int(self.get(name, prop))

    def source(self, name: str, prop: str) -> str:
        return self.ok(f"get -H -o source {prop} {name}").rstrip("\n")

    def names(self, types: str = "all") -> list[str]:
        return self.ok(f"list -H -o name -t {types}").split("\n")[:-1]

    def guest(self, line: str) -> str:
        code, out, err = self.run("guest " + line)
        assert (code, err) == (0, ""), (line, err)
        return out.rstrip("\n")

    def hash(self, name: str, *where: int) -> str:
        return self.guest(f"hash {name} " + " ".join(map(str, where)))

    def kinds(self, cursor: int = 0) -> list[tuple[str, str]]:
        return [(kind, name) for _sequence, kind, name in self.node.events(cursor)]

    def vm(self, quota: int, flexible: int | None, *disks: int, name: str = VM) -> None:
        """A VM as vmadm makes it: root with refquota, thick disks, quota and reservation by its formula. MiB."""
        self.ok(f"create {name}")
        for index, size in enumerate(disks):
            self.ok(f"create -V {size}M {name}/disk{index}")
        self.law(quota, flexible, name)

    def law(self, quota: int, flexible: int | None, name: str = VM) -> int:
        """vmadm's setQuotaBhyve; returns the quota it sets, in bytes."""
        base = quota * MIB
        self.ok(f"set refreservation=none refquota={base} {name}")
        rows = self.ok(f"list -Hpr -t volume -o volsize,refreservation {name}").splitlines()
        total = base + sum(int(row.split()[1]) for row in rows)
        if flexible:
            total += flexible * MIB - sum(int(row.split()[0]) for row in rows)
        self.ok(f"set quota={total} reservation={total} refreservation={base - MIB} {name}")
        return total

    def pinned(self, name: str) -> int:
        return self.num(name, "used") - self.num(name, "refreservation")
