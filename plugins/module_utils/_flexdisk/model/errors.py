# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors with a code of RFD 154 and a message for the user."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .text import cut, visible, visible_lines


class FlexdiskError(Exception):
    """An error that ends the work on a VM, or the task. code: its name, from RFD 154. message: for the user."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Unchanged(FlexdiskError):
    """A step was refused before it has changed anything. Also for steps that must not end half-way."""

    def __init__(self, error: FlexdiskError) -> None:
        super().__init__(error.code, error.message)


@dataclass(frozen=True)
class Problem:
    """One reason to refuse a VM's declaration, found before anything has changed."""

    code: str
    message: str
    vm: str = ""
    disk: str = ""

    def as_dict(self) -> t.Dict[str, str]:
        """Return the problem as results show it."""
        kind = {"VmNotStopped": "restart", "FixedAtBirth": "recreate"}.get(self.code, "refused")
        return {"code": self.code, "message": self.message, "vm": self.vm, "disk": self.disk, "class": kind}


def failure_text(problems: t.Sequence[Problem], noun: str = "VM ") -> str:
    """Return the problems as a message, one per line; only the first ones and the number of the others if they are
    many.

    noun: what stands before the name of a VM.
    """
    return "\n".join(cut([_line(problem, noun) for problem in problems]))


def _line(problem: Problem, noun: str) -> str:
    where = [noun + problem.vm if problem.vm else "", problem.disk and "disk " + problem.disk]
    head = "".join(f"{part}: " for part in where if part)
    return f"{visible(head)}{visible_lines(problem.message)} [{problem.code}]"


def refusal(problems: t.Sequence[Problem], noun: str = "VM ") -> t.Dict[str, t.Any]:
    """Return the arguments of fail_json for these problems. The key problems has all of them."""
    return {
        "msg": failure_text(problems, noun),
        "error_code": problems[0].code,
        "problems": [problem.as_dict() for problem in problems],
    }


class Problems(t.List[Problem]):
    """All problems of one VM, so that the user sees them at once. vm: its name in messages, "" for none."""

    def __init__(self, vm: str) -> None:
        super().__init__()
        self.vm = vm

    def add(self, code: str, message: str, disk: str = "") -> None:
        """Add a problem of the VM, or of its disk with this label."""
        self.append(Problem(code, message, self.vm, disk))

    def attempt(self, disk: str, check: t.Callable[..., t.Any], *args: t.Any) -> t.Any:
        """Return check(*args). If it raises FlexdiskError, add the problem and return None."""
        try:
            return check(*args)
        except FlexdiskError as exc:
            self.add(exc.code, exc.message, disk)
            return None


def named(key: str, act: t.Callable[..., t.Any], *args: t.Any) -> t.Any:
    """Return act(*args). The message of a FlexdiskError gets the name of the option in front."""
    try:
        return act(*args)
    except FlexdiskError as exc:
        raise FlexdiskError(exc.code, f"{key}: {exc.message}") from exc
