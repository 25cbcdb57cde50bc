# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rollbacks on Proxmox VE whose module was killed: what the next task sees of them, and what it says."""

from __future__ import annotations

import contextlib
import json
import os
import re

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import journal
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import disk_adopt
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Keep

from .test_rollback import killed, told, written
from .test_snapshots import DATA, ROOT, Snapshots
from .world import VM, Killed

INTENT = f"flexdisk:intent.{VM}"
GENERATION = "vmgenid: 5212c5c4-e126-43fc-88a6-57a1a94f3963\n"
SIZES = {"never began": ("80.[0-9] MiB", "64.4 MiB"), "complete": ("16.[0-9] MiB", "0 B")}
KEEPS = f"Either zfs inherit {INTENT} rpool/flexdisk accepts the disks as they are now, and changes no data; or "


@pytest.fixture(autouse=True)
def _later(monkeypatch):
    """As if a minute had gone by before the next task."""
    monkeypatch.setattr(journal, "_BEGINS_WITHIN", -60)


def made(generation=GENERATION):
    """A VM with a snapshot, to both of whose disks something was written since."""
    world = Snapshots()
    world.file += generation
    world.done({"name": "data"})
    world.made()
    for volume in (DATA, ROOT):
        world.write_to(volume)
    os.utime(world.path, (1767225600, 1767225600))  # nobody has written it in the last second
    return world


def killed_after(world):
    """The module is killed when qm has done all."""

    def spoil(number, argv, real):
        answer = real(argv)
        if argv[:2] == ["qm", "rollback"]:
            raise Killed
        return answer

    world.spoil = spoil
    with contextlib.suppress(Killed):
        world.snapshot(state="rolled_back")
    world.spoil = None


def torn(world):
    """qm is killed when it has taken one disk back, and somebody takes the lock away."""
    killed(world, 5)
    world.admin("pve-kill", "0")
    world.run("qm", "unlock", "100")
    assert sorted([written(world), written(world, ROOT)])[0] == "0" != max(written(world), written(world, ROOT))


def worked(world, volume):
    """The guest writes 16 MiB that were not there before."""
    world.run("guest", "write", volume, "256", "16", "x")


def intent(world):
    text = world.run("zfs", "get", "-Hpo", "value", INTENT, "rpool/flexdisk").strip()
    return json.loads(text) if text != "-" else None


# -- it has never begun


def test_one_that_never_began():
    """Every task goes on, says so, and nothing of it is left then."""
    world = made()
    killed(world, 0)
    assert [len(one) for one in intent(world)["before"]] == [4, 4]
    outcome = world.four_steps({"name": "data", "size": "3GiB"})
    (warning,) = outcome.warnings
    assert warning.startswith(f"web ({VM}): the rollback to snapshot one that was interrupted at ")
    assert warning.endswith(" has never begun, so nothing has gone back")
    assert intent(world) is None


@pytest.mark.parametrize("task", ["snapshot", "keep", "adopted", "released", "absent"])
def test_other_tasks_go_on(task):
    world = made()
    killed(world, 0)
    if task in ("adopted", "released"):
        run = disk_adopt.run(world.zfs, world.driver, [{"vm": "web"}], task, False, None, False)
        assert (run.outcome.problems, run.outcome.failure) == ([], None)
    elif task == "keep":
        world.made("", "absent", keep=Keep(last=1, names=("*",)))
    else:
        world.made("two" if task == "snapshot" else "one", "present" if task == "snapshot" else "absent")
    world.done({"name": "data"})
    assert intent(world) is None


def test_a_day_of_work_after_one_that_never_began():
    """Nobody has written the file of the VM, into which qm writes its lock first."""
    world = made("")
    killed(world, 0)
    world.run("qm", "start", "100")
    for volume in (DATA, ROOT):
        worked(world, volume)
    world.done({"name": "data", "size": "3GiB"})
    assert intent(world) is None
    assert "must be stopped for a rollback" in world.refused(state="rolled_back")


def test_the_file_was_written_in_the_same_second():
    """Then its time does not tell whether qm has written its lock."""
    world = made("")
    os.utime(world.path)
    killed(world, 0)
    assert KEEPS in world.refusal({"name": "data", "size": "3GiB"})


def test_disk_verify_does_not_find_it():
    world = made()
    killed(world, 0)
    assert "intent" not in told(world)[0]


def test_a_minute_is_waited_for_qm(monkeypatch):
    """It may still begin. The same rollback goes on at once."""
    monkeypatch.setattr(journal, "_BEGINS_WITHIN", 60)
    world = made()
    killed(world, 0)
    said = world.refusal({"name": "data", "size": "3GiB"})
    assert ". Nothing has gone back so far; if that is so a minute after it, it counts as never begun. " + KEEPS in said
    world.steps(state="rolled_back")
    assert intent(world) is None


# -- it is complete


@pytest.mark.parametrize("generation", [GENERATION, ""])
def test_one_that_is_complete(generation):
    world = made(generation)
    killed_after(world)
    (warning,) = world.four_steps({"name": "data", "size": "3GiB"}).warnings
    assert warning.endswith(" is complete")
    assert intent(world) is None


def test_a_day_of_work_after_one_that_is_complete():
    """Another generation came with the settings, at the end of it. So nothing is asked for, and nothing taken back."""
    world = made()
    killed_after(world)
    world.run("qm", "start", "100")
    for volume in (DATA, ROOT):
        world.write_to(volume)
    world.run("qm", "snapshot", "100", "nightly")
    world.done({"name": "data", "size": "3GiB"})
    assert intent(world) is None
    assert "must be stopped for a rollback" in world.refused(state="rolled_back")


# -- nobody knows


@pytest.mark.parametrize("how", ["never began", "complete"])
def test_a_day_of_work_where_nothing_shows_it(how):
    """The refusal names both ways, the harmless one first, and what the other takes back by now."""
    world = made("")
    if how == "complete":
        killed_after(world)
    else:
        killed(world, 0)
        world.run("qm", "set", "100", "--memory", "1024")
    world.run("qm", "start", "100")
    worked(world, ROOT)
    disks = re.escape("root ") + SIZES[how][0] + re.escape(" (64.4 MiB before it), data ") + SIZES[how][1]
    for said in (
        world.refusal({"name": "data", "size": "3GiB"}),
        world.refused("two"),
        world.refused(state="rolled_back"),
    ):
        assert KEEPS + "when the VM is stopped, vm_snapshot with state=rolled_back and this name ends it" in said
        assert re.search(f"takes back what was written since snapshot one: {disks}", said)
        assert "stays stopped" not in said
    world.run("qm", "stop", "100")
    outcome = world.snapshot(state="rolled_back", check=True)
    (warning,) = [one for one in outcome.warnings if "done again" in one]
    assert re.search(f"is done again, and takes back what was written since snapshot one: {disks}", warning)
    assert warning.endswith(" accepts the disks as they are now, and changes no data instead")
    (command,) = (part for part in KEEPS.split("Either ") if part)
    world.run(*command.split(" accepts")[0].split())
    world.done({"name": "data"})
    assert world.vm().interrupted is None


def test_one_disk_has_gone_back():
    world = made()
    torn(world)
    assert KEEPS in world.refusal({"name": "data", "size": "3GiB"})
    assert "intent" in told(world)[0]
    world.steps(state="rolled_back")
    assert intent(world) is None


def test_one_disk_has_gone_back_and_was_written_to_since():
    """It has more than before, which is no proof."""
    world = made()
    torn(world)
    for volume in (DATA, ROOT):
        world.write_to(volume)
        worked(world, volume)
    assert "so its disks may be of different times" in world.refusal({"name": "data", "size": "3GiB"})


def test_the_repetition_is_killed_before_it_begins():
    """What counts is what was there before the first."""
    world = made()
    torn(world)
    first = intent(world)
    killed(world, 0)
    again = intent(world)
    assert again["plan"] != first["plan"]
    assert (again["before"], again["generation"]) == (first["before"], first["generation"])
    assert KEEPS in world.refusal({"name": "data", "size": "3GiB"})


def test_the_snapshot_is_gone():
    world = made()
    torn(world)
    world.run("qm", "delsnapshot", "100", "one")
    said = world.refusal({"name": "data", "size": "3GiB"})
    assert "the snapshot is gone; zfs inherit" in said
    assert "vm_snapshot" not in said


@pytest.mark.parametrize(
    "spoiled", [{}, {"before": [[1, 2, "3", True]]}, {"before": [[1]]}, {"generation": 7}, {"config": [1]}]
)
def test_an_entry_without_figures_or_with_others(spoiled):
    """Of an earlier version, or of nobody's."""
    world = made()
    killed_after(world)
    assert world.vm().interrupted is None
    entry = intent(world)
    del entry["before"], entry["config"]
    world.run("zfs", "set", f"{INTENT}={json.dumps({**entry, **spoiled})}", "rpool/flexdisk")
    if spoiled:
        assert world.vm().interrupted is None
        assert any("cannot be read" in one for one in world.done({"name": "data"}).warnings)
    else:
        assert KEEPS in world.refusal({"name": "data", "size": "3GiB"})


# -- snapshots that come right after


@pytest.mark.parametrize("status", [0, 1])
@pytest.mark.parametrize("by", ["zfs", "qm"])
def test_somebody_takes_a_snapshot_right_after(by, status):
    """An automatic one, which holds nothing: no difference, also for the next run."""
    world = made()

    def spoil(number, argv, real):
        answer = real(argv)
        if argv[:2] == ["qm", "rollback"]:
            world.run(*(["zfs", "snapshot", f"{DATA}@mine"] if by == "zfs" else ["qm", "snapshot", "100", "auto"]))
            return Answer(status, "", "")
        return answer

    world.spoil = spoil
    outcome = world.snapshot(state="rolled_back")
    world.spoil = None
    assert outcome.changed
    assert intent(world) is None
    again = world.snapshot(state="rolled_back")
    assert (again.problems, again.failure, again.changed) == ([], None, False)
    world.write_to(DATA)
    assert "newer than one" in world.refused(state="rolled_back")
