# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report of many hosts: a summary with a row for each host, and pages of some hosts each."""

from __future__ import annotations

import posixpath
import typing as t
from urllib.parse import quote

from ...model.sizes import MIB, render_bytes
from .document import checked_time, count, html, section, unread_hosts
from .markup import Html, element, isolated, joined
from .rows import Column, Row, cell, heading, size

_Dict = t.Mapping[str, t.Any]
FIGURES = ("vms", "disks", "error", "warning", "drifted", "size", "available")
COLUMNS = (
    Column("Host"),
    Column("VMs", "num"),
    Column("Disks", "num"),
    Column("Errors", "num"),
    Column("Warnings", "num"),
    Column("Quota off the law", "num"),
    Column("Size of pools", "num"),
    Column("Allocatable", "num"),
)


def pages(hosts: t.Sequence[str], path: str, most: int) -> t.List[t.Dict[str, t.Any]]:
    """Return the files of a report, each with its hosts: one file, or the summary and one for each `most` hosts."""
    if len(hosts) <= most:
        return [{"path": path, "hosts": list(hosts), "summary": False}]
    stem, suffix = posixpath.splitext(path)
    groups = [list(hosts[start : start + most]) for start in range(0, len(hosts), most)]
    width = len(str(len(groups)))
    more = [
        {"path": f"{stem}-{number:0{width}}{suffix}", "hosts": group, "summary": False}
        for number, group in enumerate(groups, start=1)
    ]
    return [{"path": path, "hosts": list(hosts), "summary": True}, *more]


def figures(results: _Dict) -> t.Dict[str, int]:
    """Return what the summary shows of a host. results: as page() takes it, of one host. Sizes are bytes."""
    vms, pools = results["vm_info"]["vms"], results["host_info"]["host"]["pools"]
    counts = results["disk_verify"]["counts"]
    return {
        "vms": len(vms),
        "disks": sum(len(vm["disks"]) for vm in vms),
        "error": counts["error"],
        "warning": counts["warning"],
        "drifted": sum(bool(vm["cause"]) for vm in results["zfs_quota"]["vms"]),
        "size": MIB * sum(pool["size"] for pool in pools),
        "available": MIB * sum(pool["available"] for pool in pools),
    }


def summary(
    hosts: t.Mapping[str, t.Mapping[str, int]], time: str, unread: t.Mapping[str, str], files: t.Sequence[_Dict]
) -> str:
    """Return the summary as HTML. hosts: the figures of each. files: as pages() returns them."""
    checked_time(time)
    links = {host: _link(file["path"]) for file in files if not file["summary"] for host in file["hosts"]}
    total = {key: sum(host_figures[key] for host_figures in hosts.values()) for key in FIGURES}
    counted = [
        count(len(hosts), "host"),
        *(count(total[key], word) for key, word in (("vms", "VM"), ("disks", "disk"), ("error", "error"))),
        count(total["warning"], "warning"),
        f"quota off the law on {count(total['drifted'], 'VM')}",
        f"{render_bytes(total['available'])} of {render_bytes(total['size'])} allocatable",
    ]
    rows = [_row(host, host_figures, links[host]) for host, host_figures in hosts.items()]
    note = "Hosts with errors or warnings come first. The name of a host leads to the page with its VMs."
    return html(
        f"Disks of {count(len(hosts), 'host')}, {time}",
        element("p", None, ", ".join(counted) + f". Made at {time}."),
        joined(unread_hosts(unread), section("hosts", "Hosts", COLUMNS, rows, note)),
    )


def _link(path: str) -> str:
    """Return the way from the summary to a file beside it. C(#), C(%) and C(:) of its name mean something in a link."""
    return "./" + quote(posixpath.basename(path), safe="", errors="surrogateescape")


def _row(host: str, host_figures: t.Mapping[str, int], file: str) -> Row:
    fine = not (host_figures["error"] or host_figures["warning"] or host_figures["drifted"])
    cells: t.List[Html] = [
        element("th", {"scope": "row"}, element("a", {"href": file}, isolated(host))) if file else heading(host),
        *(cell(column, host_figures[key], host_figures[key]) for column, key in zip(COLUMNS[1:6], FIGURES)),
        *(size(column, host_figures[key]) for column, key in zip(COLUMNS[6:], FIGURES[5:])),
    ]
    return Row(
        (-host_figures["error"], -host_figures["warning"], -host_figures["drifted"], host),
        cells,
        needs_no_attention=fine,
    )
