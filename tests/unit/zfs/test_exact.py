# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is destroyed is exactly what was planned, by the library and by the command line."""

from __future__ import annotations

import pytest
from simnode import Node
from simnode.node import PoolSpec

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import DatasetId
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs import exact
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

DISK = "zones/vm/disk0"


class Library:
    """What libzfs_core answers, or raises; remembers what it was asked."""

    def __init__(self, answer):
        self.said = answer
        self.asked = None

    def lzc_channel_program(self, pool, program, params):
        self.asked = (pool, program, params)
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


class Bench:
    """A pool with a VM's dataset and two volumes. meanwhile(argv) is called before each command."""

    def __init__(self):
        self.node = Node.create(None, [PoolSpec("zones", 64 << 30, 12, [{"type": "disk", "disks": 1}], "illumos")])
        self.calls = []
        self.meanwhile = lambda argv: None
        self.zfs = Zfs(self.runner, lambda seconds: None, lambda name: name)
        for name in ("zones/vm",):
            self.run("create", "-o", "mountpoint=none", name)
        for name in (DISK, "zones/vm/disk1"):
            self.run("create", "-V", "64M", "-o", "flexdisk:uuid=the-uuid", name)

    def runner(self, argv, stdin="", timeout=300):
        self.meanwhile(list(argv))
        self.calls.append(list(argv))
        return Answer(*self.node.run(list(argv), stdin))

    def run(self, *argv):
        status, out, err = self.node.run(["zfs", *argv], "")
        assert status == 0, err
        return out

    def take(self, name):
        self.run("snapshot", name)
        return self.planned(name)

    def planned(self, name):
        return DatasetId(name, int(self.run("get", "-Hpo", "value", "guid", name)))

    def names(self):
        return self.run("list", "-Ho", "name", "-t", "all", "-r", "zones/vm").split()[1:]

    def before(self, command, *then):
        """Somebody runs zfs with then right before our next such command, once."""

        def meanwhile(argv):
            if " ".join(argv).startswith(command):
                self.meanwhile = lambda argv: None
                self.run(*then)

        self.meanwhile = meanwhile

    def changes(self):
        return [" ".join(argv[1:]) for argv in self.calls if argv[1] not in ("get", "list")]


@pytest.fixture
def bench():
    return Bench()


def refused(call, *arguments):
    with pytest.raises(FlexdiskError) as caught:
        call(*arguments)
    assert caught.value.code == "Changed"
    return caught.value.message


def test_one_transaction_compares_and_destroys(bench):
    snapshot, volume, library = bench.take(f"{DISK}@s"), bench.planned(DISK), Library(b"destroyed")
    assert exact.destroy(bench.zfs, volume, [snapshot], library).by == "libzfs_core"
    assert bench.changes() == []
    pool, program, params = library.asked
    guids = [exact._signed(one.guid).encode() for one in (volume, snapshot)]
    assert (pool, params) == (b"zones", [DISK.encode(), guids[0], b"the-uuid", f"{DISK}@s".encode(), guids[1]])
    assert b'known[snapshot] ~= tostring(zfs.get_prop(snapshot, "guid"))' in program
    assert program.index(b"get_prop") < program.index(b"zfs.check.destroy") < program.index(b"zfs.sync.destroy")


def test_a_guid_is_a_signed_number_in_a_channel_program():
    assert (exact._signed((1 << 64) - 5), exact._signed(7)) == ("-5", "7")


@pytest.mark.parametrize("difference", [b"guid", b"uuid", b"snapshots"])
def test_another_volume_of_the_name_stays(bench, difference):
    message = refused(exact.destroy, bench.zfs, bench.planned(DISK), (), Library(difference))
    assert message.startswith(f"{DISK} changed since it was read: another {difference.decode()}")
    assert bench.changes() == []


@pytest.mark.parametrize("error", [b"busy", b"errno 16", 5, OSError("no /dev/zfs"), None])
def test_what_the_library_cannot_do_the_command_line_does_by_name(bench, error):
    """It waits for udev to let go of the device, and says in words why not."""
    library = None if error is None else Library(error)
    snapshots = [bench.take(f"{DISK}@{short}") for short in "ab"]
    assert exact.destroy(bench.zfs, bench.planned(DISK), snapshots, library).by == "cli"
    assert bench.changes() == [f"destroy {DISK}@a,b", f"destroy {DISK}"]
    assert bench.names() == ["zones/vm/disk1"]


@pytest.mark.parametrize("library", [None, Library(OSError("no /dev/zfs"))])
def test_a_volume_that_is_not_as_planned_stays_whole(bench, library):
    volume, snapshot = bench.planned(DISK), bench.take(f"{DISK}@s")
    wrong = {
        f"{DISK} is another one now": (volume._replace(guid=7), [snapshot]),
        f"{DISK}@s was added": (volume, []),
        f"{DISK}@s is another one now": (volume, [snapshot._replace(guid=7)]),
        f"{DISK}@t is gone": (volume, [snapshot, DatasetId(f"{DISK}@t", 7)]),
    }
    for message, (name, snapshots) in wrong.items():
        assert message in refused(exact.destroy, bench.zfs, name, snapshots, library)
    assert "zones/vm/gone is gone" in refused(exact.destroy, bench.zfs, DatasetId("zones/vm/gone", 7), (), library)
    assert bench.changes() == []


def test_a_snapshot_that_comes_between_comparison_and_destroy_makes_it_fail(bench):
    volume, snapshot = bench.planned(DISK), bench.take(f"{DISK}@old")
    bench.before("zfs destroy", "snapshot", f"{DISK}@new")
    assert f"{DISK}@new was added" in refused(exact.destroy, bench.zfs, volume, [snapshot])
    assert bench.names() == [DISK, f"{DISK}@new", "zones/vm/disk1"]


def test_many_snapshots_go_in_calls_that_the_kernel_takes(bench):
    snapshots = [bench.take(f"{DISK}@{number}") for number in range(101)]
    exact.destroy(bench.zfs, bench.planned(DISK), snapshots)
    assert [call.count("@") + call.count(",") for call in bench.changes()] == [100, 1, 0]


def test_a_tree_goes_leaf_by_leaf(bench):
    tree = [bench.planned(name) for name in ("zones/vm", DISK, "zones/vm/disk1")]
    assert "zones/vm/disk1 was added" in refused(exact.destroy_tree, bench.zfs, tree[:2])
    bench.before("zfs destroy zones/vm/disk1", "snapshot", "zones/vm/disk1@new")
    assert "zones/vm/disk1@new was added" in refused(exact.destroy_tree, bench.zfs, tree)
    bench.run("destroy", "zones/vm/disk1@new")
    bench.run("create", "-V", "64M", DISK)
    tree = [bench.planned(one.name) for one in tree]
    bench.calls.clear()
    exact.destroy_tree(bench.zfs, tree)
    assert bench.changes() == [f"destroy {DISK}", "destroy zones/vm/disk1", "destroy zones/vm"]


def test_a_tree_goes_with_exactly_the_snapshots_that_were_planned(bench):
    tree = [bench.planned(name) for name in ("zones/vm", DISK, "zones/vm/disk1")]
    first, second = bench.take("zones/vm/disk1@a"), bench.take("zones/vm@b")
    assert "zones/vm@b was added" in refused(exact.destroy_tree, bench.zfs, [*tree, first])
    other = second._replace(guid=7)
    assert "zones/vm@b is another one now" in refused(exact.destroy_tree, bench.zfs, [*tree, first, other])
    assert bench.changes() == []
    exact.destroy_tree(bench.zfs, [*tree, first, second])
    disk1 = ["destroy zones/vm/disk1@a", "destroy zones/vm/disk1"]
    assert bench.changes() == [f"destroy {DISK}", *disk1, "destroy zones/vm@b", "destroy zones/vm"]


def test_snapshots_go_only_if_all_of_them_are_those(bench):
    snapshots = [bench.take(f"{DISK}@a"), bench.take("zones/vm@a")]
    assert f"{DISK}@a is another one" in refused(
        exact.destroy_snapshots, bench.zfs, [snapshots[1], snapshots[0]._replace(guid=7)]
    )
    assert "does not exist" in refused(exact.destroy_snapshots, bench.zfs, [*snapshots, DatasetId("zones/vm@b", 7)])
    exact.destroy_snapshots(bench.zfs, snapshots)
    assert bench.changes() == [f"destroy {DISK}@a", "destroy zones/vm@a"]
    exact.destroy_snapshots(bench.zfs, [])


def test_only_our_own_marks_go_by_their_name_alone(bench):
    bench.take(f"{DISK}@flexdisk-guard")
    bench.run("snapshot", f"{DISK}@flexdisk-sync-0123abcd-1")
    bench.run("bookmark", f"{DISK}@flexdisk-sync-0123abcd-1", f"{DISK}#flexdisk-sync-0123abcd-1")
    for name in (f"{DISK}@daily", f"{DISK}#daily", DISK):
        with pytest.raises(ValueError, match="somebody else's"):
            exact.destroy_own(bench.zfs, f"{DISK}@flexdisk-guard", name)
    assert bench.changes() == []
    exact.destroy_own(bench.zfs, f"{DISK}@flexdisk-guard", *(f"{DISK}{m}flexdisk-sync-0123abcd-1" for m in "@#"))
    assert len(bench.changes()) == 2


def test_a_destroy_that_reports_success_and_has_done_nothing(bench):
    disk = bench.planned(DISK)
    run = bench.zfs._runner

    def lies(argv, *more):
        return Answer(0, "", "") if list(argv[:2]) == ["zfs", "destroy"] else run(argv, *more)

    bench.zfs._runner = lies
    with pytest.raises(FlexdiskError, match=f"zfs destroy reported success, but {DISK} is still there") as failed:
        exact.destroy(bench.zfs, disk)
    assert failed.value.code == "NotApplied"


# -- roll back


def test_a_rollback_destroys_what_was_planned_by_name(bench):
    parts = [bench.take(f"{name}@s") for name in ("zones/vm", DISK)]
    newer = [bench.take(f"{DISK}@n1"), bench.take(f"{DISK}@n2"), bench.take("zones/vm@n1")]
    bench.run("bookmark", f"{DISK}@n1", f"{DISK}#mark")
    calls = []
    exact.roll_back(bench.zfs, parts, newer, calls.append)
    assert calls == ["zones/vm", DISK]
    assert bench.changes() == [
        "destroy zones/vm@n1",
        "rollback zones/vm@s",
        f"destroy {DISK}@n1,n2",
        f"destroy {DISK}#mark",
        f"rollback {DISK}@s",
    ]


def test_a_rollback_leaves_older_bookmarks_and_that_of_its_own_snapshot(bench):
    """A replica may have nothing else in common with the disk."""
    for name in ("a", "s", "n1"):
        bench.take(f"{DISK}@{name}")
        bench.run("bookmark", f"{DISK}@{name}", f"{DISK}#{name}")
    exact.roll_back(bench.zfs, [bench.planned(f"{DISK}@s")], [bench.planned(f"{DISK}@n1")])
    assert bench.run("list", "-Ho", "name", "-t", "bookmark", "-r", DISK).split() == [f"{DISK}#a", f"{DISK}#s"]


def test_a_rollback_that_is_not_as_planned_changes_nothing(bench):
    parts = [bench.take(f"{name}@s") for name in ("zones/vm", DISK)]
    newer = [bench.take(f"{DISK}@n1")]
    bench.take(f"{DISK}@n2")
    message = refused(exact.roll_back, bench.zfs, parts, newer)
    assert message == (
        f"zones/vm changed since it was read: {DISK}@n2 was added; it was not rolled back; "
        "run the task again, its plan then names what is there"
    )
    bench.run("destroy", f"{DISK}@n1")
    assert f"{DISK}@n1 is gone" in refused(exact.roll_back, bench.zfs, parts, newer)
    parts[1] = parts[1]._replace(guid=7)
    assert f"{DISK}@s is another one" in refused(exact.roll_back, bench.zfs, parts, newer)
    assert bench.changes() == []
    with pytest.raises(exact.Unchanged):
        exact.confirm_rollback(bench.zfs, parts, newer)


def test_a_snapshot_that_comes_between_comparison_and_rollback_makes_it_fail(bench):
    part = bench.take(f"{DISK}@s")
    bench.before("zfs rollback", "snapshot", f"{DISK}@new")
    assert f"{DISK}@new" in refused(exact.roll_back, bench.zfs, [part], [])
    assert f"{DISK}@new" in bench.names()
