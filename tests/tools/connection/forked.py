# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A connection to a simulated node that runs modules of the collection in forks of Ansible's workers."""

from __future__ import annotations

import sys

from ansible.plugins.connection.local import Connection as Local

DOCUMENTATION = """
name: forked
type: connection
short_description: A simulated node in the process that asks
description: As local, but modules of the collection run in forks if the callback in_process is enabled.
extends_documentation_fragment: [connection_pipelining]
"""


class Connection(Local):
    """What it answers is what local would."""

    transport = "forked"

    def exec_command(self, cmd, in_data=None, sudoable=True):  # type: ignore[no-untyped-def]
        here = sys.modules.get("in_process")  # imported by the callback of that name
        said = here.run_module(cmd, in_data) if here and in_data else None
        if said:
            self.forked()
        return said or super().exec_command(cmd, in_data, sudoable)

    def forked(self) -> None:
        """A module has run in a fork."""
