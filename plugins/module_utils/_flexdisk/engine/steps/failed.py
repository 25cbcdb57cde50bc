# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A step that failed, and what became of its VM."""

from __future__ import annotations

import typing as t

from ...model.errors import FlexdiskError
from ...model.text import count


class Restart(t.NamedTuple):
    """Whether a VM runs again, the number of attempts, the seconds of waiting between them, and the last error.

    late: its guest was asked to shut down, and still runs.
    """

    running: bool
    attempts: int = 0
    seconds: float = 0
    error: str = ""
    late: bool = False

    @property
    def tried(self) -> str:
        """The attempts as part of a message; "" if the first attempt was enough, or none was made."""
        if not self.attempts or (self.running and self.attempts == 1):
            return ""
        attempts = f"{count(self.attempts, 'attempt')} in {int(self.seconds)} s"
        return f"{attempts} to start it, the last error: {self.error}"


class StepFailed(Exception):
    """A step did not end as planned. done is the number of steps done before it. restart says what became of a VM that
    was down. begun says whether a step was begun at all.

    If all steps were done, clearing the intent has failed.
    """

    def __init__(
        self, error: FlexdiskError, done: int, restart: t.Optional[Restart] = None, begun: bool = True
    ) -> None:
        super().__init__(error.message)
        self.begun = begun
        self.error = error
        self.done = done
        self.restart = restart
