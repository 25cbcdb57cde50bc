# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A boot disk in the place of another: interrupted twice, by the same task and by others, the VM never starts without a
boot disk, and the same task ends in the wanted state.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm as vm_run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from ..conftest import IMAGE, VM, Simulated
from ..run.test_failures import Failing, Killed, data, final, litter

SECOND = IMAGE.replace("1", "5")
NEW_ROOT = {"name": "root", "boot": True, "image": SECOND, "recreate": True}
WANTED = {"vm": "web01", "disks": [NEW_ROOT, {"name": "a", "preserve": True}]}
ABSENT = {"vm": "web01", "state": "absent", "unlisted": "refuse", "destroy_disks": False, "destroy_snapshots": False}

Task = Callable[[Simulated], Any]


def prepared(state: str) -> Simulated:
    """web01 with root and a, which is preserved and has been written to; another image."""
    sim = Simulated()
    sim.admin("image-import", SECOND, "1024")
    sim.adopted(2048)
    sim.write(sim.disks()["root"].volume.name, 9, 0, 100)
    sim.write(sim.disks()["a"].volume.name, 7, 0, 100)
    done = sim.converge({"vm": "web01", "disks": [{"name": "root"}, {"name": "a", "preserve": True}]})
    assert (done.problems, done.failure) == ([], None)
    if state == "running":
        sim.run("vmadm", "start", VM)
    return sim


def anew(sim: Simulated) -> Any:
    return sim.converge(WANTED, allow_restart=True)


def absent(sim: Simulated) -> Any:
    policy = Policy(allow_restart=True)
    return vm_run.run(Zfs(sim.runner), Vmadm(sim.runner, sim.waits.append), [ABSENT], [], policy, None, False)


def quota(sim: Simulated) -> Any:
    return sim.quota()


def there(sim: Simulated) -> bool:
    return VM in sim.run("vmadm", "lookup")


def bootless(sim: Simulated) -> bool:
    """Whether the VM has no boot disk: none is configured, or its volume is not there."""
    volumes = sim.run("zfs", "list", "-Hr", "-t", "volume", "-o", "name", "zones").split()
    paths = [disk["path"] for disk in sim.get()["disks"] if disk.get("boot")]
    return not any(path.replace("/dev/zvol/rdsk/", "") in volumes for path in paths)


class Interrupting(Failing):
    """As Failing. It also looks whether the VM is started without a boot disk."""

    def __call__(self, argv: list[str]) -> str | None:
        if argv[:2] == ["vmadm", "start"]:
            assert not bootless(self.sim), "started without a boot disk"
        return super().__call__(argv)


def interrupted(sim: Simulated, task: Task, nth: int, how: str) -> bool:
    """Whether the task came to a command with this number, and was interrupted there."""
    fault = Interrupting(sim, nth, how)
    sim.fault = fault
    try:
        task(sim)
    except Killed:
        pass
    finally:
        sim.fault = None
    return bool(fault.hit)


def clone(sim: Simulated) -> Simulated:
    twin = Simulated.__new__(Simulated)
    twin.__dict__.update(sim.__dict__, node=copy.deepcopy(sim.node), calls=[], waits=[])
    return twin


HOWS = ("before", "after", "killed")


def points(sim: Simulated, task: Task, turn: int = 0) -> list[Simulated]:
    """The node after an interruption of the task at each command, in each way in turn."""
    interruptions: list[Simulated] = []
    while True:
        twin = clone(sim)
        if not interrupted(twin, task, len(interruptions) + 1, HOWS[(len(interruptions) + turn) % len(HOWS)]):
            return interruptions
        interruptions.append(twin)


def final_but(left: tuple[Any, ...], sim: Simulated) -> Any:
    """The end state, without such a detached disk."""
    disks, gone, *rest = final(sim)
    return (disks, [one for one in gone if one != left], *rest)


@pytest.mark.parametrize("then", [anew, absent, quota])
def test_two_interruptions(then: Task) -> None:
    first = prepared("running")
    guid, old = (first.disks()[name].volume.guid for name in ("a", "root"))
    old_data = data(first, old)
    whole = clone(first)
    assert anew(whole).failure is None
    before, wanted, tried = data(first, guid), final(whole), 0
    kept_new = ("", 1 << 30, 0)  # the new boot disk: a deletion destroys nothing
    for turn, once in enumerate(points(first, anew)):
        for twice in points(once, then, turn // len(HOWS)):
            tried += 1
            assert data(twice, guid) == before
            if not there(twice):
                continue
            assert not (bootless(twice) and twice.get()["state"] == "running")
            twice.fault = Interrupting(twice, 1 << 30, "before")
            done = anew(twice)
            assert (done.problems, done.failure) == ([], None)
            assert final(twice)[1].count(kept_new) <= (then is absent)
            assert final_but(kept_new, twice) == wanted
            assert (data(twice, guid), data(twice, old)) == (before, old_data)
            assert litter(twice) == [] or twice.vm().asked, "but for a guest that may still shut down"
            assert not anew(twice).changed
    assert tried > 10


def fail_at(sim: Simulated, task: Task, *begin: str) -> Any:
    """The outcome of a task in which every command that begins so fails."""
    sim.fault = lambda argv: "injected" if argv[: len(begin)] == list(begin) else None
    done = task(sim)
    sim.fault = None
    assert done.failure is not None
    return done


def without_boot_disk(state: str) -> Simulated:
    """The VM after a failure between the two disks."""
    sim = prepared(state)
    fail_at(sim, anew, "zfs", "clone")
    assert bootless(sim)
    return sim


def vm_task(sim: Simulated, **declared: Any) -> Any:
    policy = Policy(allow_restart=True)
    vm = {**ABSENT, "state": "present", **declared}
    return vm_run.run(Zfs(sim.runner), Vmadm(sim.runner, sim.waits.append), [vm], [], policy, None, False)


def held_down(done: Any) -> bool:
    return [p.code for p in done.problems] == ["InUse"] and "cannot run without one" in done.problems[0].message


@pytest.mark.parametrize("command", [("zfs", "clone"), ("vmadm", "update")])
def test_a_stopped_vm_that_has_lost_its_boot_disk_is_remembered(command):
    """The power state is as before, but the VM is not, and nothing else would tell."""
    sim = prepared("stopped")
    fail_at(sim, anew, *command)
    assert bootless(sim)
    assert held_down(vm_task(sim, state="running"))
    assert anew(sim).failure is None
    assert (sim.get()["state"], bootless(sim), litter(sim)) == ("stopped", False, [])


def test_the_intent_of_an_older_release_is_no_reason_to_forget_the_boot_disk():
    """Its intent did not say that the VM had one."""
    sim = prepared("running")
    interrupted(sim, anew, 3, "killed")
    [name] = [name for name in litter(sim) if "intent." in name]
    value = sim.run("zfs", "get", "-Ho", "value", name, "zones/flexdisk").strip()
    sim.run("zfs", "set", name + "=" + value.replace(',"boots":true', ""), "zones/flexdisk")
    fail_at(sim, anew, "zfs", "clone")
    assert held_down(vm_task(sim, state="running"))
    assert anew(sim).failure is None
    assert not bootless(sim)


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "a", "boot": True},
        {"name": "a", "boot": True, "image": SECOND, "recreate": True},
        {"name": "b", "boot": True},
        {"name": "root", "boot": True, "size": 1024},
    ],
)
def test_only_an_entry_that_leads_to_a_boot_disk_goes_on(entry):
    """A data disk has nothing to boot from, and neither has an empty one."""
    sim = prepared("running")
    done = sim.converge(
        {"vm": "web01", "disks": [{"name": "root"}, {"name": "a"}, {"name": "b", "size": 64}]}, allow_restart=True
    )
    assert done.failure is None
    done = sim.converge(
        {"vm": "web01", "disks": [{"name": "root"}, {"name": "a"}], "unlisted": "detach"}, allow_restart=True
    )
    assert done.failure is None
    fail_at(sim, anew, "zfs", "clone")
    before = sim.fingerprint()
    for matching in ("name", "order"):
        others = [] if entry["name"] == "a" else [{"name": "a"}]
        done = sim.converge({"vm": "web01", "disks": [entry, *others]}, allow_restart=True, matching=matching)
        assert held_down(done) or (matching == "order" and done.problems)
    assert sim.fingerprint() == before
    assert anew(sim).failure is None


def test_an_interrupted_deletion_holds_the_vm_down_too():
    """It ends by the same task, or by one that gives the VM its boot disk back."""
    sim = prepared("running")
    preserving = {"vm": "web01", "disks": [{"name": "root", "preserve": True}, {"name": "a", "preserve": True}]}
    assert sim.converge(preserving).failure is None
    fail_at(sim, absent, "vmadm", "delete")
    assert (bootless(sim), sim.get()["state"]) == (True, "stopped")
    for task in ({"state": "running"}, {"disks": [{"name": "root"}, {"name": "a"}]}):
        assert held_down(vm_task(sim, **task))
    back = clone(sim)
    again = back.converge({"vm": "web01", "disks": [{"name": "root", "boot": True}, {"name": "a"}]}, allow_restart=True)
    assert (again.problems, again.failure) == ([], None)
    assert (bootless(back), back.get()["state"], litter(back)) == (False, "running", [])
    done = absent(sim)
    assert (done.problems, done.failure, there(sim), litter(sim)) == ([], None, False, [])


def refusals(sim: Simulated, *entries: dict[str, Any]) -> list[tuple[str, str]]:
    """Code and message of each problem; a refusal changes nothing."""
    before = sim.fingerprint()
    done = sim.converge({"vm": "web01", "disks": list(entries)}, allow_restart=True)
    assert sim.fingerprint() == before
    return [(p.code, p.message) for p in done.problems]


def test_a_boot_disk_is_made_anew_only_from_an_image():
    sim = prepared("running")
    entry = {"name": "root", "boot": True, "block_size": 4096, "size": 10240, "recreate": True}
    [(code, message)] = refusals(sim, entry, {"name": "a"})
    assert (code, "only from an image" in message) == ("InvalidArgument", True)


def test_a_data_disk_does_not_become_the_boot_disk_by_being_made_anew():
    sim = prepared("running")
    entry = {"name": "a", "boot": True, "image": SECOND, "recreate": True}
    problems = refusals(sim, {"name": "root", "boot": False}, entry)
    assert problems[0][0] == "InvalidArgument"
    assert "is a data disk" in problems[0][1]


def test_the_new_disk_keeps_model_slot_and_index_and_others_choose_later():
    """A new disk that is listed before it would take its slot."""
    sim = prepared("running")
    edited = {"name": "root", "model": "nvme", "pci_slot": "0:4:3"}
    done = sim.converge({"vm": "web01", "disks": [edited, {"name": "a"}]}, allow_restart=True)
    assert done.failure is None
    old = sim.disks()["root"]
    n = {"name": "n", "size": 64}
    sim.four_steps({"vm": "web01", "disks": [n, NEW_ROOT, {"name": "a"}]}, allow_restart=True)
    new = sim.disks()["root"]
    assert (new.model, new.pci_slot, new.index) == (old.model, old.pci_slot, old.index) == ("nvme", "0:4:3", 0)


def test_the_new_disk_has_the_model_of_the_old_one_and_not_of_the_first():
    sim = Simulated()
    sim.admin("image-import", SECOND, "1024")
    root = {"image_uuid": IMAGE, "boot": True, "model": "nvme"}
    sim.create(disks=[{"size": 64, "model": "virtio"}, root])
    names = [{"name": name, "uuid": disk.uuid} for name, disk in zip("ar", sim.vm().disks, strict=True)]
    assert sim.converge({"vm": "web01", "disks": names}).failure is None
    sim.four_steps({"vm": "web01", "disks": [{**NEW_ROOT, "name": "r"}, {"name": "a"}]})
    assert {name: disk.model for name, disk in sim.disks().items()} == {"a": "virtio", "r": "nvme"}


def test_a_detached_disk_that_booted_elsewhere_is_a_data_disk():
    """Its property may be true where it was received from another host."""
    sim = prepared("stopped")
    assert sim.converge({"vm": "web01", "disks": [{"name": "root"}], "unlisted": "detach"}).failure is None
    sim.run("zfs", "set", "flexdisk:boot=true", sim.detached()["a"].volume.name)
    entry = {"name": "a", "size": 64, "block_size": 4096, "recreate": True}
    sim.four_steps({"vm": "web01", "disks": [{"name": "root"}, entry]})
    assert [disk.boot for disk in sim.vm().disks] == [True, False]


def test_the_slot_of_a_disk_that_comes_back_is_not_given_to_a_new_one():
    sim = prepared("stopped")
    assert sim.converge({"vm": "web01", "disks": [{"name": "root"}], "unlisted": "detach"}).failure is None
    sim.four_steps({"vm": "web01", "disks": [{"name": "root"}, {"name": "n", "size": 64}, {"name": "a"}]})
    assert {name: disk.pci_slot for name, disk in sim.disks().items()} == {"root": "0:4:0", "a": "0:4:1", "n": "0:4:2"}


DISC = {"path": "/isos/rescue.iso", "boot": True, "media": "cdrom", "model": "ahci"}


def test_a_cd_rom_that_boots_is_no_boot_disk():
    sim = without_boot_disk("running")
    sim.run("vmadm", "update", VM, stdin=json.dumps({"add_disks": [DISC]}))
    assert held_down(vm_task(sim, state="running"))


def test_a_disk_does_not_boot_besides_a_cd_rom():
    """vmadm would not start the VM. What does not concern booting is done."""
    sim = prepared("stopped")
    sim.run("vmadm", "update", VM, stdin=json.dumps({"add_disks": [DISC]}))
    several = [("InvalidArgument", "the VM would have several boot disks: root, /isos/rescue.iso")]
    assert refusals(sim, NEW_ROOT, {"name": "a"}) == several
    sim.four_steps({"vm": "web01", "disks": [{"name": "root", "boot": True}, {"name": "a", "size": 4096}]})


@pytest.mark.parametrize("snapshot", [False, True])
def test_the_old_boot_disk_is_detached_whatever_it_says(snapshot):
    """It is needed until the new one is known to boot."""
    sim = prepared("running")
    old = sim.disks()["root"]
    assert not old.preserve
    if snapshot:
        sim.run("vmadm", "create-snapshot", VM, "s1")
    digest = sim.digest(old.volume.name)
    done = sim.four_steps(
        {"vm": "web01", "disks": [{**NEW_ROOT, "preserve": False, "destroy_snapshots": True}, {"name": "a"}]},
        allow_restart=True,
    )
    assert f"- root 10 GiB detached without its name (uuid {old.uuid})" in done.diff
    [left] = [disk for disk in sim.vm().detached if disk.uuid == old.uuid]
    assert (left.name, len(left.snapshots), sim.digest(left.volume.name)) == ("", snapshot, digest)


def test_the_old_boot_disk_is_detached_by_the_run_that_takes_over_too():
    """It has its name still when it is out of the VM."""
    tried = 0
    for once in points(prepared("running"), anew):
        [old] = [disk for disk in once.vm().disks + once.vm().detached if disk.image == IMAGE]
        digest = once.digest(old.volume.name)
        done = anew(once)
        assert "DESTROYED" not in done.diff
        assert [(d.uuid, once.digest(d.volume.name)) for d in once.vm().detached] == [(old.uuid, digest)]
        tried += 1
    assert tried > 10


def test_an_old_boot_disk_that_was_given_the_name_again_is_not_destroyed():
    sim = without_boot_disk("running")
    [old] = sim.vm().detached
    digest = sim.digest(old.volume.name)
    sim.run("zfs", "set", "flexdisk:name=root", old.volume.name)
    sim.four_steps(WANTED, allow_restart=True)
    [left] = sim.vm().detached
    assert (left.uuid, left.name, sim.digest(left.volume.name)) == (old.uuid, "", digest)


def test_both_boot_disks_need_room_in_the_pool():
    """The VM's space holds the new one, and the pool holds the old one besides."""
    sim = Simulated(40 << 30)
    sim.admin("image-import", SECOND, "10240")
    sim.adopted(2048)
    [(code, message)] = refusals(sim, NEW_ROOT, {"name": "a"})
    assert (code, "pool zones has" in message, "but this task needs 10" in message) == ("InsufficientSpace", True, True)


def test_the_new_boot_disk_needs_room_in_the_vm():
    sim = prepared("stopped")
    [(code, message)] = refusals(sim, {**NEW_ROOT, "size": 40960}, {"name": "a"})
    assert (code, "flexible_disk_size" in message) == ("InsufficientSpace", True)


# -- going back


def exchanged(state: str) -> tuple[Simulated, str]:
    """The VM with the second image, and the uuid of its first boot disk, which is detached."""
    sim = prepared(state)
    uuid = sim.disks()["root"].uuid
    assert anew(sim).failure is None
    return sim, uuid


def back_to(uuid: str, **more: Any) -> dict[str, Any]:
    return {"vm": "web01", "disks": [{"uuid": uuid, "boot": True, "recreate": True, **more}, {"name": "a"}]}


def machine(sim: Simulated) -> dict[str, Any]:
    """What vmadm says of the VM besides its boot disk and what a clock sets."""
    left = ("free_space", "last_modified", "boot_timestamp", "pid", "zoneid")
    return {**{k: v for k, v in sim.get().items() if k not in left}, "disks": sim.get()["disks"][1:]}


@pytest.mark.parametrize("state", ["running", "stopped"])
@pytest.mark.parametrize("more", [{}, {"name": "root"}, {"name": "root", "image": IMAGE, "size": 10240}])
def test_an_earlier_boot_disk_comes_back(state, more):
    """In the place of the present one, which is detached. Everything else stays."""
    sim, old = exchanged(state)
    young = sim.disks()["root"]
    contents = {d.uuid: sim.digest(d.volume.name) for d in sim.vm().disks + sim.vm().detached}
    before = machine(sim)
    done = sim.four_steps(back_to(old, **more), allow_restart=True)
    assert f"- root 1 GiB detached without its name (uuid {young.uuid})" in done.diff
    assert "10 GiB re-attached at 0:4:0" in done.diff
    first, second = sim.vm().disks
    assert (first.uuid, first.boot, first.pci_slot, first.index) == (old, True, "0:4:0", 0)
    assert (first.name, second.name, second.boot) == (more.get("name", ""), "a", False)
    assert [(d.uuid, d.name) for d in sim.vm().detached] == [(young.uuid, "")]
    assert {d.uuid: sim.digest(d.volume.name) for d in sim.vm().disks + sim.vm().detached} == contents
    assert machine(sim) == before
    # And forth again.
    sim.four_steps(back_to(young.uuid, **{**more, "image": None, "size": None}), allow_restart=True)
    assert [d.uuid for d in sim.vm().detached] == [old]


def test_a_disk_comes_back_to_its_old_slot():
    sim, old = exchanged("stopped")
    moved = {"name": "root", "pci_slot": "0:4:5"}
    assert sim.converge({"vm": "web01", "disks": [moved, {"name": "a"}]}).failure is None
    sim.four_steps(back_to(old, name="root"))
    assert sim.disks()["root"].pci_slot == "0:4:0"


def test_going_back_is_refused_without_its_words():
    sim, old = exchanged("stopped")
    several = ("InvalidArgument", "the VM would have several boot disks: root, " + old)
    entry = {"uuid": old, "boot": True}
    assert refusals(sim, entry, {"name": "a"}) == [several]
    root = {"name": "root"}
    assert several[0] in dict(refusals(sim, root, {**entry, "recreate": True}, {"name": "a"}))
    anew_by_uuid = {**entry, "image": SECOND, "recreate": True}
    assert "which this entry would not find again" in refusals(sim, anew_by_uuid, {"name": "a"})[0][1]
    sim.run("vmadm", "update", VM, "indestructible_zoneroot=true")
    assert "Indestructible" in dict(refusals(sim, {**entry, "recreate": True}, {"name": "a"}))


def test_the_disk_of_another_vm_does_not_come_back():
    sim, old = exchanged("stopped")
    other = VM.replace("1", "2")
    sim.adopted(64, uuid=other, alias="web02")
    before = sim.fingerprint()
    done = sim.converge({**back_to(old), "vm": "web02"})
    assert [(p.code, "several boot disks" in p.message) for p in done.problems] == [("InvalidArgument", True)]
    assert sim.fingerprint() == before


def test_the_whole_vm_takes_a_boot_disk_back():
    """With its image, that of the present disk is not meant; no image is right too."""
    for image in (IMAGE, ""):
        sim, old = exchanged("running")
        wanted = {"image": image, "disks": back_to(old, name="root")["disks"]}
        done = vm_task(sim, **wanted)
        assert (done.problems, done.failure, sim.disks()["root"].uuid) == ([], None, old)
        assert not vm_task(sim, **wanted).changed
    sim, old = exchanged("running")
    done = vm_task(sim, image=SECOND, disks=back_to(old, name="root")["disks"])
    assert [p.code for p in done.problems] == ["FixedAtBirth"]


@pytest.mark.parametrize("name", [{}, {"name": "root"}])
def test_going_back_interrupted_once(name):
    """At every command in every way; then the same task ends it."""
    sim, old = exchanged("running")
    sim.write("zones/flexdisk/" + old, 5)

    def back(node: Simulated) -> Any:
        return node.converge(back_to(old, **name), allow_restart=True)

    check_going_back(sim, back, [once for turn in range(len(HOWS)) for once in points(sim, back, turn)])


@pytest.mark.parametrize("then", ["back", "absent", "quota"])
def test_going_back_interrupted_twice(then):
    sim, old = exchanged("running")

    def back(node: Simulated) -> Any:
        return node.converge(back_to(old, name="root"), allow_restart=True)

    other = {"back": back, "absent": absent, "quota": quota}[then]
    twice = [n for turn, once in enumerate(points(sim, back)) for n in points(once, other, turn // len(HOWS))]
    check_going_back(sim, back, [node for node in twice if there(node)])


@pytest.mark.parametrize("way", ["anew", "back"])
def test_a_boot_disk_that_could_not_leave_has_its_name(way):
    """Otherwise the declaration of before would make a second disk of its name."""
    sim = prepared("running") if way == "anew" else exchanged("running")[0]
    root = sim.disks()["root"]
    spec = WANTED if way == "anew" else back_to(sim.vm().detached[0].uuid, name="root")
    fail_at(sim, lambda node: node.converge(spec, allow_restart=True), "zfs", "rename")
    assert sim.get()["state"] == "running"
    before = {"vm": "web01", "disks": [{"name": "root", "size": root.size_mib}, {"name": "a"}]}
    assert sim.converge(before, allow_restart=True).failure is None
    assert [(d.uuid, d.name, d.boot) for d in sim.vm().disks if d.name != "a"] == [(root.uuid, "root", True)]


def check_going_back(sim: Simulated, back: Task, nodes: list[Simulated]) -> None:
    """The task ends on all nodes as on the one where nothing went wrong, without a loss."""
    guids = [disk.volume.guid for disk in sim.vm().disks + sim.vm().detached]
    contents = [data(sim, guid) for guid in guids]
    whole = clone(sim)
    assert back(whole).failure is None
    assert len(nodes) > 10
    for node in nodes:
        assert not (bootless(node) and node.get()["state"] == "running")
        node.fault = Interrupting(node, 1 << 30, "before")
        done = back(node)
        assert (done.problems, done.failure) == ([], None)
        assert final(node) == final(whole)
        assert [data(node, guid) for guid in guids] == contents
        assert litter(node) == [] or node.vm().asked, "but for a guest that may still shut down"
        assert not back(node).changed


def test_a_boot_disk_is_made_anew_once_for_a_word(sim):
    sim.adopted(64)
    entry = {"name": "root", "boot": True, "image": IMAGE, "recreate": True}
    old = sim.disks()["root"]
    for word in ("one", "two"):
        done = sim.four_steps({"vm": "web01", "disks": [{**entry, "recreate_for": word}, {"name": "a"}]})
        assert [step["step"] for step in done.vms[0]["steps"]] == ["detach", "create"]
        new = sim.disks()["root"]
        assert (new.image, new.pci_slot, new.volume.user["made_for"]) == (IMAGE, old.pci_slot, word)
        assert new.uuid not in [disk.uuid for disk in sim.vm().detached]
    assert len(sim.vm().detached) == 2
    assert not sim.converge({"vm": "web01", "disks": [entry, {"name": "a"}]}).changed
    for wrong, code in (({"recreate": False}, "MissingParameter"), ({"boot": None}, "MissingParameter")):
        done = sim.converge({"vm": "web01", "disks": [{**entry, "recreate_for": "three", **wrong}, {"name": "a"}]})
        assert code in [problem.code for problem in done.problems]
    done = sim.converge({"vm": "web01", "disks": [{**entry, "recreate_for": "a b"}, {"name": "a"}]})
    assert "recreate_for 'a b' is not" in done.problems[0].message


def test_a_vm_that_is_deleted_in_the_middle_can_be_made_again():
    """Killed anywhere, the old boot disk keeps its data, and does not keep its name from the one of a new VM."""
    package = {"name": "p", "memory": 256, "vcpus": 1, "disk": "30GiB", "flexible_disk": True}
    again = {"vm": "web01", "uuid": VM, "package": "p", "state": "present", "disks": [NEW_ROOT, {"name": "a"}]}
    for turn in range(len(HOWS)):
        for sim in points(prepared("stopped"), anew, turn):
            for _attempt in range(2):
                absent(sim)
            assert not there(sim)
            wanted = [{**ABSENT, **again}]
            done = vm_run.run(Zfs(sim.runner), Vmadm(sim.runner), wanted, [package], Policy(), None, False)
            assert (done.problems, done.failure) == ([], None)
            assert not bootless(sim)
