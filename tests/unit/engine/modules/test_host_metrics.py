# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""host_metrics on the node: what a monitoring is told of the host, and the file that it reads."""

from __future__ import annotations

import re

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import (
    journal as engine_journal,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import (
    group_lease,
    host_metrics,
    host_status,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import Intent
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import journal
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.findings import KINDS
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import seconds_of
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

from ..conftest import VM

SAMPLE = re.compile(r"(flexdisk_[a-z_]+){(.*)} (-?[0-9]+)")
OF_VM = f'vm="{VM}",name="web01",pool="zones"'
POOL = 'pool="zones"'
OTHER = "cccccccc-0000-4000-8000-000000000002"


def ask(sim, path="", check=False, pool=None):
    arguments = host_metrics.MetricsArguments(str(path), ())
    return host_metrics.run(Zfs(sim.runner, lambda seconds: None), Vmadm(sim.runner), pool, arguments, check)[0]


def samples(text):
    """The values, by name and labels."""
    matches = [SAMPLE.fullmatch(line) for line in text.splitlines() if not line.startswith("#")]
    return {(match[1].removeprefix("flexdisk_"), match[2]): int(match[3]) for match in matches}


def number(sim, name, key):
    return int(sim.run("zfs", "get", "-Hpo", "value", key, name))


def test_space(sim):
    sim.adopted(1024)
    metrics = samples(ask(sim)["text"])
    assert metrics["host_info", 'driver="vmadm"'] == 1
    available = number(sim, "zones", "available")
    assert metrics["pool_available_bytes", POOL] == available
    assert metrics["pool_size_bytes", POOL] == available + number(sim, "zones", "used")
    assert [metrics[f"pool_{name}_bytes", POOL] for name in ("detached", "replicas", "diverged")] == [0, 0, 0]
    assert metrics["vm_flexible_disk_size_bytes", OF_VM] == 30 << 30
    assert 0 < metrics["vm_allocatable_bytes", OF_VM] < 30 << 30
    assert metrics["vm_quota_drift_bytes", OF_VM] == metrics["vm_reservation_drift_bytes", OF_VM] == 0
    quota, reservation = (number(sim, f"zones/{VM}", key) for key in ("quota", "reservation"))
    sim.run("zfs", "set", f"quota={quota + 5}", f"reservation={reservation - 7}", f"zones/{VM}")
    metrics = samples(ask(sim)["text"])
    assert metrics["vm_quota_drift_bytes", OF_VM] == 5
    assert metrics["vm_reservation_drift_bytes", OF_VM] == -7


def test_a_vm_without_flexible_disk_space(sim):
    sim.create(flexible=None)
    metrics = samples(ask(sim)["text"])
    assert ("vm_quota_drift_bytes", OF_VM) in metrics
    assert not {("vm_flexible_disk_size_bytes", OF_VM), ("vm_allocatable_bytes", OF_VM)} & {*metrics}


def test_findings_end_with_zero(sim):
    sim.adopted(1024)
    metrics = samples(ask(sim)["text"])
    assert [metrics["findings", f'severity="{severity}"'] for severity in ("error", "warning", "info")] == [0, 0, 0]
    sim.run("zfs", "set", f"quota={number(sim, f'zones/{VM}', 'quota') + (1 << 20)}", f"zones/{VM}")
    metrics = samples(ask(sim)["text"])
    assert KINDS["quota_drift"].severity == "warning"
    assert metrics["findings", 'severity="warning"'] == 1
    assert metrics["findings_by_kind", 'kind="quota_drift",severity="warning"'] == 1


def test_detached_disks(sim):
    sim.adopted(1024)
    sim.converge({"vm": VM, "unlisted": "detach", "disks": [{"name": "root", "boot": True}]})
    (disk,) = [name for name in sim.run("zfs", "list", "-Ho", "name").split() if name.startswith("zones/flexdisk/")]
    labels = f'disk="{disk.rpartition("/")[2]}",name="a",vm="{VM}",pool="zones"'
    metrics = samples(ask(sim)["text"])
    assert metrics["detached_disk_size_bytes", labels] == 1 << 30
    assert metrics["detached_disk_created_timestamp_seconds", labels] == number(sim, disk, "creation")
    assert metrics["pool_detached_bytes", POOL] == number(sim, disk, "used") > 0


def test_the_file(sim, tmp_path):
    """It is as the text says, readable for others, and written each time, which is a change only if it differs."""
    sim.adopted(1024)
    path = tmp_path / "flexdisk.prom"
    assert ask(sim, path, check=True)["changed"]
    assert not path.exists()
    first = ask(sim, path)
    assert first["changed"]
    assert path.read_text() == first["text"] == ask(sim)["text"]
    assert path.stat().st_mode & 0o777 == 0o644
    written = path.stat().st_ino
    assert not ask(sim, path, check=True)["changed"]
    assert path.stat().st_ino == written
    assert not ask(sim, path)["changed"]
    assert path.stat().st_ino != written
    sim.run("zfs", "set", f"quota={number(sim, f'zones/{VM}', 'quota') + 5}", f"zones/{VM}")
    assert ask(sim, path, check=True)["changed"]
    assert ask(sim, path)["changed"]
    assert [one.name for one in tmp_path.iterdir()] == ["flexdisk.prom"]


def test_a_place_that_cannot_be_written(sim, tmp_path):
    """Check mode says it, too."""
    (tmp_path / "folder.prom").mkdir()
    for path in (tmp_path / "folder.prom", tmp_path / "none" / "flexdisk.prom"):
        for check in (True, False):
            with pytest.raises(FlexdiskError, match=f"path is {path}: ") as caught:
                ask(sim, path, check=check)
            assert caught.value.code == "InvalidArgument"


@pytest.mark.parametrize(
    ("path", "fine"), [(None, True), ("/x/y.prom", True), ("/x/y.txt", False), ("y.prom", False), ("", False)]
)
def test_a_path_that_nobody_reads(path, fine):
    given, problems = host_metrics.parse({"path": path, "replicas": None})
    assert given == (path or "", [])
    assert [problem.code for problem in problems] == ([] if fine else ["InvalidArgument"])


def test_a_policy_is_an_entry_of_replicas():
    """What else it says counts nothing. Durations are seconds or ISO 8601."""
    entries = [
        {"vm": "db01", "host": "hv02", "every": "PT15M", "keep": {"daily": 1}},
        {"group": "web", "host": "hv02", "every": 60},
        {"vm": "app01", "host": "hv02", "every": None},
    ]
    given, problems = host_metrics.parse({"path": None, "replicas": entries})
    assert (given.policies, list(problems)) == ([("db01", "", "hv02", 900), ("", "web", "hv02", 60)], [])
    _given, (problem,) = host_metrics.parse({"path": None, "replicas": [{**entries[0], "every": "soon"}]})
    assert problem.message == "replicas: every: 'soon' is not a duration: write seconds, or PT1H30M5S"


def test_what_is_half_done(sim):
    """The journal of a run, a move, and the lease of a group."""
    sim.adopted(1024)
    record = Intent(OTHER, "hv01", "2026-11-29T10:00:00Z", "running", True, True)
    box = "zones/flexdisk"
    sim.run("zfs", "set", f"flexdisk:intent.{VM}={journal.encode(record)}", box)
    sim.run("zfs", "set", f"flexdisk:intent.{OTHER}=?", box)
    wanted, _problems = group_lease.parse(
        {
            "group": "web",
            "token": VM,
            "holder": "me",
            "state": "held",
            "ttl": 900,
            "take_over": False,
            "renew": False,
            "pool": "zones",
        }
    )
    held = group_lease.run(Zfs(sim.runner), Vmadm(sim.runner), wanted, "zones", check_mode=False)
    metrics = samples(ask(sim)["text"])
    assert metrics["unfinished_run_since_timestamp_seconds", OF_VM] == seconds_of(record.since)
    assert metrics["unfinished_run_since_timestamp_seconds", f'vm="{OTHER}",name="",pool="zones"'] == 0
    expires = seconds_of(held.result["lease"]["expires"])
    assert metrics["lease_expires_timestamp_seconds", 'group="web",pool="zones"'] == expires


@pytest.mark.parametrize("late", [True, False])
def test_a_run_that_only_waits_for_its_guest(sim, late):
    """It has ended, so neither the monitoring nor the playbook status has it."""
    sim.adopted(1024)
    record = Intent(OTHER, engine_journal.host_name(), "2026-11-29T10:00:00Z", "running", True, True, late=late)
    sim.run("zfs", "set", f"flexdisk:intent.{VM}={journal.encode(record)}", "zones/flexdisk")
    sim.run("zfs", "set", f"flexdisk:intents={VM}", "zones/flexdisk")
    sim.run("vmadm", "start", VM)
    unfinished = [key for key in samples(ask(sim)["text"]) if key[0] == "unfinished_run_since_timestamp_seconds"]
    rows = host_status.run(Zfs(sim.runner), Copies(sim.runner), Vmadm(sim.runner), None)[0]["half_done"]
    assert (len(unfinished), len(rows)) == ((0, 0) if late else (1, 1))
