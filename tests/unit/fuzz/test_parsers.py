# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What programs may print, whole, cut, shuffled or invented: a value or a typed error comes out of every parser."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import (
    pve_config,
    pve_disk,
    pve_storage,
    pve_vm,
    vmadm_read,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import identity, property_text, slots
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.inventory import link
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.reservation import (
    automatic_reservation,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs import read
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.unit.engine.conftest import VM

from .node import ANY, FAST, HOSTILE, TEXTS, watched

SEED = seed(int(os.environ["FLEXDISK_SEED"]))
STATUS = """  pool: zones
 state: ONLINE
config:

\tNAME        STATE     READ WRITE CKSUM
\tzones       ONLINE       0     0     0
\t  raidz1-0  ONLINE       0     0     0
\t    sda     ONLINE       0     0     0
\t    sdb     ONLINE       0     0     0
\t    sdc     ONLINE       0     0     0
\tlogs
\t  sdd       ONLINE       0     0     0
"""
VDEVS = st.sampled_from(
    ["raidz1-0", "raidz3-0", "raidz-1", "raidz9-0", "draid1:4d:6c:1s-0", "draid2-0", "draid:0d-0", "draid1:99999d-1"]
)


def answers(run: Any, *args: Any) -> Any:
    """The result, None for a typed error; anything else fails the test."""
    try:
        return run(*args)
    except FlexdiskError:
        return None


@st.composite
def mangled(draw: st.DrawFn, text: str) -> str:
    """A text with lines and pieces lost, doubled, exchanged, or replaced by something else."""
    for _time in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 40)))
        put = draw(st.one_of(st.just(""), st.just(text[start:end] * 2), VDEVS, TEXTS, st.sampled_from(["\t", "\n"])))
        text = text[:start] + put + text[end:]
    return text


def zfs_lines() -> str:
    sim = watched()
    return sim.run("zfs", "get", "-Hpr", "-o", "name,property,value,source", ",".join(read.PROPERTIES), "zones")


@SEED
@FAST
@given(data=st.data())
def test_zfs_get(data):
    out = data.draw(st.one_of(mangled(LINES), st.text(max_size=200)))
    datasets = answers(read.parse_get, out)
    if datasets is not None:
        answers(link, [], datasets, {"zones": None}, "bhyve")


LINES = zfs_lines()


@pytest.mark.parametrize("prop", ["guid", "flexdisk:preserve", "volsize"])
def test_a_property_that_is_told_twice(prop):
    """A value with tabs and newlines could pass for lines of other datasets: all of it is refused."""
    forged = f"x\tlocal\nzones/{VM}/disk1\t{prop}\t1\tlocal"
    lines = LINES.replace("\tflexdisk:description\t-\t-\n", f"\tflexdisk:description\t{forged}\n", 1)
    assert lines != LINES
    with pytest.raises(FlexdiskError) as caught:
        read.parse_get(lines)
    assert caught.value.code == "UnexpectedOutput"


ZDB = " vdev_tree:\n" + "".join(
    f"  children[{n}]:\n      type: 'raidz'\n      ashift: 12\n      is_log: 0\n" for n in range(3)
)


@SEED
@FAST
@given(out=st.one_of(mangled(STATUS), st.text(max_size=200)), zdb=mangled(ZDB))
def test_zpool_and_zdb(out, zdb):
    for vdevs in (answers(read.parse_status, out) or {}).values():
        known = answers(read.with_ashift, vdevs, zdb)
        geometry = answers(read.geometry, known or vdevs, [])
        if geometry is not None:
            answers(automatic_reservation, 1 << 30, 8192, geometry)


@SEED
@FAST
@given(out=TEXTS)
def test_zfs_create_dry_run(out):
    for printed in (out, "property\trefreservation\t" + out, "property\trefreservation"):
        zfs = Zfs(lambda argv, stdin="", timeout=0, printed=printed: Answer(0, printed, ""))
        answers(zfs.forecast_reservation, "zones", 1 << 30, 8192)


PVE = ["local-zfs:vm-100-disk-0", "virtio0: a:b,size=1G", "[PENDING]", "delete: !a,b", "size=99999999999999999999999G"]
STORAGE_CFG = "zfspool: local-zfs\n\tpool rpool/data\n\tsparse 1\n\nlvm: x\n\tdisable\n"


@SEED
@FAST
@given(out=st.one_of(mangled("\n".join(PVE)), TEXTS), cfg=mangled(STORAGE_CFG), name=st.one_of(TEXTS, mangled(PVE[0])))
def test_files_of_proxmox_ve(out, cfg, name):
    file = pve_config.VmFile(out.encode("utf-8", "surrogatepass"))
    for values in (file.main.values, file.pending, *file.snapshots.values()):
        for key, value in values.items():
            disk = answers(pve_disk.parse, value)
            if disk is not None and pve_disk.is_disk_key(key):
                pve_disk.parse_size(disk.options.get("size", ""))
    assert isinstance(file.main.description, str)
    assert isinstance(file.unreadable, list)
    answers(pve_storage.volume, pve_storage.parse_storages(cfg), name)


PVE_VM = "\n".join(
    [
        f"smbios1: uuid={VM}",
        "name: web",
        "boot: order=virtio0;net0",
        "ide2: local-zfs:vm-100-cloudinit,media=cdrom",
        "scsi1: local-zfs:vm-100-disk-0,serial=a%2Cb",
        "unused0: local-zfs:vm-100-disk-1",
        "[PENDING]",
        "virtio1: local-zfs:vm-100-disk-2",
        "[s1]",
        "vmstate: local-zfs:vm-100-state-s1",
    ]
)
CLUSTER = "vm: 100\n\tstate started\n\nlocal: 100-0\n\ttarget pve2\n\nct: 7\n"


@SEED
@FAST
@given(
    out=st.one_of(mangled(PVE_VM), TEXTS),
    cfg=st.one_of(mangled(STORAGE_CFG), st.just(STORAGE_CFG)),
    more=mangled(CLUSTER),
)
def test_vms_of_proxmox_ve(out, cfg, more):
    """Whatever is in the files: every VM is listed, its result is text, and what reaches a command line is a pool."""
    cluster = pve_vm.parse_cluster("pve1", cfg, more, more)
    content = out.encode("utf-8", "surrogatepass")
    config = pve_vm.parse_vm(100, content, cluster, "")
    twins = pve_vm.with_unique_uuids([config, replace(config, proxmox={**config.proxmox, "vmid": 101})], cluster, {})
    for one in (config, *twins, pve_vm.container(100, content, cluster)):
        assert identity.is_uuid(one.uuid)
        assert one.pool == "" or identity.check_pool(one.pool)
        json.dumps([one.alias, dict(one.tags), dict(one.proxmox), one.unsupported], ensure_ascii=False).encode()
        link([one], [], {}, pve_vm.BRAND)
    assert all(one.unsupported for one in twins)


def vmadm_rows() -> list[dict[str, Any]]:
    return list(json.loads(watched().run("vmadm", "lookup", "-j")))


ROWS = vmadm_rows()
KEYS = sorted(ROWS[0])


@SEED
@FAST
@given(out=st.one_of(mangled(json.dumps(ROWS)), ANY.map(json.dumps)))
def test_vmadm_text(out):
    check_vmadm(out)


def test_vmadm_text_without_end():
    check_vmadm("[" * 100000)


def check_vmadm(out):
    answers(vmadm_read.parse_lookup, out)
    vmadm = Vmadm(lambda argv, stdin="", timeout=0: Answer(0, out, ""))
    answers(vmadm.start, VM)


@SEED
@FAST
@given(key=st.sampled_from(KEYS), value=st.one_of(ANY, HOSTILE), disk=st.dictionaries(st.sampled_from(
    sorted(ROWS[0]["disks"][0])), st.one_of(ANY, HOSTILE), max_size=4))  # fmt: skip
def test_vmadm_values(key, value, disk):
    """Whatever a VM is said to be: what would reach a command line is what a uuid, pool or dataset can be."""
    row = {**ROWS[0], "disks": [{**ROWS[0]["disks"][0], **disk}], key: value}
    found = answers(vmadm_read.parse_lookup, json.dumps([row]))
    for vm in found or []:
        assert identity.is_uuid(vm.uuid)
        assert vm.pool == "" or identity.check_pool(vm.pool)


@SEED
@FAST
@given(text=TEXTS)
def test_single_values(text):
    for run in (
        property_text.decode_text,
        property_text.decode_tags,
        identity.decode_time,
        identity.decode_index,
        slots.valid,
    ):
        run(text)
    assert identity.next_serial(text).isdigit()
    encoded = answers(property_text.encode_text, text)
    assert encoded is None or (encoded.isascii() and encoded.isprintable() and encoded != "-")
    assert encoded is None or property_text.decode_text(encoded) == text
