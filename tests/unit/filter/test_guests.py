# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters of the role guest_growth: no disk and no guest is taken for another one."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from jinja2.nativetypes import NativeEnvironment

from ansible_collections.flexdisk.hypervisor.plugins.filter import guests
from ansible_collections.flexdisk.hypervisor.plugins.filter.guests import guest_disks, guest_grown

UUIDS = [f"11c1a5a7-aaaa-4bbb-8ccc-{number:012}" for number in range(4)]
SMARTOS, LINUX = "/dev/zvol/rdsk/", "/dev/zvol/"


def disk(number, name="", prefix=LINUX, pool="zones", **more):
    volume = f"{pool}/0dd5e7c4-0000-4000-8000-000000000001/disk{number}"
    own = {"name": name, "uuid": UUIDS[number], "volume": volume, "path": prefix + volume, "pci_slot": f"0:4:{number}"}
    return {**own, "hidden": False, **more}


def named(*disks, asked=None, left_out=()):
    """(label, how the module finds it, or why not) of each disk."""
    found = guest_disks({"disks": disks}, asked, left_out)
    assert found["problems"] == []
    ways = ("disk_uuid", "serial", "pci_address", "why")
    return [(each["label"], *(each[way] for way in ways if way in each)) for each in found["disks"]]


def refused(*disks, asked=None, left_out=(), vm=None):
    found = guest_disks({"disks": disks} if vm is None else vm, asked, left_out)
    assert found["disks"] == []
    return " / ".join(found["problems"])


def test_smartos_by_address_and_others_by_uuid():
    assert named(disk(0, "root", SMARTOS), disk(1, prefix=SMARTOS, pci_slot="3:31:7")) == [
        ("root", "0000:00:04.0"), (UUIDS[1], "0000:03:1f.7"),
    ]  # fmt: skip
    assert named(disk(0, "root"), disk(1, "data", path="/var/lib/flexdisk/x/disk.raw")) == [
        ("root", UUIDS[0]), ("data", UUIDS[1]),
    ]  # fmt: skip
    assert named(disk(0, "root", pool="rdsk")) == [("root", UUIDS[0])], "a pool that is called like SmartOS' folder"


def test_what_is_not_known_is_not_guessed():
    slotless, nameless = disk(0, "root", SMARTOS, pci_slot=""), disk(1, "data")
    del nameless["uuid"]
    (root, why), (data, why_not) = named(slotless, nameless)
    assert (root, data) == ("root", "data")
    assert "its PCI slot is not known; name the disk with guest_growth_disks by pci_address" in why
    assert "its UUID is not known" in why_not
    one, other = named(disk(0, "root", SMARTOS), disk(1, "data", SMARTOS, pci_slot="0:4:0"))
    assert one[1] == other[1] == "several disks are meant by pci_address 0000:00:04.0"


def test_what_the_platform_has_made_and_what_is_left_out():
    disks = [disk(0, "root"), disk(1, "raw"), disk(2, hidden=True), disk(3, "spare")]
    assert named(*disks, left_out=["raw", UUIDS[3]]) == [("root", UUIDS[0])]


def test_disks_that_are_asked_for():
    asked = [{"disk": "data", "luks_passphrase": "no", "logical_volume": "", "backup_dir": None}, {"serial": 12}]
    found = guest_disks({"disks": [disk(0, "root"), disk(1, "data")]}, asked)
    assert found["disks"] == [
        {"label": "data", "number": 0, "disk_uuid": UUIDS[1], "logical_volume": ""},
        {"label": "12", "number": 1, "serial": "12"},
    ]
    assert guest_disks({}, [{"pci_address": "00:04.0"}])["disks"][0]["pci_address"] == "00:04.0"
    assert guest_disks({"disks": [disk(0)]}, [])["disks"] == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"left_out": ["rot"]}, "guest_growth_leave_out: the VM has no disk rot; it has root, data"),
        ({"left_out": ["root"], "asked": [{"disk": "root"}]}, "set one of them"),
        ({"asked": [{"disk": "rot"}]}, "guest_growth_disks: the VM has no disk rot"),
        ({"asked": [{"disk": "root", "serial": "a"}]}, "guest_growth_disks[0] needs one of disk, disk_uuid, serial"),
        ({"asked": [{"disk": "root"}, {"logical_volume": "a"}]}, "guest_growth_disks[1] needs one of disk"),
        ({"vm": {}}, "the inventory does not say which disks the VM has; name them"),
        ({"vm": {"reason": "not adopted"}}, "which disks the VM has (not adopted)"),
    ],
)
def test_refusals_of_what_is_asked_for(more, words):
    assert words in refused(disk(0, "root"), disk(1, "data"), **more)


@pytest.mark.parametrize("more", [{"left_out": ["data"]}, {"asked": [{"disk": "data"}]}])
@pytest.mark.parametrize("other", ["data", UUIDS[0]])
def test_a_name_that_fits_two_disks_is_refused(more, other):
    disks = [disk(0, "data"), disk(1, other)]
    if other != "data":
        more = {key: [{"disk": other}] if key == "asked" else [other] for key in more}
    assert refused(*disks, **more).endswith(f"{other} is {UUIDS[0]} and {UUIDS[1]}")


def test_what_has_grown():
    names = ("root", "data", "logs", "spare", "big")
    targets = [{"label": name, **({"why": "no"} if name == "data" else {})} for name in names]
    results = [
        {"steps": ["a", "b"], "device": "/dev/vda", "size_bytes": 1 << 30},
        {"msg": "what was found [UnknownLayout]", "error_code": "UnknownLayout"},
        {"steps": [], "device": "/dev/vdc", "size_bytes": 1 << 20},
        {"msg": "the program failed [GrowthFailed]", "error_code": "GrowthFailed"},
    ]
    found = guest_grown(results, targets, "db01")
    assert [row.split() for row in found["table"][1:]] == [
        ["root", "/dev/vda", "1", "GiB", "a"],
        ["b"],
        ["data", "-", "-", "REFUSED", "InvalidArgument"],
        ["logs", "-", "-", "REFUSED", "UnknownLayout"],
        ["spare", "/dev/vdc", "1", "MiB", "nothing", "to", "grow"],
        ["big", "-", "-", "FAILED", "GrowthFailed"],
    ]
    assert found["failures"] == [
        "db01, disk data: no [InvalidArgument]",
        "db01, disk logs: what was found [UnknownLayout]",
        "db01, disk big: the program failed [GrowthFailed]",
    ]
    crashed = guest_grown([{}], targets[:1], "db01")
    assert crashed["failures"] == ["db01, disk root: the module failed"]
    assert crashed["table"][1].split() == ["root", "-", "-", "FAILED"]


def test_an_error_of_strange_input_shows_no_values():
    with pytest.raises(AnsibleFilterError) as raised:
        guest_disks({"disks": []}, ["secret"])
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("name", list(guests.FilterModule().filters()))
def test_examples_hold(name):
    docs = yaml.safe_load(Path(guests.__file__).with_name(f"{name}.yml").read_text(encoding="utf-8"))
    assert list(docs) == ["DOCUMENTATION", "EXAMPLES", "RETURN"]
    (task,) = yaml.safe_load(docs["EXAMPLES"])
    environment = NativeEnvironment()
    environment.filters |= {
        f"flexdisk.hypervisor.{each}": work for each, work in guests.FilterModule().filters().items()
    }
    result, template = list(task["vars"].items())[-1]
    given = {key: value for key, value in task["vars"].items() if key != result}
    given[result] = environment.from_string(template).render(given)
    conditions = task["ansible.builtin.assert"]["that"]
    assert len(conditions) > 1
    for condition in conditions:
        assert environment.compile_expression(condition)(**given) is True, condition
