# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Arguments that every module refuses before anything changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from simnode.vmadm.properties import PROPERTIES, allowed

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import vmadm

NEW = {"name": "web09", "memory": "1GiB", "disks": []}


HIDDEN = 'vm "web[U+202E]01" has [U+202E]: a name has no control characters and no invisible ones [InvalidArgument]'
PER_ENTRY: list[tuple[str, dict[str, str]]] = [("vm_disks", {}), ("disk_adopt", {})]


@pytest.mark.parametrize(
    ("module", "args", "said"),
    [
        ("vm_disks", {"vms": [{"vm": "web01"}], "stop_timeout": -5}, "stop_timeout -5: from 1 to 86400"),
        ("vm_disks", {"vms": [{"vm": "web01"}], "lock_timeout": 1e30}, "lock_timeout 1000000000000000019"),
        ("zfs_quota", {"lock_timeout": -1}, "lock_timeout -1: from 0 to 86400"),
        ("zfs_quota", {"lock_timeout": "PT25H"}, "lock_timeout 90000: from 0 to 86400"),
        ("vm_disks", {"vms": [{"vm": "web01"}], "stop_timeout": "3m"},
         "stop_timeout: '3m' is not a duration: write seconds, or PT1H30M5S"),
        ("vm_disks", {"vms": [{"vm": "web01"}], "stop_timeout": True}, "stop_timeout: True is not a duration"),
        ("disk_verify", {"unused_days": -1}, "unused_days -1: from 0 to 36500"),
        ("vm_snapshot", {"name": "a", "keep": {"last": 10**9}}, "above 100000"),
        ("vm_snapshot", {"name": "a", "pool": ""}, "pool is empty, which would mean all pools; leave it out for that"),
        ("disk_info", {"pool": ""}, "pool is empty, which would mean all pools"),
        ("disk_info", {"tags": {"a": True}}, "is not a string; quote it"),
        ("vm", {"vms": [{"vm": ""}]}, "vm is empty, but must be a uuid, a unique prefix of one, or an alias"),
        *((module, {**more, "vms": [{"vm": "web\u202e01"}]}, HIDDEN) for module, more in PER_ENTRY),
        ("vm", {"vms": [{"name": "web\u202e01"}]}, 'vm "web[U+202E]01" has [U+202E]'),
        ("disk", {"disks": [{"name": "data", "vm": "web\u202e01", "size": "1GiB"}]}, HIDDEN),
        ("disk", {"disks": [{"name": "data", "vm": "web01", "from_vm": "a\x07", "state": "attached"}]},
         'from_vm "a[U+0007]" has [U+0007]'),
        ("vm_snapshot", {"vms": ["web\u202e01"], "name": "a"}, 'vms "web[U+202E]01" has [U+202E]'),
        ("vm_info", {"vms": ["web\u202e01"]}, 'vms "web[U+202E]01" has [U+202E]'),
        ("zfs_quota", {"vms": ["web\n01"]}, 'vms "web[U+000A]01" has [U+000A]'),
        ("disk_info", {"name": "a\u200bb"}, 'name "a[U+200B]b" has [U+200B]'),
        ("vm", {"vms": [{**NEW, "options": {"nope": 1}}]}, "vmadm create does not know nope"),
        ("vm", {"vms": [{**NEW, "options": {"ram": 1}}]}, "options cannot set ram"),
        ("vm", {"vms": [{"name": "web01", "template": "<domain/>"}]}, "template works only with libvirt"),
        ("vm", {"vms": [{"name": "web01", "image": "aaaaaaaa-0000-4000-8000-000000000001", "image_file": "/a"}]},
         "image_file works only with libvirt"),
    ],
)  # fmt: skip
def test_refused_before_anything_changes(host, module, args, said):
    before = host.state()
    for check in (True, False):
        result = host(module, check=check, **args)
        assert result["failed"]
        assert result["error_code"] == "InvalidArgument"
        assert said in result["msg"]
    assert host.state() == before


@pytest.mark.parametrize("value", [60, "60", 60.0, "PT1M", "PT60S"])
def test_a_duration_is_seconds_or_iso_8601(host, value):
    results = [host("zfs_quota", check=True, lock_timeout=one) for one in (60, value)]
    for result in results:
        del result["invocation"]
    assert results[0] == results[1]
    assert not results[0].get("failed")


def test_vm_and_vms_together_are_refused(host):
    """One of them would be dropped."""
    for check in (True, False):
        result = host("vm_snapshot", check=check, vm="web01", vms=["web01"], name="a")
        assert result["failed"]
        assert result["msg"] == "parameters are mutually exclusive: vm|vms"


def test_more_memory_than_the_host_has_is_refused(host):
    """It would show at the next start of the VM."""
    before = host.state()
    for check in (True, False):
        result = host("vm", check=check, vms=[{"vm": "web01", "memory": "99999TiB"}], allow_restart=True)
        assert (result["failed"], result["error_code"]) == (True, "InsufficientMemory")
        assert "memory 99999 TiB is more than the host has, " in result["msg"]
    assert host.state() == before


def test_the_options_are_those_of_vmadm():
    known = {name for name in PROPERTIES if "." not in name and allowed(name, "bhyve", "create")}
    assert known - vmadm._OPTIONS == vmadm._OURS & known
    assert known >= vmadm._OPTIONS


def test_the_members_of_an_action_group_have_its_options():
    root = Path(__file__).resolve().parents[3]
    groups = yaml.safe_load((root / "meta" / "runtime.yml").read_text())["action_groups"]
    sources = {path.stem: path.read_text() for path in (root / "plugins" / "modules").glob("*.py")}
    for group, arguments in (("all", "**HOST"), ("locking", "**LOCK"), ("power", "**POWER"), ("refusal", "**REFUSAL")):
        assert groups[group] == sorted(name for name, text in sources.items() if arguments in text)
