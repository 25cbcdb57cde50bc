# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines that Proxmox VE drops from the file of a VM with a change of anything else."""

from __future__ import annotations

import pytest

from .world import FILE, World

LARGER = {"name": "data", "size": "3GiB"}
SNAPSHOT = "\n[before]\nmemory: 512\nsnaptime: 1\n"
DROPPED = (
    "cyls=1",
    "heads=1",
    "secs=1",
    "trans=lba",
    "model=x",
    "bps=5",
    "bps_rd=5",
    "cache=foo",
    "aio=x",
    "discard=maybe",
    "queues=x",
    "format=qcow3",
    "mbps=abc",
    "media=cdrom",
    "size=abc",
    "werror=x",
)
FINE = ("cache=none", "aio=threads", "discard=ignore", "mbps_rd=1.5", "backup=No", "werror=enospc", "iops_wr_max=5")


def with_third(option):
    world = World()
    world.run("zfs", "create", "-s", "-V", "1G", "rpool/data/vm-100-disk-1")
    world.file = FILE + f"virtio1: local-zfs:vm-100-disk-1,{option}\n"
    return world


@pytest.mark.parametrize("option", DROPPED)
def test_no_disk_is_lost(option):
    """The growth of another disk would drop the line, and with it the disk."""
    said = with_third(option).refusal(LARGER)
    assert f"cannot read a part of the file of VM 100 (virtio1: local-zfs:vm-100-disk-1,{option})" in said


@pytest.mark.parametrize("option", FINE)
def test_what_proxmox_reads_is_no_reason(option):
    world = with_third(option)
    world.four_steps(LARGER)
    assert option.partition("=")[0] in world.setting("virtio1")


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("cores: 3\n", "cores: 2"),
        (f"{SNAPSHOT}virtio1: local-zfs:vm-100-disk-1,cache=foo\n", "cache=foo in its snapshot before"),
        (f"{SNAPSHOT}virtio16: local-zfs:vm-100-disk-1\n", "virtio16: local-zfs:vm-100-disk-1 in its snapshot before"),
        (f"{SNAPSHOT}memory: 1024\n", "memory: 512"),
        ("virtio1: garbage\n", "virtio1: garbage"),
    ],
)
def test_lines_of_snapshots_and_of_equal_keys(more, line):
    world = World()
    world.file = FILE + more
    assert line in world.refusal(LARGER)


def test_what_is_lost_from_a_snapshot_is_said():
    world = World()
    world.file = FILE + SNAPSHOT + "newknob: 3\n"
    failure = world.converge(LARGER).failure
    assert "has dropped newknob: 3 in its snapshot before from the file" in failure["message"]


@pytest.mark.parametrize(
    "line", ["unused0: thick:vm-100-disk-0", "unused3: local-zfs:vm-100-disk-0", "description: hello world"]
)
def test_what_proxmox_only_tidies_is_no_loss(line):
    world = World()
    world.file = FILE + line + "\n"
    world.four_steps(LARGER)
