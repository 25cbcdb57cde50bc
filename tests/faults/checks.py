# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What must hold after an interruption. Each check returns a list of complaints, empty if all is well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.faults.backend import Backend
from tests.faults.world import World

MIB = 1 << 20
IDLE_COMMANDS = 4


@dataclass(frozen=True)
class Content:
    """The first `length` bytes of the dataset or snapshot with an identity; `name` is where they were."""

    guid: str
    name: str
    length: int
    digest: str


def ledger(backend: Backend, before: World, after: World) -> list[Content]:
    """What an undisturbed run keeps of all data, taken before it: read from `backend` in the state `before`."""
    sizes_by_guid = {props["guid"]: after.size(name) for name, props in after.datasets.items()}
    lengths = {
        name: min(before.size(name), sizes_by_guid.get(props["guid"], 0)) for name, props in before.datasets.items()
    }
    digests = backend.digests({name: length for name, length in lengths.items() if length})
    return [Content(before.datasets[name]["guid"], name, lengths[name], digest) for name, digest in digests.items()]


def lost_data(backend: Backend, contents: Iterable[Content], now: World) -> list[str]:
    """Every byte that was to be kept is there, wherever its dataset lies."""
    contents = list(contents)
    places = {props["guid"]: name for name, props in now.datasets.items()}
    lengths = {content.guid: content.length for content in contents}
    readable = {place: lengths[guid] for guid, place in places.items() if 0 < lengths.get(guid, 0) <= now.size(place)}
    known = {place: now.contents[place] for place, length in readable.items() if length == now.size(place)}
    digests = known | backend.digests({place: length for place, length in readable.items() if place not in known})
    complaints = []
    for content in contents:
        place = places.get(content.guid)
        if place is None:
            complaints.append(f"data lost: {content.name} is gone")
        elif digests.get(place) != content.digest:
            complaints.append(f"data lost: {content.name}, now {place}, has other contents")
    return complaints


def quota_law(world: World) -> list[str]:
    """quota = reservation = q + F + what the volumes reserve beyond their sizes, without F all that they reserve.

    Proxmox VE has no dataset for a VM.
    """
    complaints = []
    for vm in (one for one in world.vms.values() if one["zfs_filesystem"]):
        root = vm["zfs_filesystem"]
        mine = {prop: _number(value) for prop, value in world.datasets[root].items()}
        below = [p for n, p in world.datasets.items() if n.startswith(root + "/") and p["type"] == "volume"]
        reserved, sizes = (sum(_number(p[key]) for p in below) for key in ("refreservation", "volsize"))
        flexible = vm["flexible_disk_size"]
        law = mine["refquota"] + reserved + (flexible * MIB - sizes if flexible else 0)
        if (mine["quota"], mine["reservation"]) != (law, law):
            complaints.append(f"{vm['alias']}: quota {mine['quota']}, reservation {mine['reservation']}, law {law}")
    return complaints


def _number(value: str) -> int:
    return int(value) if value.isdigit() else 0


def differences(wanted: Any, actual: Any, path: str = "") -> Iterator[str]:
    """Where two comparable worlds differ."""
    if isinstance(wanted, Mapping) and isinstance(actual, Mapping):
        for key in sorted({*wanted, *actual}):
            yield from differences(wanted.get(key), actual.get(key), f"{path}/{key}")
    elif wanted != actual:
        yield f"{path[1:]}: {actual!r} instead of {wanted!r}"


def succeeded(result: Mapping[str, Any], which: str) -> list[str]:
    """A task that ran to its end without a failure."""
    if result.get("killed"):
        return [f"the {which} run was killed"]
    if result.get("failed"):
        return [f"the {which} run failed: {result['msg']}"]
    return []


def idle(result: Mapping[str, Any], commands: list[list[str]], which: str) -> list[str]:
    """A task that found nothing to do, and looked only as often as it must."""
    complaints = succeeded(result, which)
    if not complaints and result["changed"]:
        complaints.append(f"the {which} run changed something: {result.get('diff')!r}")
    if not complaints and len(commands) > IDLE_COMMANDS:
        complaints.append(f"the {which} run took {len(commands)} commands to do nothing")
    return complaints


def honest(result: Mapping[str, Any]) -> list[str]:
    """A run that fails says so in words of its own, with the state of each step where some had been begun."""
    if not result.get("failed"):
        return []
    complaints = [f"a failure without {key}" for key in ("msg", "error_code") if not result.get(key)]
    if "Traceback" in result.get("msg", ""):
        complaints.append(f"a traceback: {result['msg']}")
    failure = result.get("failure")
    if failure and not all(step.get("status") for step in failure["steps"]):
        complaints.append("a failure with steps that do not say what became of them")
    return complaints


def foretold(predicted: Mapping[str, Any], done: Mapping[str, Any]) -> list[str]:
    """Check mode says what the real run then does, recovery included."""
    if predicted.get("failed") != done.get("failed"):
        return [f"check mode: {predicted.get('msg', 'success')}; real run: {done.get('msg', 'success')}"]
    keys = () if done.get("failed") else ("changed", "diff")
    wrong = [key for key in keys if predicted.get(key) != done.get(key)]
    return [f"check mode foretold {predicted.get(key)!r}, and it was {done.get(key)!r}" for key in wrong]
