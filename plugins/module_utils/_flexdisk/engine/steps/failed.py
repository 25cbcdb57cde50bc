# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A failed step, and the attempts to start its VM again."""

from __future__ import annotations

import typing as t

from ...model.errors import FlexdiskError
from ...model.text import count


class Restart(t.NamedTuple):
    """The attempts to start a VM again after a failure."""

    running: bool
    """Whether the VM runs again."""
    attempts: int = 0
    seconds: float = 0
    """The time of waiting between the attempts."""
    error: str = ""
    """The last error."""
    late: bool = False
    """Its guest was asked to shut down, and still runs."""

    @property
    def tried(self) -> str:
        """The attempts as part of a message; "" if the first attempt was enough, or none was made."""
        if not self.attempts or (self.running and self.attempts == 1):
            return ""
        attempts = f"{count(self.attempts, 'attempt')} in {int(self.seconds)} s"
        return f"{attempts} to start it, the last error: {self.error}"


class StepFailed(Exception):
    """A step did not end as planned. If all steps were done, clearing the intent has failed.

    Args:
        done: the number of steps that were done.
        restart: the attempts to start a VM that was down.
        begun: whether any step was begun.
    """

    def __init__(
        self, error: FlexdiskError, done: int, restart: t.Optional[Restart] = None, begun: bool = True
    ) -> None:
        super().__init__(error.message)
        self.begun = begun
        self.error = error
        self.done = done
        self.restart = restart
