# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report as a page: one HTML file that needs nothing else. The same input makes the same page."""

from __future__ import annotations

import typing as t
from datetime import datetime, timezone

from ...model.errors import FlexdiskError
from ...rules.identity import TIME_FORMAT
from . import rows
from .assets import POLICY, SCRIPT, STYLE
from .markup import Html, element, isolated, joined
from .rows import Column, Row

_Dict = t.Mapping[str, t.Any]
MOST_SNAPSHOTS = 200
PLACES = {
    "pools": "Pools",
    "vms": "VMs",
    "findings": "Findings",
    "snapshots": "Snapshots",
    "parked": "Detached disks",
}


def page(results: t.Mapping[str, _Dict], time: str, unread: t.Mapping[str, str]) -> str:
    """results: for each host the results of vm_info, host_info, disk_verify and zfs_quota. time: when the page is made.
    unread: the hosts that could not be read, with the reason.
    """
    now = checked_time(time)
    hosts = sorted(results)
    sections = [
        unread_hosts(unread),
        section("pools", "Pools", rows.POOLS, [row for host in hosts for row in rows.of_pools(host, results[host])]),
        _vms(hosts, results),
        _findings(hosts, results),
        _snapshots(hosts, results),
        _parked(hosts, results, now),
        _left_out(hosts, results),
    ]
    return html(
        f"Disks of {count(len(hosts), 'host')}, {time}", _summary(hosts, results, time, unread), joined(*sections)
    )


def html(title: str, intro: Html, sections: Html) -> str:
    """Return the file with this text below its heading, and these sections."""
    head = element(
        "head",
        None,
        element("meta", {"charset": "utf-8"}),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": POLICY}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "referrer", "content": "no-referrer"}),
        element("title", None, title),
        element("style", None, Html(STYLE)),
    )
    body = element(
        "body",
        None,
        element("h1", None, "Virtual machines, disks and pools"),
        intro,
        _tools(),
        element("main", None, sections),
        element("script", None, Html(SCRIPT)),
    )
    return f"<!DOCTYPE html>\n{element('html', {'lang': 'en'}, head, body)}\n"


def checked_time(text: str) -> datetime:
    """Return the time of the page. Raises FlexdiskError."""
    try:
        return datetime.strptime(text, TIME_FORMAT).replace(tzinfo=timezone.utc)
    except (TypeError, ValueError) as exc:
        raise FlexdiskError("InvalidArgument", f"time {text} is not valid: write it as 2026-11-27T00:30:00Z") from exc


def _summary(hosts: t.Sequence[str], results: t.Mapping[str, _Dict], time: str, unread: t.Mapping[str, str]) -> Html:
    vms = [vm for host in hosts for vm in results[host]["vm_info"]["vms"]]
    counts = [results[host]["disk_verify"]["counts"] for host in hosts]
    drifted = sum(bool(vm["cause"]) for host in hosts for vm in results[host]["zfs_quota"]["vms"])
    parts = [
        count(len(hosts), "host"),
        count(len(vms), "VM"),
        count(sum(len(vm["disks"]) for vm in vms), "disk"),
        count(sum(each["error"] for each in counts), "error"),
        count(sum(each["warning"] for each in counts), "warning"),
        f"quota off the law on {count(drifted, 'VM')}",
    ]
    lines = [element("p", None, ", ".join(parts) + f". Made at {time}.")]
    if unread:
        names = Html(", ".join(map(isolated, sorted(unread))))
        lines.append(element("p", {"class": "bad"}, "Not read, and missing on this page: ", names, "."))
    links = [element("a", {"href": "#" + to}, name) for to, name in PLACES.items()]
    return joined(*lines, element("nav", None, *links))


def _tools() -> Html:
    """Return the controls that only work with the script."""
    field = element("input", {"id": "filter", "type": "search", "autocomplete": "off", "spellcheck": "false"})
    only = element("input", {"id": "only", "type": "checkbox"})
    return element(
        "div",
        {"class": "tools", "hidden": "hidden"},
        element("label", None, "Show rows with ", field),
        element("label", None, only, " only VMs that need attention"),
        element("span", {"id": "count", "role": "status"}),
    )


def section(
    name: str,
    title: str,
    columns: t.Sequence[Column],
    table_rows: t.Iterable[Row],
    note: str = "",
    empty: str = "None.",
) -> Html:
    """Return a table with its heading, in the order of its rows."""
    ordered = sorted(table_rows, key=lambda row: row.order)
    head = element("h2", {"id": name + "-title"}, title)
    below = element("p", {"class": "note"}, note) if note else Html("")
    content = _table(name, columns, ordered) if ordered else element("p", None, empty)
    return joined(Html("\n"), element("section", {"id": name}, head, below, content))


def _table(name: str, columns: t.Sequence[Column], table_rows: t.Sequence[Row]) -> Html:
    heads = [element("th", {"scope": "col", "class": column.kind or None}, column.title) for column in columns]
    lines = [
        joined(
            Html("\n"),
            element("tr", {"id": row.name or None, "class": "calm" if row.needs_no_attention else None}, *row.cells),
        )
        for row in table_rows
    ]
    body = element("tbody", None, *lines)
    return element(
        "table", {"aria-labelledby": name + "-title"}, element("thead", None, element("tr", None, *heads)), body
    )


def unread_hosts(unread: t.Mapping[str, str]) -> Html:
    """Return the section of the hosts that could not be read, empty if there are none."""
    if not unread:
        return Html("")
    table_rows = [rows.of_unread(host, why) for host, why in unread.items()]
    return section("unread", "Hosts that could not be read", rows.UNREAD, table_rows)


def _vms(hosts: t.Sequence[str], results: t.Mapping[str, _Dict]) -> Html:
    every = [row for number, host in enumerate(hosts) for row in rows.of_vms(host, results[host], number)]
    note = "VMs that need attention come first. A bar is the flexible disk size, or the VM's disks if it has none."
    return section("vms", "VMs", rows.VMS, every, note)


def _findings(hosts: t.Sequence[str], results: t.Mapping[str, _Dict]) -> Html:
    every = []
    for number, host in enumerate(hosts):
        there = {vm["uuid"] for vm in results[host]["vm_info"]["vms"]}
        for finding in results[host]["disk_verify"]["findings"]:
            link = rows.row_name(number, finding["vm"]) if finding["vm"] in there else ""
            every.append(rows.of_finding(host, finding, link))
    return section("findings", "Findings", rows.FINDINGS, every, empty="Nothing is wrong.")


def _snapshots(hosts: t.Sequence[str], results: t.Mapping[str, _Dict]) -> Html:
    every = sorted(
        (row for host in hosts for vm in results[host]["vm_info"]["vms"] for row in rows.of_snapshots(host, vm)),
        key=lambda row: row.order,
    )
    more = len(every) - MOST_SNAPSHOTS
    note = "What frees most comes first. Deleting one changes what the others free."
    note += f" {count(more, 'smaller one')} not shown." if more > 0 else ""
    return section("snapshots", "Snapshots", rows.SNAPSHOTS, every[:MOST_SNAPSHOTS], note if every else "")


def _parked(hosts: t.Sequence[str], results: t.Mapping[str, _Dict], now: datetime) -> Html:
    every = []
    for host in hosts:
        result = results[host]["vm_info"]
        aliases = {vm["uuid"]: vm["alias"] or vm["uuid"] for vm in [*result["vms"], *result["skipped_vms"]]}
        every += [rows.of_parked(host, disk, aliases, now) for disk in result["parked"]]
    return section("parked", "Detached disks", rows.PARKED, every)


def _left_out(hosts: t.Sequence[str], results: t.Mapping[str, _Dict]) -> Html:
    every = [rows.of_left_out(host, vm) for host in hosts for vm in results[host]["vm_info"]["skipped_vms"]]
    return section("left-out", "VMs that are left out", rows.LEFT_OUT, every) if every else Html("")


def count(number: int, word: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
