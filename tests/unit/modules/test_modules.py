# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Arguments in, result out: what each module takes, returns and refuses, and that its documentation says so."""

from __future__ import annotations

import ast
import json
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ansible.module_utils.basic import AnsibleModule

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import journal as engine_intent
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import lock, progress
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.runner import SubprocessRunner
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run import module_run, results
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.arguments import DISK
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.outcome import Outcome
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.steps import apply
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.domain_new import TEMPLATE
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError, Problem
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import Intent
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import core_version, journal
from tests.unit.domains.conftest import LinuxHost

from .conftest import PLUGINS, VM

NO_LOG = "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"
GONE, UNREADABLE = (VM[:-1] + last for last in "89")

DISKS = [{"name": "root", "boot": True}, {"name": "data", "size": "64"}]
MODULES = (
    "disk",
    "disk_adopt",
    "disk_info",
    "disk_verify",
    "group_lease",
    "host_info",
    "host_metrics",
    "host_status",
    "progress_info",
    "replica_info",
    "vm",
    "vm_disks",
    "vm_info",
    "vm_snapshot",
    "zfs_quota",
)
ASKING = [module for module in MODULES if module != "progress_info"]  # which asks neither zfs nor vmadm
ROOT = Path(__file__).resolve().parents[3]
NEEDED = {
    "disk": {"name": "data", "size": 64},
    "disk_verify": {"repair": ["stale_copy"]},
    "group_lease": {"group": "web", "token": VM, "holder": "deploy"},
    "vm": {"vms": [{"vm": "web01"}]},
    "vm_disks": {"vms": [{"vm": "web01"}]},
    "vm_snapshot": {"vms": ["web01"], "name": "one"},
}


def spec(*disks, **more):
    return {"vm": "web01", "disks": [*DISKS[:1], *disks], **more}


# -- disk


def test_one_disk_or_several(host):
    made = host("disk", name="archive", size="64MiB", tags={"a": "b"})
    assert (made["disks"][0]["state"], made["disks"][0]["tags"]) == ("detached", {"a": "b"})
    done = host("disk", disks=[{"name": "archive", "vm": "web01", "state": "attached"}, {"name": "new", "size": 8}])
    assert [disk["state"] for disk in done["disks"]] == ["attached", "detached"]
    documented = documentation("disk", "RETURN")
    assert set(done) - {"changed", "invocation", "diff", "warnings"} <= set(documented)
    gone = host("disk", name="archive", vm="web01", state="detached")
    assert gone["guard"].startswith("cli")
    assert host("disk", name="archive", state="absent")["destroyed_by"] == "cli"


def test_a_disk_has_no_other_options(host):
    said = host("disk", disks=[{"name": "archive", "size": 8, "metavg": "x"}])
    assert "metavg" in said["msg"]
    for option, value in (("name", "a"), ("state", "absent"), ("size", 5), ("take", True), ("serial_no", 1)):
        said = host("disk", disks=[{"name": "archive"}], **{option: value})
        assert "mutually exclusive" in said["msg"]


def test_what_was_planned_of_disks_is_told_with_a_failure(host):
    host.node("zfs", "create", "zones/flexdisk")
    host.node("zfs", "set", "quota=100M", "zones/flexdisk")
    said = host("disk", disks=[{"name": "small", "size": 8}, {"name": "large", "size": 512}])
    assert (said["error_code"], said["failure"]["vm"]) == ("InsufficientSpace", "detached disks of pool zones")
    assert [step["status"] for step in said["failure"]["steps"]] == ["done", "failed"]
    assert [disk["state"] for disk in said["disks"]] == ["detached", "absent"]


# -- vm_disks


def test_four_steps(host):
    before = host.state()
    predicted = host("vm_disks", check=True, vms=[spec(*DISKS[1:])])
    assert host.state() == before
    done = host("vm_disks", vms=[spec(*DISKS[1:])])
    assert predicted["changed"]
    assert done["changed"]
    assert predicted["diff"] == done["diff"]
    assert "= data adopted" in done["diff"]["prepared"]
    assert set(predicted) == set(done)
    for check in (True, False):
        again = host("vm_disks", check=check, vms=[spec(*DISKS[1:])])
        assert not again["changed"]
        assert again["diff"] == {"prepared": ""}
        assert set(again) == set(done)


TYPES = {"bool": bool, "dict": dict, "int": int, "list": list, "str": str}
PROXMOX = {"key", "proxmox"}  # which only hosts with Proxmox VE return
TOP = {"changed", "invocation", "diff", "warnings"}  # Ansible's own
FREE = (".tags", ".host.vms.disks", ".unused")  # their keys are the user's


def assert_documented(found, documented, where=""):
    """Down to the last list: every key is documented with its type, and there if it is always returned."""
    always = {key for key, told in documented.items() if told["returned"] == "always"}
    assert always <= set(found) <= set(documented), where
    for key, value in found.items():
        told, place = documented[key], where + "." + key
        if value is None:
            assert "null" in str(told["description"]).lower(), place
            continue
        assert {type(value)} == {TYPES[told["type"]]}, place
        if told["type"] == "list":
            assert {type(inner) for inner in value} <= {TYPES[told["elements"]]}, place
        for inner in value if told["type"] == "list" else [value]:
            if isinstance(inner, dict) and not place.endswith(FREE):
                assert_documented(inner, told["contains"], place)


@pytest.fixture(params=["vmadm", "libvirt"])
def node(request, host, monkeypatch):
    """Two hosts with web01: root, data of 64 MiB, and a flexible disk size of 4096 MiB to be. Runs a command there."""
    if request.param == "vmadm":
        return host.node
    linux = LinuxHost()
    linux.create((64, 64))
    monkeypatch.setattr(module_run, "open_host", lambda *_args: (linux.zfs(), linux.driver()))
    return linux.run


@pytest.mark.parametrize(("node", "guard"), [("vmadm", ["cli"]), ("libvirt", [])], indirect=["node"])
def test_what_is_returned_is_documented(host, node, guard):
    """Every documented key of a disk is there at least once, too."""
    documented = documentation("vm_disks", "RETURN")
    wanted = spec({**DISKS[1], "tags": {"a": "b"}}, flexible_disk_size=4096)
    done = [host("vm_disks", check=check, vms=[wanted]) for check in (True, False)]
    wanted = spec({"name": "new", "size": "remaining"}, unlisted="detach")
    done += [host("vm_disks", check=check, vms=[wanted]) for check in (True, False)]
    for result in done:
        assert_documented({key: result[key] for key in set(result) - TOP}, documented)
    assert [result["guard"].split()[0] for result in done if "guard" in result] == guard
    [vm] = done[-1]["vms"]
    assert set(vm["disks"][1]) == set(documented["vms"]["contains"]["disks"]["contains"]) - PROXMOX
    assert set(vm["parked"][0]) == set(documented["vms"]["contains"]["parked"]["contains"]) - PROXMOX


def test_what_is_returned_of_resized_snapshots_is_documented(host, node):
    host("vm_disks", vms=[spec(*DISKS[1:], flexible_disk_size=4096)])
    host("vm_snapshot", vm="web01", name="one")
    predicted = host("vm_disks", check=True, vms=[spec({"name": "data", "size": 96})])
    assert "free_space" not in predicted["vms"][0]
    assert_documented({"vms": predicted["vms"]}, {"vms": documentation("vm_disks", "RETURN")["vms"]})


def test_what_a_failure_tells_is_documented(host, node, monkeypatch):
    def fails(*_args):
        raise FlexdiskError("CommandFailed", "no")

    documented = documentation("vm_disks", "RETURN")
    host("vm_disks", vms=[spec(*DISKS[1:], flexible_disk_size=4096)])
    monkeypatch.setattr(apply, "confirm_forecasts", fails)
    failed = host("vm_disks", vms=[spec({"name": "data", "size": 96})])
    assert_documented({key: failed[key] for key in set(failed) - TOP - {"failed", "msg"}}, documented)
    assert set(failed) >= {"failure", "problems", "error_code"}
    refused = host("vm_disks", vms=[spec({"name": "data", "size": 0})])
    assert_documented({key: refused[key] for key in set(refused) - TOP - {"failed", "msg"}}, documented)


RECORD = Intent(
    VM, engine_intent.host_name(), "2026-01-01T00:00:00Z", "stopped", False, True, ("stop",), ((1, "a/b", "a/c"),)
)


def test_what_vm_info_returns_is_documented(host, node):
    """With and without the figures of space, with what an interrupted run has left of a VM and of one that is gone."""
    documented = documentation("vm_info", "RETURN")
    host("vm_disks", vms=[spec({**DISKS[1], "tags": {"a": "b"}}, flexible_disk_size=4096)])
    host("vm_disks", vms=[spec(unlisted="detach")])
    host("vm_snapshot", vm="web01", name="one")
    pool = host("vm_info")["vms"][0]["disks"][0]["volume"].split("/")[0]
    for uuid, value in ((VM, journal.encode(RECORD)), (GONE, journal.encode(RECORD)), (UNREADABLE, "x")):
        node("zfs", "set", "flexdisk:intent.%s=%s" % (uuid, value), pool + "/flexdisk")
    node("zfs", "set", "flexdisk:intents=%s" % ",".join((VM, GONE, UNREADABLE)), pool + "/flexdisk")
    host("group_lease", pool=pool, **NEEDED["group_lease"])
    node("zfs", "set", "flexdisk:lease.db=x", pool + "/flexdisk")
    lean, full = host("vm_info"), host("vm_info", space=True, leases=True)
    for result in (lean, full):
        assert_documented({key: result[key] for key in set(result) - TOP}, documented)
    whole = set(documented["intents"]["contains"])
    assert [set(found) for found in full["intents"]] == [whole, {"readable", "vm", "pool"}]
    whole = set(documented["leases"]["contains"])
    assert [set(found) for found in full["leases"]] == [{"readable", "group", "pool"}, whole]
    [vm], told = full["vms"], documented["vms"]["contains"]
    assert set(vm) == set(told) - PROXMOX
    assert set(vm["disks"][0]) == set(told["disks"]["contains"]) - PROXMOX
    assert set(vm["parked"][0]) == set(told["parked"]["contains"]) - PROXMOX
    assert set(full["parked"][0]) == set(documented["parked"]["contains"]) - PROXMOX
    recovered = host("vm_disks", vms=[spec(flexible_disk_size=4000)])
    assert recovered["vms"][0]["recovered"]
    assert_documented({"vms": recovered["vms"]}, {"vms": documentation("vm_disks", "RETURN")["vms"]})


def test_what_host_info_returns_is_documented(host, node):
    documented = documentation("host_info", "RETURN")
    host("vm_disks", vms=[spec({**DISKS[1], "tags": {"a": "b"}}, flexible_disk_size=4096)])
    for check in (True, False):
        found = host("host_info", check=check)
        assert not found["changed"]
        assert_documented({"host": found["host"]}, documented)
        assert [vm["alias"] for vm in found["host"]["vms"]] == ["web01"]


def test_what_host_metrics_returns_is_documented(host, tmp_path):
    documented = documentation("host_metrics", "RETURN")
    for check in (True, False):
        found = host("host_metrics", check=check, path=str(tmp_path / "flexdisk.prom"))
        assert found["changed"]
        assert_documented({"text": found["text"]}, documented)
    assert (tmp_path / "flexdisk.prom").read_text() == found["text"]
    assert set(documented["text"]["sample"].splitlines()[:2]) <= set(found["text"].splitlines())


def test_what_is_half_done_is_documented(host):
    """A lease that nobody has given back is."""
    assert host("group_lease", **NEEDED["group_lease"])["changed"]
    found = host("host_status")
    assert_documented({key: found[key] for key in ("host", "vms", "half_done")}, documentation("host_status", "RETURN"))
    assert [(one["kind"], one["group"]) for one in found["half_done"]] == [("lease", "web")]


def test_where_tasks_are_is_documented(host, monkeypatch):
    """A task that holds the lock, asked for with both modules."""
    monkeypatch.setattr(AnsibleModule, "warn", lambda _self, text: None)
    documented = documentation("progress_info", "RETURN")
    held = lock.exclusive(SubprocessRunner(), "zones", 0, "vm_disks of web01")
    with held as place, progress.reporting(place, lambda _line: None) as made:
        assert host("progress_info")["progress"] == []
        made.add_steps(1)
        made.step("web01", "data", "+ data 64 MiB")
        found = [host("progress_info"), host("progress_info", check=True), host("vm_info")]
        other = host("progress_info", pool="tank")
    assert_documented({key: found[0][key] for key in ("progress", "up")}, documented)
    assert 0 <= found[0]["up"] <= found[1]["up"] <= time.monotonic()
    (sample,) = documented["progress"]["sample"]
    assert set(sample) == set(documented["progress"]["contains"])
    for result in found:
        (one,) = result["progress"]
        assert (one["lock"], one["state"], one["vm"], one["at_step"]) == ("pool-zones", "running", "web01", 1)
    assert other["progress"] == host("vm_info")["progress"] == []
    where = {key: sample[key] for key in progress.Position._fields}
    assert progress.Position(**where).line == sample["line"]


def test_where_tasks_are_is_told_while_the_host_does_not_answer(host, monkeypatch):
    """A task that hangs may hang because of a daemon that does."""
    warned = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _self, text: warned.append(text))
    monkeypatch.setattr(module_run, "open_host", lambda *_any: pytest.fail("the host was asked"))
    held = lock.exclusive(SubprocessRunner(), "zones", 0, "vm_disks of web01")
    with held as place, progress.reporting(place, lambda _line: None) as made:
        made.now("web01", "", "stop")
        assert [one["line"] for one in host("progress_info", pool="zones")["progress"]] == ["VM web01: stop"]
    assert [text.partition(" (pid")[0] for text in warned] == ["the host is being changed by vm_disks of web01"]
    assert host("progress_info", pool="a/b")["error_code"] == "InvalidArgument"


def test_the_bytes_of_a_copy_are_told(host, monkeypatch):
    """Of one by streams, which programs do. Check mode tells nothing."""
    host("disk", name="data", size=64)
    volume = host("disk_info", name="data")["disks"][0]["volume"]
    host.node("guest", "write", volume, "0", "32", "1")
    told, logged = [], []
    tell = progress.Progress._write_position
    monkeypatch.setattr(
        progress.Progress, "_write_position", lambda self: (tell(self), told.extend(lock.under_way(None)))
    )
    monkeypatch.setattr(progress, "_COPY", 0)
    monkeypatch.setattr(AnsibleModule, "log", lambda _self, text, log_args=None: logged.append(text))
    assert host("disk", name="twin", source="data", check=True)["changed"]
    assert told == []
    assert host("disk", name="twin", source="data")["changed"]
    assert max(one["done_bytes"] for one in told) > 0
    assert "at step 1 of 1: + twin" in "\n".join(logged)


def test_an_option_without_a_value_is_none(host):
    """As templates leave them."""
    assert not host("vm_disks", vms=[spec({"name": "data", "pci_slot": "0:4:1"})]).get("failed")
    empty = {key: None for key, option in DISK.items() if key != "name" and "default" not in option}
    done = host("vm_disks", vms=[spec({"name": "data", **empty})])
    assert not done.get("failed"), done["msg"]
    assert not done["changed"]


def test_sizes_of_every_spelling(host):
    done = host(
        "vm_disks",
        vms=[
            spec(
                {"name": "data", "size": 64, "pci_slot": "4:1"},
                {"name": "b", "size": "1.5G"},
                {"name": "c", "size": 10},
            )
        ],
    )
    assert [d["size"] for d in done["vms"][0]["disks"]] == [1024, 64, 1536, 10]


def test_refusals_carry_code_and_all_problems(host):
    before = host.state()
    failed = host("vm_disks", vms=[spec({"name": "data", "size": 0}, {"name": "/"}), {"vm": "nobody"}])
    assert failed["failed"]
    assert failed["error_code"] == "InvalidArgument"
    assert [p["code"] for p in failed["problems"]] == ["InvalidArgument", "InvalidArgument", "ResourceNotFound"]
    assert {"code", "message", "vm", "disk", "class"} == set(failed["problems"][0])
    assert (
        failed["msg"].splitlines()[0] == "VM web01: disk data: %s [InvalidArgument]" % failed["problems"][0]["message"]
    )
    assert len(failed["msg"].splitlines()) == 3
    assert host.state() == before


def test_on_refusal_continue(host):
    failed = host("vm_disks", vms=[spec(*DISKS[1:]), {"vm": "nobody"}], on_refusal="continue")
    assert (failed["failed"], failed["changed"], failed["error_code"]) == (True, True, "ResourceNotFound")
    assert failed["vms"][0]["disks"][1]["name"] == "data"


def test_warnings_are_ansibles(host, monkeypatch):
    host("vm_disks", vms=[spec(*DISKS[1:])])
    warned = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _self, text: warned.append(text))
    host("vm_disks", vms=[spec({"name": "data", "size": 64, "dangerous_allow_shrink": True})])
    assert [text.split(":")[:2] for text in warned] == [["web01", " disk data"]]


def test_a_yaml_1_1_sexagesimal_slot_is_refused(host):
    """4:1 without quotes is the number 241."""
    failed = host("vm_disks", vms=[spec({"name": "data", "size": 64, "pci_slot": 241})])
    assert (failed["error_code"], "quotes" in failed["msg"]) == ("InvalidArgument", True)


@pytest.mark.parametrize("choice", ["auto", "vmadm"])
def test_no_vmadm(host, monkeypatch, choice):
    monkeypatch.setattr(module_run, "_SOCKETS", ())
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(module_run, "SYSTEM_PATH", "/nonexistent")
    for module in ASKING:
        failed = host(module, hypervisor=choice, **NEEDED.get(module, {}))
        assert failed["error_code"] == "CommandNotFound"
        assert ("zfs" if (choice, module) == ("vmadm", "group_lease") else "vmadm") in failed["msg"]


@pytest.mark.parametrize(
    ("choice", "uri", "there", "vmadm", "expected"),
    [
        ("auto", "qemu:///system", True, False, "libvirt"),
        ("auto", "bhyve:///system", True, False, "libvirt"),
        ("auto", "qemu:///system", True, True, "vmadm"),
        ("libvirt", "qemu+ssh://node/system", False, True, "libvirt"),
    ],
)
def test_which_hypervisor(monkeypatch, tmp_path, choice, uri, there, vmadm, expected):
    opened = []
    library = SimpleNamespace(libvirtError=OSError, registerErrorHandler=lambda *_ignored: None, open=opened.append)
    monkeypatch.setitem(sys.modules, "libvirt", library)
    monkeypatch.setattr(module_run, "_SOCKETS", ("/nonexistent", str(tmp_path if there else tmp_path / "x")))
    monkeypatch.setattr(module_run, "SYSTEM_PATH", "/nonexistent")
    monkeypatch.setenv("PATH", str(tmp_path))
    if vmadm:
        (tmp_path / "vmadm").touch(0o755)
    _zfs, driver = module_run.open_host(
        {"hypervisor": choice, "libvirt_uri": uri}, SimpleNamespace(pipe=None), "2.19.0"
    )
    assert driver.capabilities.name == expected
    assert opened == ([uri] if expected == "libvirt" else [])


def test_where_a_libvirt_daemon_listens():
    """The old one, and the one of QEMU alone."""
    assert {"/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock", "/var/run/libvirt/libvirt-sock"} < set(
        module_run._SOCKETS
    )


@pytest.mark.parametrize("module", ASKING)
def test_no_such_pool(host, module):
    failed = host(module, pool="tank", **NEEDED.get(module, {}))
    assert failed["error_code"] == "ResourceNotFound"
    assert "no such pool: tank" in failed["msg"]


def not_root(host, program, text):
    """The program as it is for others."""
    path = host.directory / "bin" / program
    path.write_text("#!/bin/sh\necho '%s' >&2\nexit 2\n" % text)
    path.chmod(0o755)


@pytest.mark.parametrize("module", [module for module in ASKING if module != "group_lease"])  # it asks no vmadm
def test_not_root(host, module):
    not_root(host, "vmadm", "FATAL: cannot run because: not root")
    failed = host(module, **NEEDED.get(module, {}))
    assert failed["error_code"] == "NotPermitted"
    assert "become" in failed["msg"]


def test_zfs_refuses(host):
    not_root(host, "zfs", "cannot open zones: permission denied")
    assert host("vm_disks", vms=[spec()])["error_code"] == "NotPermitted"


# -- vm


@pytest.mark.parametrize("node", ["libvirt"], indirect=True)
@pytest.mark.parametrize("broken", ["", "${ram}", "</devices>"], ids=["valid", "unknown word", "no XML"])
def test_a_template_is_in_no_output(host, node, broken, monkeypatch):
    """It may hold passwords. The rest of the result is as it is."""
    logged = []
    monkeypatch.setattr(AnsibleModule, "_log_to_syslog", lambda _self, text: logged.append(text))
    secret = "<graphics type='vnc' port='-1' passwd='hush'/>"
    template = TEMPLATE.replace("<memballoon", secret + broken + "<memballoon")
    wanted = {"vm": "db01", "flexible_disk_size": 512, "memory": 64, "vcpus": 1, "template": template}
    result = host("vm", pool="tank", vms=[{**wanted, "disks": [{"size": 64}]}], _ansible_diff=True)
    assert logged
    assert "hush" not in json.dumps([result, logged])
    assert bool(result.get("failed")) == bool(broken), result["msg"]
    [shown] = result["invocation"]["module_args"]["vms"]
    assert shown.pop("template") == NO_LOG
    assert NO_LOG not in json.dumps({**result, "invocation": shown})


def made(**more):
    return {"vm": "web02", "flexible_disk_size": 512, "memory": 64, "disks": [{"size": 64}], **more}


def test_ordinary_metadata_spoils_no_output(host):
    """Short values are in uuids, sizes and times; they are as ordinary as the VM's name."""
    plain = host("vm", check=True, vms=[made()])
    metadata = {"cluster_id": "4", "user": "web", "count": 64, "on": True}
    for check in (True, False):
        result = host("vm", check=check, vms=[made(customer_metadata=metadata)], _ansible_diff=True)
        assert NO_LOG not in json.dumps(result)
        assert "****" not in json.dumps(result)
        assert result["invocation"]["module_args"]["vms"][0]["customer_metadata"] == metadata
        assert (result["diff"], result["vms"][0]["uuid"]) == (plain["diff"], plain["vms"][0]["uuid"])


SECRETS = ("correct-horse", "BEGIN", "battery", "leary", "quoted", "marigold")


@pytest.mark.parametrize("fails", [False, True])
def test_a_secret_is_in_no_output_and_nothing_else_is_masked(host, monkeypatch, fails):
    told, write = [], progress._write
    monkeypatch.setattr(progress, "_write", lambda path, what: (told.append(what), write(path, what)))
    monkeypatch.setattr(AnsibleModule, "_log_to_syslog", lambda _self, text: told.append({"log": text}))
    secret = {"root_pw": "correct-horse", "key": "-----BEGIN\nbattery staple", "odd": 'o\'leary "quoted" \\ marigold'}
    more = {"image": VM} if fails else {}
    plain = host("vm", check=True, vms=[made(**more)], _ansible_diff=True)
    for check in (True, False):
        wanted = made(customer_metadata={"cluster_id": "4"}, secret_metadata=secret, **more)
        result = host("vm", check=check, vms=[wanted], _ansible_diff=True)
        assert bool(result.get("failed")) is fails
        for value in SECRETS:
            assert value not in json.dumps(result)
        [shown] = result.pop("invocation")["module_args"]["vms"]
        assert shown.pop("secret_metadata") == dict.fromkeys(secret, NO_LOG)
        for masks in (NO_LOG, "****"):
            assert masks not in json.dumps([shown, result])
        assert (result.get("msg"), result["diff"]) == (plain.get("msg"), plain["diff"])
    assert len([what for what in told if "log" in what]) > 2
    for value in SECRETS:
        assert value not in json.dumps(told)
    if not fails:
        [vm] = json.loads(host.node("vmadm", "lookup", "-j", "alias=web02"))
        assert vm["customer_metadata"] == {"cluster_id": "4", **secret}
        assert [what for what in told if what.get("vm") == "web02"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"secret_metadata": {"root_pw": "4"}}, "secret_metadata root_pw: its value has less than 8 characters"),
        ({"secret_metadata": {"root_pw": "1234567"}}, "secret_metadata root_pw: its value has less than 8"),
        ({"secret_metadata": {"pin": 12345678}}, "secret_metadata pin: its value must be a string"),
        ({"secret_metadata": {"flag": True}}, "secret_metadata flag: its value must be a string"),
        ({"secret_metadata": {"deep": {"a": ["o", 5]}}}, "secret_metadata deep: its value must be a string"),
        ({"template": "a"}, "template: it has no <domain>"),
    ],
)
def test_a_secret_that_would_spoil_the_output_is_refused_without_it(host, entry, said):
    for check in (True, False):
        result = host("vm", check=check, vms=[made(**entry)])
        assert (result["error_code"], result["problems"][0]["vm"]) == ("InvalidArgument", "web02")
        assert said in result["msg"]
        [shown] = result["invocation"]["module_args"]["vms"]
        assert {shown.pop(key) for key in entry} == {NO_LOG}
        assert "****" not in json.dumps(result)
        assert NO_LOG not in json.dumps({**result, "invocation": shown})
        for value in ("1234567", "12345678"):
            assert value not in json.dumps({**result, "invocation": shown})


def test_a_key_is_ordinary_or_secret(host):
    result = host("vm", vms=[made(customer_metadata={"a": "1", "b": "2"}, secret_metadata={"b": "hush-hush"})])
    assert "customer_metadata and secret_metadata both have b" in result["msg"]
    assert "hush" not in json.dumps(result)


# -- vm_info and zfs_quota


def test_info(host):
    host("vm_disks", vms=[spec(*DISKS[1:])])
    host("vm_disks", vms=[spec(unlisted="detach")])
    lean, full = host("vm_info"), host("vm_info", vms=["web01"], space=True)
    assert not lean["changed"]
    assert [v["alias"] for v in lean["vms"]] == ["web01"]
    assert [(d["name"], d["vm"], d["state"]) for d in lean["parked"]] == [("data", VM, "parked")]
    assert "allocatable" not in lean["vms"][0]
    assert full["vms"][0]["allocatable"] == 3072
    assert full["vms"][0]["disks"][0]["pinned"] == 0
    assert host("vm_info", vms=["nobody"])["error_code"] == "ResourceNotFound"


def test_quota(host):
    host.node("zfs", "set", "quota=10G", "zones/" + VM)
    before = host.state()
    predicted = host("zfs_quota", check=True)
    assert host.state() == before
    done = host("zfs_quota")
    assert predicted["changed"]
    assert predicted["vms"] == done["vms"]
    assert done["vms"][0]["cause"] == "half-applied set"
    assert not host("zfs_quota", vms=["web01"], reclaim=True)["changed"]
    documented = documentation("zfs_quota", "RETURN")
    assert set(done["vms"][0]) == set(documented["vms"]["contains"])


@pytest.mark.parametrize("check", [True, False])
def test_quota_reports_all_the_same_when_it_refuses(host, check):
    host.node("zfs", "set", "quota=10G", "zones/" + VM)
    wanted = {"vms": ["web01", "nobody"], "check": check}
    refused, half = host("zfs_quota", **wanted), host("zfs_quota", on_refusal="continue", **wanted)
    for failed, changed in ((refused, False), (half, True)):
        assert (failed["failed"], failed["changed"], failed["error_code"]) == (True, changed, "ResourceNotFound")
        assert [(v["alias"], v["cause"], v["changed"]) for v in failed["vms"]] == [
            ("web01", "half-applied set", changed)
        ]


def test_snapshot(host):
    before = host.state()
    predicted = host("vm_snapshot", check=True, vm="web01", name="one")
    assert host.state() == before
    done = host("vm_snapshot", vm="web01", name="one")
    assert (done["changed"], done["diff"]) == (predicted["changed"], predicted["diff"])
    assert [s["name"] for s in done["vms"][0]["snapshots"]] == ["one"]
    documented = documentation("vm_snapshot", "RETURN")["vms"]["contains"]
    assert set(done["vms"][0]) == set(documented)
    assert set(done["vms"][0]["snapshots"][0]) == set(documented["snapshots"]["contains"])
    assert not host("vm_snapshot", name="one")["changed"]
    assert host("vm_info", space=True)["vms"][0]["snapshots"] == done["vms"][0]["snapshots"]
    assert host("vm_snapshot", vm="web01", name="a b")["error_code"] == "InvalidArgument"
    kept = host("vm_snapshot", vm="web01", name="two", keep={"last": 1, "names": ["*"]})
    assert [s["name"] for s in kept["vms"][0]["snapshots"]] == ["two"]


def test_adopt(host):
    before = host.state()
    predicted = host("disk_adopt", check=True)
    assert host.state() == before
    done = host("disk_adopt", vms=[{"vm": "web01", "disks": [{"index": 1, "name": "data", "tags": {"n": "1"}}]}])
    assert predicted["changed"]
    assert [d["name"] for d in done["vms"][0]["disks"]] == ["disk0", "data"]
    down = host("disk_adopt", state="released")
    documented = documentation("disk_adopt", "RETURN")
    assert set(down) - {"changed", "invocation", "diff", "warnings"} == set(documented)
    assert set(down["released"][0]) <= set(documented["released"]["contains"])
    up = host("disk_adopt", vms=down["released"])
    assert up["changed"]
    assert host("disk_adopt", check=True, state="released")["released"] == down["released"]
    assert host("disk_adopt", vms=[{"vm": "web01", "disks": [{"name": "x"}]}])["failed"]
    assert host("disk_adopt", forget=True)["error_code"] == "InvalidArgument"


def test_disks(host):
    host("vm_disks", vms=[spec({"name": "data", "size": 64, "tags": {"a": "1"}})])
    host("vm_disks", vms=[spec(unlisted="detach")])
    lean, full = host("disk_info"), host("disk_info", tags={"a": None}, state=["detached"], space=True)
    assert [d["state"] for d in lean["disks"]] == ["attached", "detached"]
    assert [d["name"] for d in full["disks"]] == ["data"]
    documented = documentation("disk_info", "RETURN")["disks"]["contains"]
    assert set(full["disks"][0]) == set(documented) - PROXMOX
    assert set(full["disks"][0]["frees_bytes"]) == set(documented["frees_bytes"]["contains"])
    assert host("disk_info", tags={"a": "1"})["disks"] == host("disk_info", name="data")["disks"]
    assert host("disk_info", vm="nobody")["error_code"] == "ResourceNotFound"


def test_verify(host):
    clean = host("disk_verify")
    assert (clean["findings"], clean["counts"]) == ([], {"error": 0, "warning": 0, "info": 0})
    host("vm_disks", vms=[spec(*DISKS[1:])])
    host.node("zfs", "set", "flexdisk:slot=0:9:0", f"zones/{VM}/disk1")
    host.node("zfs", "create", "-V", "64M", f"zones/{VM}/disk9")
    before = host.state()
    found = host("disk_verify")
    predicted = host("disk_verify", check=True, repair=["stale_copy", "orphan_volume"])
    failed = host("disk_verify", fail_on="warning")
    assert (failed["error_code"], len(failed["problems"])) == ("DefectFound", 3)
    assert "orphan_volume: zones/" in failed["msg"]
    assert set(failed) - set(found) == {"error_code", "problems", "failed"}
    assert not host("disk_verify", fail_on="error").get("failed")
    assert host.state() == before
    documented = documentation("disk_verify", "RETURN")
    assert set(found["findings"][0]) == set(documented["findings"]["contains"])
    [task] = [f["repair"]["flexdisk.hypervisor.disk_verify"] for f in found["findings"] if f["kind"] == "stale_copy"]
    assert [f["kind"] for f in host("disk_verify", check=True, **task)["repaired"]] == ["stale_copy"]
    done = host("disk_verify", repair=["stale_copy", "orphan_volume"], fail_on="warning")
    assert set(done) - {"guard"} == set(predicted)
    assert set(done) - {"invocation", "changed", "diff"} == set(documented)
    for key in ("changed", "findings", "repaired", "counts", "steps", "diff"):
        assert done[key] == predicted[key], key
    assert sorted(f["kind"] for f in done["repaired"]) == ["orphan_volume", "quota_drift", "stale_copy"]
    again = host("disk_verify", repair=["stale_copy", "orphan_volume"])
    assert (again["changed"], again["findings"]) == (False, done["findings"])


# -- one at a time


@pytest.fixture
def other(host):
    """Another task has the host until the event is set; then it drifts first."""
    begun, end = threading.Event(), threading.Event()

    def hold():
        with lock.exclusive(SubprocessRunner(), None, 0, "vm_disks of db01"):
            begun.set()
            end.wait(60)
            host.node("zfs", "set", "quota=10G", "reservation=10G", "zones/" + VM)

    thread = threading.Thread(target=hold)
    thread.start()
    assert begun.wait(60)
    yield end
    end.set()
    thread.join()


@pytest.mark.parametrize("module", ["disk_adopt", "disk_verify", "vm_disks", "vm_snapshot", "zfs_quota"])
def test_while_another_task_runs(host, other, module, monkeypatch):
    warned = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _self, text: warned.append(text))
    args = NEEDED.get(module, {})
    failed = host(module, lock_timeout=0, **args)
    assert failed["error_code"] == "Locked"
    assert "vm_disks of db01 (pid " in failed["msg"]
    assert warned == []
    host(module, check=True, **args)
    host("vm_info")
    assert len(warned) == 2
    assert all("being changed by vm_disks of db01" in text for text in warned)


def test_what_is_planned_is_read_under_the_lock(host, other):
    threading.Timer(0.5, other.set).start()
    assert host("zfs_quota")["changed"]


def test_a_plan_is_compared_with_the_approved_one_under_the_lock(host, other):
    """The other task ends with a change, after the plan was approved."""
    approved = host("zfs_quota", check=True)
    threading.Timer(0.5, other.set).start()
    said = host("zfs_quota", expect_plan=approved["plan_digest"], expect_lines=approved["plan"])
    assert (said["error_code"], said["changed"]) == ("PlanChanged", False)
    assert "- 1 VM: nothing to change" in said["msg"]
    assert "quota 10 GiB -> " in said["msg"]


# -- documentation


def documentation(module, part):
    """From the module itself, or from the file beside it where the texts are too long to be sent to every host."""
    source = import_module(PLUGINS + module)
    beside = Path(source.__file__).with_suffix(".yml")
    if beside.exists():
        return yaml.safe_load(beside.read_text())[part]
    return yaml.safe_load(getattr(source, part))


def argument_spec(module):
    """The argument_spec literal of main(), with the constants it names."""
    source = import_module(PLUGINS + module)
    with open(source.__file__) as stream:
        calls = [
            n for n in ast.walk(ast.parse(stream.read())) if isinstance(n, ast.keyword) and n.arg == "argument_spec"
        ]
    return eval(compile(ast.Expression(calls[0].value), "spec", "eval"), vars(source))


def compare(documented, specified, where=""):
    assert set(documented) == set(specified), where
    for name, option in specified.items():
        told = documented[name]
        assert told["description"], name
        for key in ("type", "default", "choices", "required", "elements"):
            found = list(told["choices"]) if key == "choices" and "choices" in told else told.get(key)
            assert found == option.get(key), (where, name, key)
        if "options" in option:
            compare(told["suboptions"], option["options"], name)


@pytest.mark.parametrize("module", MODULES)
def test_options_are_as_documented(module):
    documented, specified = documentation(module, "DOCUMENTATION")["options"], argument_spec(module)
    fragment = import_module(
        "ansible_collections.flexdisk.hypervisor.plugins.doc_fragments._flexdisk"
    ).ModuleDocFragment
    documented.update(yaml.safe_load(fragment.DOCUMENTATION)["options"])
    if "on_refusal" in specified:
        of_all = yaml.safe_load(fragment.REFUSAL)["options"]["on_refusal"]
        documented["on_refusal"] = {**of_all, **documented.get("on_refusal", {})}
        documented.update(yaml.safe_load(fragment.APPROVAL)["options"])
    if not module.endswith(("_info", "_metrics", "_status")):
        documented.update(yaml.safe_load(fragment.LOCK)["options"])
    if module == "disk" or (module.startswith("vm") and module != "vm_info"):
        documented.update(yaml.safe_load(fragment.POWER)["options"])
    compare(documented, specified)


def same_keys(told, specified, where):
    """Type, choices and elements of the options that both have, and all suboptions. In a role an alias is an option."""
    specified = {word: option for name, option in specified.items() for word in (name, *option.get("aliases", ()))}
    for name, option in specified.items():
        assert "aliases" not in told[name], (where, name)  # the schema of ansible-lint has none
        for key in ("type", "choices", "elements"):
            assert told[name].get(key) == option.get(key), (where, name, key)
        if "options" in option and "options" in told[name]:
            words = {word for key, inner in option["options"].items() for word in (key, *inner.get("aliases", ()))}
            assert set(told[name]["options"]) == words, (where, name)
            same_keys(told[name]["options"], option["options"], name)


@pytest.mark.parametrize(
    ("role", "module"), [("flexible_disks", "vm_disks"), ("virtual_machine", "vm")], ids=["disks", "vm"]
)
def test_a_roles_variables_are_the_options_of_its_module(role, module):
    specs = yaml.safe_load((ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text())
    told = {
        name.removeprefix(role + "_"): option for name, option in specs["argument_specs"]["main"]["options"].items()
    }
    for own in ("recalculate_quota", "only", "plan_only"):
        told.pop(own, None)
    assert set(told) == set(argument_spec(module))
    same_keys(told, argument_spec(module), role)


@pytest.mark.parametrize(
    ("variable", "module", "option"), [("adopt_vms", "disk_adopt", "vms"), ("disks", "disk", "disks")]
)
def test_lists_of_the_registry_are_the_options_of_their_modules(variable, module, option):
    specs = yaml.safe_load((ROOT / "roles" / "disk_registry" / "meta" / "argument_specs.yml").read_text())
    told = specs["argument_specs"]["main"]["options"]["disk_registry_" + variable]
    same_keys({option: told}, {option: argument_spec(module)[option]}, variable)


# -- the door


def test_the_end_of_a_run_that_failed():
    failure = {
        "vm": "web01", "uuid": VM, "error_code": "NotApplied", "message": "no", "step": "grow", "steps": [],
        "restarted": True, "restart": "", "vms_not_done": ["web02"],
    }  # fmt: skip
    for restarted, tail in ((True, "The VM is running again."), (False, "The VM is down."), (None, "")):
        said = results.ending(Outcome(failure={**failure, "restarted": restarted}, changed=True))
        assert said["msg"] == ("VM web01: grow: no [NotApplied] " + tail).strip()
        assert (said["error_code"], said["failure"]["vms_not_done"], said["changed"]) == ("NotApplied", ["web02"], True)
    tried = results.ending(Outcome(failure={**failure, "restarted": False, "restart": "2 attempts"}))["msg"]
    assert tried.endswith(" The VM is down; 2 attempts.")
    both = results.ending(Outcome(failure=failure, problems=[Problem("Held", "x", "web03")]))
    assert [problem["vm"] for problem in both["problems"]] == ["web01", "web03"]
    assert both["msg"].splitlines()[1] == "VM web03: x [Held]"
    assert results.ending(Outcome()) is None
    assert results.ending(Outcome(problems=[Problem("Held", "x")]))["error_code"] == "Held"


def test_programs_run_without_a_shell_under_the_c_locale(monkeypatch):
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    runner = SubprocessRunner()
    answer = runner(
        ["sh", "-c", 'echo "$LC_ALL $LANG $1"; cat; echo oops >&2; exit 3', "x", "; echo $(id)"], "in\u00fc"
    )
    assert (answer.rc, answer.stdout, answer.stderr) == (3, "C C ; echo $(id)\nin\u00fc", "oops\n")
    assert runner(["sh", "-c", "kill -ABRT $$"]).rc == -6
    assert runner.calls == 2


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["/nonexistent/program"], "CommandNotFound"),
        (["/etc/passwd"], "NotPermitted"),
        (["/etc/passwd/program"], "CommandFailed"),
        (["sh", "a\0b"], "CommandFailed"),
        (["sleep", "9"], "CommandTimeout"),
    ],
)
def test_programs_that_cannot_be_run(argv, code):
    with pytest.raises(FlexdiskError) as caught:
        SubprocessRunner()(argv, timeout=0.1)
    assert caught.value.code == code
    assert argv[0] in caught.value.message


@pytest.mark.parametrize("module", MODULES)
def test_an_ansible_core_that_is_too_old_is_refused(host, monkeypatch, module):
    loaded = import_module(PLUGINS + module)
    monkeypatch.setattr(loaded, "__version__", "2.18.19")
    least = {**NEEDED, "vm": {"vms": []}, "vm_disks": {"vms": []}, "disk": {"name": "a"}, "vm_snapshot": {"name": "a"}}
    done = host(module, **least.get(module, {}))
    assert (done["failed"], done["error_code"]) == (True, "AnsibleTooOld")
    assert done["msg"] == f"{core_version.refusal('2.18.19')} [AnsibleTooOld]"


def test_a_vm_has_one_name(host):
    """With two, one of them would be taken without a word."""
    before = host.state()
    for vm in ({"vm": VM, "name": "web01", "state": "absent", "destroy_disks": True}, {"state": "absent"}):
        assert host("vm", vms=[vm])["failed"]
    assert host.state() == before
    assert not host("vm", vms=[{"name": "web01"}]).get("failed")


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (
            {"customer_metadata": {"root_pw": "12345678"}},
            "customer_metadata root_pw: its name says that it is a secret",
        ),
        ({"customer_metadata": {"api_token": "12345678"}}, "customer_metadata api_token"),
        ({"customer_metadata": {"root-pw": "12345678"}}, "customer_metadata root-pw"),
        ({"customer_metadata": {"apiKey": "12345678"}}, "customer_metadata apiKey"),
        ({"customer_metadata": {"DB_SECRET_1": "12345678"}}, "customer_metadata DB_SECRET_1"),
        ({"customer_metadata": {"user-data": "#cloud-config"}}, "customer_metadata user-data"),
        ({"options": {"vnc_password": "12345678"}}, "options vnc_password: options are shown"),
        ({"options": {"internal_metadata": {"root_pw": "a"}}}, "options internal_metadata.root_pw: options are shown"),
        ({"options": {"nics": [{"ip": "dhcp", "apiToken": "a"}]}}, "options nics.apiToken"),
    ],
)
def test_what_is_plainly_a_secret_goes_where_it_is_masked(host, wish, said):
    done = host("vm", vms=[{"vm": "web09", **wish}])
    assert said in done["msg"]
    assert done["error_code"] == "InvalidArgument"
