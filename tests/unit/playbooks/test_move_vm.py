# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook move_vm on two simulated nodes, as a user runs it."""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.layout import moves_container
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.moves import MOVED, Move, encode

from .nodes import Nodes
from .test_replicate import changed

SECRET = "a-secret-of-the-guest"
PAGE = (Path(__file__).resolve().parents[3] / "docs" / "moves.md").read_text()
TO = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_target=hv02"]


@pytest.fixture
def nodes(tmp_path):
    """Two hosts that reach each other. A running VM with two disks, a snapshot and a secret is on the first."""
    made = Nodes(tmp_path, {"hv01": "", "hv02": ""})
    made.connect("hv01", "hv02")
    made.connect("hv02", "hv01")
    uuid = made.create("hv01", "db01", 1024, 2, {}, flexible=6, more=[1])
    made.run("hv01", "vmadm", "update", uuid, stdin=json.dumps({"set_customer_metadata": {"root_pw": SECRET}}))
    for disk in vm(made, "hv01")["disks"]:
        made.run("hv01", "guest", "write", disk["zfs_filesystem"], "0", "9", disk["uuid"])
    made.run("hv01", "vmadm", "create-snapshot", uuid, "one")
    made.run("hv01", "vmadm", "start", uuid)
    assert vm(made, "hv01")["customer_metadata"] == {"root_pw": SECRET}
    return made


def vm(nodes, host):
    """What the host says of the VM, {} if it has none."""
    found = json.loads(nodes.run(host, "vmadm", "lookup", "-j", "alias=db01"))
    return found[0] if found else {}


def hashes(nodes, host):
    return [nodes.run(host, "guest", "hash", disk["zfs_filesystem"]) for disk in vm(nodes, host)["disks"]]


def moves(nodes, *words, status=0):
    """What the playbook prints. No secret of the VM is ever in it."""
    ended, printed = nodes.play("move_vm", *words)
    assert ended == status, printed
    assert SECRET not in printed
    return printed


def switched(nodes, *words):
    """What a move of the VM to the second host prints, and the hosts of what it runs between stop and start."""
    first, last = "Stop the VM", "Say how long the VM was down"
    seen = {}

    def watch(line):
        for name in (first, last):
            if line.startswith("TASK [") and name in line:
                seen[name] = len(nodes.calls())
        return False

    status, printed = nodes.play("move_vm", *TO, *words, watch=watch)
    assert status == 0, printed
    assert SECRET not in printed
    return printed, nodes.calls()[seen[first] : seen[last]]


def test_there_and_back(nodes):
    """As the page has it: check, real, check, real; then back by increments."""
    for words in ("--check --diff", "-e flexdisk_move_state=stays", ""):
        assert f"    ansible-playbook flexdisk.hypervisor.move_vm {' '.join(TO)} {words}".rstrip() + "\n" in PAGE
    before, contents = vm(nodes, "hv01"), hashes(nodes, "hv01")
    printed = moves(nodes, *TO, "--check", "--diff", "-vvv")
    assert "1 VM to hv02: 4 streams, about" in printed
    assert "downtime: not known before its disks are there" in printed
    assert vm(nodes, "hv01") == before
    assert nodes.run("hv02", "zfs", "list", "-H", "-o", "name").split() == ["zones"]
    printed, switch = switched(nodes, "-vvv")
    assert switch == ["hv01", "hv02"], "a module that runs while the VM is down takes seconds of its downtime"
    (downtime,) = set(re.findall(r"db01 is on hv02; it was down for ([\d.]+) s", printed))
    print(f"down for {downtime} s")
    assert vm(nodes, "hv01") == {}
    after = vm(nodes, "hv02")
    for key in ("uuid", "state", "autoboot", "customer_metadata", "flexible_disk_size", "ram", "nics", "tags"):
        assert after[key] == before[key], key
    assert [disk["pci_slot"] for disk in after["disks"]] == [disk["pci_slot"] for disk in before["disks"]]
    assert hashes(nodes, "hv02") == contents
    assert [one["name"] for one in after["snapshots"]] == ["one"]
    for words in ([*TO, "--check"], TO):
        printed = moves(nodes, *words)
        assert "db01 is on hv02" in printed
        assert not changed(printed)
    declared = json.dumps({"flexible_disks_vms": [{"vm": "db01", "disks": []}]})
    status, printed = nodes.play("converge", "-e", declared, "--limit", "hv01")
    assert status == 2
    assert "it has moved to hv02" in printed
    moves(nodes, "-e", "flexdisk_vm=db01", "-e", "flexdisk_target=hv01")
    assert hashes(nodes, "hv01") == contents
    assert vm(nodes, "hv02") == {}
    assert vm(nodes, "hv01")["state"] == "running"
    back = json.dumps({"flexdisk_vm": "db01", "flexdisk_snapshot_name": "one", "flexible_disks_allow_restart": True})
    status, printed = nodes.play("rollback", "-e", back, "--limit", "hv01")
    assert status == 0, printed
    words = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_move_state=forgotten"]
    status, printed = nodes.play("move_vm", *words, "--limit", "hv02", unreachable="hv01")
    assert status == 2
    assert "no other host says that it has the VM" in printed
    assert "hv01 could not be asked" in printed
    nodes.run("hv01", "vmadm", "update", before["uuid"], "alias=renamed")
    printed = moves(nodes, *words, "-vvv")  # the host without a tombstone has nothing to do
    nodes.run("hv01", "vmadm", "update", before["uuid"], "alias=db01")
    assert not changed(printed)
    assert re.search(r"hv02 +: ok=\d+ +changed=1 ", printed)
    assert "the tombstone of db01 on hv02, which had gone to hv01, is gone, and its name is free there" in printed
    assert "none of hv01, hv02 has a tombstone of db01" in moves(nodes, *words)
    stays = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_target=hv02", "-e", "flexdisk_move_state=stays"]
    printed = moves(nodes, *stays)
    assert "there is no move of db01 to end" in printed
    assert not changed(printed)


def test_a_tombstone_that_an_old_home_may_need(tmp_path):
    """The VM had been taken over before it left. A host that does not answer may be the old home."""
    nodes = Nodes(tmp_path, {"hv01": "", "hv02": "", "hv03": ""})
    uuid = nodes.create("hv01", "db01", 1024, 2, {}, flexible=6)
    what = (uuid, "db01", "hv01", 1, "running", True, "2026-01-01T05:00:00Z")
    stone = f"flexdisk:move={encode(Move(MOVED, *what, term=1))}"
    nodes.run("hv02", "zfs", "create", "-p", "-o", stone, f"{moves_container('zones')}/{uuid}")
    words = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_move_state=forgotten"]
    for more in (["--check"], []):
        status, printed = nodes.play("move_vm", *words, *more, unreachable="hv03")
        assert "had been taken over before it left, and hv03 could not be asked" in printed
        assert re.search(r"hv02 +: ok=\d+ +changed=0 .* failed=1 ", printed), status
    printed = moves(nodes, *words)
    assert re.search(r"hv02 +: ok=\d+ +changed=1 ", printed)


def figures(text):
    """The text without its figures."""
    return re.sub(r"\b[\d.]+ (bytes|KiB|MiB|GiB|s)\b", r"N", text)


def test_what_check_mode_tells(nodes):
    """As the page has it: the phases, the downtime, and the space on both sides."""
    (block,) = re.findall(r"    \$ ansible-playbook flexdisk.hypervisor.move_vm .*--check\n\n((?:    .*\n)+)", PAGE)
    shown = [line.strip() for line in block.splitlines()]
    there = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_replica_host=hv02"]
    status, printed = nodes.play("replicate", *there)
    assert status == 0, printed
    nodes.run("hv01", "guest", "write", vm(nodes, "hv01")["disks"][0]["zfs_filesystem"], "20", "3", "meanwhile")
    peer = int(nodes.run("hv02", "zfs", "get", "-Hpo", "value", "guid", "zones")) & 0xFFFFFFFF
    rate = nodes.folder / "hv01" / "bin" / "flexdisk-locks" / f"rate-{peer:08x}"
    assert not rate.exists()  # a simulated stream is shorter than what is measured
    rate.write_text("11744051")
    printed = moves(nodes, *TO, "--check")
    told = [line.strip().rstrip(",").strip('"') for line in printed.splitlines()]
    assert [figures(line) for line in shown] == [figures(line) for line in told if figures(line) in map(figures, shown)]
    print(printed)
    assert len(shown) == 9


@pytest.mark.skipif(
    not os.environ.get("FLEXDISK_FULL"), reason="takes minutes; replication/test_move.py has it in process"
)
def test_a_move_that_does_not_come_to_its_end(nodes):
    """The last transfer fails: the VM runs on where it was. Killed, it can stay or go on."""
    dataset = vm(nodes, "hv01")["disks"][0]["zfs_filesystem"]
    nodes.simnode("other", "init")

    def another_host(line):
        if "Stop the VM" in line:
            nodes.run("hv01", "guest", "write", dataset, "9", "3", "meanwhile")
            nodes.simnode("hv01", "connect", "hv02", str(nodes.folder / "other"))
        return False

    status, printed = nodes.play("move_vm", *TO, watch=another_host)
    assert status == 2
    assert "db01 stays on hv01: zones/" in printed
    assert (vm(nodes, "hv01")["state"], vm(nodes, "hv02")) == ("running", {})
    contents = hashes(nodes, "hv01")
    nodes.connect("hv01", "hv02")
    for state, words in (("running", ["-e", "flexdisk_move_state=stays"]), ("gone", [])):
        status, printed = nodes.play("move_vm", *TO, watch=nodes.kills_at_stop("hv01", "db01"))
        assert status < 0
        assert vm(nodes, "hv01")["state"] == "stopped"
        printed = moves(nodes, *TO, *words)
        assert vm(nodes, "hv01").get("state", "gone") == state
        if words:
            assert "the move of db01 to hv02 is given up; it stays on hv01" in printed
        else:
            assert re.search(
                r"the move of db01 to hv02, begun at \S+Z, was interrupted: hv01 still has the VM", printed
            )
            assert re.search(
                r"db01 is on hv02; its move had been interrupted, and it was down for about \d+ s, since \S+Z", printed
            )
    assert hashes(nodes, "hv02") == contents
    assert vm(nodes, "hv02")["state"] == "running"


@pytest.mark.skipif(not os.environ.get("FLEXDISK_FULL"), reason="takes minutes; no lock is held over the network")
def test_two_moves_that_cross(nodes):
    """Each waits for the other at most as long as a step takes."""
    other = nodes.create("hv02", "web01", 512, 1, {}, flexible=3, more=[1])
    nodes.run("hv02", "vmadm", "start", other)
    contents = hashes(nodes, "hv01")
    with ThreadPoolExecutor(2) as both:
        crossing = both.submit(nodes.play, "move_vm", "-e", "flexdisk_vm=web01", "-e", "flexdisk_target=hv01")
        moves(nodes, *TO)
        status, printed = crossing.result()
    assert status == 0, printed
    assert (vm(nodes, "hv02")["state"], hashes(nodes, "hv02")) == ("running", contents)
    assert vm(nodes, "hv01") == {}
    assert json.loads(nodes.run("hv01", "vmadm", "get", other))["state"] == "running"


@pytest.mark.parametrize("limit", [[], ["--limit", "hv01"]])
def test_a_target_that_is_off(nodes, limit):
    """The last thing that is said is what has become of the VM. With --limit, only the role asks the target."""
    for check in ([], ["--check"]):
        status, printed = nodes.play("move_vm", *TO, *limit, *check, unreachable="hv02")
        assert status != 0
        words = "hv02 could not be reached, so this run has begun nothing and changed nothing"
        assert words in printed
        assert "db01 is on hv01" in printed[printed.index(words) :]
        assert not changed(printed)
    assert vm(nodes, "hv01")["state"] == "running"
    assert "replica" not in nodes.run("hv01", "zfs", "list", "-H", "-o", "name")


def test_refusals(nodes):
    """Each is one error, before anything is changed."""
    assert "flexdisk_target is missing" in moves(nodes, "-e", "flexdisk_vm=db01", status=2)
    assert "hv09 is none of the hypervisors, hv01, hv02" in moves(
        nodes, *TO[:2], "-e", "flexdisk_target=hv09", status=2
    )
    printed = moves(nodes, "-e", "flexdisk_vm=db09", *TO[2:], status=2)
    assert "db09 is on none of hv01, hv02. Did you mean db01 on hv01?" in printed
    assert "db01 is on hv01" in moves(nodes, *TO[:2], "-e", "flexdisk_target=hv01")
    printed = moves(nodes, *TO, "-e", "flexdisk_target_pool=tank", status=2)
    assert "hv02 has no pool tank, but zones [ResourceNotFound]" in printed
    for check in ([], ["--check"]):
        printed = moves(nodes, *TO, "-e", "flexdisk_move_how=suspended", *check, status=2)
        assert (
            "vmadm cannot save the memory of a guest, so it moves only stopped (flexdisk_move_how=stopped)" in printed
        )
        assert not changed(printed)
    printed = moves(nodes, *TO, "-e", "flexdisk_move_how=live", status=2)
    assert "flexdisk_move_how" in printed
    assert vm(nodes, "hv01")["state"] == "running"
    nodes.run("hv01", "zfs", "snapshot", f"{vm(nodes, 'hv01')['zfs_filesystem']}@mine")
    nodes.run("hv01", "zfs", "hold", "mine", f"{vm(nodes, 'hv01')['zfs_filesystem']}@mine")
    printed = moves(nodes, *TO, status=2)
    assert "@mine has clones or holds, and would go with the VM's own dataset" in printed
    assert nodes.run("hv02", "zfs", "list", "-H", "-o", "name").split() == ["zones"]
