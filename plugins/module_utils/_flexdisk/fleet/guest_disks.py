# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which disks of a VM are to grow in its guest, how the guest recognizes each, and the report."""

from __future__ import annotations

import typing as t
from collections import Counter

from ..model.dataset import RAW_ZVOL
from ..model.errors import FlexdiskError
from ..model.sizes import render_bytes
from ..rules.slots import parse_slot
from .tables import aligned

WAYS = ("disk_uuid", "serial", "pci_address")
GROWTH_OPTIONS = ("logical_volume", "backup_dir")
COLUMNS = ("DISK", "DEVICE", "SIZE", "GROWTH")
_DISKS, _LEAVE_OUT = "guest_growth_disks", "guest_growth_leave_out"
_CODE = "InvalidArgument"
# With these, nothing was changed. What has another code may have been changed before.
_REFUSALS = (
    _CODE, "MissingParameter", "ResourceNotFound", "Ambiguous", "InsufficientSpace", "UnknownLayout", "NotMounted",
    "Locked",
)  # fmt: skip
_Raw = t.Mapping[str, t.Any]
_Target = t.Dict[str, t.Any]


def find(vm: _Raw, asked: t.Optional[t.Sequence[_Raw]], left_out: t.Sequence[str]) -> t.Dict[str, t.Any]:
    """Return the disks to grow, and all problems with the request.

    vm: the variable flexdisk_vm, empty without one. asked: the disks that the user names, None for all of the VM.
    left_out: names or UUIDs. Each disk has its label, its number among those asked for (-1 for none), one of WAYS with
    its value, and WISHES; or why it cannot be named. A passphrase is not among them: the number leads to it.
    """
    known, texts = vm.get("disks"), []
    out: t.List[_Raw] = []
    if asked is not None and left_out:
        texts.append(f"{_DISKS} names the disks, so {_LEAVE_OUT} means nothing; set one of them")
    elif asked is None and known is None:
        why = f" ({vm['reason']})" if vm.get("reason") else ""
        texts.append(f"the inventory does not say which disks the VM has{why}; name them with {_DISKS}")
    elif left_out:
        out = [disk for disk in (_named(known or (), name, _LEAVE_OUT, texts) for name in left_out) if disk]
    targets: t.List[_Target] = []
    if asked is not None:
        targets = [_asked(number, entry, known or (), texts) for number, entry in enumerate(asked)]
    elif not texts:
        meant = [disk for disk in known or () if disk not in out and not disk.get("hidden")]
        targets = [{"label": label(disk), "number": -1, **_way(disk)} for disk in meant]
    return {"disks": [] if texts else _refuse_ambiguous(targets), "problems": texts}


def label(disk: _Raw) -> str:
    """Return what a disk is called in messages."""
    return str(disk.get("name") or disk.get("uuid") or disk.get("path"))


def report(vm: str, targets: t.Sequence[_Target], results: t.Sequence[_Raw]) -> t.Dict[str, t.List[str]]:
    """Return the lines of a table, and a text for each disk that was refused or has failed.

    results: what guest_growth returned, in the order of the targets that it was called for.
    """
    answers = iter(results)
    rows: t.List[t.Tuple[str, ...]] = []
    failures = []
    for target in targets:
        refused = {"msg": f"{target.get('why')} [{_CODE}]", "error_code": _CODE}
        result: _Raw = refused if "why" in target else next(answers, {})
        if "steps" not in result:
            code = str(result.get("error_code", ""))
            word = "REFUSED" if code in _REFUSALS else "FAILED"
            rows.append((target["label"], "-", "-", f"{word} {code}".rstrip()))
            failures.append(f"{vm}, disk {target['label']}: {result.get('msg') or 'the module failed'}")
            continue
        steps = result["steps"] or ["nothing to grow"]
        rows.append((target["label"], result["device"], render_bytes(result["size_bytes"]), steps[0]))
        rows += [("", "", "", step) for step in steps[1:]]
    return {"table": aligned(COLUMNS, rows), "failures": failures}


def _asked(number: int, entry: _Raw, known: t.Sequence[_Raw], texts: t.List[str]) -> _Target:
    ways = [key for key in ("disk", *WAYS) if entry.get(key) is not None]
    if len(ways) != 1:
        texts.append(f"{_DISKS}[{number}] needs one of disk, {', '.join(WAYS)}; it has {', '.join(ways) or 'none'}")
        return {}
    value = str(entry[ways[0]])
    way: _Target = {ways[0]: value}
    if ways[0] == "disk":
        disk = _named(known, value, _DISKS, texts)
        way = _way(disk) if disk else {}
    options = {key: entry[key] for key in GROWTH_OPTIONS if entry.get(key) is not None}
    return {"label": value, "number": number, **way, **options}


def _named(known: t.Sequence[_Raw], name: str, where: str, texts: t.List[str]) -> t.Optional[_Raw]:
    """Return the disk of that name or UUID. If it is not one, a text is added."""
    matches = [disk for disk in known if name in (disk.get("name") or None, (disk.get("uuid") or None))]
    if len(matches) == 1:
        return matches[0]
    if matches:
        texts.append(
            f"{where}: {name} is {' and '.join(str(disk.get('uuid') or disk.get('path')) for disk in matches)}"
        )
    else:
        texts.append(f"{where}: the VM has no disk {name}; it has {', '.join(map(label, known)) or 'none'}")
    return None


def _way(disk: _Raw) -> t.Dict[str, str]:
    """Return how the guest recognizes a disk that the hypervisor has, or why that is not known.

    SmartOS gives guests no serial number. All others have the first digits of the UUID as theirs.
    """
    if disk.get("volume") and disk.get("path") == RAW_ZVOL + disk["volume"]:
        try:
            return {"pci_address": "0000:%02x:%02x.%d" % parse_slot(disk.get("pci_slot"))}
        except FlexdiskError:
            return {"why": f"its PCI slot is not known; name the disk with {_DISKS} by pci_address"}
    if disk.get("uuid"):
        return {"disk_uuid": str(disk["uuid"])}
    return {"why": f"its UUID is not known; name the disk with {_DISKS} by serial or pci_address"}


def _refuse_ambiguous(targets: t.Sequence[_Target]) -> t.List[_Target]:
    """Return the targets. Those with the same identification are refused."""
    names = [next(((key, target[key]) for key in WAYS if key in target), None) for target in targets]
    count = Counter(name for name in names if name is not None)
    return [
        {"label": target["label"], "number": target["number"], "why": f"several disks are meant by {' '.join(name)}"}
        if name is not None and count[name] > 1
        else target
        for target, name in zip(targets, names)
    ]
