# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The planner by itself, on VMs that exist nowhere: finding, order of steps, words, demand, admission."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args, get_type_hints

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import (
    disk_adopt,
    disk_verify,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.steps.apply_exchange import (
    PERFORM_EXCHANGE,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.steps.performers import PERFORM
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.steps.performers_of_detached import (
    PERFORM_OF_DETACHED,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.steps.performers_of_vms import (
    PERFORM_OF_VMS,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.libvirt_driver import Libvirt
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import Problem
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import DiskConfig
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.vm_disks import parse_vm_disks
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.plan import (
    disk_steps,
    planner,
    predict,
    steps,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.plan import (
    disk_verify as plan_disk_verify,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space

from .build import CAPABILITIES, GEOMETRY, GIB, MIB, ROOT, host, kinds, plan, uuid, volume

# -- finding


def test_a_whole_uuid_wins():
    machine = host({}, {"number": 2}, {"number": 3, "alias": uuid(2)})
    assert planner.find_vm(machine, uuid(2)).config.uuid == uuid(2)
    assert planner.find_vm(machine, uuid(3).upper()).config.uuid == uuid(3)
    assert planner.find_vm(machine, "vm1").config.uuid == uuid(1)


def test_an_alias_and_a_prefix_are_one_name_space():
    """A name that fits two VMs is a refusal that names both; their whole uuids find them."""
    name = uuid(1)[:-1]
    begins, called = {"number": 1}, {"number": 20, "alias": name}
    assert planner.find_vm(host({**begins}), name.upper()).config.uuid == uuid(1)
    assert planner.find_vm(host({**called}), name).config.uuid == uuid(20)
    both = host(begins, called)
    match = planner.find_vm(both, name)
    assert isinstance(match, Problem)
    assert match.code == "Ambiguous"
    for config in both.configs:
        assert config.label in match.message
        assert planner.find_vm(both, config.uuid).config is config


@pytest.mark.parametrize(
    ("wanted", "code"),
    [("VM1", "ResourceNotFound"), ("ccc", "ResourceNotFound"), ("cccc", "Ambiguous"), ("", "ResourceNotFound")],
)
def test_or_it_is_said_why_not(wanted, code):
    match = planner.find_vm(host({}, {"number": 2}), wanted)
    assert isinstance(match, Problem)
    assert match.code == code


@pytest.mark.parametrize(("wanted", "question"), [("VM1", ". Did you mean vm1?"), ("web01", "")])
def test_a_name_that_is_almost_one(wanted, question):
    match = planner.find_vm(host({}, {"number": 2}), wanted)
    assert match.message == f"no VM with this uuid, uuid prefix or alias{question}"


def test_other_brands_and_vms_without_a_dataset():
    machine = host({}, {"number": 2, "brand": "kvm"}, {"number": 3, "dataset": "zones/gone"})
    assert planner.find_vm(machine, "vm2").code == "BrandNotSupported"
    assert "zones/gone" in planner.find_vm(machine, "vm3").message


# -- order


def test_what_frees_space_comes_before_what_needs_it():
    machine = host({"sizes": (1024, 512, 512, 512)})
    planned = plan(
        machine,
        {
            "flexible_disk_size": 3584,
            "quota": "2GiB",
            "unlisted": "detach",
            "disks": [
                {**ROOT, "size": 1536},
                {"name": "a", "size": 64, "dangerous_allow_shrink": True, "pci_slot": "0:4:6"},
                {"name": "b", "state": "absent"},
                {"name": "n", "size": "remaining"},
            ],
        },
    )
    assert kinds(planned) == ["detach", "destroy", "shrink", "flexible", "quota", "edit", "grow", "create", "copy"]
    assert [s.destroys for s in planned.steps] == [False, True, True, *([False] * 6)]
    assert planned.after.root.quota == space.expected_quota(planned.after, GEOMETRY)
    assert space.allocatable(planned.after) == 0


def test_a_running_vm_is_stopped_around_what_needs_it():
    machine = host({"state": "running", "autoboot": True})
    spec = {"disks": [{**ROOT, "size": 2048}, {"name": "a"}]}
    assert [p.code for p in plan(machine, spec).problems] == ["VmNotStopped"]
    assert kinds(plan(machine, spec, allow_restart=True)) == ["stop", "grow", "start"]
    machine = host({"state": "running", "autoboot": False})
    assert kinds(plan(machine, spec, allow_restart=True)) == ["stop", "grow", "start", "autoboot"]


@pytest.mark.parametrize(
    ("spec", "steps"),
    [
        ({"flexible_disk_size": 8192}, ["flexible"]),
        ({"quota": "2GiB"}, ["quota"]),
        ({"disks": [ROOT, {"name": "a", "compression": "lz4"}]}, ["compression"]),
        ({"disks": [ROOT, {"name": "a", "preserve": True, "tags": {"k": "v"}}]}, ["identity"]),
        ({"disks": [ROOT, {"name": "a"}]}, []),
        ({}, []),
    ],
)
def test_what_works_live(spec, steps):
    assert kinds(plan(host({"state": "running"}), spec)) == steps


@pytest.mark.parametrize("fields", [{"state": "provisioning"}, {"state": "running", "transition": "stopped"}])
def test_a_vm_in_transition_is_left_alone(fields):
    machine = host(fields)
    assert [p.code for p in plan(machine, {"quota": "2GiB"}).problems] == ["VmInTransition"]
    assert plan(machine, {"disks": [ROOT, {"name": "a"}]}).problems == ()


def classes(base):
    """All steps: the classes without subclasses, and those that have a name of their own."""
    for cls in base.__subclasses__():
        if "kind" in vars(cls):
            yield cls
        yield from classes(cls)


# disk_verify alone has steps that concern no VM, and tables of its own for them.
OUTSIDE = {disk_steps.ForgetRun, disk_steps.MoveDetached}
TABLES = (
    PERFORM_OF_VMS,
    PERFORM_OF_DETACHED,
    PERFORM_EXCHANGE,
    disk_adopt.PERFORM_ADOPTION,
    disk_verify.PERFORM_REPAIR,
)
CLASSES = list(classes(steps.Step))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_step_can_be_predicted_and_done(cls):
    if cls in OUTSIDE:
        assert cls in disk_verify.PERFORM_OUTSIDE
        assert cls in plan_disk_verify.AFTER_OUTSIDE
    else:
        assert any(cls in table for table in TABLES)
        assert cls in predict.AFTER


@pytest.mark.parametrize(
    "table",
    [*TABLES, PERFORM, predict.AFTER, disk_verify.PERFORM_OUTSIDE, plan_disk_verify.AFTER_OUTSIDE],
)
def test_each_function_takes_the_steps_that_its_table_gives_it(table):
    """The tables' types do not say it."""
    for cls, function in table.items():
        taken = get_type_hints(function)["step"]
        assert cls in CLASSES
        assert issubclass(cls, get_args(taken) or taken), (cls, function)


# With every driver: the VM is stopped for them, or they answer by themselves (late), or no running VM has them.
NOT_LIVE = {
    "adopt", "autoboot", "clear", "copy", "correct", "create_detached", "create_vm", "delete_vm", "edit",
    "end_conversion", "exchange", "finish_detached", "forget", "forget_intent", "give_up", "import_image",
    "package", "place", "ports", "recover", "release", "remember", "remove_unfinished",
    "resize_detached", "rollback", "shrink", "start", "stop",
}  # fmt: skip
HOT_PLUG = {"attach", "create", "destroy", "detach", "grow"}


@pytest.mark.parametrize(
    ("driver", "not_live"),
    [
        (Vmadm(None), NOT_LIVE | HOT_PLUG | {"discard"}),
        (Libvirt(None, "qemu:///system", None), NOT_LIVE),
        (Libvirt(None, "bhyve:///system", None), NOT_LIVE | HOT_PLUG),
    ],
    ids=["vmadm", "libvirt", "bhyve"],
)
def test_every_step_is_live_or_not_by_decision(driver, not_live):
    """A kind that is nowhere would silently stop the VM."""
    assert {cls.kind for cls in classes(steps.Step)} - driver.capabilities.live == not_live


def test_every_step_has_a_name_of_its_own():
    names = [cls.kind for cls in classes(steps.Step)]
    assert len(names) == len(set(names))
    assert CAPABILITIES.live <= set(names)


def test_plans_of_plans_are_empty():
    machine = host({})
    planned = plan(
        machine, {"disks": [{**ROOT, "size": 2048}, {"name": "a", "pci_slot": "0:4:3"}, {"name": "n", "size": 5}]}
    )
    again = replace(machine, vms=(planned.after,))
    spec = {"disks": [{**ROOT, "size": 2048}, {"name": "a", "pci_slot": "0:4:3"}, {"name": "n", "size": 5}]}
    assert kinds(plan(again, spec)) == []


# -- admission


def test_demand_is_what_the_pool_must_give():
    machine = host({"sizes": (1024, 512)})
    used = machine.vms[0].disks[1].volume.used
    detaching = plan(machine, {"disks": [ROOT], "unlisted": "detach"})
    overhead = used - 512 * MIB
    assert planner.demand(detaching, GEOMETRY) == (512 * MIB, 512 * MIB)
    assert planner.demand(plan(machine, {"flexible_disk_size": 2048}), GEOMETRY) == (-2048 * MIB, 0)
    assert planner.demand(plan(machine, {"quota": "3GiB"}), GEOMETRY) == (2 * GIB, 2 * GIB)
    assert planner.demand(plan(machine, {}), GEOMETRY) == (0, 0)
    gone = plan(machine, {"disks": [ROOT, {"name": "a", "state": "absent"}]})
    assert planner.demand(gone, GEOMETRY) == (-overhead, 0)


def test_a_disk_of_another_vm_comes_with_its_space():
    lost = "dddddddd-0000-4000-8000-00000000000f"
    detached = volume("zones/flexdisk/" + lost, 512, {"uuid": lost, "name": "x", "vm": uuid(2)})
    machine = host({}, {"number": 2}, detached=[Dataset("zones/flexdisk", "filesystem"), detached])
    planned = plan(machine, {"disks": [ROOT, {"name": "a"}, {"uuid": lost}]})
    assert planner.demand(planned, GEOMETRY) == (-512 * MIB, 0)
    idle = plan(machine, {"flexible_disk_size": 5120}, which=1)
    plans, problems = planner.resolve_claims([planned, idle])
    assert problems == []
    assert ([d.name for d in idle.after.detached], plans[1].after.detached) == (["x"], ())
    rival = plan(machine, {"disks": [ROOT, {"name": "a"}, {"name": "x"}]}, which=1)
    assert [(p.code, p.vm) for p in planner.resolve_claims([planned, rival])[1]] == [
        ("Ambiguous", "vm1"),
        ("Ambiguous", "vm2"),
    ]


def test_admission_sums_over_the_pool_in_the_best_order():
    machine = host({}, {"number": 2}, {"number": 3}, available=GIB)
    more, less = {"flexible_disk_size": 4096 + 2048}, {"flexible_disk_size": 4096 - 1024}
    plans = [plan(machine, more, 0), plan(machine, less, 1), plan(machine, {}, 2)]
    ordered, problems = planner.admit(machine, plans)
    assert problems == []
    assert ordered[0].vm == uuid(2)
    ordered, problems = planner.admit(machine, [plan(machine, more, 0), plan(machine, {}, 1)])
    assert [(p.code, p.vm) for p in problems] == [("InsufficientSpace", "vm1")]
    for message in ("pool zones has 1 GiB left", "needs 2 GiB"):
        assert message in problems[0].message


def test_words():
    machine = host({"sizes": (1024, 512)})
    planned = plan(
        machine,
        {
            "flexible_disk_size": 8192,
            "disks": [
                {**ROOT, "size": "2GiB"},
                {"name": "a", "pci_slot": "4:5", "model": "nvme"},
                {"name": "n", "size": 64},
            ],
        },
    )
    assert [s.text for s in planned.steps] == [
        "flexible_disk_size 4 GiB -> 8 GiB",
        "~ a model virtio -> nvme, a pci_slot 0:4:1 -> 0:4:5",
        "~ root 1 GiB -> 2 GiB",
        "+ n 64 MiB at 0:4:1",
        "",
    ]
    assert planned.steps[-1].kind == "copy"


def test_adoption_is_not_for_vmadm():
    """Its configuration names volumes elsewhere only where somebody has put them there on purpose."""
    one = host({})
    vm = one.vms[0]
    stray = DiskConfig("/dev/zvol/rdsk/zones/other", "zones/other")
    vm = replace(vm, config=replace(vm.config, disks=(*vm.config.disks, stray)))
    spec = parse_vm_disks({"vm": "vm1", "adopt": True})[0]
    plan = planner.plan_vm(one, vm, spec, Policy(), CAPABILITIES)
    assert (plan.problems, plan.steps) == ((), ())
