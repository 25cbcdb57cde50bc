# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What vmadm knows of a disk beside the model, guest_block_size and notrim, travels with the disk."""

from __future__ import annotations

import copy
import json

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import vmadm_read
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm_read import parse_vm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from ..conftest import VM

OTHER = "cccccccc-0000-4000-8000-000000000002"
ROOT = {"name": "root"}
OPTIONS = {"guest_block_size": "512/4096", "notrim": True}


class Killed(BaseException):
    pass


def one(*disks, **more):
    return {"vm": "web01", "disks": [ROOT, *disks], **more}


def options(sim, name="a", uuid=VM):
    path = sim.disks(uuid)[name].path
    row = next(disk for disk in sim.get(uuid)["disks"] if disk["path"] == path)
    return {key: row[key] for key in OPTIONS if key in row}


@pytest.fixture
def set_up(sim):
    sim.adopted(64)
    sim.run("vmadm", "update", VM, stdin=json.dumps({"update_disks": [{"path": sim.disks()["a"].path, **OPTIONS}]}))
    assert options(sim) == OPTIONS
    return sim


def test_a_disk_comes_back_as_it_left(set_up):
    set_up.four_steps(one(unlisted="detach"))
    set_up.four_steps(one({"name": "b", "size": 64}, unlisted="detach"))
    set_up.four_steps(one({"name": "a"}, {"name": "b"}))
    assert (options(set_up), options(set_up, "b")) == (OPTIONS, {})
    assert "flexdisk:element" not in set_up.run("zfs", "get", "all", set_up.disks()["a"].volume.name)


def test_a_disk_takes_them_to_another_vm(set_up):
    uuid = set_up.disks()["a"].uuid
    set_up.four_steps(one(unlisted="detach"))
    set_up.adopted(uuid=OTHER, alias="web02")
    set_up.four_steps({"vm": OTHER, "disks": [ROOT, {"uuid": uuid, "name": "a"}]})
    assert options(set_up, uuid=OTHER) == OPTIONS


def test_a_disk_made_anew_has_them(set_up):
    set_up.four_steps(one({"name": "a", "size": 64, "block_size": 65536, "recreate": True}))
    assert options(set_up) == OPTIONS


@pytest.mark.parametrize("declaration", [one(unlisted="detach"), one({"name": "a"})], ids=["detach", "attach"])
def test_killed_at_every_command_the_disk_has_them(set_up, declaration):
    if "unlisted" not in declaration:
        set_up.four_steps(one(unlisted="detach"))
    before = copy.deepcopy(set_up.node)
    for point in range(100):
        set_up.node = copy.deepcopy(before)
        left = [point]

        def kill(argv, left=left):  # pylint: disable=dangerous-default-value
            left[0] -= changes(argv)
            if left[0] < 0:
                raise Killed

        set_up.fault = kill
        try:
            set_up.converge(declaration)
            break
        except Killed:
            set_up.fault = None
        assert (set_up.converge(declaration).problems, set_up.converge(one({"name": "a"})).failure) == ([], None), point
        assert options(set_up) == OPTIONS, point
    assert point > 8


@pytest.mark.parametrize(
    "text",
    [
        '{"path": "/dev/x"}',
        '{"guest_block_size": 512}',
        '{"guest_block_size": "1; rm"}',
        "[]",
        "<disk/>",
        '{"notrim": "no"}',
    ],
)
def test_only_known_options_are_given(text):
    with pytest.raises(FlexdiskError, match="not of vmadm"):
        vmadm_read.decode_options(text)


def test_a_received_property_does_not_count(set_up):
    set_up.four_steps(one(unlisted="detach"))
    volume = set_up.detached()["a"]
    assert volume.element.text
    from dataclasses import replace

    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import disk_element

    came = replace(volume.volume, received=frozenset(["element"]))
    assert not disk_element.decode(came).text


def test_a_vm_gets_them_as_it_comes(set_up):
    """What a record says of the disks is applied to a stopped VM, and what is unknown is refused before."""
    driver = Vmadm(set_up.runner)
    path = set_up.disks()["a"].path
    result = driver.description(VM).disks
    assert {path: OPTIONS} == {key: json.loads(text) for key, text in result.items()}
    set_up.run("vmadm", "update", VM, stdin=json.dumps({"update_disks": [{"path": path, "notrim": False}]}))
    driver.dress(VM, result)
    assert options(set_up) == OPTIONS
    assert driver.lacks(OTHER, {"options": {}}, ['{"path": "/etc"}']) == ["options of disks that are not known"]


def test_another_mention_of_the_path_is_a_refusal(set_up):
    path = set_up.disks()["a"].path
    set_up.run("vmadm", "update", VM, stdin=json.dumps({"bhyve_extra_opts": f"-s 9,virtio-blk,{path}"}))
    refused = set_up.converge(one(unlisted="detach"))
    assert [p.code for p in refused.problems] == ["InUse"]
    assert f"names {path} in bhyve_extra_opts" in refused.problems[0].message


@pytest.mark.parametrize("more", ["", "s0", "p1"])
def test_the_other_device_of_a_disk_is_a_mention(set_up, more):
    """A new disk would get the path, and what names it would be another disk then."""
    path = f"/dev/zvol/dsk/{set_up.disks()['a'].volume.name}{more}"
    set_up.run("vmadm", "update", VM, stdin=json.dumps({"bhyve_extra_opts": f"-s 9,virtio-blk,{path}"}))
    [problem] = set_up.converge(one(unlisted="detach")).problems
    assert (problem.code, f"in bhyve_extra_opts as {path}" in problem.message) == ("InUse", True)


@pytest.mark.parametrize("key", ["qemu_extra_opts", "qemu_opts", "filesystems", "pci_devices"])
def test_options_that_may_name_a_disk(key):
    paths = [f"/dev/zvol/rdsk/zones/{VM}/disk{number}" for number in (1, 10)]
    row = {"uuid": VM, "disks": [{"path": path} for path in paths], key: f"file=/dev/zvol/dsk/zones/{VM}/disk1,x"}
    config = parse_vm(row)
    assert [entry.mentions for entry in config.disks] == [(f"{key} as /dev/zvol/dsk/zones/{VM}/disk1",), ()]
    assert [*config.uses] == [f"zones/{VM}/disk1"]


def test_a_second_disk_on_the_same_volume_is_a_mention(set_up):
    name = set_up.disks()["a"].volume.name
    entries = set_up.node.vmadm_state["vms"][VM]["devices"]
    entries.append({**entries[-1], "path": f"/dev/zvol/dsk/{name}", "media": "cdrom", "pci_slot": "0:4:7"})
    [problem] = set_up.converge(one(unlisted="detach")).problems
    assert (problem.code, f"in disks as /dev/zvol/dsk/{name}" in problem.message) == ("InUse", True)
