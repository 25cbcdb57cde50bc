# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a command of Proxmox VE ends other than well."""

from __future__ import annotations

from typing import Dict

KILLED = -9
UNKNOWN_STATUS = 96
"""Exit status where nothing is known about what the real command does."""


class PveError(Exception):
    """An error that the command prints on stderr. The status of most is an accident of the real ones, too."""

    def __init__(self, text: str, status: int = 255) -> None:
        super().__init__(text)
        self.text = text
        self.status = status


class ParameterError(PveError):
    """Options that are refused, by name, with the usage of the command below them."""

    def __init__(self, problems: Dict[str, str], status: int = 2) -> None:
        lines = "".join(f"{name}: {problems[name]}\n" for name in problems)
        super().__init__("400 Parameter verification failed.\n" + lines, status)


class Unparsed(PveError):
    """Arguments that do not parse: the text, and the usage of the command below it."""

    def __init__(self, text: str) -> None:
        super().__init__(text, 2)


class NotRecorded(PveError):
    """What the real command does here has never been seen, so the simulated one does nothing and says so."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"simulated Proxmox VE: nothing is known about {what}; nothing was done for it", UNKNOWN_STATUS
        )


class Killed(Exception):
    """The command and its children got SIGKILL. What was written until then stays."""
