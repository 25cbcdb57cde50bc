# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action move_jobs: its documentation."""

from __future__ import annotations

import yaml

from ansible_collections.flexdisk.hypervisor.plugins.action import move_jobs
from ansible_collections.flexdisk.hypervisor.plugins.modules import move_jobs as documented

from .actions import plain


def test_the_options_are_as_documented():
    told = plain(yaml.safe_load(documented.DOCUMENTATION)["options"], told=True)
    assert told == plain(move_jobs.ARGUMENTS)
