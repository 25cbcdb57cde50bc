# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lets what lies on a disk take the space that has come: read the guest, plan, do it, and read again."""

from __future__ import annotations

import os
import time
import typing as t

from ...guest.plan import plan
from ...guest.steps import Plan
from ...model.errors import FlexdiskError
from ..host.runner import SubprocessRunner
from .guest_apply import PATIENCE, Doer
from .guest_observe import Guest, Wishes


def grow(
    runner: SubprocessRunner, kname: str, params: t.Mapping[str, t.Any], check_mode: bool = False, root: str = "/"
) -> t.Dict[str, t.Any]:
    """Let what lies on a disk take the space that has come. The result is that of the module.

    Raises FlexdiskError with what was found, or what failed.
    """
    passphrase = params["luks_passphrase"] or ""
    guest, wishes = Guest(runner, root), Wishes(params["logical_volume"], bool(passphrase), params["backup_dir"])
    planned = plan(guest.read(kname, wishes))
    doer = Doer(runner, params["backup_dir"], passphrase)
    doer.test(planned)
    if planned.steps and not check_mode:
        doer.do(planned)
        _check(guest, kname, wishes, PATIENCE if planned.later else 0)
    return _result(planned, params["backup_dir"])


def _check(guest: Guest, kname: str, wishes: Wishes, patience: float) -> None:
    """Raise FlexdiskError NotApplied if the disk has not become what was planned after so many seconds."""
    try:
        left = _left(guest, kname, wishes, patience)
    except FlexdiskError as exc:  # it would have been a refusal, but now the disk has changed
        raise FlexdiskError("NotApplied", f"the disk has changed, and now: {exc.message}") from exc
    if left.steps:
        raise FlexdiskError("NotApplied", f"the disk has not become what was planned; left: {', '.join(left.lines)}")


def _left(guest: Guest, kname: str, wishes: Wishes, patience: float) -> Plan:
    """The plan for what has not become as it was planned after so many seconds."""
    end = time.monotonic() + patience
    left = plan(guest.read(kname, wishes))
    while left.steps and time.monotonic() < end:
        time.sleep(0.5)
        left = plan(guest.read(kname, wishes))
    return left


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
