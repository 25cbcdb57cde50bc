# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole run of host_metrics: observe, check, and write metrics for a monitoring system."""

from __future__ import annotations

import errno
import os
import time
import typing as t

from ...hypervisor.protocol import Hypervisor
from ...hypervisor.whole_files import replace
from ...model.durations import parse_seconds
from ...model.errors import FlexdiskError, Problem, Problems, named
from ...rules.exposition import render
from ...rules.metrics import ReplicaPolicy, families
from ...rules.verify import REPLICA_DAYS, UNUSED_DAYS, findings
from ...zfs.commands import Zfs
from ..host.observe import observe
from .group_lease import leases

SUFFIX = ".prom"

_Answer = t.Tuple[t.Dict[str, t.Any], t.List[str]]


class MetricsArguments(t.NamedTuple):
    """The checked arguments."""

    path: str
    """The file, "" for none."""
    policies: t.Sequence[ReplicaPolicy]


def parse(params: t.Mapping[str, t.Any]) -> t.Tuple[MetricsArguments, t.List[Problem]]:
    """Return the arguments and their problems."""
    path, problems = params["path"] or "", Problems("")
    if params["path"] is not None and not (os.path.isabs(path) and path.endswith(SUFFIX)):
        text = f"path is {path!r}, but must be absolute and end with {SUFFIX}: node_exporter reads no other files"
        problems.add("InvalidArgument", text)
    entries = [entry for entry in params["replicas"] or () if entry.get("every")]
    policies = [problems.attempt("", _policy, entry) for entry in entries]
    return MetricsArguments(path, policies), problems


def _policy(given: t.Mapping[str, t.Any]) -> ReplicaPolicy:
    every = named("replicas: every", parse_seconds, given["every"])
    return ReplicaPolicy(given.get("vm") or "", given.get("group") or "", given["host"], every)


def run(
    zfs: Zfs, hypervisor: Hypervisor, pool: t.Optional[str], arguments: MetricsArguments, check_mode: bool
) -> _Answer:
    """Return the result with the metrics as text, and warnings. Write the text to path, if there is one.

    The file is written even without a change, so that its time shows when the host was last read.
    """
    host = observe(zfs, hypervisor, pool, complete=True, all_pools=True)
    lease_results, warnings = leases(zfs, host)
    verify_findings = findings(host, int(time.time()), UNUSED_DAYS, REPLICA_DAYS)
    path, policies = arguments
    text = render(families(host, hypervisor.capabilities.name, verify_findings, lease_results, policies))
    content = text.encode("utf-8", "backslashreplace")
    changed = bool(path) and _read(path) != content
    if path and not check_mode:
        try:
            replace(path, content, 0o644, durable=False)
        except OSError as exc:
            raise FlexdiskError("NotApplied", f"{path} could not be written: {exc.strerror}") from exc
    return {"changed": changed, "text": text}, warnings


def _read(path: str) -> t.Optional[bytes]:
    """Return the current contents of the file, None if there is none. Raises FlexdiskError if it cannot be used."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as exc:
        if exc.errno == errno.ENOENT and os.path.isdir(os.path.dirname(path)):
            return None
        raise FlexdiskError("InvalidArgument", f"path is {path}: {exc.strerror}") from exc
