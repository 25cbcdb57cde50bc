# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the playbook replicate says at its end: a table of what was due, and what failed."""

from __future__ import annotations

import typing as t

from ...model.sizes import render_bytes
from ...model.text import count
from ..tables import aligned
from .replica_age import age_text, due_text

_Dict = t.Mapping[str, t.Any]
_HEAD = ("VM", "host", "to", "sent", "took", "age before", "age after", "next due", "failed")
_CHECK_HEAD = ("VM", "host", "to", "to send", "age", "failed")


class Report(t.NamedTuple):
    """The end of a run."""

    lines: t.List[str]
    failures: t.List[str]
    """What failed, for people."""


def report(
    calls: t.Mapping[str, _Dict],
    results: t.Mapping[str, t.Sequence[_Dict]],
    left_out: t.Sequence[str] = (),
    check: bool = False,
) -> Report:
    """Return the table.

    calls: what replicate() gave each host. results: of each host, what the syncs have returned. A host that was lost in
    the middle has fewer. left_out: what is wrong with names, which are failures, too.
    """
    rows: t.List[t.Sequence[str]] = []
    failures = list(left_out)
    fresh: t.List[_Dict] = []
    for host, call in calls.items():
        fresh += call["fresh"]
        ended = {(one["peer"], row["vm"]): row for one in results.get(host, ()) for row in one["rows"]}
        for peer in filter(None, call["peers"]):
            for vm in peer["rows"]:
                row = ended.get((peer["host"], vm["vm"]))
                failure = row["failure"] if row is not None else f"{host} was lost in the middle of the run"
                rows.append(_line(host, peer["host"], vm, row, failure, check))
                failures += [f"{vm['name']} to {peer['host']}: {failure}"] if failure else []
    lines = aligned(_CHECK_HEAD if check else _HEAD, rows)
    text = "no replica is due" if not rows else f"{count(len(rows), 'replica')} {'would be' if check else 'was'} due"
    if len(rows) > 1:
        text = text.replace(" was ", " were ")
    fresh_text = f"{count(len(fresh), 'replica is', 'replicas are')} fresh" if fresh else ""
    lines.append(", ".join(filter(None, [text, fresh_text, f"{len(failures)} failed" if failures else ""])))
    if fresh and not rows:  # a run that sends takes time, so that it could not say
        first = min(fresh, key=lambda one: int(one["seconds"]))
        lines.append(f"the next one, {first['name']} to {first['to']}, is due in {age_text(first['seconds'])}")
    return Report(lines, list(dict.fromkeys(failures)))


def _line(host: str, peer: str, vm: _Dict, row: t.Optional[_Dict], failure: str, check: bool) -> t.Sequence[str]:
    before = age_text(vm["age"], vm["no_age"])
    failed = "yes" if failure else ""
    if row is None:
        return (vm["name"], host, peer, *(("", before) if check else ("", "", before, "", "")), failed)
    sent = render_bytes(row["sent_bytes"])
    if check:
        return (vm["name"], host, peer, f"about {sent}" if row["sent_bytes"] else "", before, failed)
    after = age_text(row["age"]) if row["complete"] else before
    due = due_text(row["age"] if row["complete"] else vm["age"], vm["every"])
    return (vm["name"], host, peer, sent, f"{round(row['seconds'])} s", before, after, due, failed)
