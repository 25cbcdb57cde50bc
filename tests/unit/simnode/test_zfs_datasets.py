# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`zfs create`, `clone`, `rename` and `destroy`."""

from __future__ import annotations

import pytest

from tests.unit.simnode.zfs_support import GIB, MIB, VM, Zfs, mib

DISK = f"{VM}/disk0"
DETACHED = "zones/flexdisk/disk0"


@pytest.fixture
def zfs() -> Zfs:
    made = Zfs(size=16 * GIB)
    made.vm(1024, 2048, 1024)
    made.ok("create -o mountpoint=none -o canmount=off zones/flexdisk")
    return made


def test_create_with_properties_and_parents(zfs):
    zfs.ok("create -p -o x:y=1 -o quota=1G zones/a/b/c")
    assert zfs.names("fs") == ["zones", "zones/a", "zones/a/b", "zones/a/b/c", "zones/flexdisk", VM]
    assert (zfs.get("zones/a/b/c", "x:y"), zfs.get("zones/a", "x:y")) == ("1", "-")
    zfs.ok("create -p zones/a/b/c")


def test_create_rounds_up_and_set_does_not(zfs):
    zfs.ok("create -V 1000 zones/v")
    assert zfs.num("zones/v", "volsize") == 8192


def test_identity(zfs):
    zfs.ok("create zones/a")
    zfs.ok("create zones/b")
    assert zfs.num("zones/a", "guid") != zfs.num("zones/b", "guid")
    assert zfs.num("zones/a", "createtxg") < zfs.num("zones/b", "createtxg")
    assert zfs.num("zones/a", "creation") <= zfs.num("zones/b", "creation")
    again = Zfs(size=16 * GIB)
    assert again.get("zones", "guid") == zfs.get("zones", "guid")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (f"create {VM}", f"cannot create '{VM}': dataset already exists"),
        ("create zones/no/child", "cannot create 'zones/no/child': parent does not exist"),
        (f"create {DISK}/child", f"cannot create '{DISK}/child': parent is not a filesystem"),
        ("create nopool/a", "cannot create 'nopool/a': no such pool 'nopool'"),
        ("create nopool", "cannot create 'nopool': missing dataset name"),
        ("create zones/a@b", "cannot create 'zones/a@b': snapshot delimiter '@' is not expected here"),
        ("create 'zones/a!'", "cannot create 'zones/a!': invalid character '!' in name"),
        ("create zones/a//b", "cannot create 'zones/a//b': empty component or misplaced '@' or '#' delimiter in name"),
        (f"create -V 8G {VM}/disk1", f"cannot create '{VM}/disk1': out of space"),
        (f"create -V 0 {VM}/disk1", f"cannot create '{VM}/disk1': volume size cannot be zero"),
        (f"create -V lots {VM}/disk1", "bad volume size 'lots': bad numeric value 'lots'"),
        (
            f"create -V 8G -o volblocksize=1000 {VM}/d",
            f"cannot create '{VM}/d': 'volblocksize' must be power of 2 from 512B to 1M",
        ),
        (
            f"create -o volsize=1G {VM}/d",
            f"cannot create '{VM}/d': 'volsize' does not apply to datasets of this type",
        ),
    ],
)
def test_create_refusals(zfs, line, why):
    before = zfs.names()
    assert zfs.bad(line) == why + "\n"
    assert zfs.names() == before


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("create", "missing filesystem argument"),
        ("create -V 1G", "missing volume argument"),
        ("create zones/a zones/b", "too many arguments"),
        ("create -s zones/a", "'-s' and '-b' can only be used when creating a volume"),
        ("create -V", "missing argument for 'V' option"),
        ("frobnicate", "unrecognized command 'frobnicate'"),
    ],
)
def test_usage(zfs, line, text):
    assert zfs.bad(line, code=2).startswith(text + "\n")


def test_clone_of_an_image(zfs):
    zfs.ok("create -s -V 64M zones/image")
    zfs.guest("write zones/image 0 30 image")
    zfs.ok("snapshot zones/image@final")
    zfs.ok(f"clone -F -o volsize=100M -o refreservation=auto -o x:y=1 zones/image@final {VM}/disk1")
    clone = f"{VM}/disk1"
    pool = zfs.node.pools.pools["zones"]
    assert zfs.num(clone, "refreservation") == pool.auto(mib(100), 8192)
    assert (zfs.get(clone, "origin"), zfs.get("zones/image@final", "clones")) == ("zones/image@final", clone)
    assert zfs.hash(clone, 0, 64) == zfs.hash("zones/image")
    zfs.guest(f"write {clone} 0 1 2")
    assert zfs.hash(clone, 0, 64) != zfs.hash("zones/image")
    zfs.ok("rename zones/image zones/picture")
    assert zfs.get(clone, "origin") == "zones/picture@final"


def test_a_clone_that_does_not_fit_stays_behind(zfs):
    zfs.ok("create -s -V 64M zones/image")
    zfs.ok("snapshot zones/image@final")
    err = zfs.bad(f"clone -F -o volsize=4G -o refreservation=auto zones/image@final {VM}/disk1")
    assert err == f"cannot create '{VM}/disk1': out of space\n"
    assert zfs.num(f"{VM}/disk1", "volsize") == 4 * GIB
    assert zfs.num(f"{VM}/disk1", "refreservation") == 0


def test_clone_refusals(zfs):
    zfs.ok(f"snapshot {DISK}@s")
    assert zfs.bad(f"clone {DISK}@none {VM}/c") == f"cannot open '{DISK}@none': dataset does not exist\n"
    assert zfs.bad(f"clone {DISK}@s zones/no/c") == "cannot create 'zones/no/c': parent does not exist\n"
    assert zfs.bad(f"clone {DISK}@s {DISK}") == f"cannot create '{DISK}': dataset already exists\n"
    assert "volblocksize' is readonly" in zfs.bad(f"clone -o volblocksize=4096 {DISK}@s {VM}/c")


# -- rename ----------------------------------------------------------------------------------------------------------


def test_rename_takes_everything_along(zfs):
    zfs.ok(f"set x:y=1 {DISK}")
    zfs.ok(f"set x:vm=a {VM}")
    zfs.guest(f"write {DISK} 0 10 1")
    zfs.ok(f"snapshot {DISK}@s")
    zfs.ok(f"hold keep {DISK}@s")
    zfs.guest(f"write {DISK} 5 10 2")
    kept = ("guid", "used", "refreservation", "volsize", "usedbysnapshots", "x:y", "createtxg")
    before = [zfs.get(DISK, prop) for prop in kept]
    digest = zfs.hash(DISK)
    zfs.ok(f"rename {DISK} {DETACHED}")
    assert [zfs.get(DETACHED, prop) for prop in kept] == before
    assert zfs.hash(DETACHED) == digest
    assert zfs.get(DETACHED, "x:vm") == "-"
    assert zfs.ok(f"holds -H {DETACHED}@s").startswith(f"{DETACHED}@s\tkeep\t")
    assert DISK not in zfs.names()


def test_rename_moves_the_charge(zfs):
    used, size = zfs.num(VM, "used"), zfs.num(DISK, "used")
    zfs.ok(f"rename {DISK} {DETACHED}")
    assert zfs.num(VM, "used") == used - size
    assert zfs.num("zones/flexdisk", "usedbychildren") == size


def test_renaming_a_file_system_renames_what_is_below(zfs):
    zfs.ok(f"rename {VM} zones/other")
    assert zfs.names() == ["zones", "zones/flexdisk", "zones/other", "zones/other/disk0"]
    zfs.ok("set x:y=1 zones/other/disk0")


def test_exact_fit_into_a_vm_needs_the_metadata_of_the_disk_too(zfs):
    zfs.ok("create -V 1024M zones/flexdisk/d")
    over = zfs.num("zones/flexdisk/d", "refreservation") - mib(1024)
    err = zfs.bad(f"rename zones/flexdisk/d {VM}/disk1")
    assert err == "cannot rename 'zones/flexdisk/d': out of space\n"
    assert "zones/flexdisk/d" in zfs.names()
    quota = zfs.num(VM, "quota") + over
    zfs.ok(f"set quota={quota} reservation={quota} {VM}")
    zfs.ok(f"rename zones/flexdisk/d {VM}/disk1")


def full_pool(zfs: Zfs) -> None:
    zfs.ok("create zones/filler")
    zfs.ok(f"set reservation={zfs.num('zones', 'available') + zfs.num('zones/filler', 'used')} zones/filler")
    assert zfs.num("zones", "available") == 0


def test_rename_out_of_a_full_vm_in_a_full_pool(zfs):
    full_pool(zfs)
    assert zfs.bad(f"rename {DISK} {DETACHED}") == f"cannot rename '{DISK}': out of space\n"
    before = zfs.num("zones", "used")
    lowered = zfs.num(VM, "reservation") - zfs.num(DISK, "used")
    zfs.ok(f"set reservation={lowered} {VM}")
    zfs.ok(f"rename {DISK} {DETACHED}")
    assert zfs.num("zones", "used") == before


def test_attach_into_a_full_pool(zfs):
    zfs.ok("create -V 1024M zones/flexdisk/d")
    full_pool(zfs)
    size = zfs.num("zones/flexdisk/d", "used")
    quota, reservation = zfs.num(VM, "quota") + size, zfs.num(VM, "reservation") + size
    assert "greater than available" in zfs.bad(f"set quota={quota} reservation={reservation} {VM}")
    assert (zfs.num(VM, "quota"), zfs.num(VM, "reservation")) == (quota, reservation - size)
    zfs.ok(f"rename zones/flexdisk/d {VM}/disk1")
    zfs.ok(f"set reservation={reservation} {VM}")
    assert zfs.num("zones", "available") == 0


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (f"rename {DISK} zones/no/d", "cannot create 'zones/no/d': parent does not exist"),
        (f"rename {VM} {DISK}/x", f"cannot create '{DISK}/x': parent is not a filesystem"),
        (f"rename {DISK} zones/flexdisk", f"cannot rename '{DISK}': dataset already exists"),
        ("rename zones/none zones/d", "cannot open 'zones/none': dataset does not exist"),
        (
            f"rename {VM} {VM}/x",
            f"cannot rename to '{VM}/x': New dataset name cannot be a descendant of current dataset name",
        ),
        (f"rename {DISK} zones/{'n' * 260}", f"cannot rename to 'zones/{'n' * 260}': name is too long"),
    ],
)  # fmt: skip
def test_rename_refusals(zfs, line, why):
    before = zfs.names()
    assert zfs.bad(line) == why + "\n"
    assert zfs.names() == before


def test_rename_with_too_long_a_snapshot_below(zfs):
    zfs.ok(f"snapshot {DISK}@{'s' * 200}")
    assert "dataset name is too long" in zfs.bad(f"rename {VM} zones/{'n' * 100}")


def test_encryption_roots_are_not_crossed(zfs):
    zfs.ok("create -o encryption=on -o keyformat=passphrase zones/secret")
    zfs.ok("create -V 64M zones/secret/v")
    assert zfs.get("zones/secret/v", "encryptionroot") == "zones/secret"
    err = zfs.bad("rename zones/secret/v zones/v")
    assert err == "cannot rename 'zones/secret/v': cannot move encrypted child outside of its encryption root\n"
    zfs.ok("create zones/secret/sub")
    zfs.ok("rename zones/secret/v zones/secret/sub/v")
    zfs.ok("rename zones/secret zones/hidden")
    assert zfs.get("zones/hidden/sub/v", "encryptionroot") == "zones/hidden"


# -- destroy ---------------------------------------------------------------------------------------------------------


def test_destroy_gives_the_space_back(zfs):
    zfs.ok(f"destroy {DISK}")
    assert zfs.num(VM, "usedbychildren") == 0
    assert zfs.bad(f"get used {DISK}") == f"cannot open '{DISK}': dataset does not exist\n"


def test_destroy_refuses_children_and_snapshots(zfs):
    zfs.ok(f"snapshot -r {VM}@s")
    assert zfs.bad(f"destroy {VM}") == (
        f"cannot destroy '{VM}': filesystem has children\nuse '-r' to destroy the following datasets:\n"
        f"{DISK}@s\n{DISK}\n{VM}@s\n"
    )
    assert zfs.bad(f"destroy {DISK}") == (
        f"cannot destroy '{DISK}': volume has children\nuse '-r' to destroy the following datasets:\n{DISK}@s\n"
    )
    assert zfs.ok(f"destroy -nvpr {VM}") == f"destroy\t{DISK}@s\ndestroy\t{DISK}\ndestroy\t{VM}@s\ndestroy\t{VM}\n"
    zfs.ok(f"destroy -rF {VM}")
    assert zfs.names() == ["zones", "zones/flexdisk"]


def test_destroy_lists_a_child_that_is_a_clone_twice(zfs):
    zfs.ok(f"snapshot {VM}@s")
    zfs.ok(f"clone {VM}@s {VM}/n")
    err = zfs.bad(f"destroy {VM}")
    assert err.splitlines()[2:] == [DISK, f"{VM}/n", f"{VM}/n", f"{VM}@s"]


def test_destroy_refuses_clones_without_big_r(zfs):
    zfs.ok(f"snapshot {DISK}@s")
    zfs.ok(f"clone {DISK}@s zones/c")
    for line, word in ((f"destroy -r {VM}", VM), (f"destroy -r {DISK}", DISK)):
        kind = "filesystem" if word == VM else "volume"
        assert zfs.bad(line) == (
            f"cannot destroy '{word}': {kind} has dependent clones\n"
            "use '-R' to destroy the following datasets:\nzones/c\n"
        )
    assert zfs.bad(f"destroy {DISK}@s") == (
        f"cannot destroy '{DISK}@s': snapshot has dependent clones\n"
        "use '-R' to destroy the following datasets:\nzones/c\n"
    )
    zfs.ok(f"destroy -R {DISK}@s")
    assert zfs.names() == ["zones", "zones/flexdisk", VM, DISK]


@pytest.mark.parametrize("version", ["illumos", "2.1", "2.3"])
def test_destroy_refuses_holds(version):
    zfs = Zfs(version=version)
    zfs.ok("create zones/a")
    zfs.ok("create -s -V 64M zones/a/v")
    zfs.ok("snapshot -r zones/a@s")
    zfs.ok("hold keep zones/a/v@s")
    held = "dataset is busy"
    if version == "2.3":
        held = "it's being held. Run 'zfs holds -r zones/a/v@s' to see holders."
    assert zfs.bad("destroy zones/a/v@s") == f"cannot destroy snapshot zones/a/v@s: {held}\n"
    assert zfs.bad("destroy -r zones/a/v") == f"cannot destroy snapshot zones/a/v@s: {held}\n"
    assert zfs.bad("destroy -r zones/a") == (
        f"cannot destroy snapshot zones/a/v@s: {held}\ncannot destroy 'zones/a': dataset already exists\n"
    )
    assert zfs.names() == ["zones", "zones/a", "zones/a/v", "zones/a/v@s"]
    zfs.ok("destroy -d zones/a/v@s")
    assert zfs.get("zones/a/v@s", "defer_destroy") == "on"
    zfs.ok("release keep zones/a/v@s")
    assert zfs.names("snapshot") == []


def test_destroying_a_pool_is_refused(zfs):
    assert zfs.bad("destroy zones").startswith("cannot destroy 'zones': operation does not apply to pools\n")


def test_snapshot_lists_and_ranges(zfs):
    for short in "abcde":
        zfs.ok(f"snapshot {DISK}@{short}")
    assert zfs.ok(f"destroy -nvp {DISK}@b%d,e") == (
        "".join(f"destroy\t{DISK}@{short}\n" for short in "bcde") + "reclaim\t0\n"
    )
    zfs.ok(f"destroy {DISK}@b%c,e")
    assert zfs.names("snapshot") == [f"{DISK}@a", f"{DISK}@d"]
    assert zfs.bad(f"destroy {DISK}@x") == "could not find any snapshots to destroy; check snapshot names.\n"
    zfs.ok(f"destroy {DISK}@%")
    assert zfs.names("snapshot") == []


def test_busy_fault(zfs):
    zfs.node.pools.faults[f"busy:{DISK}"] = 2
    assert zfs.bad(f"destroy {DISK}") == f"cannot destroy '{DISK}': dataset is busy\n"
    assert zfs.bad(f"rename {DISK} {DETACHED}") == f"cannot rename '{DISK}': dataset is busy\n"
    zfs.ok(f"destroy {DISK}")


@pytest.mark.parametrize(
    ("fault", "why"), [("readonly", "pool is read-only"), ("suspended", "pool I/O is currently suspended")]
)
def test_pool_faults(zfs, fault, why):
    zfs.ok(f"snapshot {DISK}@s")
    state = zfs.ok("get -Hpr all zones")
    zfs.node.pools.faults[fault] = True
    for line in (
        "create zones/a", f"destroy {DISK}@s", f"destroy -r {DISK}", f"rename {DISK} {DETACHED}", f"set x:y=1 {DISK}",
        f"snapshot {DISK}@t", f"rollback {DISK}@s", f"clone {DISK}@s zones/c", f"set volsize=1G {DISK}",
        f"hold k {DISK}@s", f"inherit x:y {DISK}", f"rename {DISK}@s {DISK}@t",
    ):  # fmt: skip
        assert why in zfs.bad(line)
    assert zfs.ok("get -Hpr all zones") == state
    assert zfs.run(f"guest write {DISK} 0 1 1")[0] == 1
    del zfs.node.pools.faults[fault]
    zfs.ok(f"set volsize={1024 * MIB} {DISK}")
