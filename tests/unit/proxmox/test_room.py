# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a storage and the cluster must allow before anything is changed."""

from __future__ import annotations

import os
from unittest.mock import patch

import pytest

from .world import World

LARGER = {"name": "data", "size": "3GiB"}


def test_the_quota_of_the_dataset_of_a_storage():
    """The pool has more; of the disks of the task only the thick one takes anything."""
    world = World()
    world.run("zfs", "set", "quota=5G", "tank/vms")
    said = world.refusal({"name": "root", "size": "5GiB"}, {"name": "data", "size": "8GiB"})
    assert "tank/vms has 2.9" in said
    assert "[InsufficientSpace]" in said
    world.four_steps({"name": "root", "size": "9GiB"}, {"name": "data", "size": "4GiB"})


def test_the_quota_for_a_new_disk():
    world = World()
    world.run("zfs", "set", "quota=5G", "rpool/data")
    assert "rpool/data has " in world.refusal({"name": "new", "size": "8GiB", "type": "thick"})
    world.four_steps({"name": "new", "size": "8GiB"})


def test_a_cluster_without_quorum():
    world = World()
    world.admin("pve-quorum", "off")
    for entry in (LARGER, {"name": "data", "description": "of the shop"}, {"name": "new", "size": "1GiB"}):
        assert "/etc/pve is read-only: this node has no quorum" in world.refusal(entry)
    assert not world.converge({"name": "data"}).changed
    world.admin("pve-quorum", "on")
    world.four_steps(LARGER)


@pytest.mark.parametrize("path", ["/etc/pve/local"])
def test_a_folder_that_cannot_be_written(path):
    world = World()
    with patch.object(os, "access", lambda name, mode: not name.endswith(path)):
        assert "/etc/pve is read-only" in world.refusal(LARGER)
