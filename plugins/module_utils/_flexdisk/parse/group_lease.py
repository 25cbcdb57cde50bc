# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arguments of group_lease: who wants the lease of which group, and for how long."""

from __future__ import annotations

import typing as t

from ..model.desired import LeaseDeclaration
from ..model.durations import parse_seconds
from ..model.errors import FlexdiskError, Problem, Problems
from ..rules import identity, lease
from .values import Raw


def parse_lease(raw: Raw) -> t.Tuple[LeaseDeclaration, t.List[Problem]]:
    """Return the arguments of the module, and all their problems."""
    problems = Problems("")
    group, token, holder, hold = raw["group"], (raw["token"] or "").lower(), raw["holder"], raw["state"] == lease.HOLD
    if not lease.is_group(group):
        wanted = "1 to 64 letters, digits and ._-, a letter or digit first"
        problems.add("InvalidArgument", f"group {group!r:.80} has {len(group)} characters; a name has {wanted}")
    if not identity.is_uuid(token):
        problems.add("InvalidArgument", f"token {token!r:.80} is not a UUID, but {len(token)} other characters")
    _check_holder(holder, hold, problems)
    ttl = _seconds(raw["ttl"], problems)
    _check_contradictions(raw, hold, problems)
    if raw["pool"] is not None:
        problems.attempt("", identity.check_pool, raw["pool"])
    declared = LeaseDeclaration(group, token, holder or "", hold, ttl, raw["take_over"], raw["renew"])
    return declared, list(problems)


def _check_holder(holder: t.Optional[str], hold: bool, problems: Problems) -> None:
    """Require a text for people, unless the lease is released."""
    if holder is None and hold:
        problems.add("MissingParameter", "state=held needs holder, a text that tells people who is at work")
    if holder is not None and not lease.is_holder(holder):
        wanted = f"1 to {lease.HOLDER_LIMIT} printable ones"
        problems.add("InvalidArgument", f"holder {holder!r:.80} has {len(holder)} characters; it needs {wanted}")


def _seconds(ttl: object, problems: Problems) -> int:
    """Return the seconds until the lease expires."""
    try:
        seconds = parse_seconds(ttl)
    except FlexdiskError as exc:
        problems.add(exc.code, f"ttl: {exc.message}")
        return 0
    if not lease.SHORTEST <= seconds <= lease.LONGEST:
        problems.add("InvalidArgument", f"ttl {ttl}: from {lease.SHORTEST} to {lease.LONGEST} seconds")
    return seconds


def _check_contradictions(raw: Raw, hold: bool, problems: Problems) -> None:
    """Refuse options that contradict each other."""
    if raw["take_over"] and raw["renew"]:
        problems.add("InvalidArgument", "take_over takes the lease of another run, and renew takes none; give one")
    if not hold and (raw["take_over"] or raw["renew"]):
        problems.add("InvalidArgument", "take_over and renew work only with state=held")
