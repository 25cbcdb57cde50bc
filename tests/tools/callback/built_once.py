# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keeps what ansible-playbook builds of a module for the next run; tests start hundreds of them.

To build one module takes most of a second: all that it imports is found, parsed and packed.
"""

from __future__ import annotations

import os

from ansible import constants
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: built_once
type: aggregate
short_description: Keep what is built of a module for the next run
description: FLEXDISK_BUILT names the folder. The modules must not change meanwhile.
"""


class CallbackModule(CallbackBase):
    """The folder of what is built, which every run has for itself, is a link to one that stays."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "built_once"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        own = constants.DEFAULT_LOCAL_TMP  # type: ignore[attr-defined]
        os.symlink(os.environ["FLEXDISK_BUILT"], os.path.join(own, "ansiballz_cache"))
