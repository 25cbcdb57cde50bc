# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The functions that carry out steps, for the module that creates and resizes detached disks."""

from __future__ import annotations

from ...plan.disk_steps import (
    CreateDetached,
    EndConversion,
    FinishDetached,
    ResizeDetached,
)
from . import apply_detached
from .perform import Performers
from .performers import PERFORM

PERFORM_OF_DETACHED: Performers = {
    **PERFORM,
    ResizeDetached: apply_detached.resize,
    EndConversion: apply_detached.end_conversion,
    CreateDetached: apply_detached.create,
    FinishDetached: apply_detached.finish,
}
