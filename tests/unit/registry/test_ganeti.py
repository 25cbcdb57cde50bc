# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Ganeti's tests say of disks, each with its test here or the reason why there is none; and what has no other."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import yaml

from .conftest import ONE, TWO, Bench

THREE = "cccccccc-0000-4000-8000-000000000003"
ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "tests" / "unit" / "data" / "ganeti.yml"
DATA = {"name": "data", "size": 64}


def numbered(letter, *numbers):
    return {f"{letter}{n:02d}" for n in chain(*(n if isinstance(n, range) else [n] for n in numbers))}


CASES = (
    numbered("U", range(1, 29), range(31, 40), range(42, 47))
    | numbered("C", range(1, 12))
    | numbered("A", range(1, 9))
    | numbered("G", range(1, 6))
    | {"V03", "B01"}
    | {f"P{n}" for n in range(1, 11)}
)


def test_no_case_is_forgotten():
    assert {case for case in yaml.safe_load(TABLE.read_text()) if not case.startswith(("gap-", "S-"))} == CASES


def test_every_test_that_is_named_is_there():
    named = re.findall(r"(tests/[\w/.]+\.py)::(\w+)", TABLE.read_text())
    assert len(named) > 40
    for path, test in named:
        assert f"def {test}(" in (ROOT / path).read_text(), (path, test)


def test_a_disk_is_found_by_uuid_and_by_name(bench):
    bench.four_steps(DATA)
    uuid = bench.disk("data").uuid
    assert bench.go({"uuid": uuid.upper()}).disks[0]["name"] == "data"
    assert bench.go({"name": "data"}).disks[0]["uuid"] == uuid
    unknown = {"uuid": uuid.replace(uuid[:8], "00000000")}
    assert "the disk does not exist" in bench.refused("ResourceNotFound", unknown)


def test_a_disk_without_a_name_is_found_by_its_place(bench):
    disk = bench.disk("b")
    bench.run("zfs", "inherit", "flexdisk:name", disk.volume.name)
    bench.four_steps({"vm": "web01", "pci_slot": disk.pci_slot, "description": "x"})
    bench.four_steps({"uuid": disk.uuid, "name": "b"})
    assert bench.disk("b").user_properties["description"] == "x"


def test_the_order_of_a_list_is_kept(bench):
    """There a disk takes a place and moves the others on; here each keeps its number."""
    a = bench.disk("a").uuid
    bench.four_steps({"uuid": a, "state": "detached"})
    bench.four_steps({"uuid": a, "vm": "web01", "state": "attached", "index": 1})
    assert list(bench.names()) == ["root", "a", "b"]
    assert bench.go({"vm": "web01", "index": 2, "state": "detached"}).failure is None
    assert list(bench.names()) == ["root", "a"]
    bench.refused("ResourceNotFound", {"vm": "web01", "index": 2, "state": "detached"})
    back = {"name": "b", "vm": "web01", "state": "attached"}
    assert "index 1 belongs to" in bench.refused("InvalidArgument", {**back, "index": 1})
    bench.four_steps(back)
    assert list(bench.names()) == ["root", "a", "b"]


def test_an_empty_list_changes_nothing(bench):
    done = bench.go()
    assert (done.changed, done.disks, done.vms, done.diff, done.problems) == (False, [], [], "", [])


def test_a_disk_of_another_pool_is_not_attached(bench):
    bench.another_pool(THREE, "web03")
    bench.four_steps({"name": "a", "state": "detached"})
    wanted = {"name": "a", "vm": "web03", "state": "attached"}
    if bench.kind == "proxmox":  # where a VM can have disks in all pools with storages
        assert bench.go(wanted, pool="").problems == []
        return
    problems = bench.go(wanted, pool="").problems
    assert [f"is in pool {bench.pool}, but the VM is in pool other" in p.message for p in problems] == [True]


def test_as_many_disks_as_there_are_slots():
    """With libvirt a stopped domain gets as many root ports as its disks need."""
    bench = Bench("vmadm")
    extra = [{"name": f"d{n}", "size": 8} for n in range(6)]
    bench.four_steps(*extra)
    attach = [{"name": e["name"], "vm": "web01", "state": "attached"} for e in extra]
    assert "slot" in bench.refused("InvalidArgument", *attach)
    bench.four_steps(*attach[:-1])
    assert len(bench.names()) == 8


def test_a_disk_outlives_its_vm(bench):
    digest = bench.write("a")
    bench.four_steps({"name": "a", "state": "detached"})
    if bench.kind == "vmadm":
        bench.run("vmadm", "delete", ONE)
    elif bench.kind == "proxmox":
        bench.run("qm", "destroy", "100", "--purge", "1", "--destroy-unreferenced-disks", "1")
    else:
        bench.host.domains.undefine(ONE)
    bench.four_steps({"name": "a", "vm": "web02", "state": "attached"})
    assert bench.names(TWO) == {"root": 0, "c": 1, "a": 2}
    assert bench.digest("a") == digest


def test_a_vm_in_transition_gets_nothing(bench):
    bench.four_steps(DATA)
    bench.in_transition(ONE)
    attach = {"name": "data", "vm": "web01", "state": "attached"}
    assert "only running or stopped VMs can be changed" in bench.refused("VmInTransition", attach)


def test_burn_in(bench):
    bench.four_steps({**DATA, "vm": "web01"})
    bench.start()
    bench.four_steps({"name": "data", "vm": "web01", "state": "attached"}, allow_restart=True)
    bench.four_steps({"name": "data", "vm": "web01", "state": "detached"}, allow_restart=True)
    bench.stop()
    bench.start()
    bench.four_steps({"name": "data", "vm": "web02", "state": "attached"})
    bench.four_steps({"name": "data", "vm": "web02", "state": "detached"})
    bench.four_steps({"name": "data", "state": "absent"})
    assert bench.read().detached == ()
