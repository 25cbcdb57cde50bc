# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Messages of a task while it runs."""

from __future__ import annotations

import typing as t


# Any: a Display of ansible-core, which has no types.
def show_now(display: t.Any, line: str) -> None:
    """Show a line at once. On standard output, if that is a pipe, it would wait in a buffer until the task ends."""
    display.display(line, stderr=True)
