# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`zfs set` and `zfs inherit`: order, partial application, refusals."""

from __future__ import annotations

import pytest

from tests.unit.simnode.zfs_support import GIB, MIB, VM, Zfs, mib

DISK = f"{VM}/disk0"
LESS = "size is less than current used or reserved space"
MORE = "size is greater than available space"


@pytest.fixture
def zfs() -> Zfs:
    made = Zfs(size=16 * GIB)
    made.vm(1024, 2048, 1024)
    return made


def auto(size: int) -> int:
    return Zfs().node.pools.pools["zones"].auto(size, 8192)


def test_quota_applied_and_reservation_not(zfs):
    quota, reservation = zfs.num(VM, "quota"), zfs.num(VM, "reservation")
    assert zfs.bad(f"set quota=400G reservation=400G {VM}") == f"cannot set property for '{VM}': {MORE}\n"
    assert zfs.num(VM, "quota") == 400 * GIB != quota
    assert zfs.num(VM, "reservation") == reservation


@pytest.mark.parametrize("order", ["quota={0} reservation={0}", "reservation={0} quota={0}"])
@pytest.mark.parametrize("delta", [mib(700), -mib(1000)])
def test_raising_and_lowering_both_work_in_either_order(zfs, order, delta):
    quota = zfs.num(VM, "quota") + delta
    zfs.ok(f"set {order.format(quota)} refreservation={mib(1023)} {VM}")
    assert (zfs.num(VM, "quota"), zfs.num(VM, "reservation")) == (quota, quota)


def test_failed_lowering_keeps_the_quota_and_moves_the_reservation(zfs):
    quota = zfs.num(VM, "quota")
    zfs.ok(f"set refreservation=none {VM}")
    low = zfs.num(DISK, "used") - MIB
    err = zfs.bad(f"set quota={low} reservation={low} refreservation={mib(1023)} {VM}")
    assert err == f"cannot set property for '{VM}': {LESS}\n"
    assert (zfs.num(VM, "quota"), zfs.num(VM, "reservation")) == (quota, low)
    assert zfs.num(VM, "refreservation") == mib(1023)


@pytest.mark.parametrize(("short", "fits"), [(1, True), (2, False)])
def test_the_slack_of_one_mib(zfs, short, fits):
    quota = zfs.num(VM, "quota") - mib(1024) - mib(short)
    line = f"set quota={quota} reservation={quota} refreservation={mib(1023)} {VM}"
    if fits:
        zfs.ok(line)
    else:
        assert LESS in zfs.bad(line)


@pytest.mark.parametrize("size", [2048, 512])
def test_volsize_moves_an_automatic_reservation_along(zfs, size):
    zfs.ok(f"set quota=none {VM}")
    zfs.ok(f"set volsize={size}M {DISK}")
    assert zfs.num(DISK, "volsize") == mib(size)
    assert zfs.num(DISK, "refreservation") == auto(mib(size))


def test_volsize_leaves_another_reservation_alone(zfs):
    for value in ("none", "900M"):
        zfs.ok(f"set refreservation={value} {DISK}")
        before = zfs.num(DISK, "refreservation")
        zfs.ok(f"set volsize=1100M {DISK}")
        assert zfs.num(DISK, "refreservation") == before
        zfs.ok(f"set volsize=1024M {DISK}")


def test_volsize_with_auto_makes_it_thick_again(zfs):
    zfs.ok(f"set refreservation=none {DISK}")
    zfs.ok(f"set volsize=1040M refreservation=auto {DISK}")
    assert zfs.num(DISK, "refreservation") == auto(mib(1040))
    zfs.ok(f"set refreservation=none {DISK}")
    zfs.ok(f"set refreservation=auto {DISK}")
    assert zfs.num(DISK, "refreservation") == auto(mib(1040))


@pytest.mark.parametrize("extra", ["", "refreservation=auto "])
def test_growth_beyond_the_space_is_taken_back_but_a_marker_in_the_same_command_stays(zfs, extra):
    err = zfs.bad(f"set volsize=5G {extra}marker:x=y {DISK}")
    assert err == f"cannot set property for '{DISK}': {MORE}\n"
    assert (zfs.num(DISK, "volsize"), zfs.num(DISK, "refreservation")) == (mib(1024), auto(mib(1024)))
    assert zfs.get(DISK, "marker:x") == "y"


def test_growth_with_a_number_for_the_reservation_leaves_the_volume_grown(zfs):
    assert MORE in zfs.bad(f"set volsize=5G refreservation=5500M {DISK}")
    assert (zfs.num(DISK, "volsize"), zfs.num(DISK, "refreservation")) == (5 * GIB, auto(mib(1024)))


def test_shrinking_cuts_the_contents(zfs):
    zfs.guest(f"write {DISK} 0 1024 1")
    head = zfs.hash(DISK, 0, 512)
    zfs.ok(f"set volsize=512M {DISK}")
    assert zfs.hash(DISK) == head
    assert zfs.num(DISK, "referenced") < mib(520)
    zfs.ok(f"set volsize=1024M {DISK}")
    assert zfs.hash(DISK, 0, 512) == head
    empty = Zfs()
    empty.ok("create -V 1G zones/e")
    assert zfs.hash(DISK, 512, 512) == empty.hash("zones/e", 512, 512)


@pytest.mark.parametrize(
    ("setting", "name", "why"),
    [
        ("volsize=0", DISK, "'volsize' cannot be zero"),
        ("volsize=1000", DISK, "'volsize' must be a multiple of volume block size (8K)"),
        ("volblocksize=4096", DISK, "'volblocksize' is readonly"),
        ("quota=1G", DISK, "'quota' does not apply to datasets of this type"),
        ("refquota=0", VM, "use 'none' to disable quota/refquota"),
        ("refquota=512M", VM, LESS),
        ("refreservation=auto", VM, "'refreservation=auto' only allowed on volumes"),
        ("refreservation=2G", VM, MORE),
        ("quota=auto", VM, "'auto' is invalid value for 'quota'"),
        ("quota=many", VM, "bad numeric value 'many'"),
        ("quota=1X", VM, "invalid numeric suffix 'X'"),
        ("used=1", VM, "'used' is readonly"),
        ("nonsense=1", VM, "invalid property 'nonsense'"),
        ("Upper:case=1", VM, "invalid property 'Upper:case'"),
        ("sync=maybe", VM, "'sync' must be one of 'standard | always | disabled'"),
        ("mountpoint=rel", VM, "'mountpoint' must be an absolute path, 'none', or 'legacy'"),
        (f"x:{'n' * 254}=1", VM, f"property name 'x:{'n' * 254}' is too long"),
        (f"x:y={'v' * 8192}", VM, "property value too long"),
    ],
)
def test_refusals(zfs, setting, name, why):
    assert zfs.bad(f"set {setting} {name}") == f"cannot set property for '{name}': {why}\n"


def test_longest_user_value(zfs):
    zfs.ok(f"set x:y={'v' * 8191} {VM}")
    assert len(zfs.get(VM, "x:y")) == 8191


def test_a_wrong_property_stops_all_of_them(zfs):
    assert "invalid property" in zfs.bad(f"set x:y=1 nonsense=2 {VM}")
    assert zfs.get(VM, "x:y") == "-"


def test_several_datasets_go_on_after_a_failure(zfs):
    err = zfs.bad(f"set x:y=1 {VM} zones/none {DISK}")
    assert err == "cannot open 'zones/none': dataset does not exist\n"
    assert (zfs.get(VM, "x:y"), zfs.get(DISK, "x:y")) == ("1", "1")


def test_exit_status_of_openzfs_23():
    zfs = Zfs(version="2.3")
    zfs.bad("set quota=1K zones", code=255)
    zfs.bad("set x:y=1 zones/none", code=1)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("set", "missing arguments"),
        ("set quota=1G", "missing dataset name(s)"),
        ("set zones", "missing property=value argument(s)"),
        ("set zones quota=1G", "invalid argument order"),
        ("set -x quota=1G zones", "invalid option 'x'"),
    ],
)
def test_usage(zfs, line, text):
    err = zfs.bad(line, code=2)
    assert err.startswith(text + "\nusage:\n\tset ")


def test_repeated_property(zfs):
    assert zfs.bad(f"set quota=1G quota=2G {VM}", code=255) == "property 'quota' specified multiple times\n"


def test_read_only_volume(zfs):
    zfs.ok(f"set readonly=on {VM}")
    assert zfs.bad(f"set volsize=512M {DISK}") == f"cannot set property for '{DISK}': dataset is read-only\n"


def test_inherit(zfs):
    zfs.ok(f"set x:y=parent compression=lz4 {VM}")
    zfs.ok(f"set x:y=child compression=off {DISK}")
    assert zfs.source(DISK, "x:y") == "local"
    zfs.ok(f"inherit x:y {DISK}")
    assert (zfs.get(DISK, "x:y"), zfs.source(DISK, "x:y")) == ("parent", f"inherited from {VM}")
    zfs.ok(f"inherit -r compression {VM}")
    assert (zfs.get(DISK, "compression"), zfs.source(DISK, "compression")) == ("off", "default")
    zfs.ok(f"inherit x:never-set {DISK}")


def test_a_recursive_inherit_takes_the_snapshots_too(zfs):
    zfs.ok(f"snapshot -o x:y=own {DISK}@s")
    zfs.ok(f"inherit x:y {DISK}")
    assert zfs.get(f"{DISK}@s", "x:y") == "own"
    zfs.ok(f"inherit -r x:y {DISK}")
    assert zfs.get(f"{DISK}@s", "x:y") == "-"


def test_inherit_refusals(zfs):
    assert zfs.bad(f"inherit quota {VM}") == (
        "'quota' property cannot be inherited\nuse 'zfs set quota=none' to clear\n"
        "use 'zfs inherit -S quota' to revert to received value\n"
    )
    assert zfs.bad(f"inherit used {VM}") == "used property is read-only\n"
    assert zfs.bad(f"inherit nonsense {VM}", code=2).startswith("invalid property 'nonsense'\n")


def test_received_properties(zfs):
    zfs.ok(f"set x:y=sent {DISK}")
    zfs.ok(f"snapshot {DISK}@s")
    stream = zfs.ok(f"send -p {DISK}@s")
    assert zfs.run("zfs receive zones/copy", stream)[0] == 0
    assert (zfs.get("zones/copy", "x:y"), zfs.source("zones/copy", "x:y")) == ("sent", "received")
    zfs.ok("set x:y=mine zones/copy")
    assert zfs.ok("get -H -o value,received,source x:y zones/copy") == "mine\tsent\tlocal\n"
    zfs.ok("inherit -S x:y zones/copy")
    assert (zfs.get("zones/copy", "x:y"), zfs.source("zones/copy", "x:y")) == ("sent", "received")
    zfs.ok("inherit x:y zones/copy")
    assert zfs.get("zones/copy", "x:y") == "-"
    assert zfs.hash("zones/copy") == zfs.hash(DISK)
    assert zfs.get("zones/copy@s", "guid") == zfs.get(f"{DISK}@s", "guid")


def test_user_properties_of_snapshots(zfs):
    zfs.ok(f"set x:y=head {DISK}")
    zfs.ok(f"snapshot -o x:z=own {DISK}@s")
    assert zfs.source(f"{DISK}@s", "x:y") == f"inherited from {DISK}"
    zfs.ok(f"set x:y=2 {DISK}@s")
    assert (zfs.get(f"{DISK}@s", "x:y"), zfs.get(f"{DISK}@s", "x:z"), zfs.get(DISK, "x:y")) == ("2", "own", "head")
    err = zfs.bad(f"set readonly=on {DISK}@s")
    assert err == f"cannot set property for '{DISK}@s': this property can not be modified for snapshots\n"
