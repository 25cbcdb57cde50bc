# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""PCI slots: syntax, reserved devices, allocation, collisions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import (
    DiskDeclaration,
    VmDisksDeclaration,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import DiskConfig, Pci, VmConfig
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import slots
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.slots import (
    SMARTOS,
    Slot,
    allocate,
    alone,
    conflicts,
    normalise,
    obstacle,
    parse_slot,
    positions,
    preferred,
    render_slot,
)

SLOTS = st.builds(Slot, st.integers(0, 255), st.integers(0, 31), st.integers(0, 7))


@pytest.mark.parametrize(
    ("text", "slot"),
    [
        ("4", "0:4:0"),
        ("4:1", "0:4:1"),
        ("0:4:1", "0:4:1"),
        ("255:31:7", "255:31:7"),
        ("0", "0:0:0"),
        ("31", "0:31:0"),
        ("1:4:0", "1:4:0"),
    ],
)
def test_slot_syntax(text, slot):
    assert normalise(text) == slot


@pytest.mark.parametrize(
    "text",
    [
        *["", "32", "4:8", "4:9", "4:10", "256:4:0", "0:32:0", "1:2:3:4", "4:", ":4", "a", "4:a", "-1", "0x4", " 4"],
        *["4\n", "4.1", "\u0664", 4, 241, None, True, ["4"]],
    ],
)
def test_slot_syntax_refused(text):
    with pytest.raises(FlexdiskError) as caught:
        parse_slot(text)
    assert caught.value.code == "InvalidArgument"
    assert caught.value.message.startswith(f'pci_slot "{text}" is not valid')


def test_a_place_where_slots_are_addresses():
    """The sentence explains how a slot is written there, and an entry without a name is called by its number."""
    config = VmConfig("uuid", "web", "bhyve", "stopped", False, "zones", "zones/uuid", None, pci=SMARTOS)
    spec = VmDisksDeclaration("web", disks=(DiskDeclaration(pci_slot="virtio3"),))
    (problem,) = slots.slot_problems(spec, config)
    assert problem.disk == "disks[0]"
    assert problem.message.startswith('pci_slot "virtio3" is not valid: write "bus:device:function"')


@given(SLOTS)
def test_rendered_slot_reads_back(slot):
    assert parse_slot(render_slot(slot)) == slot
    if slot.bus == 0:
        assert parse_slot("%d:%d" % slot[1:]) == slot


@given(SLOTS)
def test_reserved_devices(slot):
    reason = obstacle(slot, SMARTOS)
    if slot.bus == 0 and slot.device in (0, 6, 30, 31):
        assert reason is not None
        assert reason.startswith("PCI device %d is reserved" % slot.device)
    else:
        assert reason is None


def test_legacy_positions():
    """A data disk, an ISO, a disk with a slot and the boot disk, none of the others with one."""
    disks = [
        DiskConfig("/d1"),
        DiskConfig("/iso", media="cdrom"),
        DiskConfig("/d2", pci_slot="5:1"),
        DiskConfig("/boot", boot=True),
        *(DiskConfig("/x%d" % n) for n in range(7)),
    ]
    result = positions(disks, SMARTOS)
    assert (result["/boot"], result["/d1"], result["/iso"], result["/d2"]) == ("0:4:0", "0:5:0", "0:3:0", "0:5:1")
    assert [result["/x%d" % n] for n in range(7)] == ["0:5:%d" % n for n in range(2, 8)] + [""]


def test_allocation_takes_the_lowest_free_function():
    taken = {Slot(0, 4, 0), Slot(0, 4, 2), Slot(0, 5, 1), Slot(1, 4, 1)}
    assert allocate(taken, SMARTOS.candidates) == Slot(0, 4, 1)
    assert allocate(taken | {Slot(0, 4, 1)}, SMARTOS.candidates) == Slot(0, 4, 3)
    assert allocate(taken, ["0:3:0"]) == Slot(0, 3, 0)


def test_slots_for_hot_plug_are_preferred():
    pci = Pci(candidates=("1:0:0", "2:0:0", "3:0:0", "4:0:0"), hot=frozenset(("2:0:0", "4:0:0")))
    assert preferred(pci) == ["2:0:0", "4:0:0", "1:0:0", "3:0:0"]
    assert preferred(SMARTOS) == list(SMARTOS.candidates)


def test_the_message_names_the_lowest_and_the_highest_slot_whatever_is_preferred():
    with pytest.raises(FlexdiskError, match="all 3 from 0:4:0 to 0:12:0 are taken"):
        allocate([Slot(0, n, 0) for n in (4, 5, 12)], ["0:12:0", "0:4:0", "0:5:0"])


def test_ninth_disk_has_no_slot():
    taken = [Slot(0, 4, n) for n in range(8)]
    with pytest.raises(FlexdiskError) as caught:
        allocate(taken, SMARTOS.candidates)
    assert caught.value.code == "InvalidArgument"
    assert caught.value.message == "no PCI slot is left for disks: all 8 from 0:4:0 to 0:4:7 are taken; give pci_slot"


@given(st.sets(SLOTS))
def test_allocated_slot_is_free_and_allowed(taken):
    try:
        slot = allocate(taken, SMARTOS.candidates)
    except FlexdiskError:
        assert {Slot(0, 4, n) for n in range(8)} <= taken
        return
    assert slot not in taken
    assert obstacle(slot, SMARTOS) is None
    assert all(Slot(0, 4, n) in taken for n in range(slot.function))


def test_conflicts_on_every_bus():
    assignments = [
        ("scratch", parse_slot("1:9:0")),
        ("root", parse_slot("4")),
        ("data", parse_slot("4:1")),
        ("logs", parse_slot("0:4:1")),
        ("more", parse_slot("1:9:0")),
        ("again", parse_slot("0:4:1")),
    ]
    assert conflicts(assignments) == [
        (Slot(0, 4, 1), ["data", "logs", "again"]),
        (Slot(1, 9, 0), ["scratch", "more"]),
    ]
    assert conflicts(assignments[:3]) == []
    assert conflicts([]) == []


PORTS = Pci(candidates=("1:0:0", "2:0:0", "5:0:0"), taken={"0:1": "a card"}, strict=True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2:0:0", None),
        ("2:0:3", None),
        ("0:9:0", None),
        ("0:1:4", "PCI device 1 is reserved for a card"),
        ("3:0:0", "the VM has no PCI device 3:0 for disks"),
        ("2:1:0", "the VM has no PCI device 2:1 for disks"),
    ],
)
def test_slots_that_are_there(text, reason):
    assert obstacle(parse_slot(text), PORTS) == reason


def test_one_function():
    assert obstacle(Slot(0, 4, 1), Pci(functions=1)) == "PCI devices of this hypervisor have only 1 function"


def test_a_whole_device_for_a_disk():
    taken = [Slot(1, 0, 2)]
    assert allocate(taken, PORTS.candidates) == Slot(1, 0, 0)
    assert allocate(taken, PORTS.candidates, alone_on_device=True) == Slot(2, 0, 0)
    assert not alone(Slot(1, 0, 0), taken)
    assert alone(Slot(1, 0, 2), taken)


def test_strict_positions_are_those_written_down():
    disks = [DiskConfig("/a", pci_slot="1:0:0"), DiskConfig("/b", boot=True)]
    assert positions(disks, PORTS) == {"/a": "1:0:0", "/b": ""}


def test_places_are_those_of_vms_that_have_places():
    """virtio3 is a slot of Proxmox VE, and of no other hypervisor."""
    for text in ("virtio3", "scsi30", "ide0"):
        assert slots.render_slot(slots.parse_slot(text)) == slots.normalise(text) == slots.valid(text) == text
        for pci in (slots.SMARTOS, Pci(candidates=("1:0:0",), functions=1, strict=True)):
            assert slots.obstacle(slots.parse_slot(text), pci) == "the VM has no such place for disks"
    places = Pci(candidates=("virtio0", "virtio1"), functions=1, strict=True)
    assert slots.obstacle(slots.parse_slot("virtio1"), places) is None
    assert "a place such as virtio0" in slots.obstacle(slots.parse_slot("0:10:0"), places)
    for text in ("virtio", "virtio01", "nvme0", "VIRTIO0"):
        assert slots.valid(text) == ""
