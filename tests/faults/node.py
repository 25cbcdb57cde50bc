# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulated node in this process: a state is a string of bytes, a run takes milliseconds."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from unittest.mock import patch

from simnode import Node
from simnode.node import PoolSpec
from simnode.vmadm.admin import COMMANDS
from simnode.zfs import extents

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run import module
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.faults import shim, tasks
from tests.faults.backend import POOL
from tests.faults.shim import Fault

POOL_BYTES = 64 << 30


class Killed(BaseException):
    """The module is dead: nothing of it runs any more."""


class Torn(BaseException):
    """vmadm is dead in the middle of its work."""


class NodeBackend:
    """A Backend. Without a node, one with an empty pool."""

    def __init__(self, node: Node | None = None) -> None:
        self.node = node or Node.create(None, [PoolSpec(POOL, POOL_BYTES)])
        self._calls: list[list[str]] = []
        self._fault: Fault | None = None
        self._dead = False

    def save(self) -> bytes:
        """The node as `pickle.loads` makes it again, a copy each time."""
        return pickle.dumps(self.node)

    def run(self, *argv: str, stdin: str = "") -> str:
        status, out, err = self.node.run(argv, stdin)
        assert status == 0, f"{argv}: {err}"
        return out

    def admin(self, command: str, *argv: str) -> None:
        status, _out, err = COMMANDS[command](self.node, list(argv))
        assert status == 0, f"{command} {argv}: {err}"

    def digests(self, lengths: Mapping[str, int]) -> dict[str, str]:
        find = self.node.pools.find
        return {name: extents.digest(find(name).extents, 0, length) for name, length in lengths.items()}

    def litter(self) -> Sequence[str]:
        return ()

    def calls(self) -> list[list[str]]:
        return self._calls

    def task(self, arguments: Mapping[str, Any], *, check: bool = False, fault: Fault | None = None) -> dict[str, Any]:
        """What the module does, with this node's runner."""
        self._calls, self._fault, self._dead = [], fault, False
        zfs = Zfs(self._runner, self.node.sleep, pipe=self._pipe)
        try:
            return tasks.run(arguments, zfs, self._driver(), check)
        except FlexdiskError as exc:
            return dict(module.error(exc), failed=True)
        except Killed:
            return {"killed": True}
        finally:
            self._fault = None
            if fault is not None and fault.boundary:
                self.admin("vm-finish")

    def _driver(self) -> Any:
        return Vmadm(self._runner, self.node.sleep)

    def _runner(self, argv: Sequence[str], stdin: str = "", timeout: float = 300) -> Answer:
        command = list(argv)
        if self._dead:
            raise Killed
        self._calls.append(command)
        if self._fault is None or not self._fault.hits(len(self._calls), command):
            return Answer(*self.node.run(command, stdin))
        return self._spoil(self._fault, command, stdin, timeout)

    def _pipe(self, first: Sequence[str], second: Sequence[str]) -> tuple[Answer, Answer]:
        sent = self._runner(first)
        return sent, self._runner(second, sent.stdout)

    def _spoil(self, fault: Fault, argv: list[str], stdin: str, timeout: float) -> Answer:
        truth = Answer(0, "", "")
        if fault.guest:
            self.admin("vm-stop-takes", argv[2], str(fault.guest))
            truth = Answer(*self.node.run(argv, stdin))
            self.admin("vm-stop-takes", argv[2], "0")
        elif fault.boundary:
            truth = self._at_boundary(fault.boundary, argv, stdin)
        elif fault.tear:
            self._tear(fault.tear, argv, stdin)
        elif fault.effect:
            truth = Answer(*self.node.run(argv, stdin))
        if fault.kill:
            self._dead = True
            raise Killed
        if fault.seconds > timeout:
            raise FlexdiskError("CommandTimeout", "%s did not end within %d s" % (" ".join(argv), timeout))
        if fault.cut:
            answer = Answer(*self.node.run(argv, stdin))
            return Answer(answer.rc, shim.shortened(answer.stdout), answer.stderr)
        return Answer(fault.status, "", shim.complain(fault, argv)) if fault.status else truth

    def _at_boundary(self, boundary: str, argv: list[str], stdin: str) -> Answer:
        """vmadm as it ends at a boundary. One that is late ends its work when the module has ended."""
        point, _colon, fault = boundary.partition(": ")
        self.admin("vm-fault", point, fault)
        answer = Answer(*self.node.run(argv, stdin))
        self.admin("vm-fault", point)
        return answer

    def _tear(self, last: int, argv: list[str], stdin: str) -> None:
        """The first part of a command's work: one property of several, or vmadm's first changes to ZFS."""
        if argv[0] == "zfs":
            self.node.run(shim.part(argv), stdin)
            return
        left, complete = last, self.node.zfs

        def counted(command: list[str], data: str = "") -> tuple[int, str, str]:
            nonlocal left
            answer = complete(command, data)
            left -= shim.changes(["zfs", *command])
            if left == 0:
                raise Torn
            return answer

        with patch.object(self.node, "zfs", counted), suppress(Torn):
            self.node.run(argv, stdin)
