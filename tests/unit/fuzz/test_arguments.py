# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Arguments of any kind for every module: a result or a refusal, never a traceback, never a foreign command line."""

from __future__ import annotations

import contextlib
import json
import os
import traceback
from importlib import import_module
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.module_utils.testing import patch_module_args
from hypothesis import assume, given, seed
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.filter.disk_table import disk_table
from ansible_collections.flexdisk.hypervisor.plugins.filter.match_disks import match_disks
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import lock
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run import arguments, module_run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.findings import REPAIRABLE
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from .node import ANY, FAST, HOSTILE, NUMBERS, TEXTS, Watched, watched

PLUGINS = "ansible_collections.flexdisk.hypervisor.plugins.modules."
SEED = seed(int(os.environ["FLEXDISK_SEED"]))
GOOD: dict[str, st.SearchStrategy[Any]] = {
    "name": st.sampled_from(["root", "a", "b", "p", "new"]),
    "state": st.sampled_from(["present", "absent"]),
    "size": st.sampled_from([16, 64, 128, 200, "256MiB", "remaining"]),
    "boot": st.booleans(),
    "pci_slot": st.sampled_from(["0:4:5", "1:0:1"]),
    "model": st.sampled_from(["virtio", "nvme"]),
    "block_size": st.sampled_from([4096, 8192]),
    "compression": st.sampled_from(["lz4", "off"]),
    "description": TEXTS,
    "tags": st.dictionaries(TEXTS, TEXTS, max_size=2),
}


def mostly(good: st.SearchStrategy[Any], bad: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(good, good, good, bad)


DISK = st.fixed_dictionaries(
    {"name": mostly(GOOD["name"], TEXTS)},
    optional={
        key: mostly(GOOD.get(key, st.booleans()), st.one_of(HOSTILE, NUMBERS, ANY))
        for key in arguments.DISK
        if key != "name"
    },
)
VMS = st.fixed_dictionaries(
    {"vm": mostly(st.just("web01"), TEXTS), "disks": mostly(st.lists(DISK, max_size=3), ANY)},
    optional={
        "flexible_disk_size": mostly(st.sampled_from([20480, "30GiB"]), ANY),
        "quota": mostly(st.sampled_from(["1GiB", "2GiB"]), ANY),
        "unlisted": mostly(st.sampled_from(["keep", "detach", "destroy"]), ANY),
    },
)
WHOLE = st.fixed_dictionaries(
    {"vm": mostly(st.sampled_from(["web01", "new"]), TEXTS)},
    optional={
        "uuid": mostly(st.just("cccccccc-0000-4000-8000-000000000009"), TEXTS),
        "state": mostly(st.sampled_from(["present", "running", "stopped", "restarted", "absent"]), TEXTS),
        "package": mostly(st.just("small"), TEXTS),
        "memory": mostly(st.sampled_from([512, "1GiB"]), ANY),
        "vcpus": mostly(st.integers(1, 4), NUMBERS),
        "quota": mostly(st.just("2GiB"), ANY),
        "image": mostly(st.just("aaaaaaaa-0000-4000-8000-000000000001"), TEXTS),
        "disks": mostly(st.lists(DISK, max_size=3), ANY),
        "indestructible": st.booleans(),
        "drained": st.booleans(),
        "restart": st.booleans(),
        "generation": mostly(st.just("2026-11-25"), TEXTS),
        "member": mostly(st.just("web-0"), TEXTS),
        "options": mostly(st.just({"resolvers": ["8.8.8.8"]}), ANY),
        "customer_metadata": mostly(st.just({"cluster_id": "4"}), ANY),
        "secret_metadata": mostly(st.just({"root_pw": "correct-horse"}), ANY),
        "template": TEXTS,
    },
)
PACKAGE = st.fixed_dictionaries(
    {"name": mostly(st.just("small"), TEXTS), "disk": mostly(st.sampled_from([20480, "30GiB"]), ANY)},
    optional={"flexible_disk": st.booleans(), "memory": mostly(st.just(512), ANY), "disks": mostly(st.just([{}]), ANY)},
)
COMMON = {"pool": mostly(st.just("zones"), TEXTS), "hypervisor": mostly(st.just("vmadm"), TEXTS)}
ADOPTED = st.fixed_dictionaries(
    {"index": mostly(st.integers(0, 4), NUMBERS)},
    optional={
        "uuid": TEXTS,
        "pci_slot": mostly(st.just("0:4:1"), TEXTS),
        "name": mostly(st.sampled_from(["root", "a", "new"]), TEXTS),
        "preserve": st.booleans(),
        "description": TEXTS,
        "tags": mostly(st.just({"n": "1"}), ANY),
        "ctime": mostly(st.just("2026-01-31T23:59:59Z"), TEXTS),
        "serial_no": mostly(st.integers(1, 9), NUMBERS),
        "remaining": mostly(st.just("30720:2048"), TEXTS),
    },
)
ARGUMENTS = {
    "disk_adopt": st.fixed_dictionaries(
        {"state": mostly(st.sampled_from(["adopted", "released"]), TEXTS)},
        optional={
            **COMMON,
            "vms": mostly(
                st.lists(
                    st.fixed_dictionaries(
                        {"vm": mostly(st.just("web01"), TEXTS)},
                        optional={"package": TEXTS, "disks": mostly(st.lists(ADOPTED, max_size=3), ANY)},
                    ),
                    max_size=2,
                ),
                ANY,
            ),
            "forget": st.booleans(),
        },
    ),
    "vm": st.fixed_dictionaries(
        {"vms": mostly(st.lists(WHOLE, min_size=1, max_size=2), ANY)},
        optional={**COMMON, "packages": mostly(st.lists(PACKAGE, max_size=2), ANY), "allow_restart": st.booleans()},
    ),
    "vm_disks": st.fixed_dictionaries(
        {"vms": mostly(st.lists(VMS, min_size=1, max_size=2), ANY)},
        optional={
            **COMMON,
            "allow_restart": mostly(st.booleans(), ANY),
            "stop_timeout": mostly(st.integers(-1, 200), NUMBERS),
            "allow_force_stop": st.booleans(),
            "matching": mostly(st.sampled_from(["name", "order"]), TEXTS),
            "on_refusal": mostly(st.sampled_from(["stop", "continue"]), TEXTS),
        },
    ),
    "disk_info": st.fixed_dictionaries(
        {},
        optional={
            **COMMON,
            "uuid": TEXTS,
            "name": TEXTS,
            "vm": mostly(st.just("web01"), TEXTS),
            "state": mostly(st.lists(st.sampled_from(["attached", "detached", "orphaned"])), ANY),
            "type": mostly(st.lists(st.sampled_from(["thick", "sparse"])), ANY),
            "tags": mostly(st.dictionaries(TEXTS, st.one_of(st.none(), TEXTS), max_size=2), ANY),
            "space": st.booleans(),
            "hidden": st.booleans(),
        },
    ),
    "disk_verify": st.fixed_dictionaries(
        {},
        optional={
            **COMMON,
            "vms": mostly(st.lists(TEXTS, max_size=3), ANY),
            "repair": mostly(st.lists(st.sampled_from(REPAIRABLE), max_size=3), ANY),
            "unused_days": mostly(st.integers(-1, 99), NUMBERS),
            "fail_on": mostly(st.sampled_from(["never", "warning", "error"]), TEXTS),
        },
    ),
    "host_info": st.fixed_dictionaries({}, optional=COMMON),
    "host_status": st.fixed_dictionaries({}, optional=COMMON),
    "host_metrics": st.fixed_dictionaries({}, optional={**COMMON, "path": mostly(st.just("/tmp/none/x.prom"), TEXTS)}),
    "vm_info": st.fixed_dictionaries(
        {}, optional={**COMMON, "vms": mostly(st.lists(TEXTS, max_size=3), ANY), "space": st.booleans()}
    ),
    "vm_snapshot": st.fixed_dictionaries(
        {"name": mostly(st.sampled_from(["one", "two"]), TEXTS)},
        optional={
            **COMMON,
            "vms": mostly(st.just(["web01"]), ANY),
            "state": mostly(st.sampled_from(["present", "absent", "rolled_back"]), TEXTS),
            "keep": mostly(
                st.dictionaries(st.sampled_from(["last", "daily", "weekly", "names"]), st.integers(-1, 9)), ANY
            ),
            "newer": mostly(st.lists(TEXTS, max_size=2), ANY),
            "destroy_newer": st.booleans(),
            "flexible_disk_size": mostly(st.sampled_from([20480, "30GiB"]), ANY),
            "allow_restart": st.booleans(),
            "stop_timeout": mostly(st.integers(-1, 200), NUMBERS),
        },
    ),
    "zfs_quota": st.fixed_dictionaries(
        {},
        optional={
            **COMMON,
            "vms": mostly(st.lists(TEXTS, max_size=3), ANY),
            "reclaim": st.booleans(),
            "on_refusal": mostly(st.sampled_from(["stop", "continue"]), TEXTS),
            "expect_plan": TEXTS,
            "expect_lines": mostly(st.lists(TEXTS, max_size=3), ANY),
        },
    ),
}


def run(module: str, sim: Watched, capsys: Any, monkeypatch: Any, args: dict[str, Any]) -> dict[str, Any]:
    """The module's result; it must end as modules end.

    ansible-core itself breaks on some numbers for an option of type int (too many digits, a list that looks like a
    decimal), and on a list of nothing for a dict with suboptions, before our code begins; that counts as its refusal.
    """
    monkeypatch.setattr(module_run, "open_host", lambda *_given: (Zfs(sim.runner), Vmadm(sim.runner)))
    capsys.readouterr()
    try:
        with patch_module_args(args), pytest.raises(SystemExit):
            import_module(PLUGINS + module).main()
    except (OverflowError, TypeError, ValueError) as exc:
        if "/ansible/module_utils/" not in traceback.extract_tb(exc.__traceback__)[-1].filename:
            raise
        return {"failed": True, "msg": "not accepted by ansible-core"}
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("module", ARGUMENTS)
@SEED
@FAST
@given(data=st.data(), running=st.booleans(), check=st.booleans())
def test_arguments_of_any_kind(module, tmp_path_factory, monkeypatch, capsys, data, running, check):
    sim = watched()
    if running:
        sim.run("vmadm", "start", sim.vm().config.uuid)
    monkeypatch.setattr(lock, "place", lambda: str(tmp_path_factory.getbasetemp() / "locks"))
    args = data.draw(ARGUMENTS[module])
    sim.calls.clear()
    said = run(module, sim, capsys, monkeypatch, {**args, "_ansible_check_mode": check})
    if said.get("failed"):
        assert said["msg"]
        assert "Traceback" not in said["msg"]
    else:
        assert said["changed"] in (True, False)
    if check or module.endswith("_info"):
        assert not [call for call in sim.calls if changes(call)]


@pytest.mark.parametrize("key", sorted(arguments.DISK))
@SEED
@FAST
@given(value=st.one_of(HOSTILE, NUMBERS, ANY), absent=st.booleans())
def test_one_hostile_value_in_a_good_entry(key, monkeypatch, capsys, tmp_path_factory, value, absent):
    """As the only oddity of an entry a value gets as far as it can."""
    sim = watched()
    monkeypatch.setattr(lock, "place", lambda: str(tmp_path_factory.getbasetemp() / "locks"))
    sim.calls.clear()
    entry = {"name": "new", "size": 16, **({"state": "absent"} if absent else {}), key: value}
    said = run("vm_disks", sim, capsys, monkeypatch, {"vms": [{"vm": "web01", "unlisted": "keep", "disks": [entry]}]})
    assert said.get("failed") or [vm["vm"] for vm in said["vms"]] == ["web01"]
    named = str(value) if key in ("name", "uuid") else ""
    assert named in ("a", "b", "p") or not sim.destroying()


@SEED
@FAST
@given(current=ANY, desired=ANY, matching=mostly(st.sampled_from(["name", "order"]), TEXTS))
def test_match_disks(current, desired, matching):
    with contextlib.suppress(AnsibleError):
        match_disks(current, desired, matching)


ENTRY = st.fixed_dictionaries({}, optional={"name": TEXTS, "size": mostly(st.integers(1, 99), ANY), "type": ANY})


@SEED
@FAST
@given(current=st.lists(ENTRY, max_size=4), desired=st.lists(ENTRY, max_size=4))
def test_match_disks_of_lists(current, desired):
    for matching in ("name", "order"):
        try:
            found = match_disks(current, desired, matching)
        except AnsibleError:
            continue
        assert set(found) >= {"mapping"}


@SEED
@FAST
@given(found=st.one_of(ANY, st.fixed_dictionaries({"vms": ANY, "parked": ANY})))
def test_disk_table(found):
    try:
        lines = disk_table(found)
    except AnsibleError:
        return
    assume(lines)
    assert all(isinstance(line, str) for line in lines)
