# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tests compute by themselves, from what zfs prints and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MIB = 1 << 20
# What check mode cannot know, as the modules document it: stamps, uuids and volumes of new disks, figures that only ZFS
# has, and what protected or destroyed disks.
VOLATILE = {
    *("ctime", "mtime", "serial_no", "uuid", "volume", "free_space", "allocatable", "created", "frees_bytes"),
    *("guard", "destroyed_by", "pinned"),
}
Datasets = dict[str, dict[str, Any]]


def datasets(text: str) -> Datasets:
    """`zfs get -Hp -o name,property,value` as a dictionary by dataset and property; figures are integers."""
    found: Datasets = {}
    for line in text.splitlines():
        name, key, value = line.split("\t")
        found.setdefault(name, {})[key] = int(value) if value.isdigit() else value
    return found


def law(found: Datasets, root: str, flexible: int | None) -> int:
    """Bytes of quota and reservation of a VM's dataset by RFD 154: q + F + RESV - SIZE, or q + RESV without F.

    A volume without a reservation counts as another of its size has one; a file system with a disk's file, as that.
    """
    volumes = [d for name, d in found.items() if name.startswith(root + "/") and d["type"] == "volume"]
    thick = {(d["volsize"], d["volblocksize"]): d["refreservation"] for d in volumes if d["refreservation"]}
    reserved: int = sum(d["refreservation"] or thick[d["volsize"], d["volblocksize"]] for d in volumes)
    files = [d for name, d in found.items() if name.startswith(root + "/") and _holds_a_disk(d)]
    reserved += sum(d["refreservation"] for d in files)
    quota: int = found[root]["refquota"]
    if flexible is None:
        return quota + reserved
    sizes: int = sum(d["volsize"] for d in volumes) + sum(d["flexdisk:size"] for d in files)
    return quota + flexible * MIB + reserved - sizes


def _holds_a_disk(dataset: dict[str, Any]) -> bool:
    return dataset["type"] == "filesystem" and dataset.get("flexdisk:type") == "file"


def unlike(done: Any, predicted: Any, where: str = "result") -> list[str]:
    """Where a real result is not what check mode said, key by key. Only the documented volatile keys may be added."""
    if where in ("result", "second result"):
        done, predicted = ({**result, "warnings": _own(result.get("warnings") or [])} for result in (done, predicted))
    if isinstance(done, dict) and isinstance(predicted, dict):
        found = [f"{where}.{key} is only in check mode" for key in predicted.keys() - done.keys()]
        found += [f"{where}.{key} is only in the real run" for key in done.keys() - predicted.keys() - VOLATILE]
        for key in predicted.keys() & done.keys():
            found += unlike(done[key], predicted[key], f"{where}.{key}")
        return sorted(found)
    if isinstance(done, list) and isinstance(predicted, list) and len(done) == len(predicted):
        pairs = enumerate(zip(done, predicted, strict=True))
        return [words for n, (one, other) in pairs for words in unlike(one, other, f"{where}[{n}]")]
    return [] if done == predicted else [f"{where}: check mode {predicted!r}, real run {done!r}"]


def _own(warnings: list[str]) -> list[str]:
    """Without those of check mode alone: who else is at it."""
    return [text for text in warnings if "being changed by" not in text]


class FilterModule:
    """Filters for the targets that depend on four_steps."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"datasets": datasets, "law": law, "unlike": unlike}
