# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The virtual clock of a simulated node."""

from __future__ import annotations

START = 1767225600.0
"""Where every new node begins: 2026-01-01 00:00:00 UTC."""

STEP = 0.25
"""What one command costs, in seconds."""


class Clock:
    """Epoch seconds that move only when told to."""

    def __init__(self, now: float = START) -> None:
        self._now = now

    def now(self) -> float:
        """Return the current time in seconds since 1970."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move forward by `seconds` (never back)."""
        if seconds < 0:
            raise ValueError("the clock does not run backwards")
        self._now += seconds
