# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module group_lease: arguments, results, processes that race, and its examples as ansible-playbook runs them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ansible.module_utils.basic import AnsibleModule

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import group_lease as engine
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run import module_run
from ansible_collections.flexdisk.hypervisor.plugins.modules import group_lease
from tests.unit.domains.conftest import LinuxHost

from .conftest import VM
from .test_modules import TOP, assert_documented

ROOT = Path(__file__).resolve().parents[3]
OTHER = VM[:-1] + "9"
MINE = {"group": "web", "token": VM, "holder": "deploy@ctl1"}
THEIRS = {"group": "web", "token": OTHER, "holder": "ops@ctl2"}
DOCUMENTED = yaml.safe_load(group_lease.RETURN)
RESULT = {key: told for key, told in DOCUMENTED.items() if key not in ("error_code", "problems")}
PAGE = (ROOT / "docs" / "lease.md").read_text(encoding="utf-8")
ONE_OF_MANY = """
import sys
sys.path.insert(0, sys.argv[1])
import conftest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.flexdisk.hypervisor.plugins.modules import group_lease
import json
print(flush=True)
sys.stdin.readline()
with patch_module_args(json.loads(sys.argv[2])):
    group_lease.main()
"""


@pytest.fixture(params=["vmadm", "libvirt"])
def lease(request, host, monkeypatch):
    """The module on a host of each driver, with its warnings in the result; every result is as documented."""
    if request.param == "libvirt":
        linux = LinuxHost()
        linux.create()
        monkeypatch.setattr(module_run, "open_host", lambda *_args: (linux.zfs(), linux.driver()))
    monkeypatch.setattr(engine, "time", SimpleNamespace(time=lambda: 1767225600.5))
    warned = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _self, text: warned.append(text))

    def run(check=False, **args):
        warned.clear()
        result = host("group_lease", check=check, **args)
        failed = {"failed", "error_code", "problems"} if result.get("failed") else set()
        assert failed <= set(DOCUMENTED) | {"failed"}
        if failed <= set(result) and "lease" in result:
            assert_documented({key: result[key] for key in set(result) - TOP - failed}, RESULT)
        return {**result, "warned": list(warned)}

    return run


def words(result):
    return {key: result[key] for key in ("changed", "msg", "diff", "pool")}


def test_four_steps(lease):
    """Twice: the lease is taken, then released. A renewal is written, and is no change."""
    for what in ({}, {"state": "released"}):
        predicted, done = lease(check=True, **MINE, **what), lease(**MINE, **what)
        assert words(predicted) == words(done)
        assert done["changed"]
        assert done["diff"]["prepared"] == done["msg"] + "\n"
        for check in (True, False):
            again = lease(check=check, **MINE, **what)
            assert (again["changed"], again["diff"]["prepared"], again["warned"]) == (False, "", [])


def test_check_mode_changes_nothing(host):
    before = host.state()
    assert host("group_lease", check=True, **MINE)["changed"]
    assert host.state() == before, "not even a container"
    host("group_lease", **MINE)
    before = host.state()
    for what in (MINE, {**MINE, "state": "released"}, {**THEIRS, "take_over": True}):
        assert not host("group_lease", check=True, **what).get("failed")
    assert host("group_lease", check=True, **THEIRS)["failed"]
    assert host.state() == before


def test_a_second_run_is_told_who_is_at_work(lease):
    lease(**MINE)
    refused = lease(**THEIRS)
    assert (refused["failed"], refused["error_code"]) == (True, "InUse")
    assert refused["msg"].startswith("web: deploy@ctl1 has the lease since ")
    assert "take_over: true" in refused["msg"]
    assert refused["lease"]["holder"] == "deploy@ctl1"
    taken = lease(**THEIRS, take_over=True)
    assert (taken["changed"], taken["previous"]["holder"]) == (True, "deploy@ctl1")
    assert "ops@ctl2 has the lease" in lease(**MINE, renew=True)["msg"]
    released = lease(**MINE, state="released")
    assert not released["changed"]
    assert "ops@ctl2 has the lease" in released["warned"][0]
    assert lease(**THEIRS, state="released")["changed"]
    assert lease(**MINE, renew=True)["error_code"] == "LeaseLost"


def test_a_release_needs_no_holder(lease):
    lease(**MINE)
    assert lease(group="web", token=VM, state="released")["changed"]


def test_all_wrong_arguments_in_one_error_with_figures(host):
    before = host.state()
    wrong = {"group": "-web", "token": "4711", "holder": "x" * 201, "ttl": 9, "pool": "a/b", "lock_timeout": -1}
    for check in (True, False):
        said = host("group_lease", check=check, take_over=True, renew=True, **wrong)
        assert said["error_code"] == "InvalidArgument"
        assert len(said["problems"]) == 7
        for part in ("-web", "4 characters", "'4711'", "201 characters", "1 to 200", "ttl 9: from 10 to 86400", "'a/b'",
                     "lock_timeout -1", "give one"):  # fmt: skip
            assert part in said["msg"], part
    assert host.state() == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"holder": None}, "state=held needs holder"),
        ({"holder": ""}, "holder '' has 0 characters"),
        ({"holder": "a\nb"}, "printable"),
        ({"ttl": 86401}, "ttl 86401: from 10 to 86400 seconds"),
        ({"ttl": "PT9S"}, "ttl PT9S: from 10 to 86400 seconds"),
        ({"ttl": "15m"}, "ttl: '15m' is not a duration: write seconds, or PT1H30M5S"),
        ({"group": ""}, "group '' has 0 characters"),
        ({"group": "x" * 65}, "has 65 characters"),
        ({"state": "released", "take_over": True}, "work only with state=held"),
        ({"state": "released", "renew": True}, "work only with state=held"),
    ],
)
def test_a_wrong_argument(host, changes, said):
    assert said in host("group_lease", **{**MINE, **changes})["msg"]


def test_the_limits_are_allowed(host):
    for ttl, seconds in ((10, 10), (86400, 86400), ("PT15M", 900), ("PT24H", 86400), ("20", 20)):
        done = host("group_lease", group="x" * 64, token=VM.upper(), holder="\u00fc" * 200, ttl=ttl)
        assert (done["lease"]["ttl"], done["lease"]["token"]) == (seconds, VM)


# -- processes


def test_of_processes_that_race_one_gets_it(host):
    """They start together; the others are told of the one that has won. So twice: free, then expired."""
    for number in (1, 2):
        won, lost = race([{**MINE, "token": VM[:-2] + f"{number}{n}", "holder": f"run {n}"} for n in range(4)])
        assert len(won) == 1, lost
        assert won[0]["changed"]
        assert {result["error_code"] for result in lost} == {"InUse"}
        assert {result["lease"]["token"] for result in lost} == {won[0]["lease"]["token"]}
        value = host.node("zfs", "get", "-H", "-o", "value", "flexdisk:lease.web", "zones/flexdisk")
        assert won[0]["lease"]["token"] in value
        older = re.sub(r'"renewed":"\d{4}', '"renewed":"2001', value.strip())
        host.node("zfs", "set", "flexdisk:lease.web=" + older, "zones/flexdisk")


def race(runs):
    """The results of processes that run the module with these arguments at once: of those that succeed, and others."""
    commands = [[sys.executable, "-c", ONE_OF_MANY, str(ROOT / "tests"), json.dumps(arguments)] for arguments in runs]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, **pipes) for command in commands]
    for process in started:
        assert process.stdout.readline() == "\n"
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    results = [json.loads(process.communicate(timeout=300)[0]) for process in started]
    failed = [result for result in results if result.get("failed")]
    return [result for result in results if result not in failed], failed


# -- examples


def play(block):
    return block if "hosts" in block else {"hosts": "all", "gather_facts": False, "tasks": [block]}


def test_the_examples_run(host, tmp_path):
    """Those of the page and of the module, as a user runs them, on one node."""
    blocks = [entry for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) for entry in yaml.safe_load(text)]
    first, last = yaml.safe_load(group_lease.EXAMPLES)
    plays = [play(block) for block in (first, *blocks, last)]
    path = f"{host.directory / 'bin'}{os.pathsep}{os.environ['PATH']}"
    book, folder = tmp_path / "book.yml", tmp_path / "collections" / "ansible_collections" / "flexdisk"
    book.write_text(yaml.safe_dump([{**one, "environment": {"PATH": path}} for one in plays]))
    node = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "run_token": VM,
        "run_started": "x",
    }
    inventory = {"hypervisors": {"hosts": {"hv01": node}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
    folder.mkdir(parents=True)
    (folder / "hypervisor").symlink_to(ROOT)
    env = dict(os.environ, ANSIBLE_COLLECTIONS_PATH=str(tmp_path / "collections"), ANSIBLE_NOCOLOR="1")
    command = [sys.executable, "-m", "ansible.cli.playbook", "-i", "hosts.yml", str(book)]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("All assertions passed") == 2
    assert "changed=6 " in done.stdout, "two runs that take and release, and two that take over"
    assert "WARNING" not in done.stderr
