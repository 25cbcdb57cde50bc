# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan as it is approved: its lines, and what its digest depends on."""

from __future__ import annotations

import re
import typing as t
from dataclasses import fields, replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset, DatasetId
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import (
    ImageFile,
    NewVm,
    Policy,
    SnapshotDeclaration,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.plan import approval, predict
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.plan.disk_steps import (
    DestroyDetached,
    Detach,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.plan.steps import StepReport, VmPlan
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.plan.vm_snapshot import plan_snapshot
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.plan.vm_steps import (
    ClearRemains,
    CreateVm,
    DeleteSnapshot,
    ImportImage,
    RemoveUnfinished,
    SetFlexibleSize,
    SetProperties,
    SetVmQuota,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.digest import digest_of
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.snapshots import PROTECTION
from tests.unit.plan.build import CAPABILITIES, GEOMETRY, GIB, MIB, ROOT, host, plan, uuid

SIZES = st.integers(64, 400)
GROWN = {"disks": [ROOT, {"name": "a", "size": 128}]}


def grown(machine: t.Any, sizes: t.Sequence[int]) -> list[VmPlan]:
    """A plan for each VM: its disk a gets the size."""
    planned = [plan(machine, {"disks": [ROOT, {"name": "a", "size": s}]}, n) for n, s in enumerate(sizes)]
    assert [problem for one in planned for problem in one.problems] == []
    return planned


def machines(count: int, available: int, written: int) -> t.Any:
    """VMs on a pool with so much free space, whose guests have written so much."""
    machine = host(*({"number": number} for number in range(1, count + 1)), available=available)
    for number, vm in enumerate(machine.vms):
        disks = tuple(replace(d, volume=replace(d.volume, written=written, logicalused=written)) for d in vm.disks)
        vms = [*machine.vms]
        vms[number] = replace(vm, disks=disks)
        machine = replace(machine, vms=tuple(vms))
    return machine


SHUFFLED = st.lists(SIZES, min_size=1, max_size=4).flatmap(
    lambda sizes: st.tuples(st.just(sizes), st.permutations(range(len(sizes))))
)


@settings(deadline=None)
@given(
    SHUFFLED,
    st.integers(20, 4000),
    st.integers(0, 64 * MIB),
)
def test_order_free_space_and_what_guests_write_do_not_count(shuffled, available, written):
    sizes, order = shuffled
    planned = grown(machines(len(sizes), 100 * GIB, 0), sizes)
    others = grown(machines(len(sizes), available * GIB, written), sizes)
    mixed = [others[number] for number in order]
    assert approval.digest(mixed) == approval.digest(planned)
    assert approval.lines(approval.in_order(mixed)) == approval.lines(approval.in_order(planned))


@settings(deadline=None)
@given(st.lists(SIZES, min_size=2, max_size=2), st.lists(SIZES, min_size=2, max_size=2))
def test_another_size_is_another_digest(sizes, others):
    machine = host({"number": 1}, {"number": 2})
    same = approval.digest(grown(machine, sizes)) == approval.digest(grown(machine, others))
    assert same == (sizes == others)


@given(st.text("0123456789abcdef", min_size=1) | st.integers() | st.lists(st.integers()))
def test_nothing_takes_a_digest_for_a_number(content):
    assert re.fullmatch("[a-p][0-9a-f]{31}", digest_of(content))


A = {"name": "a"}
# What somebody may want of a VM with the disks root, a and b.
WANTED = {
    "grow": [ROOT, {**A, "size": 128}, {"name": "b"}],
    "grow more": [ROOT, {**A, "size": 129}, {"name": "b"}],
    "grow the other": [ROOT, A, {"name": "b", "size": 128}],
    "shrink": [ROOT, {**A, "size": 32, "dangerous_allow_shrink": True}, {"name": "b"}],
    "destroy": [ROOT, {**A, "state": "absent"}, {"name": "b"}],
    "destroy the other": [ROOT, A, {"name": "b", "state": "absent"}],
    "slot": [ROOT, {**A, "pci_slot": "0:4:6"}, {"name": "b"}],
    "another slot": [ROOT, {**A, "pci_slot": "0:4:7"}, {"name": "b"}],
    "swap": [ROOT, {**A, "pci_slot": "0:4:2"}, {"name": "b", "pci_slot": "0:4:1"}],
    "new": [ROOT, A, {"name": "b"}, {"name": "c", "size": 64}],
    "new at a slot": [ROOT, A, {"name": "b"}, {"name": "c", "size": 64, "pci_slot": "0:4:7"}],
    "new with blocks": [ROOT, A, {"name": "b"}, {"name": "c", "size": 64, "block_size": 4096}],
    "new of another name": [ROOT, A, {"name": "b"}, {"name": "d", "size": 64}],
    "preserve": [ROOT, {**A, "preserve": True}, {"name": "b"}],
    "tags": [ROOT, {**A, "tags": {"k": "v"}}, {"name": "b"}],
    "other tags": [ROOT, {**A, "tags": {"k": "w"}}, {"name": "b"}],
    "compression": [ROOT, {**A, "compression": "lz4"}, {"name": "b"}],
    "model": [ROOT, {**A, "model": "nvme"}, {"name": "b"}],
}
MORE: dict[str, dict[str, t.Any]] = {
    "flexible": {"flexible_disk_size": 8192},
    "more flexible": {"flexible_disk_size": 8193},
    "quota": {"quota": "2GiB"},
}


def three_disks(**more: t.Any) -> t.Any:
    return host({"sizes": (1024, 64, 64), **more})


def test_whatever_differs_has_another_digest():
    entries = [{"disks": disks} for disks in WANTED.values()]
    entries += [{"disks": [ROOT, A, {"name": "b"}], **more} for more in MORE.values()]
    entries += [{"disks": [ROOT, A], "unlisted": "detach"}]
    planned = [plan(place, entry) for place in (three_disks(), three_disks(number=2)) for entry in entries]
    planned.append(plan(host({"sizes": (1024, 96, 64)}), entries[0]))  # to the same size from another
    planned.append(plan(three_disks(state="running"), {"disks": WANTED["model"]}, allow_restart=True))
    assert [one.problems for one in planned if one.problems] == []
    digests = [approval.digest([one]) for one in planned]
    assert len(set(digests)) == len(planned)


def test_the_digest_is_that_of_the_work():
    """The same work is the same plan, in whichever words it was declared."""
    ways = [{"disks": WANTED["destroy the other"]}, {"disks": [ROOT, A], "unlisted": "destroy"}]
    assert len({approval.digest([plan(three_disks(), way)]) for way in ways}) == 1


@pytest.mark.parametrize("disks", WANTED.values(), ids=WANTED)
def test_the_order_of_disks_in_the_declaration_does_not_count(disks):
    mixed = [plan(three_disks(), {"disks": [*order]}) for order in permutations(disks)]
    assert len({approval.digest([one]) for one in mixed}) == 1


def changed(value: t.Any) -> list[t.Any]:
    """Other values of the same type."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, str):
        return [value + "x"]
    if hasattr(value, "_fields"):
        return [value._replace(**{name: new}) for name in value._fields for new in changed(getattr(value, name))]
    if isinstance(value, tuple):
        return [(*value[:n], new, *value[n + 1 :]) for n, one in enumerate(value) for new in changed(one)]
    if isinstance(value, dict):
        return [{**value, "x": "y"}, *({**value, key: new} for key, one in value.items() for new in changed(one))]
    return []


@pytest.mark.parametrize("disks", WANTED.values(), ids=WANTED)
def test_every_figure_of_a_step_counts(disks):
    planned = plan(three_disks(), {"disks": disks})
    digest, tried = approval.digest([planned]), 0
    for number, step in enumerate(planned.steps):
        for name in sorted({field.name for field in fields(step)} - {"report", "newest"}):
            if step.facts_only or (name, type(getattr(step, name))) == ("snapshots", bool):
                continue
            for new in changed(getattr(step, name)):
                steps = (*planned.steps[:number], replace(step, **{name: new}), *planned.steps[number + 1 :])
                assert approval.digest([replace(planned, steps=steps)]) != digest, (step.kind, name, new)
                tried += 1
        destroying = replace(step, report=step.report._replace(destroys=not step.destroys))
        steps = (*planned.steps[:number], destroying, *planned.steps[number + 1 :])
        assert step.facts_only or approval.digest([replace(planned, steps=steps)]) != digest
    assert tried


def exchanged(vm: t.Any) -> t.Any:
    """The VM with another volume at the place of each disk, and all else as before."""
    disks = tuple(replace(d, volume=replace(d.volume, guid=d.volume.guid + 1000)) for d in vm.disks)
    return replace(vm, disks=disks)


@pytest.mark.parametrize("disks", [WANTED[key] for key in ("slot", "model", "compression", "preserve", "destroy")])
def test_another_volume_at_the_place_of_a_disk_is_another_plan(disks):
    planned = plan(three_disks(), {"disks": disks})
    other = replace(planned, before=exchanged(planned.before))
    assert approval.digest([planned]) != approval.digest([other])


@pytest.mark.parametrize("policy", [Policy(stop_timeout=7), Policy(allow_force_stop=True)])
def test_how_a_vm_is_stopped_counts_where_one_is(policy):
    wanted = {"disks": WANTED["model"]}
    stopped, running = plan(three_disks(), wanted), plan(three_disks(state="running"), wanted, allow_restart=True)
    assert approval.digest([running], policy) != approval.digest([running], Policy())
    assert approval.digest([stopped], policy) == approval.digest([stopped], Policy())


def synced(bytes_of_syncs: int, drift: int = 0) -> t.Any:
    """A VM with so much space for syncs, and with a quota that is off by drift."""
    machine = host({})
    vm = space.with_sync_space(machine.vms[0], bytes_of_syncs)
    quota = space.expected_quota(vm, GEOMETRY) + drift
    return replace(machine, vms=(replace(vm, root=replace(vm.root, quota=quota, reservation=quota)),))


@pytest.mark.parametrize("entry", [GROWN, {"disks": [ROOT, {"name": "a"}], "flexible_disk_size": 8192}])
@pytest.mark.parametrize("drift", [0, GIB])
def test_what_the_last_sync_has_written_does_not_count(entry, drift):
    """The next sync of a replica sets another quota, within minutes."""
    planned = [plan(synced(bytes_of_syncs, drift), entry) for bytes_of_syncs in (GIB, 2 * GIB)]
    assert [one.changed for one in planned] == [True, True]
    assert len({approval.digest([one]) for one in planned}) == 1
    without = plan(synced(GIB, drift + MIB), entry)
    assert approval.digest([without]) != approval.digest(planned[:1])


def snapped(names: t.Sequence[str], numbers: t.Sequence[int] = (1, 2, 3)) -> t.Any:
    """A VM with these snapshots, each of every dataset. numbers: their createtxg."""
    vm = host({}).vms[0]

    def taken(dataset: Dataset) -> tuple[Dataset, ...]:
        return tuple(
            Dataset(f"{dataset.name}@vmsnap-{name}", "snapshot", guid=n, createtxg=n, volsize=dataset.volsize)
            for n, name in zip(numbers, names, strict=False)
        )

    disks = tuple(replace(disk, snapshots=taken(disk.volume)) for disk in vm.disks)
    return replace(vm, snapshots=taken(vm.root), disks=disks)


def of_snapshots(vm: t.Any, now: int = 1, **more: t.Any) -> str:
    planned = plan_snapshot(host({}), vm, SnapshotDeclaration(**more), Policy(), CAPABILITIES, now)
    assert planned.problems == ()
    assert planned.changed
    return approval.digest([planned])


def test_the_clock_does_not_count():
    assert of_snapshots(snapped([]), 1, state="present", name="one") == of_snapshots(
        snapped([]), 1_800_000_000, state="present", name="one"
    )
    assert of_snapshots(snapped([]), state="present", name="one") != of_snapshots(
        snapped([]), state="present", name="two"
    )


def test_what_is_destroyed_with_a_rollback_counts():
    back = {"state": "rolled_back", "name": "one", "newer": None}
    vms = [snapped(["one", "two"]), snapped(["one", "three"]), snapped(["one", "two", "three"])]
    digests = [of_snapshots(vm, **back) for vm in vms]
    assert len(set(digests)) == len(vms)
    assert digests == [of_snapshots(vm, **back) for vm in vms]


def test_the_moment_of_a_rollback_counts():
    """Not the snapshot's name alone: another one of this name takes the disks to another moment."""
    back = {"state": "rolled_back", "name": "one", "newer": None}
    vms = [snapped(["one", "two"], numbers) for numbers in ((1, 3), (2, 3))]
    assert of_snapshots(vms[0], **back) != of_snapshots(vms[1], **back)


def test_the_volume_that_goes_back_counts():
    """Another one that has received the same snapshots loses what it, and not the approved one, has got since."""
    vm = snapped(["one"])
    vm = replace(vm, disks=tuple(replace(d, volume=replace(d.volume, written=1)) for d in vm.disks))
    back = {"state": "rolled_back", "name": "one", "newer": None}
    assert of_snapshots(vm, **back) != of_snapshots(exchanged(vm), **back)


def test_the_volume_that_loses_a_snapshot_counts():
    vm = snapped(["one"])
    gone = {"state": "absent", "name": "one"}
    assert of_snapshots(vm, **gone) != of_snapshots(exchanged(vm), **gone)


def unprotected(number: int) -> str:
    """The end of a VM's protection, and of the snapshot that it has, with this guid and createtxg."""
    vm = host({"indestructible": True}).vms[0]
    protection = Dataset(vm.root.name + PROTECTION, "snapshot", guid=number, createtxg=number)
    vm = replace(vm, snapshots=(protection,))
    step = SetProperties(StepReport("~ indestructible"), indestructible=False)
    return approval.digest([VmPlan(uuid(1), vm, predict.apply(vm, step, GEOMETRY), (step,))])


def test_the_snapshot_of_a_protection_that_ends_counts():
    """The step does not name it."""
    assert unprotected(1) == unprotected(1)
    assert unprotected(1) != unprotected(2)


def imported(*file: t.Any) -> str:
    vm = host({}).vms[0]
    step = ImportImage(StepReport("+ image"), "zones/images/x", 64 * MIB, 8192, ImageFile(*file))
    return approval.digest([VmPlan(uuid(1), vm, vm, (step,))])


def test_the_file_of_an_image_counts():
    files = [("/images/a.raw", "raw", 64), ("/images/b.raw", "raw", 64), ("/images/a.raw", "raw", 65)]
    assert len({imported(*file) for file in files}) == len(files)


@pytest.mark.parametrize("kind", [ClearRemains, RemoveUnfinished])
def test_the_guids_of_what_an_interrupted_creation_has_left_count(kind):
    vm, digests = host({}).vms[0], []
    for guid in (7, 8):
        left = (DatasetId("zones/left", guid),)
        unfinished = {"uuid": uuid(1), "root": "zones/left", "parts": left, "configured": True, "deletes": False}
        more = {"left": left} if kind is ClearRemains else unfinished
        step = kind(StepReport("- remains", destroys=True), **more)
        digests.append(approval.digest([VmPlan(uuid(1), vm, vm, (step,))]))
    assert len({*digests}) == 2


def made(**more: t.Any) -> str:
    new = NewVm(uuid(1), "vm1", "zones", 1024, 1, GIB, **more)
    vm = host({}).vms[0]
    before = replace(vm, disks=(), config=replace(vm.config, state="absent"))
    step = CreateVm(StepReport("+ VM"), new=new, disks=(), facts={}, vm=vm, indestructible=False, ports=())
    return approval.digest([VmPlan(uuid(1), before, vm, (step,))])


REPORT, PARTS = StepReport("x"), (DatasetId("s", 7),)
# Steps with fields that have been renamed, by their digests from before that.
DIGESTS = {
    "m937aaa9e0610df25d468e282b1a7532": DestroyDetached(REPORT, "zones/a", 5, PARTS, ("zones/a@s",)),
    "pab74c41df77387ebb2ab0333000688f": DeleteSnapshot(REPORT, "n", PARTS, True),
    "c8dfe5137be7a99cf5df2d842e3aa1da": SetFlexibleSize(REPORT, 5, True),
    "eecfd6144893094b185eae26e7fc9134": SetVmQuota(REPORT, 5, False),
    "n2461aea65f1e04b53961da00ab1aad3": Detach(REPORT, "v", "p", "t", {}, 1, "", (), True),
    "jab85dd0439a05e05e31b1ca8c6fb83e": ImportImage(REPORT, "v", 1, 2, ImageFile("/a", "raw", 5, "1:2")),
}


@pytest.mark.parametrize("digest", DIGESTS)
def test_a_digest_stays_when_a_field_is_renamed(digest):
    vm = host({}).vms[0]
    assert approval.digest([VmPlan(uuid(1), vm, vm, (DIGESTS[digest],))]) == digest


def test_secrets_are_no_part_of_a_digest():
    assert made(metadata={"root_pw": "one"}) == made(metadata={"root_pw": "two"})
    assert made(metadata={"root_pw": "one"}) != made(metadata={"user_pw": "one"})
    assert made(template="<a/>") == made(template="<b/>")
    assert made(options={"nics": [{"nic_tag": "a"}]}) != made(options={"nics": [{"nic_tag": "b"}]})


def test_hidden_characters_are_shown():
    """A person approves these lines, and a name must not turn what is beside it."""
    planned = grown(host({"alias": "web\u202e\n01"}), [128])
    assert approval.lines(planned)[0] == f"web[U+202E][U+000A]01 ({uuid(1)}):"


def test_lines():
    planned = grown(host({"number": 1}, {"number": 2}, {"number": 3}), [128, 64, 256])
    lines = approval.lines(approval.in_order(reversed(planned)))
    heads = [line for line in lines if not line.startswith(" ")]
    assert heads == [f"vm1 ({uuid(1)}):", f"vm3 ({uuid(3)}):", "1 VM unchanged"]
    assert lines[1] == "  ~ a 64 MiB -> 128 MiB"
    assert approval.lines([planned[1]]) == []
    assert approval.digest(planned) == approval.digest([planned[0], planned[2]])
