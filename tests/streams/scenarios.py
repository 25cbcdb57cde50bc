# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts on which replicas are built, each on datasets of its own. Measured on OpenZFS 2.1."""

from __future__ import annotations

from collections.abc import Callable

from . import encrypted
from .pair import POOL, Pair

MIB = 1 << 20
REPLICA = "-s -u -o readonly=on -o volmode=none -o test:role=replica"
Scenario = Callable[[Pair, str, str], None]


def disk(pair: Pair, name: str, mib: int = 20) -> None:
    """A thick volume of 64 MiB with data and a snapshot."""
    pair.source.zfs("create", "-V", "64M", "-o", "test:id=abc", name)
    pair.source.write(name, 0, mib, "first")
    pair.source.zfs("snapshot", f"{name}@1")


def next_snapshot(pair: Pair, name: str, short: str, mib: int = 4) -> None:
    pair.source.write(name, 2, mib, short)
    pair.source.zfs("snapshot", f"{name}@{short}")


def first_stream(pair: Pair, here: str, there: str) -> None:
    """It brings contents, size and block size. A reservation and properties of users stay behind; -o sets others."""
    disk(pair, here)
    pair.sent(f"-Lec {here}@1", f"{REPLICA} {there}")
    target = pair.target
    assert target.get(there, "volsize") == str(64 * MIB)
    assert target.get(there, "volblocksize") == pair.source.get(here, "volblocksize")
    assert (target.get(there, "refreservation"), target.get(there, "test:id")) == ("0", "-")
    found = {
        prop: (target.get(there, prop), target.source(there, prop)) for prop in ("readonly", "volmode", "test:role")
    }
    assert found == {"readonly": ("on", "local"), "volmode": ("none", "local"), "test:role": ("replica", "local")}
    assert target.get(f"{there}@1", "guid") == pair.source.get(f"{here}@1", "guid")
    assert target.get(there, "guid") != pair.source.get(here, "guid")
    assert target.get(there, "written") == "0"
    assert target.digest(there) == pair.source.digest(here)


def reservation_while_receiving(pair: Pair, here: str, there: str) -> None:
    """It cannot be automatic: zfs complains, succeeds, and reserves nothing. Afterwards it can, read-only or not."""
    disk(pair, here)
    done = pair.stream(f"{here}@1", f"-u -o readonly=on -o refreservation=auto {there}")
    assert done.rc == 0
    assert "cannot receive refreservation property" in done.stderr
    assert pair.target.get(there, "refreservation") == "0"
    pair.target.zfs("set", "refreservation=auto", there)
    assert pair.target.get(there, "refreservation") == pair.source.get(here, "refreservation")
    assert pair.target.get(there, "written") == "0"


def increments(pair: Pair, here: str, there: str) -> None:
    """They need no more than the base on both sides. One that is there already changes nothing."""
    disk(pair, here)
    pair.sent(f"{here}@1", f"{REPLICA} {there}")
    next_snapshot(pair, here, "2")
    assert "does not exist" in pair.refused(f"-i @1 {here}@2", f"-u {there}x")
    pair.sent(f"-Lec -i @1 {here}@2", f"-s -u {there}")
    pair.sent(f"-Lec -i @1 {here}@2", f"-s -u {there}")
    assert pair.target.snapshots(there) == ["1", "2"]
    assert pair.target.digest(there) == pair.source.digest(here)
    assert "must specify -F" in pair.refused(f"{here}@2", f"-u {there}")


def growth(pair: Pair, here: str, there: str) -> None:
    """The size comes with the next increment, the reservation does not. A source that shrinks shrinks its replica."""
    disk(pair, here)
    pair.sent(f"{here}@1", f"{REPLICA} {there}")
    pair.target.zfs("set", "refreservation=auto", there)
    for short, size in (("2", 128), ("3", 96)):
        before = pair.target.get(there, "refreservation")
        pair.source.zfs("set", f"volsize={size}M", here)
        pair.source.zfs("snapshot", f"{here}@{short}")
        pair.sent(f"-i @{int(short) - 1} {here}@{short}", f"-s -u {there}")
        assert pair.target.get(there, "volsize") == str(size * MIB)
        assert pair.target.get(there, "refreservation") == before
        pair.target.zfs("set", "refreservation=auto", there)
        assert pair.target.get(there, "refreservation") == pair.source.get(here, "refreservation")


def changed_replica(pair: Pair, here: str, there: str) -> None:
    """A replica that was written to, or has another size, takes no increment before it is rolled back."""
    disk(pair, here)
    pair.sent(f"{here}@1", f"-u {there}")
    next_snapshot(pair, here, "2")
    assert "read-only" in _set_read_only(pair, there)
    for change in ("write", "volsize"):
        if change == "write":
            pair.target.write(there, 9, 1, "stranger")
        else:
            pair.target.zfs("set", "volsize=256M", there)
        assert int(pair.target.get(there, "written")) > 0
        assert "has been modified" in pair.refused(f"-i @1 {here}@2", f"-s -u {there}")
        pair.target.zfs("rollback", f"{there}@1")
        assert pair.target.get(there, "written") == "0"
    pair.sent(f"-i @1 {here}@2", f"-s -u {there}")
    assert pair.target.get(there, "volsize") == str(64 * MIB)


def _set_read_only(pair: Pair, there: str) -> str:
    """What a read-only volume says to another size."""
    pair.target.zfs("set", "readonly=on", there)
    said = pair.target.refused("set", "volsize=256M", there)
    pair.target.zfs("set", "readonly=off", there)
    return said


def bases(pair: Pair, here: str, there: str) -> None:
    """The guid counts, not the name. Snapshots that the target has taken do no harm if nothing was written."""
    disk(pair, here)
    pair.sent(f"{here}@1", f"{REPLICA} {there}")
    pair.target.zfs("snapshot", f"{there}@own")
    next_snapshot(pair, here, "2")
    pair.sent(f"-i @1 {here}@2", f"-s -u {there}")
    pair.target.zfs("rename", f"{there}@2", f"{there}@two")
    next_snapshot(pair, here, "3")
    pair.sent(f"-i @2 {here}@3", f"-s -u {there}")
    assert pair.target.snapshots(there) == ["1", "own", "two", "3"]
    pair.target.zfs("destroy", f"{there}@3")
    next_snapshot(pair, here, "4")
    assert "does not\nmatch incremental source" in pair.refused(f"-i @3 {here}@4", f"-s -u {there}")
    assert "has been modified" in pair.refused(f"-i @2 {here}@4", f"-s -u {there}")
    pair.target.zfs("rollback", f"{there}@two")
    pair.sent(f"-i @2 {here}@4", f"-s -u {there}")
    pair.target.zfs("snapshot", f"{there}@5")
    next_snapshot(pair, here, "5")
    refusal = f"cannot restore to {there}@5: destination already exists"
    assert refusal in pair.refused(f"-i @4 {here}@5", f"-s -u {there}")


def bookmarks(pair: Pair, here: str, there: str) -> None:
    """A bookmark on the source is a base, too, when its snapshot has gone. It has the snapshot's guid."""
    disk(pair, here)
    pair.sent(f"{here}@1", f"{REPLICA} {there}")
    pair.source.zfs("bookmark", f"{here}@1", f"{here}#one")
    assert pair.source.get(f"{here}#one", "guid") == pair.target.get(f"{there}@1", "guid")
    assert "bookmark exists" in pair.source.refused("bookmark", f"{here}@1", f"{here}#one")
    pair.source.zfs("destroy", f"{here}@1")
    next_snapshot(pair, here, "2")
    pair.sent(f"-i #one {here}@2", f"-s -u {there}")
    assert pair.target.digest(there) == pair.source.digest(here)
    assert pair.source.zfs("list", "-H", "-o", "name", "-t", "bookmark", here) == f"{here}#one"
    pair.source.zfs("destroy", f"{here}#one")
    assert "does not exist" in pair.source.refused("destroy", f"{here}#one")


def cut_first_stream(pair: Pair, here: str, there: str) -> None:
    """Without -s nothing stays. With -s a dataset without a size and snapshots, which has the properties of -o."""
    disk(pair, here)
    assert "incomplete stream" in pair.refused(f"{here}@1", f"-u {there}", 9 * MIB)
    assert "does not exist" in pair.target.refused("list", there)
    assert "Partially received snapshot is saved" in pair.refused(f"{here}@1", f"{REPLICA} {there}", 9 * MIB)
    assert pair.target.snapshots(there) == []
    assert (pair.target.get(there, "volsize"), pair.target.source(there, "test:role")) == ("0", "local")
    assert "dataset is busy" in pair.target.refused("snapshot", f"{there}@x")
    pair.target.zfs("set", "refreservation=auto", there)
    assert int(pair.target.get(there, "refreservation")) < 8 * MIB, "automatic is that of a volume without a size"
    above, renamed = f"{there}-above", f"{there}-above/renamed"
    pair.target.zfs("create", "-o", "mountpoint=none", above)
    pair.target.zfs("rename", there, renamed)
    pair.target.zfs("snapshot", "-r", f"{above}@x")
    assert (pair.target.snapshots(above), pair.target.snapshots(renamed)) == (["x"], []), "-r leaves it out"
    pair.sent(f"-t {pair.target.token(renamed)}", f"-s -u {renamed}")
    pair.target.zfs("rename", renamed, there)
    assert (pair.target.snapshots(there), pair.target.token(there)) == (["1"], "-")
    assert pair.target.digest(there) == pair.source.digest(here)


def cut_increment(pair: Pair, here: str, there: str) -> None:
    """The dataset stays as it was, its base cannot be destroyed, other streams are refused until the rest or -A."""
    disk(pair, here)
    pair.sent(f"{here}@1", f"{REPLICA} {there}")
    next_snapshot(pair, here, "2", 10)
    assert "is saved" in pair.refused(f"-i @1 {here}@2", f"-s -u {there}", 5 * MIB)
    assert (pair.target.snapshots(there), pair.target.get(there, "written")) == (["1"], "0")
    assert "partially-complete state" in pair.refused(f"-i @1 {here}@2", f"-s -u {there}")
    assert f"{there}/%recv" in pair.target.refused("destroy", f"{there}@1")
    token = pair.target.token(there)
    left = int(pair.source.zfs("send", "-nP", "-t", token).splitlines()[-1].split()[1])
    whole = int(pair.source.zfs("send", "-nP", "-i", "@1", f"{here}@2").splitlines()[-1].split()[1])
    assert 4 * MIB < left < whole
    pair.sent(f"-t {token}", f"-s -u {there}")
    assert pair.target.digest(there) == pair.source.digest(here)
    assert "does not have any resumable" in pair.target.refused("receive", "-A", there)


def token_without_its_snapshot(pair: Pair, here: str, there: str) -> None:
    """A token outlives other names of snapshot and dataset, but not the snapshot. Then the target gives it up."""
    disk(pair, here)
    pair.sent(f"{here}@1", f"{REPLICA} {there}")
    next_snapshot(pair, here, "2", 10)
    pair.refused(f"-i @1 {here}@2", f"-s -u {there}", 5 * MIB)
    token = pair.target.token(there)
    pair.source.zfs("rename", f"{here}@2", f"{here}@two")
    pair.source.zfs("rename", here, f"{here}-renamed")
    pair.source.zfs("send", "-nP", "-t", token)
    pair.source.zfs("rename", f"{here}-renamed", here)
    pair.source.zfs("destroy", f"{here}@two")
    assert "no longer exists" in pair.source.refused("send", "-nP", "-t", token)
    pair.source.zfs("snapshot", f"{here}@2")
    assert "is no longer the same snapshot" in pair.source.refused("send", "-nP", "-t", token)
    pair.target.zfs("receive", "-A", there)
    assert pair.target.token(there) == "-"
    pair.sent(f"-i @1 {here}@2", f"-s -u {there}")
    assert "corrupt" in pair.source.refused("send", "-nP", "-t", "1-2-3-4")


def target_without_room(pair: Pair, here: str, there: str) -> None:
    """What has arrived stays and takes room. It goes on when there is more."""
    disk(pair, here, 40)
    parent = f"{there}-parent"
    pair.target.zfs("create", "-o", "quota=20M", parent)
    assert "space quota exceeded" in pair.refused(f"{here}@1", f"{REPLICA} {parent}/disk")
    assert int(pair.target.get(parent, "available")) < 2 * MIB
    pair.target.zfs("set", "quota=100M", parent)
    pair.sent(f"-t {pair.target.token(f'{parent}/disk')}", f"-s -u {parent}/disk")
    assert pair.target.digest(f"{parent}/disk") == pair.source.digest(here)
    next_snapshot(pair, here, "2", 40)
    pair.target.zfs("set", "quota=60M", parent)
    assert "space quota exceeded" in pair.refused(f"-i @1 {here}@2", f"-s -u {parent}/disk")
    assert pair.target.token(f"{parent}/disk") != "-"
    pair.target.zfs("receive", "-A", f"{parent}/disk")
    assert int(pair.target.get(parent, "available")) > 10 * MIB
    assert "out of space" in pair.target.refused("create", "-V", "64M", f"{parent}/more")


def clones(pair: Pair, here: str, there: str) -> None:
    """A clone can be sent after its origin, or whole. Its origin is found by guid."""
    disk(pair, here)
    pair.source.zfs("clone", f"{here}@1", f"{here}-clone")
    next_snapshot(pair, f"{here}-clone", "a")
    words = f"-i {here}@1 {here}-clone@a"
    assert "local origin for clone" in pair.refused(words, f"-u {there}-clone")
    pair.sent(f"{here}@1", f"-u {there}")
    pair.sent(words, f"-u {there}-clone")
    assert pair.target.get(f"{there}-clone", "origin") == f"{there}@1"
    pair.sent(f"{here}-clone@a", f"-u {there}-whole")
    assert pair.target.get(f"{there}-whole", "origin") == "-"
    assert {pair.target.get(f"{there}-{name}@a", "guid") for name in ("clone", "whole")} == {
        pair.source.get(f"{here}-clone@a", "guid")
    }
    assert pair.target.digest(f"{there}-whole") == pair.source.digest(f"{here}-clone")


def file_systems(pair: Pair, here: str, there: str) -> None:
    """They are received and stay unmounted."""
    pair.source.zfs("create", "-o", "test:id=abc", "-o", "quota=1G", here)
    pair.source.zfs("snapshot", f"{here}@1")
    pair.sent(f"{here}@1", f"-s -u -o readonly=on -o canmount=off -o mountpoint=none {there}")
    found = [
        pair.target.get(there, prop) for prop in ("mounted", "mountpoint", "canmount", "readonly", "quota", "test:id")
    ]
    assert found == ["no", "none", "off", "on", "0", "-"]
    pair.source.zfs("snapshot", f"{here}@2")
    pair.sent(f"-i @1 {here}@2", f"-s -u {there}")
    assert pair.target.snapshots(there) == ["1", "2"]


def several_disks(pair: Pair, here: str, there: str) -> None:
    """One command takes the snapshots of all disks at one instant, or none. A hold stops a rollback half-way."""
    del there
    names = [f"{here}-{number}" for number in range(2)]
    for name in names:
        disk(pair, name, 1)
    pair.source.zfs("snapshot", *(f"{name}@2" for name in names))
    assert len({pair.source.get(f"{name}@2", "createtxg") for name in names}) == 1
    assert "no snapshots were created" in pair.source.refused("snapshot", f"{names[0]}@3", f"{names[1]}@2")
    pair.source.zfs("snapshot", f"{names[0]}@3")
    pair.source.zfs("hold", "sync", f"{names[0]}@3")
    assert "dataset is busy" in pair.source.refused("destroy", f"{names[0]}@3")
    assert "dataset is busy" in pair.source.refused("rollback", "-r", f"{names[0]}@1")
    assert pair.source.snapshots(names[0]) == ["1", "3"], "the rollback failed, but the snapshot between has gone"


def estimates(pair: Pair, here: str, there: str) -> None:
    """`send -nP` says what will be sent, for all snapshots up to one, too. It is a little more than the data."""
    del there
    disk(pair, here)
    for number in range(2, 5):
        next_snapshot(pair, here, str(number), number)
    lines = [line.split("\t") for line in pair.source.zfs("send", "-nP", "-I", "@1", f"{here}@4").splitlines()]
    assert [line[:3] for line in lines[:-1]] == [["incremental", str(n - 1), f"{here}@{n}"] for n in range(2, 5)]
    assert int(lines[-1][1]) == sum(int(line[3]) for line in lines[:-1])
    for number, line in enumerate(lines[:-1], 2):
        assert number * MIB < int(line[3]) < number * MIB * 1.08
    assert pair.source.zfs("send", "-nP", f"{here}@1").splitlines()[0].startswith(f"full\t{here}@1\t")


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        first_stream, reservation_while_receiving, increments, growth, changed_replica, bases, bookmarks,
        cut_first_stream, cut_increment, token_without_its_snapshot, target_without_room, clones, file_systems,
        several_disks, estimates, *encrypted.SCENARIOS.values(),
    )
}  # fmt: skip


def run(pair: Pair, name: str) -> None:
    """One scenario, on datasets that it alone has."""
    short = name.replace("_", "-")
    SCENARIOS[name](pair, f"{POOL}/{short}", f"{POOL}/{short}")
