# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run needs of its Ansible module: how it ends, the version of ansible-core, and an error as a result."""

from __future__ import annotations

import typing as t

from ...model.errors import FlexdiskError, Problem, refusal
from ...rules import core_version


class Module(t.Protocol):
    """The part of AnsibleModule that is used here."""

    params: t.Dict[str, t.Any]
    check_mode: bool

    def warn(self, warning: str) -> None:
        """Show a warning to the user."""

    def log(self, msg: str) -> None:
        """Write a line to the host's log."""

    def fail_json(self, *, msg: str, **kwargs: t.Any) -> t.Any:
        """End the module with an error."""

    def exit_json(self, **kwargs: t.Any) -> t.Any:
        """End the module with a result."""


def check_core(core: str) -> None:
    """Raise FlexdiskError AnsibleTooOld if this version of ansible-core is too old."""
    too_old = core_version.refusal(core)
    if too_old:
        raise FlexdiskError("AnsibleTooOld", too_old)


def error(exc: FlexdiskError) -> t.Dict[str, t.Any]:
    """Return the arguments of fail_json for an error that no declaration has caused."""
    return refusal([Problem(exc.code, exc.message)])
