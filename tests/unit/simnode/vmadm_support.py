# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node with an image, and short ways to talk to its vmadm."""

from __future__ import annotations

import json
from typing import Any

from simnode import Node, PoolSpec
from simnode.vmadm.admin import COMMANDS

IMAGE = "aaaaaaaa-0000-4000-8000-000000000001"
UUID = "cccccccc-0000-4000-8000-000000000001"
ROOT = f"zones/{UUID}"


class Machine:
    """A node in memory and its only VM."""

    def __init__(self, *image_options: str, pool: PoolSpec | None = None) -> None:
        self.node = Node.create(None, [pool or PoolSpec(size=128 << 30)])
        self.admin("image-import", IMAGE, "1024", *image_options)

    def admin(self, *argv: str) -> tuple[int, str, str]:
        result = COMMANDS[argv[0]](self.node, list(argv[1:]))
        assert result[0] == 0, result
        return result

    def vmadm(self, *argv: str, **payload: Any) -> tuple[int, str, str]:
        return self.node.run(["vmadm", *argv], json.dumps(payload) if payload else "")

    def good(self, *argv: str, **payload: Any) -> str:
        status, out, err = self.vmadm(*argv, **payload)
        assert status == 0, err
        return out or err

    def bad(self, *argv: str, **payload: Any) -> str:
        status, out, err = self.vmadm(*argv, **payload)
        assert (status, out) == (1, "")
        return err

    def create(self, *disks: dict[str, Any], **more: Any) -> None:
        image = {"image_uuid": IMAGE, "boot": True, "model": "virtio"}
        payload = {"uuid": UUID, "brand": "bhyve", "alias": "web", "autoboot": False, "ram": 1024, "vcpus": 1,
                   "disks": [image, *disks], **more}  # fmt: skip
        self.good("create", **payload)

    def get(self) -> dict[str, Any]:
        vm: dict[str, Any] = json.loads(self.good("get", UUID))
        return vm

    def zfs(self, *argv: str) -> str:
        status, out, err = self.node.run(["zfs", *argv])
        assert status == 0, err
        return out
