# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Matching of disk lists as Yandex instance groups do it, and what a careful planner says of the outcome.

First fit: the present disks, in order, each take the first free entry of the wanted list that has the same type, image
and snapshot and is not smaller. By name: equal names match. What matches nothing is deleted or created.

Two limits of that cloud have no counterpart here and are not checked: three secondary disks per VM, and the range of
sizes. Nor does a change of disks re-create the VM.
"""

from __future__ import annotations

import typing as t

from ..model.errors import FlexdiskError
from .slots import normalise

Pairs = t.List[t.Tuple[int, int]]
Entry = t.Mapping[str, t.Any]

_TEXTS = ("name", "uuid", "type", "image", "snapshot", "description", "mode", "device_name", "pci_slot")
_FLAGS = ("preserve", "boot")
_KEYS = _TEXTS + _FLAGS + ("size",)
_UPDATES = ("size", "description", "preserve")
_ATTACHMENT = ("name", "mode", "device_name", "pci_slot", "boot")
_UNMANAGED_IF_OMITTED = ("pci_slot", "boot")
_LABELS = ("uuid", "name", "description")
_DEFAULTS = {"preserve": False, "boot": False, "mode": "READ_WRITE"}


class Birth(t.NamedTuple):
    """What decides whether a disk can become an entry: the values fixed at its creation, and its size in any unit."""

    type: t.Optional[str]
    image: t.Optional[str]
    snapshot: t.Optional[str]
    size: int


def compatible(current: Birth, desired: Birth) -> bool:
    """Whether the current disk can become the desired one: same birth, and not larger."""
    return current[:3] == desired[:3] and desired.size >= current.size


def first_fit(current: t.Sequence[Birth], desired: t.Sequence[Birth]) -> Pairs:
    """Return the (current, desired) pairs of indexes that the instance-group algorithm makes, by current index."""
    pairs: Pairs = []
    free = list(range(len(desired)))
    for i, disk in enumerate(current):
        j = next((j for j in free if compatible(disk, desired[j])), None)
        if j is not None:
            free.remove(j)
            pairs.append((i, j))
    return pairs


def max_retention(current: t.Sequence[Birth], desired: t.Sequence[Birth], preserved: t.Collection[int] = ()) -> Pairs:
    """Return the matching that loses the fewest bytes; among such the most disks, then the least growth, then list
    order.

    preserved are indexes of current disks that are kept anyway, so that leaving them out loses nothing. Exact: within
    what is fixed at birth, sets of disks that fit are a matroid, hence taking the biggest first is optimal. Takes some
    n**3 steps, which is nothing for the disks of a VM (26: milliseconds) and too much for thousands.
    """
    matchedined: t.List[int] = []
    for i in sorted(range(len(current)), key=lambda i: (i in preserved, -current[i].size, i)):
        if _all_fit([current[k] for k in [*matchedined, i]], desired):
            matchedined.append(i)
    free = sorted(range(len(desired)), key=lambda j: (desired[j].size, j))
    entries: t.List[int] = []
    for i in sorted(matchedined, key=lambda i: -current[i].size):
        j = next(j for j in free if compatible(current[i], desired[j]))
        free.remove(j)
        entries.append(j)
    return _in_list_order(sorted(matchedined), sorted(entries), current, desired)


def match_disks(current: object, desired: object, matching: str = "name") -> t.Dict[str, t.Any]:
    """Return what the instance-group algorithm would do to the current disks, for lists of dicts (see the filter's
    docs).

    matching C(order) is first fit and looks at no name. C(name) matches equal names; where one of the lists has no name
    at all there is nothing to compare, and it is first fit for that run. Raises FlexdiskError: C(InvalidArgument) for
    malformed input, with C(name) also C(NAMES_PARTIAL) and C(NAME_CONFLICT).
    """
    if matching not in ("name", "order"):
        raise FlexdiskError("InvalidArgument", f'matching "{matching}" is not valid: it is "name" or "order"')
    have, want = _entries("current", current), _entries("desired", desired)
    if matching == "name":
        named = [_check_names("current", have), _check_names("desired", want)]
        if all(named):
            return _by_name(have, want)
    return _by_order(have, want)


def _by_order(have: t.List[Entry], want: t.List[Entry]) -> t.Dict[str, t.Any]:
    current, desired = [_birth(e) for e in have], [_birth(e) for e in want]
    result = _outcome(have, want, first_fit(current, desired), [])
    warnings = _loss_warnings(have, result) + _avoidable_loss(have, result["mapping"], current, desired)
    rivals = [[i, j] for i in _deleted(result) for j, entry in enumerate(desired) if compatible(current[i], entry)]
    if rivals:
        text = "only the order of the list decides which disk goes: the entry of another disk would fit it too"
        warnings.append(_warning("IDENTITY_AMBIGUOUS", text, candidates=rivals))
    swapped = _swapped(have, want, result["mapping"])
    if swapped:
        text = "disks get a label that another disk carries; labels move, data does not"
        warnings.append(_warning("IDENTITY_SWAP", text, mapping=swapped))
    result["warnings"] = warnings
    return result


def _by_name(have: t.List[Entry], want: t.List[Entry]) -> t.Dict[str, t.Any]:
    index = {entry["name"]: j for j, entry in enumerate(want)}
    same = [(i, index[entry["name"]]) for i, entry in enumerate(have) if entry["name"] in index]
    matched = [(i, j) for i, j in same if compatible(_birth(have[i]), _birth(want[j]))]
    result = _outcome(have, want, matched, [pair for pair in same if pair not in matched])
    warnings = _loss_warnings(have, result)
    gone = [i for i in _deleted(result) if have[i]["name"] not in index]
    fresh = [j for j in result["creates"] if want[j]["name"] not in {entry["name"] for entry in have}]
    renamed = [[i, j] for i in gone for j in fresh if compatible(_birth(have[i]), _birth(want[j]))]
    if renamed:
        text = "a name disappears and a new one appears; this is no rename, and an empty disk replaces the old one"
        warnings.append(_warning("RENAME_SUSPECT", text, candidates=renamed))
    result["warnings"] = warnings
    return result


def _outcome(have: t.List[Entry], want: t.List[Entry], pairs: Pairs, recreated: Pairs) -> t.Dict[str, t.Any]:
    mapped, claimed = {i for i, _j in pairs}, {j for _i, j in pairs}
    return {
        "mapping": [list(pair) for pair in pairs],
        "updates": _changes(have, want, pairs, _UPDATES),
        "attachment_changes": _changes(have, want, pairs, _ATTACHMENT),
        "creates": [j for j in range(len(want)) if j not in claimed],
        "deletes": [{"current": i, "preserved": have[i]["preserve"]} for i in range(len(have)) if i not in mapped],
        "recreated": [list(pair) for pair in recreated],
    }


def _changes(
    have: t.List[Entry], want: t.List[Entry], pairs: Pairs, fields: t.Sequence[str]
) -> t.List[t.Dict[str, t.Any]]:
    result = []
    for i, j in pairs:
        changes = {
            field: [have[i][field], want[j][field]]
            for field in fields
            if have[i][field] != want[j][field] and not (field in _UNMANAGED_IF_OMITTED and field in want[j]["omitted"])
        }
        if changes:
            result.append({"current": i, "desired": j, "changes": changes})
    return result


def _loss_warnings(have: t.List[Entry], result: t.Dict[str, t.Any]) -> t.List[t.Dict[str, t.Any]]:
    destroyed = [d["current"] for d in result["deletes"] if not d["preserved"]]
    detached = [d["current"] for d in result["deletes"] if d["preserved"]]
    warnings = []
    if destroyed:
        text = "disks that no entry claims are destroyed with their data"
        size = sum(have[i]["size"] for i in destroyed)
        warnings.append(_warning("DATA_LOSS", text, current=destroyed, size=size))
    if detached:
        text = "disks that no entry claims are preserved; they stay behind, detached"
        warnings.append(_warning("ORPHAN_LEFT", text, current=detached))
    return warnings


def _avoidable_loss(
    have: t.List[Entry], mapping: t.List[t.List[int]], current: t.List[Birth], desired: t.List[Birth]
) -> t.List[t.Dict[str, t.Any]]:
    lost = _lost(have, mapping)
    if not lost:
        return []
    best = max_retention(current, desired, {i for i, entry in enumerate(have) if entry["preserve"]})
    avoidable = lost - _lost(have, best)
    if not avoidable:
        return []
    text = "another matching would keep data that this one destroys"
    return [_warning("AVOIDABLE_LOSS", text, size=avoidable, mapping=[list(pair) for pair in best])]


def _swapped(have: t.List[Entry], want: t.List[Entry], mapping: t.List[t.List[int]]) -> t.List[t.List[int]]:
    """The pairs whose disk gets a label (uuid, name, description) of another disk, which does not keep it."""
    result = []
    for i, j in mapping:
        for label in _LABELS:
            new = want[j][label]
            others = [k for k, entry in enumerate(have) if k != i and entry[label] == new]
            keepers = [k for k, m in mapping if k in others and want[m][label] == new]
            if new is not None and have[i][label] != new and len(keepers) < len(others) and [i, j] not in result:
                result.append([i, j])
    return result


def _lost(have: t.List[Entry], pairs: t.Iterable[t.Sequence[int]]) -> int:
    mapped = {pair[0] for pair in pairs}
    return sum(entry["size"] for i, entry in enumerate(have) if i not in mapped and not entry["preserve"])


def _deleted(result: t.Dict[str, t.Any]) -> t.List[int]:
    return [entry["current"] for entry in result["deletes"]]


def _warning(code: str, message: str, **details: t.Any) -> t.Dict[str, t.Any]:
    return dict(details, code=code, message=message)


def _birth(entry: Entry) -> Birth:
    return Birth(entry["type"], entry["image"], entry["snapshot"], entry["size"])


def _all_fit(disks: t.Sequence[Birth], entries: t.Sequence[Birth]) -> bool:
    """Whether every disk can have an entry of its own: per kind, the n-th biggest disk fits the n-th biggest entry."""
    for kind in {disk[:3] for disk in disks}:
        sizes = sorted((d.size for d in disks if d[:3] == kind), reverse=True)
        room = sorted((e.size for e in entries if e[:3] == kind), reverse=True)
        if len(sizes) > len(room) or any(size > space for size, space in zip(sizes, room)):
            return False
    return True


def _in_list_order(
    disks: t.List[int], entries: t.List[int], current: t.Sequence[Birth], desired: t.Sequence[Birth]
) -> Pairs:
    """Pairs of disks and entries that fit one to one. Each disk gets the first entry that leaves the rest fitting."""
    pairs: Pairs = []
    for n, i in enumerate(disks):
        rest = [current[k] for k in disks[n + 1 :]]
        for j in entries:
            if compatible(current[i], desired[j]) and _all_fit(rest, [desired[m] for m in entries if m != j]):
                entries = [m for m in entries if m != j]
                pairs.append((i, j))
                break
    return pairs


def _check_names(label: str, entries: t.List[Entry]) -> bool:
    """Check that every disk has a name."""
    names = [entry["name"] for entry in entries if entry["name"] is not None]
    if names and len(names) < len(entries):
        nameless = [str(n) for n, entry in enumerate(entries) if entry["name"] is None]
        raise FlexdiskError("NAMES_PARTIAL", f"{label}: all disks have names or none; without: {', '.join(nameless)}")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise FlexdiskError("NAME_CONFLICT", f"{label}: two disks are named {', '.join(repeated)}")
    return bool(names)


def _entries(label: str, value: object) -> t.List[Entry]:
    if not isinstance(value, (list, tuple)):
        raise FlexdiskError("InvalidArgument", f"{label} is not valid: it must be a list of dictionaries")
    entries = [_entry(f"{label}[{n}]", item) for n, item in enumerate(value)]
    uuids = [entry["uuid"] for entry in entries if entry["uuid"] is not None]
    repeated = sorted({uuid for uuid in uuids if uuids.count(uuid) > 1})
    if repeated:
        raise FlexdiskError("InvalidArgument", f"{label}: two disks have the uuid {', '.join(repeated)}")
    return entries


def _entry(label: str, value: object) -> Entry:
    if not isinstance(value, t.Mapping):
        raise FlexdiskError("InvalidArgument", f"{label} is not valid: it must be a dictionary")
    unknown = sorted(str(key) for key in value if key not in _KEYS)
    if unknown:
        text = f"{label}: unknown key {', '.join(unknown)}; known are {', '.join(sorted(_KEYS))}"
        raise FlexdiskError("InvalidArgument", text)
    entry: t.Dict[str, t.Any] = {"size": _size(label, value.get("size"))}
    entry["omitted"] = {key for key in _KEYS if value.get(key) in (None, "")}
    for key in _TEXTS + _FLAGS:
        kind, expected = (str, "a string") if key in _TEXTS else (bool, "true or false")
        if key in entry["omitted"]:
            entry[key] = _DEFAULTS.get(key)
        elif isinstance(value[key], kind):
            entry[key] = value[key]
        else:
            raise FlexdiskError("InvalidArgument", f"{label}.{key} is not valid: it must be {expected}")
    if entry["pci_slot"] is not None:
        entry["pci_slot"] = normalise(entry["pci_slot"])
    return entry


def _size(label: str, value: object) -> int:
    """A size as an integer, a string of digits or an integral float, all of which templates produce."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 30:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        text = f"{label}.size is not valid: it must be a positive integer, in one unit for all disks"
        raise FlexdiskError("InvalidArgument", text)
    return value
