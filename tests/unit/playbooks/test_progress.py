# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A play that shows where its task is. If it is killed meanwhile, the task goes on, and others are told where it is."""

from __future__ import annotations

import json
import re
import time

import pytest

from .nodes import Nodes

DISKS = {"vm": "web01", "disks": [{"name": "root", "boot": True}, {"name": "data", "size": "1GiB"}]}
SHOWN = "hv01: vm_disks of web01, at step "
AT = r"at step \d+ of \d+, VM web01: \+ data 1 GiB"


@pytest.fixture
def nodes(tmp_path):
    made = Nodes(tmp_path, {"hv01": ""})
    made.run("hv01", "vmadm", "stop", made.create("hv01", "web01", 1024, 2, {}, flexible=8), "-F")
    made.variables["all"] = {"flexible_disks_vms": [DISKS]}
    return made


def slow(nodes):
    """Let the creation of a volume wait for a file, which this returns."""
    programs, go = nodes.folder / "hv01" / "bin", nodes.folder / "go"
    (programs / "zfs").rename(programs / "real")
    wait = f'while [ "$1" = create ] && [ "$2" != -nP ] && [ ! -e {go} ]; do sleep 0.1; done'
    (programs / "zfs").write_text(f'#!/bin/sh\n{wait}\nexec {programs}/real "$@"\n')
    (programs / "zfs").chmod(0o755)
    return go


def disks(nodes):
    return [disk["name"] for disk in info(nodes)["vms"][0]["disks"]]


def info(nodes):
    book = nodes.folder / "info.yml"
    task = {"flexdisk.hypervisor.vm_info": {}, "register": "found"}
    show = {"ansible.builtin.copy": {"content": "{{ found | to_json }}", "dest": str(nodes.folder / "found")}}
    play = {"hosts": "hv01", "gather_facts": False, "environment": "{{ flexdisk_environment }}", "tasks": [task, show]}
    book.write_text(json.dumps([play]))
    status, printed = nodes.play(str(book))
    assert status == 0, printed
    return json.loads((nodes.folder / "found").read_text())


def until(holds):
    end = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_four_steps(nodes):
    """The task in the background does and tells the same."""
    asked = ["--diff", "-e", "flexdisk_progress=true"]
    predicted, done, idle = (nodes.play("converge", *words, *asked) for words in (["--check"], [], []))
    for status, printed in (predicted, done, idle):
        assert status == 0, printed
    diffs = [
        re.findall(r"^web01.*\n(?:  .*\n)+", printed, re.MULTILINE) for _status, printed in (predicted, done, idle)
    ]
    assert diffs[0] == diffs[1] != []
    assert diffs[2] == []
    assert [re.search(r"changed=(\d)", printed)[1] for _status, printed in (predicted, done, idle)] == ["1", "1", "0"]
    assert disks(nodes) == ["root", "data"]
    nodes.variables["all"]["flexible_disks_vms"] = [{**DISKS, "disks": [{"name": "root", "size": "1TiB"}]}]
    status, printed = nodes.play("converge", *asked)
    assert (status, "InsufficientSpace" in printed) == (2, True), printed


@pytest.mark.parametrize("asked", [True, False])
def test_a_play_that_is_killed(nodes, asked):
    """Its task goes on to its end, under its lock. The next waits for it, and is told where it is."""
    go, place = slow(nodes), nodes.folder / "hv01" / "bin" / "flexdisk-locks"

    def watch(line):
        if not asked and line.startswith("TASK ["):
            until(lambda: not line.startswith("TASK [Change the disks of the declared VMs") or under_way(place))
        return SHOWN in line if asked else under_way(place)

    status, printed = nodes.play("converge", "-e", f"flexdisk_progress={asked}", watch=watch)
    assert status < 0, printed
    assert (SHOWN in printed) is asked, printed
    if asked:
        assert re.search(f"^hv01: vm_disks of web01, {AT}", printed, re.MULTILINE), printed
    status, printed = nodes.play("converge", "-e", "flexible_disks_lock_timeout=0")
    assert status == 2
    assert re.search(rf"the host is being changed by vm_disks of web01 \(pid \d+ on \S+ since \S+\), {AT}", printed)
    (one,) = info(nodes)["progress"]
    assert (one["state"], one["vm"], one["disk"], one["lock"]) == ("running", "web01", "data", "host")
    go.touch()
    until(lambda: not under_way(place))
    until(lambda: nodes.play("converge", "--check")[1].count("changed=0"))
    assert disks(nodes) == ["root", "data"]
    assert info(nodes)["progress"] == []


def under_way(place):
    return (place / "host.progress").exists() and '"data"' in (place / "host.progress").read_text()
