# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors that carry a code of RFD 154 and a message for the operator."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .text import cut, visible, visible_lines


class FlexdiskError(Exception):
    """An error that ends the work on a VM, or the task. code is its name, from RFD 154; message is for the operator."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True)
class Problem:
    """One reason to refuse a VM's declaration, found before anything has changed."""

    code: str
    message: str
    vm: str = ""
    disk: str = ""

    def as_dict(self) -> t.Dict[str, str]:
        """Return the problem as a task returns it."""
        kind = {"VmNotStopped": "restart", "FixedAtBirth": "recreate"}.get(self.code, "refused")
        return {"code": self.code, "message": self.message, "vm": self.vm, "disk": self.disk, "class": kind}


def failure_text(problems: t.Sequence[Problem], noun: str = "VM ") -> str:
    """Return the problems as a message, one a line; of many, the first ones and how many more there are. noun: what
    stands before the name of a VM.
    """
    return "\n".join(cut([_line(problem, noun) for problem in problems]))


def _line(problem: Problem, noun: str) -> str:
    where = [noun + problem.vm if problem.vm else "", problem.disk and "disk " + problem.disk]
    head = "".join(f"{part}: " for part in where if part)
    return f"{visible(head)}{visible_lines(problem.message)} [{problem.code}]"


def refusal(problems: t.Sequence[Problem], noun: str = "VM ") -> t.Dict[str, t.Any]:
    """Return the keys of a result that refuses, which are arguments of fail_json. The key problems has all of them."""
    return {
        "msg": failure_text(problems, noun),
        "error_code": problems[0].code,
        "problems": [problem.as_dict() for problem in problems],
    }


class Problems(t.List[Problem]):
    """The problems of one VM, so that the user sees all of them at once. vm is its name in messages, "" for none."""

    def __init__(self, vm: str) -> None:
        super().__init__()
        self.vm = vm

    def add(self, code: str, message: str, disk: str = "") -> None:
        """Add a problem of the VM, or of its disk of this name."""
        self.append(Problem(code, message, self.vm, disk))

    def attempt(self, disk: str, check: t.Callable[..., t.Any], *args: t.Any) -> t.Any:
        """Return the result of check(*args), or None if it raises FlexdiskError, which becomes a problem."""
        try:
            return check(*args)
        except FlexdiskError as exc:
            self.add(exc.code, exc.message, disk)
            return None


def named(key: str, act: t.Callable[..., t.Any], *args: t.Any) -> t.Any:
    """Return what act(*args) returns. The option's name is put before the message of its FlexdiskError."""
    try:
        return act(*args)
    except FlexdiskError as exc:
        raise FlexdiskError(exc.code, f"{key}: {exc.message}") from exc
