# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The functions that carry out steps, for the modules that work on whole VMs and their snapshots."""

from __future__ import annotations

from ...plan.vm_steps import (
    ClearRemains,
    CreateVm,
    DeleteSnapshot,
    DeleteVm,
    ImportImage,
    RemoveUnfinished,
    RollBack,
    SetProperties,
    TakeSnapshot,
)
from . import apply_vm
from .perform import Performers
from .performers import PERFORM

PERFORM_OF_VMS: Performers = {
    **PERFORM,
    SetProperties: apply_vm.set_properties,
    TakeSnapshot: apply_vm.take_snapshot,
    DeleteSnapshot: apply_vm.delete_snapshot,
    RollBack: apply_vm.roll_back,
    ClearRemains: apply_vm.clear_remains,
    RemoveUnfinished: apply_vm.remove_unfinished,
    ImportImage: apply_vm.import_image,
    CreateVm: apply_vm.create_vm,
    DeleteVm: apply_vm.delete_vm,
}
