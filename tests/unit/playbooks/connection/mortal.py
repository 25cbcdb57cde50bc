# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A connection to a simulated node that is lost as soon as the node has a file called dead. It counts what it runs."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.local import Connection as Local

SLOW = 3.0  # seconds that a node with a file called slow takes longer for each module
DOCUMENTATION = """
name: mortal
short_description: A simulated node that can die
description: As local, while the node lives.
extends_documentation_fragment: [connection_pipelining]
"""


class Connection(Local):
    transport = "mortal"

    def exec_command(self, cmd, in_data=None, sudoable=True):
        if (Path(os.environ["FLEXDISK_NODES"]) / self._play_context.remote_addr / "dead").exists():
            raise AnsibleConnectionFailure("the host does not answer")
        if (Path(os.environ["FLEXDISK_NODES"]) / self._play_context.remote_addr / "slow").exists():
            time.sleep(SLOW)
        with (Path(os.environ["FLEXDISK_NODES"]) / "calls").open("a", encoding="utf-8") as calls:
            calls.write(f"{self._play_context.remote_addr}\n")
        said = super().exec_command(cmd, in_data, sudoable)
        here = sys.modules.get("in_process")
        if here and here.forks:
            (Path(os.environ["FLEXDISK_NODES"]) / "forked").touch()
        return said
