# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What operators declare: the present list of a VM with a few edits, or anything at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from .picture import Picture, Volume
from .words import Spec

Edit = tuple[Any, ...]
IMAGE = "aaaaaaaa-0000-4000-8000-000000000001"
NAMES = st.sampled_from("abcdef")
SIZES = st.sampled_from([1, 16, 40, 64, 100, 128, 256, 400])
PICKS = st.integers(0, 3)
BLOCKS = st.sampled_from([4096, 8192, 16384])
SLOTS = st.sampled_from(["0:4:0", "0:4:1", "0:4:2", "0:4:5", "0:5:0", "1:0:1"])
TEXTS = st.sampled_from(["", "x", "a b\n\t%", "-", "\u00fc"])
FLEXIBLE = st.sampled_from([None, None, None, 512, 700, 1024, 1500, 2048, 3000])
QUOTAS = st.sampled_from([None, None, None, None, "1GiB", "2GiB"])
UNLISTED = st.sampled_from(["refuse", "keep", "detach", "detach", "destroy"])
BOOLEANS = st.booleans()


def _edit(kind: str, *values: st.SearchStrategy[Any]) -> st.SearchStrategy[Edit]:
    return st.tuples(st.just(kind), *values)


EDITS = st.one_of(
    _edit("drop", PICKS),
    _edit("size", PICKS, SIZES, BOOLEANS),
    _edit("size", PICKS, SIZES, st.just(True)),
    _edit("new", NAMES, SIZES),
    _edit("new remaining", NAMES),
    _edit("new image", NAMES, st.sampled_from([None, 300])),
    _edit("remaining", PICKS, BOOLEANS),
    _edit("absent", PICKS, BOOLEANS),
    _edit("absent detached", PICKS, BOOLEANS),
    _edit("recall", PICKS),
    _edit("recall", PICKS),
    _edit("foreign", PICKS),
    _edit("recreate", PICKS, BLOCKS, SIZES, BOOLEANS),
    _edit("set", PICKS, st.just("preserve"), BOOLEANS),
    _edit("set", PICKS, st.just("pci_slot"), SLOTS),
    _edit("set", PICKS, st.just("description"), TEXTS),
    _edit("set", PICKS, st.just("tags"), st.dictionaries(TEXTS, TEXTS, max_size=2)),
    _edit("set", PICKS, st.just("compression"), st.sampled_from(["off", "lz4"])),
    _edit("set", PICKS, st.just("model"), st.sampled_from(["virtio", "nvme"])),
    _edit("set", PICKS, st.just("name"), NAMES),
)
"""What an operator changes in the list; the numbers count the VM's disks (or the detached ones) from the first."""


@st.composite
def changes(draw: st.DrawFn) -> Spec:
    """Edits of the present list, to be completed by `declare`."""
    return {
        "edits": draw(st.lists(EDITS, max_size=4)),
        "unlisted": draw(UNLISTED),
        "flexible_disk_size": draw(FLEXIBLE),
        "quota": draw(QUOTAS),
    }


def declare(picture: Picture, vm: str, change: Spec) -> Spec:
    """The declaration that an operator writes who sees this picture."""
    attached = [_entry(volume, device) for volume, device in picture.attached(vm)]
    detached = [{"name": v.disk_name} for v in picture.detached(vm) if v.disk_name]
    foreign = [{"uuid": v.user["uuid"]} for v in picture.detached() if v.user.get("vm") != vm and v.user.get("uuid")]
    disks = list(attached)
    for kind, *values in change["edits"]:
        _apply(kind, values, disks, attached, {"recall": detached, "absent detached": detached, "foreign": foreign})
    spec: Spec = {"vm": picture.vms[vm].alias, "disks": disks, "unlisted": change["unlisted"]}
    return {**spec, **{key: change[key] for key in ("flexible_disk_size", "quota") if change[key] is not None}}


def _entry(volume: Volume, device: Spec) -> Spec:
    """By its name; by its uuid; a disk that an old vmadm gave none by what else it is told by."""
    if volume.disk_name:
        return {"name": volume.disk_name}
    if device.get("uuid"):
        return {"uuid": device["uuid"]}
    name = volume.name.rpartition("/")[2]
    return {"name": name, "boot": True} if device["boot"] else {"name": name, "pci_slot": device["pci_slot"]}


_EDITED: dict[str, Callable[..., Spec]] = {
    "size": lambda size, allow: {"size": size, "dangerous_allow_shrink": allow},
    "remaining": lambda allow: {"size": "remaining", "dangerous_allow_shrink": allow},
    "absent": lambda snapshots: {"state": "absent", "destroy_snapshots": snapshots},
    "recreate": lambda block, size, snapshots: {
        "recreate": True,
        "block_size": block,
        "size": size,
        "destroy_snapshots": snapshots,
    },
    "set": lambda key, value: {key: value},
}


def _apply(
    kind: str, values: list[Any], disks: list[Spec], attached: list[Spec], others: dict[str, list[Spec]]
) -> None:
    if kind in others:
        pile = others[kind]
        if pile:
            gone = {"state": "absent", "destroy_snapshots": values[1]} if kind == "absent detached" else {}
            disks.append({**pile[values[0] % len(pile)], **gone})
        return
    if kind.startswith("new"):
        size = {"new": {"size": values[-1]}, "new remaining": {"size": "remaining"}}.get(kind)
        disks.append({"name": values[0], **(size or _image(values[1]))})
        return
    if not attached:
        return
    entry = attached[values[0] % len(attached)]
    if kind == "drop":
        disks[:] = [e for e in disks if e is not entry]
        return
    entry.update(_EDITED[kind](*values[1:]))


def _image(size: int | None) -> Spec:
    return {"image": IMAGE, **({} if size is None else {"size": size})}


ANY_ENTRY = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "size": st.one_of(SIZES, st.just("remaining")),
        "state": st.sampled_from(["present", "absent"]),
        "pci_slot": SLOTS,
        "preserve": BOOLEANS,
        "dangerous_allow_shrink": BOOLEANS,
        "recreate": BOOLEANS,
        "block_size": BLOCKS,
    },
)
_LISTS: dict[str, st.SearchStrategy[Any]] = {
    "disks": st.lists(ANY_ENTRY, max_size=4, unique_by=lambda e: str(e["name"])),
    "unlisted": UNLISTED,
}
ANYTHING = st.fixed_dictionaries(_LISTS, optional={"flexible_disk_size": st.integers(300, 3000)})
"""A list that has nothing to do with what is there, but for the boot disk that `declares_anything` puts before it."""
