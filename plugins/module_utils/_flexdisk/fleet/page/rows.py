# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rows of the page's tables."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from ...model.sizes import MIB, render_apart, render_bytes
from ...rules.identity import TIME_FORMAT
from ...rules.knobs import for_playbooks
from .figures import Part, Pool, Room, colour_classes, disk_label, pools, room
from .markup import Html, element, isolated, joined, stacked_bar

_Dict = t.Mapping[str, t.Any]
_Cells = t.List[Html]
SEVERITIES = ("error", "warning", "info")
_OF_LAW = "quota_drift"  # the finding that the figures of zfs_quota tell better


@dataclass(frozen=True)
class Column:
    """A column of a table. kind is the class of its cells: C(num) for figures, C(wide) for bars, C(text) for sentences,
    C(word) for words that stay on one line.
    """

    title: str
    kind: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    # Where it stands in its table.
    order: t.Tuple[t.Any, ...]
    cells: t.Sequence[Html]
    name: str = ""
    # Nothing in it needs attention.
    needs_no_attention: bool = False


def heading(name: object, *below: object) -> Html:
    """Return the cell that names its row."""
    more = [element("span", {"class": "id"}, isolated(text)) for text in below if text]
    return element("th", {"scope": "row"}, isolated(name), *more)


def cell(column: Column, content: object, value: t.Optional[float] = None) -> Html:
    """Return a cell. value is what a figure is sorted by."""
    if column.kind == "num" and value is None:
        value = -1
    attributes = {"class": column.kind or None, "data-label": column.title, "data-v": value}
    return element("td", attributes, content if isinstance(content, Html) else str(content))


def size(column: Column, size_bytes: t.Optional[int], more: str = "") -> Html:
    """Return a cell with a figure in bytes, or a dash."""
    return cell(column, "-" if size_bytes is None else render_bytes(size_bytes) + more, size_bytes)


POOLS = (
    Column("Host"),
    Column("Pool"),
    Column("What takes its space", "wide"),
    Column("Size", "num"),
    Column("Allocatable", "num"),
)


def of_pool(host: str, pool: Pool) -> Row:
    """Return a pool as a stacked bar with its figures."""
    share = f" ({percent(pool.available, pool.size)})"
    _host, name, wide, total, left = POOLS
    cells = [heading(host), cell(name, isolated(pool.name)), cell(wide, _drawn(pool.parts))]
    return Row((host, pool.name), [*cells, size(total, pool.size), size(left, pool.available, share)])


VMS = (
    Column("VM"),
    Column("Host"),
    Column("State", "word"),
    Column("Disks and what is left", "wide"),
    Column("Flexible size", "num"),
    Column("Allocatable", "num"),
    Column("Quota", "num"),
    Column("Quota by law", "num"),
    Column("Attention", "text"),
)


def of_vms(host: str, results: _Dict, number: int) -> t.List[Row]:
    """Return the VMs of a host, those that need attention first. number: the host's, for the names of the rows."""
    quotas = {vm["uuid"]: vm for vm in results["zfs_quota"]["vms"]}
    findings: t.Dict[str, t.List[_Dict]] = {}
    for finding in results["disk_verify"]["findings"]:
        findings.setdefault(finding["vm"], []).append(finding)
    return [
        _of_vm(host, vm, quotas.get(vm["uuid"]), findings.get(vm["uuid"], []), row_name(number, vm["uuid"]))
        for vm in results["vm_info"]["vms"]
    ]


def row_name(number: int, uuid: str) -> str:
    """Return the name of a VM's row, to which links lead. A UUID can be on two hosts."""
    return f"vm-{number}-{uuid}"


def _of_vm(host: str, vm: _Dict, quota: t.Optional[_Dict], findings: t.Sequence[_Dict], name: str) -> Row:
    space = room(vm)
    label = vm["alias"] or vm["uuid"]
    marks, worst = _marks(space, quota, findings)
    _vm, at, state, wide, total, left, set_to, law, attention = VMS
    actual = lawful = None
    quota_texts: t.Tuple[str, ...] = ("-", "-")
    if quota is not None:
        actual, lawful = quota["actual"]["quota_bytes"], quota["expected_bytes"]
        quota_texts = render_apart(actual, lawful)
    cells = [
        heading(label, vm["uuid"] if vm["alias"] else ""),
        cell(at, isolated(host)),
        cell(state, vm["state"]),
        cell(wide, _drawn(space.parts)),
        size(total, space.size),
        cell(left, "-" if space.left is None else render_bytes(space.left), _order(space.left)),
        cell(set_to, quota_texts[0], actual),
        cell(law, quota_texts[1], lawful),
        cell(attention, element("ul", {"class": "marks"}, *marks) if marks else Html("")),
    ]
    return Row((worst, host, label, vm["uuid"]), cells, name, worst > SEVERITIES.index("warning"))


def _order(left: t.Optional[int]) -> t.Optional[int]:
    """By what figures of room are sorted: a VM without flexible disk space comes before any that has some left."""
    return -(2**63) if left is None else left


def _marks(space: Room, quota: t.Optional[_Dict], findings: t.Sequence[_Dict]) -> t.Tuple[t.List[Html], int]:
    """Return the notes on a VM, the worst first, and the worst severity: an index of SEVERITIES, or one beyond it."""
    marks: t.List[t.Tuple[int, str]] = []
    if space.over:
        marks.append((0, f"error: holds {render_bytes(space.over)} more than its flexible size"))
    drifted = quota is not None and quota["cause"]
    if quota is not None and drifted:
        drift = [f"{key} {_signed(quota['drift'][key + '_bytes'])}" for key in ("quota", "reservation")]
        marks.append((1, f"warning: drift of {', '.join(drift)}: {quota['cause']}"))
    for finding in findings:
        if not (drifted and finding["kind"] == _OF_LAW):
            text = [
                finding["severity"] + ":",
                finding["kind"],
                *([f"of {finding['disk']}"] if finding["disk"] else []),
            ]
            marks.append((SEVERITIES.index(finding["severity"]), " ".join(text)))
    marks.sort()
    items = [element("li", {"class": "bad" if level == 0 else None}, isolated(text)) for level, text in marks]
    return items, marks[0][0] if marks else len(SEVERITIES)


def _signed(size_bytes: int) -> str:
    return ("+" if size_bytes > 0 else "") + render_bytes(size_bytes)


FINDINGS = (
    Column("Severity", "word"),
    Column("Finding", "word"),
    Column("Host"),
    Column("VM"),
    Column("Disk"),
    Column("What was found", "text"),
    Column("Task that repairs it", "text"),
)


def of_finding(host: str, finding: _Dict, link: str) -> Row:
    """Return a finding. link is the name of its VM's row, "" if it has none."""
    _severity, kind, at, vm, disk, message, repair = FINDINGS
    owner = isolated(finding["alias"] or finding["vm"])
    bad = {"class": "bad" if finding["severity"] == "error" else None, "scope": "row"}
    task = json.dumps(finding["repair"], sort_keys=True) if finding["repair"] else ""
    cells = [
        element("th", bad, finding["severity"]),
        cell(kind, finding["kind"]),
        cell(at, isolated(host)),
        cell(vm, element("a", {"href": "#" + link}, owner) if link else owner),
        cell(disk, isolated(finding["disk"] or finding["volume"])),
        cell(message, isolated(finding["message"])),
        cell(repair, element("code", None, task) if task else Html("")),
    ]
    places = (finding["alias"], finding["vm"], finding["kind"], finding["volume"], finding["message"])
    return Row((SEVERITIES.index(finding["severity"]), host, *places), cells)


SNAPSHOTS = (
    Column("Snapshot"),
    Column("VM"),
    Column("Host"),
    Column("Disks"),
    Column("Taken (UTC)", "word"),
    Column("Deleting it frees", "num"),
)


def of_snapshots(host: str, vm: _Dict) -> t.List[Row]:
    """Return the snapshots of a VM. Those that free most come first."""
    _name, owner, at, disks, taken, frees = SNAPSHOTS
    label = vm["alias"] or vm["uuid"]
    return [
        Row(
            (-snapshot["frees_bytes"], host, label, vm["uuid"], snapshot["created"], snapshot["name"]),
            [
                heading(snapshot["name"]),
                cell(owner, isolated(label)),
                cell(at, isolated(host)),
                cell(disks, isolated(", ".join(snapshot["disks"]))),
                cell(taken, _moment(snapshot["created"])),
                size(frees, snapshot["frees_bytes"]),
            ],
        )
        for snapshot in vm["snapshots"]
    ]


PARKED = (
    Column("Disk"),
    Column("Last VM"),
    Column("Host"),
    Column("Size", "num"),
    Column("Takes", "num"),
    Column("Since (UTC)", "word"),
    Column("Days", "num"),
    Column("Description", "text"),
)


def of_parked(host: str, disk: _Dict, aliases: t.Mapping[str, str], now: datetime) -> Row:
    """Return a detached disk with its age. aliases: the names of the host's VMs by UUID."""
    _disk, owner, at, volsize, takes, since, days, description = PARKED
    vm = disk["vm"]
    when = _read(disk.get("mtime", ""))
    age = None if when is None else max(0, (now - when).days)
    last = joined(isolated(aliases.get(vm) or vm or "-"), " (gone)" if vm and vm not in aliases else "")
    cells = [
        heading(disk_label(disk), disk.get("uuid", "")),
        cell(owner, last),
        cell(at, isolated(host)),
        size(volsize, disk["size"] * MIB),
        size(takes, (disk["refreservation"] + disk["pinned"]) * MIB),
        cell(since, "-" if when is None else when.strftime("%Y-%m-%d %H:%M")),
        cell(days, "-" if age is None else age, age),
        cell(description, isolated(disk["description"]) if disk["description"] else Html("")),
    ]
    return Row((-(age if age is not None else -1), host, disk_label(disk), disk["volume"]), cells)


LEFT_OUT = (Column("VM"), Column("Host"), Column("Why the collection leaves it alone"))


def of_left_out(host: str, vm: _Dict) -> Row:
    """Return a VM that vm_info skips."""
    _vm, at, why = LEFT_OUT
    label = vm["alias"] or vm["uuid"]
    cells = [
        heading(label, vm["uuid"] if vm["alias"] else ""),
        cell(at, isolated(host)),
        cell(why, for_playbooks(vm["reason"])),
    ]
    return Row((host, label, vm["uuid"]), cells)


UNREAD = (Column("Host"), Column("Why"))


def of_unread(host: str, why: str) -> Row:
    """Return a host that could not be read."""
    return Row((host,), [heading(host), cell(UNREAD[1], isolated(why))])


def percent(part: int, total: int) -> str:
    """Return a share, rounded down."""
    if not total:
        return "-"
    return f"{part * 100 // total} %" if part * 100 >= total or not part else "under 1 %"


def _drawn(parts: t.Sequence[Part]) -> Html:
    """Return a bar with its legend below."""
    if not parts:
        return Html("no disks")
    total = sum(part.size for part in parts)
    listed = [
        element(
            "li", {"class": kind}, isolated(part.label), f" {render_bytes(part.size)} ({percent(part.size, total)})"
        )
        for part, kind in zip(parts, colour_classes(parts))
        if part.size
    ]
    return joined(stacked_bar(parts), element("ul", {"class": "parts"}, *listed))


def _read(text: object) -> t.Optional[datetime]:
    try:
        return datetime.strptime(str(text), TIME_FORMAT).replace(tzinfo=timezone.utc)
    except ValueError:
        return None


def _moment(seconds: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%d %H:%M")


def of_pools(host: str, results: _Dict) -> t.List[Row]:
    """Return the pools of a host."""
    return [of_pool(host, pool) for pool in pools(results)]
