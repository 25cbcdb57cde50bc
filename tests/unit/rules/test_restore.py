# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which snapshot of a replica a restored disk is made from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import restore
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.inventory import Host
from tests.unit.rules.test_reservation import PLAIN

DISK = "aaaaaaaa-0000-4000-8000-000000000001"
OTHER = "aaaaaaaa-0000-4000-8000-000000000002"
NAME = f"zones/flexdisk/replica/{DISK}"


def replica(name=NAME, uuid=DISK, received=()):
    return Dataset(name, "volume", user={"replica": uuid}, received=frozenset(received))


def snapshot(short, txg, **user):
    return Dataset(f"{NAME}@{short}", "snapshot", guid=100 + txg, createtxg=txg, creation=txg * 60, user=user)


def host(*datasets):
    return Host((), {one.name: one for one in datasets}, dict.fromkeys(("zones", "tank"), PLAIN))


def test_the_replica_is_found_by_its_role():
    assert restore.find_replica(host(replica()), DISK).name == NAME
    for lone in (
        replica(received=["replica"]),  # a stream could have brought it
        replica(name=f"zones/other/{DISK}"),
        replica(uuid="x"),
    ):
        with pytest.raises(FlexdiskError, match="no replica of the disk") as caught:
            restore.find_replica(host(lone), DISK)
        assert caught.value.code == "ResourceNotFound"
    with pytest.raises(FlexdiskError, match="2 replicas of the disk") as caught:
        restore.find_replica(host(replica(), replica(f"tank/flexdisk/replica/{DISK}")), DISK)
    assert caught.value.code == "Ambiguous"


def test_which_snapshot():
    """Without a name it is the newest one of a sync; one of others is never it."""
    one = replica()
    nightly, mine = snapshot("nightly", 5, **{"replica.sent": "on"}), snapshot("mine", 9)
    old = snapshot("flexdisk-sync-00000001-1", 3, **{"replica.synced": "2026-01-01T00:00:00Z"})
    new = snapshot("flexdisk-sync-00000001-2", 4)
    there = host(one, nightly, mine, new, old)
    assert restore.choose(there, one, "") == new
    assert restore.choose(there, one, "nightly") == nightly
    for name in ("mine", "x"):
        with pytest.raises(FlexdiskError) as caught:
            restore.choose(there, one, name)
        assert caught.value.message == (
            f"{NAME} has no snapshot {name} that has come from its disk; it has: nightly of 1970-01-01T00:05:00Z, "
            "flexdisk-sync-00000001-2 of 1970-01-01T00:04:00Z, flexdisk-sync-00000001-1 of 2026-01-01T00:00:00Z"
        )
    with pytest.raises(FlexdiskError, match="no snapshot of a sync that has come from its disk; it has: none"):
        restore.choose(host(one), one, "")


@pytest.mark.parametrize(
    "value", ["", "x", f"{DISK}/1", f"{DISK}/x@y", f"{DISK}/1@a@b", f"{'a' * 36}/1@y", f"{DISK}/1@a\nb"]
)
def test_a_note_that_is_none(value):
    assert restore.decode_origin(value) is None
    assert not restore.is_from({"restored": value}, DISK, "y")


def test_notes():
    origin = restore.Origin(DISK, (1 << 64) - 1, "a: b.c-d_e")
    user = {"restored": restore.encode_origin(origin)}
    assert restore.decode_origin(user["restored"]) == origin
    assert restore.why_not_same(user, origin, False) == ""
    assert "restored from the replica of" in restore.why_not_same(user, origin._replace(disk=OTHER), False)
    assert restore.is_from(user, DISK, origin.snapshot)
    assert not restore.is_from(user, OTHER, origin.snapshot)
    assert not restore.is_from(user, DISK, "")


def both(first, second):
    """A host with the replicas of two disks, each with these snapshots: name, createtxg, time."""
    twin = f"zones/flexdisk/replica/{OTHER}"
    found = [replica(), replica(twin, OTHER)]
    for name, points in ((NAME, first), (twin, second)):
        for short, txg, moment in points:
            one = snapshot(short, txg, **{"replica.sent": "on"})
            found.append(replace(one, name=f"{name}@{short}", creation=moment))
    return host(*found)


S1, S2, S3 = (f"flexdisk-sync-00000001-{number}" for number in (1, 2, 3))


def test_a_set_of_several_disks():
    """The newest sync that all replicas have, or the snapshot that is named."""
    there = both([(S1, 1, 100), (S2, 2, 200), ("nightly", 3, 300), (S3, 4, 400)], [(S1, 5, 101), ("nightly", 6, 303)])
    assert restore.choose_set(there, [DISK, OTHER], "") == S1
    assert restore.choose_set(there, [DISK, OTHER], "nightly") == "nightly"
    assert restore.choose_set(there, [DISK], "") == S3
    with pytest.raises(FlexdiskError) as caught:
        restore.choose_set(there, [DISK, OTHER], S2)
    assert (
        caught.value.code,
        f"the replicas have no snapshot {S2} in common. They have {DISK}: {S3} of " in str(caught.value),
    ) == ("ResourceNotFound", True)
    with pytest.raises(FlexdiskError, match="no sync that has come completely in common"):
        restore.choose_set(both([(S1, 1, 100)], [(S2, 2, 100)]), [DISK, OTHER], "")


def test_snapshots_of_one_name_and_of_several_moments():
    """Disks that do not fit together are not restored together."""
    there = both([("nightly", 3, 300)], [("nightly", 6, 86700)])
    with pytest.raises(FlexdiskError) as caught:
        restore.choose_set(there, [DISK, OTHER], "nightly")
    assert caught.value.code == "Ambiguous"
    assert caught.value.message == (
        "the snapshots nightly were not taken together, so the disks would not fit together: "
        f"{DISK}: 1970-01-01T00:05:00Z; {OTHER}: 1970-01-02T00:05:00Z"
    )
