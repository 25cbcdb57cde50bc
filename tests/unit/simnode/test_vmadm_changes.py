# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an update waits for, and how two VM objects are compared."""

from __future__ import annotations

from typing import Any

import pytest
from simnode.vmadm import changes
from simnode.vmadm.errors import Abort

VM: dict[str, Any] = {"alias": "a", "quota": 1, "hvm": True, "brand": "bhyve",
                      "disks": [{"path": "/d0", "size": 10, "model": "virtio"}], "nics": []}  # fmt: skip


def seen(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(change.path, change.action, change.ident) for change in changes.diff(before, after)]


def test_diff_of_disk_lists() -> None:
    added = {**VM, "disks": [*VM["disks"], {"path": "/d1", "size": 5}]}
    found = changes.diff(VM, added)
    assert [(change.path, change.action, change.new) for change in found] == [
        (("disks", None), "added", {"path": "/d1", "size": 5})
    ]
    grown = {**VM, "disks": [{"path": "/d0", "size": 20, "model": "virtio"}]}
    found = changes.diff(VM, grown)
    assert [(change.path, change.action, change.old, change.new, change.ident) for change in found] == [
        (("disks", None, "size"), "changed", 10, 20, "/d0")
    ]
    # Lists whose members have no identity are compared as wholes.
    assert seen({"snapshots": [{"name": "a", "size": 1}]}, {"snapshots": [{"name": "a", "size": 2}]}) == [
        (("snapshots", None), "removed", changes.ANY),
        (("snapshots", None), "added", changes.ANY),
    ]


def test_diff_of_plain_values() -> None:
    assert seen({"a": 1, "b": 1, "t": {"x": 1}}, {"b": 2, "c": 3, "t": {"x": 2}}) == [
        (("a",), "removed", changes.ANY),
        (("b",), "changed", changes.ANY),
        (("t", "x"), "changed", changes.ANY),
        (("c",), "added", changes.ANY),
    ]
    assert changes.diff({"a": 1}, {"a": True}) != []


def left(payload: dict[str, Any], after: dict[str, Any]) -> int:
    wanted = changes.expected(VM, payload, list(payload))
    return len(changes.unseen(wanted, changes.diff(VM, after)))


@pytest.mark.parametrize(
    ("payload", "after"),
    [
        ({"alias": "b"}, {**VM, "alias": "b"}),
        ({"quota": 2}, {**VM, "quota": 2}),
        ({"flexible_disk_size": 5}, {**VM, "flexible_disk_size": 5}),
        ({"alias": ""}, {key: value for key, value in VM.items() if key != "alias"}),
        ({"remove_disks": ["/d0"]}, {**VM, "disks": []}),
        ({"add_disks": [{"size": 5, "model": "nvme"}]},
         {**VM, "disks": [*VM["disks"], {"path": "/d1", "size": 5, "model": "nvme"}]}),
        ({"update_disks": [{"path": "/d0", "size": 20}]},
         {**VM, "disks": [{"path": "/d0", "size": 20, "model": "virtio"}]}),
    ],
)  # fmt: skip
def test_confirmed_when_seen(payload: dict[str, Any], after: dict[str, Any]) -> None:
    assert left(payload, after) == 0
    assert left(payload, VM) == 1


@pytest.mark.parametrize(
    "payload",
    [{"alias": "a"}, {"disks": []}, {"set_tags": {"a": 1}}, {"unknown": 1, "brand": "kvm"} | {"unknown": None},
     {"update_disks": [{"path": "/d0", "size": 10, "dangerous_allow_shrink": True}]}],
)  # fmt: skip
def test_nothing_to_wait_for(payload: dict[str, Any]) -> None:
    assert left(payload, VM) == 0


def test_added_disk_of_another_size_is_never_confirmed() -> None:
    after = {**VM, "disks": [*VM["disks"], {"path": "/d1", "missing": True, "model": "virtio"}]}
    assert left({"add_disks": [{"size": 5, "model": "virtio"}]}, after) == 1


def test_update_of_an_unknown_disk_crashes() -> None:
    with pytest.raises(Abort, match="index \\(number\\) is required"):
        changes.expected(VM, {"update_disks": [{"path": "/d9", "size": 1}]}, ["update_disks"])
