# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The journal: written before the first change, gone after the last; what the next run makes of one that is left."""

from __future__ import annotations

import json

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import journal as engine_intent
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_info import info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import journal, space
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.unit.four_steps import differences

from ..conftest import VM, Simulated, running
from ..run.test_failures import Failing, Killed, changes, litter, run

OTHER = "cccccccc-0000-4000-8000-000000000002"
PROPERTY = "flexdisk:intent." + VM
BOX = "zones/flexdisk"
GROWN = {"vm": "web01", "disks": [{"name": "root"}, {"name": "a", "size": 4096}]}
ALONE = {"vm": "web01"}


def killed_at(sim, prefix, spec=None):
    """A run that is killed right after the first command that begins so."""

    def fault(argv):
        if gone:
            raise Killed
        if argv[: len(prefix)] == list(prefix):
            gone.append(argv)
            sim.node.run(argv, sim.stdin)
            raise Killed
        return

    gone: list[list[str]] = []
    sim.fault = fault
    with pytest.raises(Killed):
        sim.converge(spec or GROWN, allow_restart=True)
    sim.fault = None
    return sim


def property_of(sim, name=PROPERTY):
    return sim.run("zfs", "get", "-H", "-o", "value", name, BOX).strip()


def shown(sim, names=None):
    return info(Zfs(sim.runner), Vmadm(sim.runner), names, None, False)


def power(sim):
    vm = sim.get()
    return vm["state"], vm["autoboot"]


def test_it_is_there_as_long_as_something_changes():
    sim = running()
    seen = []

    def watch(argv):
        if changes(argv) and "flexdisk:intent" not in " ".join(argv):
            seen.append(journal.decode(property_of(sim)))
        return

    sim.fault = watch
    assert sim.converge(GROWN, allow_restart=True).failure is None
    assert len(seen) >= 4
    for record in seen:
        assert record is not None
        assert (record.state, record.autoboot, record.stops) == ("running", True, True)
        assert record.steps == ("stop", "~ a 2 GiB -> 4 GiB", "start")
    assert litter(sim) == []


def test_moves_are_told():
    sim = Simulated()
    sim.adopted(2048)
    disk = sim.disks()["a"]
    killed_at(sim, ["zfs", "rename"], {"vm": "web01", "disks": [{"name": "root"}], "unlisted": "detach"})
    reported = shown(sim).vms[0]["intent"]
    assert reported["moves"] == [{"guid": disk.volume.guid, "from": disk.volume.name, "to": f"{BOX}/{disk.uuid}"}]
    assert (reported["readable"], reported["host"], reported["stops"]) == (True, engine_intent.host_name(), False)


def test_an_idle_run_writes_none(sim):
    sim.adopted(2048)
    sim.calls.clear()
    assert not sim.converge(GROWN | {"disks": [{"name": "root"}, {"name": "a"}]}).changed
    assert not [call for call in sim.calls if changes(call)]


@pytest.mark.parametrize("autoboot", [True, False])
@pytest.mark.parametrize("spec", [ALONE, GROWN])
def test_a_vm_that_is_down_is_started_again(autoboot, spec):
    """Even if the next run wants nothing else, and may not restart anything."""
    sim = killed_at(running(autoboot), ["vmadm", "stop"])
    assert power(sim) == ("stopped", False)
    before = sim.fingerprint()
    predicted = sim.converge(spec, check=True)
    assert sim.fingerprint() == before
    done = sim.converge(spec)
    assert (done.problems, done.failure, done.changed) == ([], None, True)
    assert (done.diff, differences(done, predicted)) == (predicted.diff, [])
    assert power(sim) == ("running", autoboot)
    [reported] = done.vms[0]["recovered"]
    assert "the VM is stopped" in reported["found"]
    assert reported["done"] == ["start", *([] if autoboot else ["autoboot off, as before"])]
    again = sim.converge(spec)
    assert (again.changed, again.vms[0]["recovered"], litter(sim)) == (False, [], [])


def test_a_stop_that_was_killed_has_turned_autoboot_off_only():
    sim = half_stopped()
    assert power(sim) == ("running", False)
    done = sim.converge(GROWN, allow_restart=True)
    assert done.failure is None
    assert power(sim) == ("running", True), "autoboot is as before the first stop"
    assert not sim.converge(GROWN).changed


def test_a_vm_that_its_operator_stopped_stays_stopped():
    """Killed before the stop: whoever stopped it later was not us."""
    sim = running()
    sim.run("zfs", "set", "quota=100G", "reservation=100G", f"zones/{VM}")
    killed_at(sim, ["zfs", "set", "quota=%d" % space.expected_quota(sim.vm(), sim.geometry())])
    sim.run("vmadm", "stop", VM)
    done = sim.converge(GROWN)
    assert done.failure is None
    assert power(sim) == ("stopped", False)
    assert done.vms[0]["recovered"][0]["found"] == []


def halted():
    return killed_at(running(False), ["vmadm", "stop"])


def half_stopped():
    """vmadm was killed with the module: the guest runs on, drifted, and would not start with the host."""
    sim = running()

    def fault(argv):
        if argv[:2] == ["vmadm", "stop"]:
            sim.node.vmadm_state["vms"][VM]["cfg"]["autoboot"] = False
            raise Killed

    sim.fault = fault
    with pytest.raises(Killed):
        sim.converge(GROWN, allow_restart=True)
    sim.fault = None
    sim.run("zfs", "set", "quota=100G", "reservation=100G", f"zones/{VM}")
    return sim


@pytest.mark.parametrize(("prepare", "autoboot"), [(halted, False), (half_stopped, True)])
@pytest.mark.parametrize("how", ["killed", "before", "after"])
def test_recovery_itself_is_interrupted_at_every_command(prepare, autoboot, how):
    nth = 0
    while True:
        nth += 1
        sim = prepare()
        fault = Failing(sim, nth, how)
        run(sim, fault, GROWN)
        if not fault.hit:
            break
        done = sim.converge(GROWN, allow_restart=True)
        assert done.failure is None, fault.hit
        assert power(sim) == ("running", autoboot), fault.hit
        assert sim.disks()["a"].size_mib == 4096
        assert not sim.converge(GROWN).changed
        assert litter(sim) == []
    assert nth > 6


def test_what_is_not_declared_is_only_told():
    sim = running()
    sim.adopted(64, uuid=OTHER, alias="web02")
    killed_at(sim, ["vmadm", "stop"])
    other = {"vm": "web02", "disks": [{"name": "root"}, {"name": "a", "size": 128}]}
    for check in (True, False):
        done = sim.converge(other, check=check)
        assert (done.failure, len(done.warnings)) == (None, 1)
        assert "web01" in done.warnings[0]
        assert f"zfs inherit {PROPERTY} {BOX}" in done.warnings[0]
    assert power(sim) == ("stopped", False)
    assert journal.decode(property_of(sim)) is not None
    assert property_of(sim, "flexdisk:intents") == VM
    assert sim.converge(ALONE).vms[0]["state"] == "running"
    assert litter(sim) == []


def test_quota_repairs_the_law_and_leaves_the_intent():
    sim = killed_at(running(), ["vmadm", "stop"])
    sim.run("zfs", "set", "quota=100G", "reservation=100G", f"zones/{VM}")
    identity = property_of(sim)
    done = sim.quota()
    assert (done.failure, done.changed, len(done.warnings)) == (None, True, 1)
    assert property_of(sim) == identity
    sim.assert_lawful()
    assert power(sim) == ("stopped", False)
    sim.converge(ALONE)
    assert power(sim) == ("running", True)


def test_a_refusal_says_that_the_vm_stays_down():
    sim = killed_at(running(), ["vmadm", "stop"])
    refused = sim.converge({"vm": "web01", "disks": [{"name": "root"}]})
    assert [p.code for p in refused.problems] == ["UnlistedDisk"]
    assert any("left it stopped" in text for text in refused.warnings)
    for declaration in ({"disks": [{"name": "root"}]}, {"flexible_disk_size": "1000GiB"}):
        refused = sim.converge({"vm": "web01", **declaration}, continue_on_refusal=True)
        assert [p.vm for p in refused.problems] == ["web01"]
        assert any("left it stopped" in text for text in refused.warnings)


def test_the_intent_of_another_host_is_told_and_never_executed(monkeypatch):
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(engine_intent, "host_name", lambda: "elsewhere")
        sim = killed_at(running(), ["vmadm", "stop"])
    done = sim.converge(ALONE)
    assert (done.changed, done.vms[0]["recovered"], power(sim)) == (False, [], ("stopped", False))
    assert "host elsewhere" in done.warnings[0]
    assert shown(sim).vms[0]["intent"]["host"] == "elsewhere"


@pytest.mark.parametrize("value", ["x", "{}", "[" * 5000, '{"plan": "../../x", "stops": true}', "\u00fc"])
def test_an_intent_that_we_have_not_written(sim, value):
    sim.adopted(2048)
    sim.run("zfs", "set", f"{PROPERTY}={value}", f"flexdisk:intents={VM}", BOX)
    done = sim.converge(ALONE)
    assert (done.changed, done.failure, done.problems) == (False, None, [])
    assert "cannot be read" in done.warnings[0]
    assert shown(sim).vms[0]["intent"] == {"readable": False}
    assert sim.converge(GROWN).failure is None
    assert litter(sim) == []


@pytest.mark.parametrize("value", ["x,-r,@", "," * 4000, "cccccccc-0000-4000-8000-000000000009", VM.upper()])
def test_a_wrong_index_is_put_right(sim, value):
    sim.adopted(2048)
    sim.run("zfs", "set", f"flexdisk:intents={value}", BOX)
    assert not sim.converge(ALONE, check=True).changed
    assert property_of(sim, "flexdisk:intents") == value
    assert not sim.converge(ALONE).changed
    assert litter(sim) == []


def test_cleared_by_hand():
    sim = killed_at(running(), ["vmadm", "stop"])
    sim.run("zfs", "inherit", PROPERTY, BOX)
    done = sim.converge(ALONE)
    assert (done.changed, done.warnings, power(sim)) == (False, [], ("stopped", False))
    assert litter(sim) == []


def test_a_vm_that_is_gone():
    sim = running()
    sim.adopted(64, uuid=OTHER, alias="web02")
    killed_at(sim, ["vmadm", "stop"])
    sim.run("vmadm", "delete", VM)
    reported = shown(sim)
    assert [(i["vm"], i["pool"], i["stops"]) for i in reported.intents] == [(VM, "zones", True)]
    assert [vm["intent"] for vm in reported.vms] == [None]
    assert shown(sim, ["web02"]).intents == []
    done = sim.converge({"vm": "web02", "disks": [{"name": "root"}, {"name": "a", "size": 128}]})
    assert (done.failure, done.warnings) == (None, [])
    assert [i["vm"] for i in shown(sim).intents] == [VM], "others' intents stay"


def test_an_inherited_intent_is_none(sim):
    sim.adopted(2048)
    killed_at(sim, ["vmadm", "update"])
    value = property_of(sim)
    assert sim.converge(GROWN).failure is None
    sim.run("zfs", "set", f"{PROPERTY}={value}", f"flexdisk:intents={VM}", "zones")
    assert sim.converge(GROWN).warnings == []
    assert shown(sim).vms[0]["intent"] is None


def test_without_room_for_the_container_a_run_that_makes_room_goes_on(sim):
    """Nothing in the pool is left, not even for the file system that would hold the intent."""
    sim.create(sizes=(2048,))
    full = []

    def fault(argv):
        if argv[:2] == ["zfs", "create"] and argv[-1] == BOX:
            full.append(argv)
            return f"cannot create '{BOX}': out of space"
        return None

    sim.fault = fault
    vm = sim.vm()
    entries = [{"name": n, "uuid": d.uuid} for n, d in zip(("root", "a"), vm.disks, strict=True)]
    assert sim.converge({"vm": "web01", "disks": entries}).failure is None
    assert full
    sim.run("vmadm", "start", VM)
    failed = sim.converge(GROWN, allow_restart=True)
    assert failed.failure["error_code"] == "InsufficientSpace"
    assert power(sim) == ("running", True)
    assert not [c for c in sim.calls if c[:2] == ["vmadm", "stop"]], "a VM is not stopped without an intent"


def test_info_is_json(sim):
    sim.adopted(2048)
    killed_at(sim, ["vmadm", "update"])
    reported = shown(sim)
    assert json.loads(json.dumps(reported.vms[0]["intent"])) == reported.vms[0]["intent"]
