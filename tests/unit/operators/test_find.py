# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""On which host a VM or a disk is: one name, one VM, on all hosts together."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.find import (
    find_disks,
    find_vms,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.naming import similar

A, B, C, D = (
    "%s-0000-4000-8000-00000000000%d" % (start, n) for n, start in enumerate(["cafe0000"] * 2 + ["abcd0000"] * 2)
)


def disk(uuid, name):
    return {"uuid": uuid, "name": name}


def vm(uuid, alias, *disks):
    return {"uuid": uuid, "alias": alias, "disks": list(disks)}


def host(*vms, detached=(), skipped=()):
    return {"vms": list(vms), "parked": list(detached), "skipped_vms": list(skipped)}


HOSTS = {
    "hv01": host(vm(A, "db01"), vm(C, "web01"), skipped=[{"uuid": D, "alias": "zone", "reason": "brand joyent"}]),
    "hv02": host(vm(B, "db01"), vm("12345678-0000-4000-8000-000000000000", "")),
}


def find(names, hosts=None, finds=find_vms, **options):
    found = finds(hosts or HOSTS, names, **options)
    return {
        name: (where, *place.values()) for where, here in found.here.items() for name, place in here.items()
    }, found.problems


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("web01", ("hv01", C)),
        (A, ("hv01", A)),
        (B.upper(), ("hv02", B)),
        ("1234", ("hv02", "12345678-0000-4000-8000-000000000000")),
        ("zone", ("hv01", D)),  # the module says why it cannot be changed
    ],
)
def test_one_vm(name, place):
    assert find([name]) == ({name: place}, [])


@pytest.mark.parametrize(
    ("name", "where", "how"),
    [
        ("db01", (f"hv01 ({A})", f"hv02 ({B})"), "--limit or its UUID"),
        ("cafe", (f"hv01 ({A})", f"hv02 ({B})"), "--limit or its UUID"),
        ("abcd", (f"hv01 ({C})", f"hv01 ({D})"), "its UUID"),
    ],
)
def test_several_vms(name, where, how):
    here, (problem,) = find([name])
    assert here == {}
    assert problem == "VM %s is on %s and on %s. Say with %s which one you mean." % (name, *where, how)


@pytest.mark.parametrize("name", ["nobody", "123", "", "1234567x", "w1"])
def test_no_vm(name):
    assert find([name]) == ({}, [f"VM {name} is on none of hv01, hv02."])


def test_a_misspelt_name_is_asked_about():
    assert find(["web1"]) == ({}, ["VM web1 is on none of hv01, hv02. Did you mean web01 on hv01?"])
    hosts = {"hv01": host(vm(A, "a", disk(B, "data"), disk(C, "")))}
    assert find(["dta"], hosts, find_disks)[1] == ["disk dta is on none of hv01. Did you mean data on hv01?"]
    assert similar("DB1", {"hv01": ["db01"], "hv02": ["db10"]}) == "Did you mean db10 on hv02 or db01 on hv01?"
    assert similar("mail", {"hv01": ["db01"], "hv02": []}) == ""


def test_a_copy_with_the_same_uuid_has_to_end():
    """To take one of them would be a guess, and --limit alone is no advice after a failover."""
    here, (problem,) = find([A], {"hv01": host(vm(A, "db01")), "hv02": host(vm(A, "db01"))})
    assert here == {}
    assert (
        f"VM {A} is on hv01 ({A}) and on hv02 ({A}), so one of them is an old copy: a failover has not ended" in problem
    )
    assert "flexdisk_failover_state=returned of the playbook failover_vm" in problem


def test_all_names_are_judged_together():
    here, problems = find(["web01", " db01", "nobody"])
    assert here == {"web01": ("hv01", C)}
    assert [problem.split()[1] for problem in problems] == ["db01", "nobody"]


def test_a_host_that_could_not_be_read():
    assert find(["web01"], unread=["hv03"]) == ({"web01": ("hv01", C)}, [])
    here, (problem,) = find(["web01"], unread=["hv03"], strict=True)
    assert here == {}
    assert "hv03 could not be read and may have a VM of this name too" in problem
    assert "hv03 could not be read" in find(["nobody"], unread=["hv03"])[1][0]


def test_a_vm_that_is_about_to_be_made():
    assert find(["new01"], optional=True) == ({}, [])
    assert find(["cafe"], optional=True) == ({}, [])
    assert find(["web01"], optional=True) == ({"web01": ("hv01", C)}, [])
    assert len(find(["db01"], optional=True)[1]) == 1
    assert len(find(["new01"], optional=True, strict=True, unread=["hv03"])[1]) == 1


def test_a_vm_that_is_gone():
    hosts = {"hv01": host(detached=[dict(disk(A, "data"), vm=B), dict(disk(C, "log"), vm="")])}
    assert find([B], hosts)[1] != []
    assert find([B], hosts, gone=True) == ({B: ("hv01", B)}, [])


def test_disks():
    hosts = {
        "hv01": host(vm(C, "web01", disk(A, "data"), {"name": ""}), detached=[dict(disk(D, "ledger"), vm=C)]),
        "hv02": host(vm(B, "db01", disk(B, "data"))),
    }
    assert find(["ledger", A], hosts, find_disks) == ({"ledger": ("hv01", D), A: ("hv01", A)}, [])
    assert find(["data"], hosts, find_disks)[1] == [
        "disk data is on hv01 (%s) and on hv02 (%s). Say with --limit or its UUID or flexdisk_vm which one you mean."
        % (A, B)
    ]
    copied = {name: host(vm(C, "web01", disk(A, "data"))) for name in ("hv01", "hv02")}
    assert find(["data"], copied, find_disks)[1] == [
        f"disk data is on hv01 ({A}) and on hv02 ({A}). Say with --limit or flexdisk_vm which one you mean."
    ]
    assert find(["cafe0000"], hosts, find_disks)[1] == ["disk cafe0000 is on none of hv01, hv02."]


def test_what_destroys_takes_no_name_that_could_mean_another_vm_later():
    hosts = {"hv01": host(vm(C, "payroll"), vm(A, D))}
    for name in ("abcd0000", D):
        assert find([name], hosts)[1] == []
        found, (problem,) = find([name], hosts, exact=True)
        assert found == {}
        assert "is on none of hv01." in problem
        assert "is not enough here" in problem
    for name in ("payroll", C):
        assert find([name], hosts, exact=True) == ({name: ("hv01", C)}, [])
    assert "enough" not in find(["nobody"], hosts, exact=True)[1][0]


def test_many_names_make_a_short_message():
    found = find_vms(HOSTS, [f"nobody{number}" for number in range(10_000)])
    assert len(found.problems) == 21
    assert found.problems[-1] == "and 9980 more problems"


def test_one_host_with_two_names_is_refused_whatever_is_asked():
    """It is the reason for which each VM seems to be on two hosts, and for which a disk has two places."""
    pools = {"pools": [{"name": "zones", "guid": 11}]}
    twice = {"hv01": {**host(vm(A, "db01")), **pools}, "alias": {**host(vm(A, "db01")), **pools}}
    words = "hv01 and alias have the same pool (guid 11), so they are one host with several names. Take all but one"
    for name, finds in (("db01", find_vms), ("nobody", find_vms), ("data", find_disks)):
        (problem,) = find([name], twice, finds)[1]
        assert problem.startswith(words), problem
