# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks of a failover on two simulated nodes, as a user runs them. One of the nodes cannot be reached."""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager
from pathlib import Path

import pytest

from .nodes import Nodes
from .test_move_vm import SECRET, hashes, vm

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "moves.md").read_text()
TO = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_target=hv02"]
FENCED = [*TO, "-e", "flexdisk_fenced=true"]
PREPARE = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_failover=true"]

# Each takes minutes, and tests/unit/replication has the same in one process.
SELDOM = pytest.mark.skipif(not os.environ.get("FLEXDISK_FULL"), reason="takes minutes; FLEXDISK_FULL=1 runs it")


@pytest.fixture
def nodes(tmp_path):
    """Two hosts that reach each other. A running VM with two disks and a secret is on the first."""
    made = Nodes(tmp_path, {"hv01": "", "hv02": ""})
    made.connect("hv01", "hv02")
    made.connect("hv02", "hv01")
    made.variables["all"] = {"flexdisk_replicas": [{"vm": "db01", "host": "hv02"}]}
    uuid = made.create("hv01", "db01", 1024, 2, {}, flexible=6, more=[1])
    made.run("hv01", "vmadm", "update", uuid, stdin=json.dumps({"set_customer_metadata": {"root_pw": SECRET}}))
    for disk in vm(made, "hv01")["disks"]:
        made.run("hv01", "guest", "write", disk["zfs_filesystem"], "0", "9", disk["uuid"])
    made.run("hv01", "vmadm", "start", uuid)
    return made


def plays(nodes, playbook, *words, status=0, unreachable=""):
    """What a playbook prints. No secret of the VM is ever in it."""
    ended, printed = nodes.play(playbook, *words, unreachable=unreachable)
    assert ended == status, printed
    assert SECRET not in printed
    return printed


def changed(printed, host):
    return " changed=0 " not in next(line for line in printed.splitlines() if re.match(rf"{host} +: ok", line))


def record(nodes):
    return nodes.folder / "hv02" / "bin" / "flexdisk-locks" / "failover" / f"{vm(nodes, 'hv01')['uuid']}.json"


def test_a_failover(nodes):
    """As the page has it: prepare, fail, come back on the other host. The old host does not start the VM then."""
    for playbook, words in (
        ("replicate", ["-e", "flexdisk_failover=true"]),
        ("failover_vm", [*FENCED, "-e", "flexdisk_max_data_loss=900", "--check", "--diff"]),
        ("start_host", ["--limit", "hv01"]),
    ):
        assert f"    ansible-playbook flexdisk.hypervisor.{playbook} {' '.join(words)}\n" in PAGE
    before, contents = vm(nodes, "hv01"), hashes(nodes, "hv01")
    for check, news in (("--check", True), ("--diff", True), ("--check", False), ("--diff", False)):
        assert changed(plays(nodes, "replicate", *PREPARE, check, "-vvv"), "hv01") is news
        assert vm(nodes, "hv01")["autoboot"] is (check == "--check" and news)
    assert SECRET in record(nodes).read_text()
    nodes.run("hv01", "guest", "write", before["disks"][1]["zfs_filesystem"], "9", "3", "lost")
    assert "flexdisk_fenced=true is missing" in plays(nodes, "failover_vm", *TO, status=2)
    printed = plays(nodes, "failover_vm", *FENCED, status=2)
    assert "hv01, the host of db01, answers: move the VM with the playbook move_vm" in printed
    printed = plays(nodes, "failover_vm", *FENCED, "-e", "flexdisk_max_data_loss=0", unreachable="hv01", status=2)
    assert re.search(r"what the replicas have is \d+ s old; flexdisk_max_data_loss allows 0 s", printed)
    words = [*FENCED, "-e", "flexdisk_max_data_loss=900"]
    printed = plays(nodes, "failover_vm", *words, "--check", "--diff", "-vvv", unreachable="hv01")
    assert re.search(r"VM db01 of hv01 comes back as of \d+ s ago", printed)
    assert vm(nodes, "hv02") == {}
    assert changed(plays(nodes, "failover_vm", *words, "-vvv", unreachable="hv01"), "hv02")
    after = vm(nodes, "hv02")
    for key in ("uuid", "state", "customer_metadata", "flexible_disk_size", "ram", "nics", "tags"):
        assert after[key] == before[key], key
    assert (after["autoboot"], hashes(nodes, "hv02")) == (False, contents)
    for more in (["--check"], []):
        assert not changed(plays(nodes, "failover_vm", *words, *more, unreachable="hv01"), "hv02")


@SELDOM
def test_the_old_host_comes_back(nodes):
    """It does not start the VM, and ends it. What it wrote last is kept, and given up by word."""
    contents = hashes(nodes, "hv01")
    plays(nodes, "replicate", *PREPARE)
    nodes.run("hv01", "guest", "write", vm(nodes, "hv01")["disks"][1]["zfs_filesystem"], "9", "3", "lost")
    plays(nodes, "failover_vm", *FENCED, unreachable="hv01")
    uuid = vm(nodes, "hv01")["uuid"]
    for check in ("--check", "--diff"):  # it runs on both
        printed = plays(nodes, "start_host", "--limit", "hv01", check, status=2)
        assert "it is running here, and hv02 has taken it over; it also runs on hv02" in printed
        assert f"Stop it here (vmadm stop {uuid})" in printed
    nodes.run("hv01", "vmadm", "stop", uuid, "-F")
    assert "hv02 has taken it over" in plays(nodes, "start_host", "--limit", "hv01")
    assert vm(nodes, "hv01")["state"] == "stopped"
    for state, words in (("returned", "lacks"), ("given_up", "and becomes a replica")):
        command = ["-e", "flexdisk_vm=db01", "-e", f"flexdisk_failover_state={state}"]
        assert f"    ansible-playbook flexdisk.hypervisor.failover_vm {' '.join(command)}\n" in PAGE
        for check, news in (("--check", True), ("--diff", True), ("--diff", False)):
            printed = plays(nodes, "failover_vm", *command, check)
            assert (changed(printed, "hv01"), words in printed) == (news, news)
            assert not changed(printed, "hv02")
        assert vm(nodes, "hv01") == {}
    plays(nodes, "replicate", "-e", "flexdisk_vm=db01", "-e", "flexdisk_replica_host=hv01")
    replicas = [f"zones/flexdisk/replica/{disk['uuid']}" for disk in vm(nodes, "hv02")["disks"]]
    assert [nodes.run("hv01", "guest", "hash", name) for name in replicas] == contents


@SELDOM
def test_a_failover_that_was_killed(nodes):
    """The old host is there again. It is given up, or goes on: the VM is never on both hosts."""
    contents = hashes(nodes, "hv01")
    plays(nodes, "replicate", *PREPARE)
    uuid = vm(nodes, "hv01")["uuid"]
    stays = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_failover_state=stays"]
    assert f"    ansible-playbook flexdisk.hypervisor.failover_vm {' '.join(stays)}\n" in PAGE
    begin(nodes)
    printed = plays(nodes, "failover_vm", *FENCED, status=2)
    assert (
        f"it is running here, and another host has begun to take it over: stop it here (vmadm stop {uuid})" in printed
    )
    nodes.run("hv01", "vmadm", "stop", uuid, "-F")
    assert "could not be asked whether the failover of db01 has begun there" in plays(
        nodes, "failover_vm", *stays, unreachable="hv02", status=2
    )
    assert "does not say that it still has it" in plays(nodes, "failover_vm", *stays, unreachable="hv01", status=2)
    for check, news in (("--check", True), ("--diff", True), ("--diff", False)):
        assert changed(plays(nodes, "failover_vm", *stays, check), "hv02") is news
    assert vm(nodes, "hv02") == {}
    assert changed(plays(nodes, "start_host", "--limit", "hv01"), "hv01")
    nodes.run("hv01", "vmadm", "stop", uuid, "-F")

    begin(nodes)
    assert "hv02 has begun to take it over" in plays(nodes, "start_host", "--limit", "hv01")
    replica = f"zones/flexdisk/replica/{vm(nodes, 'hv01')['disks'][0]['uuid']}"
    nodes.run("hv02", "zfs", "rename", replica, "zones/away")
    assert "it has no replica here" in plays(nodes, "failover_vm", *FENCED, status=2)
    assert vm(nodes, "hv01")["uuid"] == uuid  # it has not been ended
    nodes.run("hv02", "zfs", "rename", "zones/away", replica)
    printed = plays(nodes, "failover_vm", *FENCED)
    assert changed(printed, "hv01")
    assert (vm(nodes, "hv01"), hashes(nodes, "hv02")) == ({}, contents)
    assert not changed(plays(nodes, "failover_vm", *FENCED), "hv01")


@contextmanager
def killed_at(nodes, host, word):
    """A module that calls this subcommand of vmadm on the host is killed, and vmadm does nothing."""
    programs = nodes.folder / host / "bin"
    (programs / "vmadm").rename(programs / "real")
    dies = f'#!/bin/sh\n[ "$1" = {word} ] && kill -9 $PPID && exit\nexec {programs}/real "$@"\n'
    (programs / "vmadm").write_text(dies)
    (programs / "vmadm").chmod(0o755)
    yield
    (programs / "real").rename(programs / "vmadm")


def begin(nodes):
    """A failover is killed when it has been written down, and is about to make the VM."""
    with killed_at(nodes, "hv02", "create"):
        plays(nodes, "failover_vm", *FENCED, unreachable="hv01", status=2)
    place = f"zones/flexdisk/move/{vm(nodes, 'hv01')['uuid']}"
    assert "coming" in nodes.run("hv02", "zfs", "get", "-H", "-o", "value", "flexdisk:move", place)


@SELDOM
def test_a_host_that_has_booted(nodes):
    """It starts its VMs, if the other host can be asked, or by a word of the user."""
    plays(nodes, "replicate", *PREPARE)
    uuid = vm(nodes, "hv01")["uuid"]
    nodes.run("hv01", "vmadm", "stop", uuid, "-F")
    printed = plays(nodes, "start_host", "--limit", "hv01", unreachable="hv02", status=2)
    assert "hv02 could not be asked whether they have taken it over" in printed
    assert vm(nodes, "hv01")["state"] == "stopped"
    for check, news in (("--check", True), ("--diff", True), ("--check", False), ("--diff", False)):
        assert changed(plays(nodes, "start_host", check), "hv01") is news
    assert (vm(nodes, "hv01")["state"], vm(nodes, "hv01")["autoboot"]) == ("running", False)
    nodes.run("hv01", "vmadm", "stop", uuid, "-F")
    plays(nodes, "start_host", "--limit", "hv01", "-e", "flexdisk_start_unasked=true", unreachable="hv02")
    assert vm(nodes, "hv01")["state"] == "running"


@SELDOM
def test_the_host_that_took_it_over_has_moved_it_on(tmp_path):
    """start_host follows the VM, also if --limit leaves the host out that has it."""
    three = Nodes(tmp_path, {"hv01": "", "hv02": "", "hv03": ""})
    three.connect("hv01", "hv02")
    three.connect("hv02", "hv03")
    three.variables["all"] = {"flexdisk_replicas": [{"vm": "db01", "host": "hv02"}]}
    uuid = three.create("hv01", "db01", 1024, 2, {}, flexible=6)
    three.run("hv01", "vmadm", "update", uuid, stdin=json.dumps({"set_customer_metadata": {"root_pw": SECRET}}))
    three.run("hv01", "vmadm", "start", uuid)
    plays(three, "replicate", *PREPARE)
    three.run("hv01", "vmadm", "stop", uuid, "-F")
    plays(three, "failover_vm", *FENCED, unreachable="hv01")
    plays(three, "move_vm", "-e", "flexdisk_vm=db01", "-e", "flexdisk_target=hv03", "--limit", "hv02,hv03")
    assert "hv02 says that it has moved on to hv03" in plays(three, "start_host")
    place = f"zones/flexdisk/move/{uuid}"
    three.run("hv02", "zfs", "set", "flexdisk:move=", place)
    assert "hv03 has taken it over" in plays(three, "start_host", "--limit", "hv01")
    assert (vm(three, "hv01")["state"], vm(three, "hv03")["state"]) == ("stopped", "running")


@SELDOM
def test_a_move_goes_on_without_the_host_that_the_vm_has_left(tmp_path):
    """The new host died when the VM had its disks there, and the old one is gone for good."""
    three = Nodes(tmp_path, {"hv01": "", "hv02": "", "hv03": ""})
    three.connect("hv01", "hv03")
    uuid = three.create("hv01", "db01", 1024, 2, {}, flexible=6)
    three.run("hv01", "vmadm", "start", uuid)
    goes = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_target=hv03"]
    with killed_at(three, "hv03", "start"):
        plays(three, "move_vm", *goes, status=2)
    for words, how in ((["--limit", "hv02,hv03", "--check"], {}), ([], {"unreachable": "hv01", "status": 4})):
        plays(three, "move_vm", *goes, *words, **how)
        assert vm(three, "hv03")["state"] == ("stopped" if words else "running")
    assert not changed(plays(three, "move_vm", *goes), "hv03")


def test_a_move_goes_on_only_if_nobody_has_taken_the_vm_over(tmp_path):
    """It was killed when the VM had left. All hosts with replicas must be asked."""
    nodes = Nodes(tmp_path, {"hv01": "", "hv02": "", "hv03": ""})
    uuid = nodes.create("hv01", "db01", 1024, 2, {}, flexible=6)
    move = {"phase": "moved", "vm": uuid, "alias": "db01", "host": "hv03", "pool": 1, "state": "running", "term": 0}
    move.update(autoboot=True, since="2026-01-01T00:00:00Z", asks="hv02")

    def written(where, **changes):
        nodes.run(where, "zfs", "create", "-p", "zones/flexdisk/move")
        text = json.dumps({**move, **changes})
        nodes.run(where, "zfs", "create", "-o", f"flexdisk:move={text}", f"zones/flexdisk/move/{uuid}")

    written("hv01")
    goes = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_target=hv03"]
    printed = plays(nodes, "move_vm", *goes, "--limit", "hv01,hv03", status=2)
    assert "hv02 could not be asked whether it has been taken over" in printed
    written("hv03", phase="coming", host="hv01")
    printed = plays(nodes, "move_vm", *goes, "--limit", "hv02,hv03", status=2)
    assert "hv03 does not know whether it has left hv01" in printed
    written("hv02", host="hv04", term=1)
    printed = plays(nodes, "move_vm", *goes, status=2)
    assert "db01 was taken over while it moved: hv02 says that it went on from there" in printed


ROLE = """
- hosts: hv01
  gather_facts: false
  environment: "{{ flexdisk_environment }}"
  tasks:
    - ansible.builtin.include_role:
        name: flexdisk.hypervisor.vm_move
      vars: {vm_move_vm: db01, vm_move_target: hv03}
"""


def test_the_role_asks_what_the_playbook_of_a_move_asks(tmp_path):
    """Used directly in a play of one host, it asks the others, too."""
    nodes = Nodes(tmp_path, {"hv01": "", "hv02": "", "hv03": ""})
    uuid = nodes.create("hv01", "db01", 1024, 2, {}, flexible=6)
    move = {"phase": "moved", "vm": uuid, "alias": "db01", "host": "hv03", "pool": 1, "state": "running", "term": 0}
    move.update(autoboot=True, since="2026-01-01T00:00:00Z", asks="hv02")
    book = tmp_path / "role.yml"
    book.write_text(ROLE)

    def written(where, **changes):
        nodes.run(where, "zfs", "create", "-p", "zones/flexdisk/move")
        text = json.dumps({**move, **changes})
        nodes.run(where, "zfs", "create", "-o", f"flexdisk:move={text}", f"zones/flexdisk/move/{uuid}")

    nodes.create("hv02", "db01", 1024, 2, {}, flexible=6)
    assert "hv02 has it, too" in plays(nodes, str(book), status=2)
    nodes.run("hv02", "vmadm", "delete", uuid)
    written("hv02", phase="coming", host="hv01")
    assert "it is on its way to hv02" in plays(nodes, str(book), status=2)
    nodes.run("hv02", "zfs", "destroy", f"zones/flexdisk/move/{uuid}")
    written("hv01")
    for check in ("--check", "--diff"):
        printed = plays(nodes, str(book), check, unreachable="hv02", status=2)
        assert "hv02 could not be asked whether it has been taken over" in printed
    written("hv02", host="hv04", term=1)
    printed = plays(nodes, str(book), status=2)
    assert "it was taken over while it moved: hv02 says that it went on from there" in printed
    assert vm(nodes, "hv03") == {}


def test_the_role_of_a_move_knows_an_old_home(tmp_path):
    """The VM has left. A host that had it before the last failover does not keep it from arriving; others do."""
    nodes = Nodes(tmp_path, {"hv01": "", "hv02": "", "hv03": ""})
    book = tmp_path / "role.yml"
    book.write_text(ROLE)
    for host in ("hv01", "hv02"):
        uuid = nodes.create(host, "db01", 1024, 2, {}, flexible=6)
    nodes.run("hv02", "vmadm", "stop", uuid, "-F")
    move = {"phase": "moved", "vm": uuid, "alias": "db01", "host": "hv03", "pool": 1, "state": "running", "term": 1}
    move.update(autoboot=True, since="2026-01-01T00:00:00Z", asks="hv02")
    nodes.run("hv01", "zfs", "create", "-p", "zones/flexdisk/move")
    nodes.run("hv01", "zfs", "create", "-o", f"flexdisk:move={json.dumps(move)}", f"zones/flexdisk/move/{uuid}")
    for term, refused in ((0, False), (1, True)):
        nodes.run("hv02", "zfs", "set", f"flexdisk:failover=on:{term}", f"zones/{uuid}")
        assert ("hv02 has it, too" in nodes.play(str(book), "--check")[1]) is refused


REPLICA = """
- hosts: hv01
  gather_facts: false
  environment: "{{ flexdisk_environment }}"
  tasks:
    - ansible.builtin.include_role:
        name: flexdisk.hypervisor.vm_replica
      vars: {vm_replica_vms: [NAME], vm_replica_peer: hv02, vm_replica_state: absent}
"""


def test_the_role_knows_who_has_taken_a_vm_over_however_it_is_named(tmp_path):
    """Its replicas on the old home are what it needs for its way back."""
    nodes = Nodes(tmp_path, {"hv01": "", "hv02": ""})
    for term, host in enumerate(("hv01", "hv02")):
        uuid = nodes.create(host, "db01", 1024, 1, {}, flexible=3)
        nodes.run(host, "zfs", "set", f"flexdisk:failover=on:{term}", f"zones/{uuid}")
    book = tmp_path / "role.yml"
    for name in ("db01", uuid):
        book.write_text(REPLICA.replace("NAME", name))
        assert "hv02 has db01: it has taken it over" in plays(nodes, str(book), status=2)


@SELDOM
def test_failover_is_given_up(nodes):
    """By word, and with the replicas. Then the hypervisor starts the VM with the host as it did."""
    for words in (["-e", "flexdisk_failover=false"], ["-e", "flexdisk_replica_state=absent"]):
        plays(nodes, "replicate", *PREPARE)
        assert (vm(nodes, "hv01")["autoboot"], record(nodes).exists()) == (False, True)
        plays(nodes, "replicate", "-e", "flexdisk_vm=db01", *words)
        assert (vm(nodes, "hv01")["autoboot"], record(nodes).exists()) == (True, False)


@SELDOM
def test_the_other_host_is_gone_for_good(nodes):
    """By both words, the VM starts with its host again, although that host cannot be asked."""
    plays(nodes, "replicate", *PREPARE)
    words = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_replica_state=absent", "--limit", "hv01"]
    printed = plays(nodes, "replicate", *words, unreachable="hv02", status=2)
    assert "could still take that over" in printed, printed[-3000:]
    command = "replicate -e flexdisk_vm=db01 -e flexdisk_replica_host=hv02 -e flexdisk_replica_state=absent"
    assert f"ansible-playbook flexdisk.hypervisor.{command} -e flexdisk_forget_unseen=true" in printed
    nodes.run("hv01", "vmadm", "stop", vm(nodes, "hv01")["uuid"], "-F")
    printed = plays(nodes, "start_host", "--limit", "hv01", unreachable="hv02", status=2)
    assert "hv02 could not be asked" in printed
    plays(nodes, "replicate", *words, "-e", "flexdisk_forget_unseen=true", unreachable="hv02")
    assert (vm(nodes, "hv01")["autoboot"], record(nodes).exists()) == (True, True)


@pytest.fixture
def three(tmp_path):
    """The same with another host that has replicas, too."""
    made = Nodes(tmp_path, {"hv01": "", "hv02": "", "hv03": ""})
    for host in ("hv02", "hv03"):
        made.connect("hv01", host)
    made.variables["all"] = {"flexdisk_replicas": [{"vm": "db01", "host": host} for host in ("hv02", "hv03")]}
    uuid = made.create("hv01", "db01", 1024, 1, {}, flexible=3)
    made.run("hv01", "vmadm", "update", uuid, stdin=json.dumps({"set_customer_metadata": {"root_pw": SECRET}}))
    plays(made, "replicate", *PREPARE)
    return made


def test_a_move_does_not_go_on_if_the_vm_was_taken_over_and_renamed(three):
    """It had left hv01 when hv03 died. hv02 took it over, and hv01 is gone for good."""
    three.run("hv01", "vmadm", "start", vm(three, "hv01")["uuid"])
    goes = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_target=hv03"]
    with killed_at(three, "hv03", "start"):
        plays(three, "move_vm", *goes, status=2)
    fenced = [*FENCED, "-e", "flexdisk_max_data_loss=900", "--limit", "hv01,hv02"]
    plays(three, "failover_vm", *fenced, unreachable="hv01")
    three.run("hv02", "vmadm", "update", vm(three, "hv02")["uuid"], stdin=json.dumps({"alias": "db01-new"}))
    printed = plays(three, "move_vm", *goes, unreachable="hv01", status=4)
    assert "flexdisk_failover_state=returned and flexdisk_old_host=NAME" in printed
    assert json.loads(three.run("hv03", "vmadm", "lookup", "-j", "alias=db01"))[0]["state"] == "stopped"


def test_an_end_that_was_killed_at_the_last_command_goes_on(nodes):
    """The disks of the VM on its old host had been detached."""
    plays(nodes, "replicate", *PREPARE)
    nodes.run("hv01", "vmadm", "stop", vm(nodes, "hv01")["uuid"], "-F")
    plays(nodes, "failover_vm", *FENCED, "-e", "flexdisk_max_data_loss=900", unreachable="hv01")
    ends = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_failover_state=returned"]
    gives_up = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_failover_state=given_up"]
    for more in (["--check"], []):
        printed = plays(nodes, "failover_vm", *gives_up, *more, status=2)
        assert "have db01; flexdisk_failover_state=returned ends it on its old host first" in printed
    with killed_at(nodes, "hv01", "delete"):
        plays(nodes, "failover_vm", *ends, status=2)
    assert "what is left here of VM db01" in plays(nodes, "failover_vm", *ends)
    assert vm(nodes, "hv01") == {}
    assert "nothing of db01 is to be ended" in plays(nodes, "failover_vm", *ends)


@SELDOM
def test_the_host_that_loses_least(three):
    """Another host has what the VM was later. Only a word about what may be lost brings back less."""
    root = vm(three, "hv01")["disks"][0]["zfs_filesystem"]
    three.run("hv01", "guest", "write", root, "0", "9", "more")
    plays(three, "replicate", "-e", "flexdisk_vm=db01", "-e", "flexdisk_replica_host=hv03")
    printed = plays(three, "failover_vm", *FENCED, unreachable="hv01", status=2)
    assert "flexdisk_target=hv03 loses less, and flexdisk_max_data_loss allows to lose more" in printed
    assert vm(three, "hv02") == {}
    assert changed(plays(three, "failover_vm", *FENCED, "-e", "flexdisk_max_data_loss=900", unreachable="hv01"), "hv02")
    later = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_target=hv03", "-e", "flexdisk_fenced=true"]
    assert "hv02 has it" in plays(three, "failover_vm", *later, unreachable="hv01", status=2)


def test_the_new_home_has_renamed_it(tmp_path):
    """All hosts are asked by UUID, too."""
    nodes = Nodes(tmp_path, {"hv01": "", "hv02": ""})
    for term, host in enumerate(("hv01", "hv02")):
        uuid = nodes.create(host, "db01", 1024, 1, {}, flexible=3)
        nodes.run(host, "zfs", "set", f"flexdisk:failover=on:{term}", f"zones/{uuid}")
    nodes.run("hv02", "vmadm", "update", uuid, stdin=json.dumps({"alias": "db01-new"}))
    nodes.run("hv01", "vmadm", "stop", uuid, "-F")
    assert f"VM {uuid} is here" in plays(nodes, "failover_vm", *FENCED)
    returned = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_failover_state=returned"]
    assert changed(plays(nodes, "failover_vm", *returned, "--check"), "hv01")


def left(nodes, host, uuid):
    """A host has what a VM left there long ago."""
    move = {"phase": "moved", "vm": uuid, "alias": "db01", "host": "hv02", "pool": 1, "state": "stopped"}
    text = json.dumps({**move, "autoboot": True, "since": "2026-01-01T00:00:00Z"})
    nodes.run(host, "zfs", "create", "zones/flexdisk/move")
    nodes.run(host, "zfs", "create", "-o", f"flexdisk:move={text}", f"zones/flexdisk/move/{uuid}")
    nodes.run(host, "zfs", "create", "zones/flexdisk/diverged")
    facts = ["-o", f"flexdisk:replica.vm={uuid}", "-o", "flexdisk:replica.diverged=0"]
    nodes.run(host, "zfs", "create", "-V", "8M", *facts, f"zones/flexdisk/diverged/{uuid}")
    return f"zones/flexdisk/diverged/{uuid}"


@SELDOM
def test_only_one_host_gives_up(three):
    """Several hosts have something of the VM, or of another VM of this name."""
    disk = vm(three, "hv01")["disks"][0]
    three.run("hv01", "guest", "write", disk["zfs_filesystem"], "0", "9", "lost")
    plays(three, "failover_vm", *FENCED, "-e", "flexdisk_max_data_loss=900", unreachable="hv01")
    three.run("hv01", "vmadm", "stop", vm(three, "hv01")["uuid"], "-F")
    words = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_failover_state=given_up"]
    plays(three, "failover_vm", *words[:2], "-e", "flexdisk_failover_state=returned")
    kept = {"hv01": f"zones/flexdisk/diverged/{disk['uuid']}"}
    kept["hv03"] = left(three, "hv03", disk["uuid"])

    def there():
        names = [host for host in kept if kept[host] in three.run(host, "zfs", "list", "-H", "-o", "name").split()]
        return ",".join(names)

    printed = plays(three, "failover_vm", *words, status=2)
    assert "hv01 and hv03 have something of db01; flexdisk_old_host says which of them is meant" in printed
    words += ["-e", "flexdisk_old_host=hv03"]
    printed = plays(three, "failover_vm", *words, status=2)
    assert f"several VMs are called db01; give the whole UUID: {vm(three, 'hv02')['uuid']}, {disk['uuid']}" in printed
    assert there() == "hv01,hv03"
    plays(three, "failover_vm", *words, "-e", f"flexdisk_vm={disk['uuid']}")
    assert there() == "hv01"


@SELDOM
def test_no_record_stays_with_a_third_host(three):
    """Failover is given up for one host, and the other one cannot be told. It could still take the VM over."""
    words = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_replica_host=hv02", "-e", "flexdisk_failover=false"]
    records = [three.folder / host / "bin" / "flexdisk-locks" / "failover" for host in ("hv02", "hv03")]
    printed = plays(three, "replicate", *words, unreachable="hv03", status=4)
    assert "hv03 could not be told to forget db01" in printed
    assert (vm(three, "hv01")["autoboot"], len([*records[1].iterdir()])) == (False, 1)
    plays(three, "replicate", *words)
    assert (vm(three, "hv01")["autoboot"], [*records[0].iterdir(), *records[1].iterdir()]) == (True, [])


def test_refusals(nodes):
    """Each before anything is changed."""
    printed = plays(nodes, "failover_vm", *FENCED, unreachable="hv01", status=2)
    assert "hv02 has no record of db01" in printed
    plays(nodes, "replicate", *PREPARE)
    printed = plays(nodes, "failover_vm", *FENCED, "-e", "flexdisk_vm=db1", unreachable="hv01", status=2)
    assert (
        "hv02 has no record of db1; replicate makes them for VMs with failover. Did you mean db01 on hv02?" in printed
    )
    printed = plays(nodes, "failover_vm", *FENCED, unreachable="hv02", status=2)
    assert "hv02 is not among the hosts of this run, or could not be asked" in printed
    printed = plays(nodes, "failover_vm", *FENCED, "--limit", "hv02", status=2)
    assert "hv01, the host of db01, is not among the hosts of this run" in printed
    assert vm(nodes, "hv02") == {}
