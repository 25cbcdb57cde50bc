# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Grows what lies on a disk to its new size: read the guest, plan, apply, and read again."""

from __future__ import annotations

import os
import time
import typing as t

from ...guest.plan import plan
from ...guest.steps import Plan
from ...model.errors import FlexdiskError
from ..host.runner import SubprocessRunner
from .guest_apply import LOCK_TIMEOUT, GuestApplier
from .guest_observe import GrowthOptions, Guest


def grow(
    runner: SubprocessRunner, kname: str, params: t.Mapping[str, t.Any], check_mode: bool = False, root: str = "/"
) -> t.Dict[str, t.Any]:
    """Grow partitions, layers and file system of a disk to its new size. Return the result of the module.

    Raises FlexdiskError for an unsupported layout, or a failure.
    """
    passphrase = params["luks_passphrase"] or ""
    guest, options = (
        Guest(runner, root),
        GrowthOptions(params["logical_volume"], bool(passphrase), params["backup_dir"]),
    )
    planned = plan(guest.read(kname, options))
    applier = GuestApplier(runner, params["backup_dir"], passphrase)
    applier.test(planned)
    if planned.steps and not check_mode:
        applier.apply(planned)
        _check(guest, kname, options, LOCK_TIMEOUT if planned.later else 0)
    return _result(planned, params["backup_dir"])


def _check(guest: Guest, kname: str, options: GrowthOptions, timeout: float) -> None:
    """Raise FlexdiskError NotApplied if the disk is not as planned after so many seconds."""
    try:
        remaining = _remaining_plan(guest, kname, options, timeout)
    except FlexdiskError as exc:  # it would have been a refusal, but now the disk has changed
        raise FlexdiskError("NotApplied", f"the disk has changed, and now: {exc.message}") from exc
    if remaining.steps:
        raise FlexdiskError(
            "NotApplied", f"the disk has not become what was planned; left: {', '.join(remaining.lines)}"
        )


def _remaining_plan(guest: Guest, kname: str, options: GrowthOptions, timeout: float) -> Plan:
    """Return a plan for what is not as planned after so many seconds."""
    end = time.monotonic() + timeout
    remaining = plan(guest.read(kname, options))
    while remaining.steps and time.monotonic() < end:
        time.sleep(0.5)
        remaining = plan(guest.read(kname, options))
    return remaining


def _result(planned: Plan, folder: str) -> t.Dict[str, t.Any]:
    changed = bool(planned.steps)
    text = f"{planned.device}: {'; '.join(planned.lines) if changed else 'nothing to grow'}"
    return {
        "changed": changed,
        "msg": text,
        "device": planned.device,
        "size_bytes": planned.size,
        "steps": list(planned.lines),
        "backup": os.path.join(folder, planned.backup) if planned.backup else "",
        "diff": {"prepared": "".join(f"{line}\n" for line in planned.lines)},
    }
