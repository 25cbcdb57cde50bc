# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a disk has inherited stays when it is detached and attached; what cannot stay is in the plan."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import effective

from ..conftest import VM

ROOT = {"name": "root"}
VALUES = {
    "compression": "zstd",
    "sync": "always",
    "copies": "2",
    "checksum": "sha256",
    "primarycache": "metadata",
    "logbias": "throughput",
    "snapdev": "visible",
    "com.sun:auto-snapshot": "true",
    "org.example:owner": "team a = b",
}


def one(*disks, **more):
    return {"vm": "web01", "disks": [ROOT, *disks], **more}


def values(run, name, wanted=VALUES):  # pylint: disable=dangerous-default-value
    return {prop: run("zfs", "get", "-Hpo", "value", prop, name).strip() for prop in wanted}


def inherit_all(sim):
    for name, value in VALUES.items():
        sim.run("zfs", "set", f"{name}={value}", f"zones/{VM}")


@pytest.mark.parametrize("up", [False, True])
def test_inherited_values_survive_a_detach_and_an_attach(sim, up):
    sim.adopted(64)
    inherit_all(sim)
    volume = sim.disks()["a"].volume.name
    assert values(sim.run, volume) == VALUES
    if up:
        sim.run("vmadm", "start", VM)
    sim.four_steps(one(unlisted="detach"), allow_restart=True)
    assert values(sim.run, sim.detached()["a"].volume.name) == VALUES
    for name in VALUES:
        sim.run("zfs", "inherit", name, f"zones/{VM}")
    done = sim.four_steps(one({"name": "a"}), allow_restart=True)
    assert done.warnings == []
    assert values(sim.run, sim.disks()["a"].volume.name) == VALUES


def test_a_default_stays_where_the_container_has_another_value(sim):
    sim.adopted(64)
    sim.four_steps(one(unlisted="detach"))
    sim.run("zfs", "set", "compression=gzip", "zones/flexdisk")
    sim.run("zfs", "set", "sync=disabled", "zones/flexdisk")
    sim.four_steps(one({"name": "a"}))
    had = {"compression": "gzip", "sync": "disabled"}
    assert values(sim.run, sim.disks()["a"].volume.name, had) == had
    sim.four_steps(one({"name": "a"}, {"name": "b", "size": 64}))
    sim.four_steps(one({"name": "a"}, unlisted="detach"))
    has = {"compression": "off", "sync": "standard"}
    assert values(sim.run, sim.detached()["b"].volume.name, has) == has


def test_properties_of_the_container_are_named(sim):
    """Nothing can keep a user property away from what lies below; and it ends when the disk leaves."""
    sim.adopted(64, 64)
    sim.four_steps(one({"name": "b"}, unlisted="detach"))
    sim.run("zfs", "set", "com.sun:auto-snapshot=false", "zones/flexdisk")
    b = sim.disks()["b"].volume.name
    done = sim.four_steps(one(unlisted="detach"))
    assert done.warnings == [f"{b} gets com.sun:auto-snapshot=false from zones/flexdisk"]
    away = sim.detached()["a"].volume.name
    done = sim.four_steps(one({"name": "a"}))
    assert done.warnings == [f"{away} loses com.sun:auto-snapshot=false, which holds only for detached disks"]
    assert values(sim.run, sim.disks()["a"].volume.name, ["com.sun:auto-snapshot"]) == {"com.sun:auto-snapshot": "-"}


def test_an_idle_run_reads_no_more(sim):
    sim.adopted(64)
    sim.calls.clear()
    assert not sim.converge(one({"name": "a"})).changed
    assert not any("all" in argv for argv in sim.calls)


def test_what_a_place_decides_is_not_kept():
    row = {
        "volmode": ("dev", "inherited from tank/flexdisk"),
        "readonly": ("on", "inherited from tank/flexdisk/replica"),
        "mountpoint": ("/tank/x", "inherited from tank"),
        "flexdisk:name": ("x", "inherited from tank"),
        "volsize": ("1", "local"),
        "sync": ("always", "received"),
    }
    assert effective.to_preserve(row, {}, "tank/vm") == {}
    row["sync"] = ("disabled", "inherited from tank/flexdisk/replica")
    assert effective.to_preserve(row, {}, "tank/flexdisk") == {}, "what is set for replicas is nothing for a disk"
    row["sync"] = ("disabled", "inherited from tank/flexdisk")
    assert effective.to_preserve(row, {}, "tank/vm") == {"sync": "disabled"}
    row["sync"] = ("always", "local")
    row["volmode"] = ("none", "inherited from tank/vms")
    above = {"volmode": ("default", "default")}
    assert effective.to_preserve(row, above, "tank/vm") == {"volmode": "none"}
    assert effective.to_preserve(row, above, "tank/flexdisk") == {}, "detached disks show no partitions"
    assert effective.to_preserve(row, {"volmode": ("none", "local")}, "tank/vm") == {}


@pytest.mark.parametrize("value", ["a\tb", "a\nb", "a\tb\nzones\tsync\talways\tlocal"])
def test_what_cannot_be_read_is_refused_before_anything_changes(sim, value):
    sim.adopted(64)
    sim.run("zfs", "set", f"org.example:note={value}", f"zones/{VM}")
    before = sim.fingerprint()
    for check in (True, False):
        with pytest.raises(FlexdiskError, match="holds a tab or a newline"):
            sim.converge(one(unlisted="detach"), check=check)
    assert sim.fingerprint() == before
