# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The modules that change something, each as a call in this process: arguments in, result out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import (
    disk,
    disk_adopt,
    disk_verify,
    vm,
    vm_disks,
    vm_snapshot,
    zfs_quota,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run import results
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.vm_snapshot import parse_snapshot
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.faults.backend import arguments_of, module_of

Arguments = Mapping[str, Any]
Result = dict[str, Any]
NOW = 1_800_000_000  # seconds since 1970: the time of every snapshot that retention looks at
_SNAPSHOT: Result = {
    "vms": None,
    "state": "present",
    "name": None,
    "keep": None,
    "newer": None,
    "destroy_newer": False,
    "flexible_disk_size": None,
    "packages": None,
}
_POLICY = ("allow_restart", "stop_timeout", "allow_force_stop", "matching")


def run(task: Arguments, zfs: Zfs, hypervisor: Vmadm, check: bool) -> Result:
    """The result of the module, with `failed` if it failed. Raises FlexdiskError where the module reports one."""
    given = arguments_of(task)
    policy = Policy(**{key: given[key] for key in _POLICY if key in given})
    return _RUNS[module_of(task)](given, zfs, hypervisor, policy, check)


def _result(outcome: Any) -> Result:
    failed = results.ending(outcome)
    return {**results.result(outcome), "warnings": outcome.warnings} if failed is None else dict(failed, failed=True)


def _vm_disks(given: Arguments, zfs: Zfs, hypervisor: Vmadm, policy: Policy, check: bool) -> Result:
    return _result(vm_disks.converge(zfs, hypervisor, given["vms"], policy, None, check))


def _disk(given: Arguments, zfs: Zfs, hypervisor: Vmadm, policy: Policy, check: bool) -> Result:
    return _result(disk.run(zfs, hypervisor, given["disks"], policy, None, check))


def _vm(given: Arguments, zfs: Zfs, hypervisor: Vmadm, policy: Policy, check: bool) -> Result:
    return _result(vm.run(zfs, hypervisor, given["vms"], given.get("packages", []), policy, None, check))


def _vm_snapshot(given: Arguments, zfs: Zfs, hypervisor: Vmadm, policy: Policy, check: bool) -> Result:
    spec, problems = parse_snapshot({**_SNAPSHOT, **given})
    assert not problems, problems
    return _result(vm_snapshot.run(zfs, hypervisor, given["vms"], spec, policy, None, check, NOW))


def _disk_adopt(given: Arguments, zfs: Zfs, hypervisor: Vmadm, policy: Policy, check: bool) -> Result:
    state, forget = given.get("state", "adopted"), given.get("forget", False)
    return _result(disk_adopt.run(zfs, hypervisor, given["vms"], state, forget, None, check).outcome)


def _zfs_quota(given: Arguments, zfs: Zfs, hypervisor: Vmadm, policy: Policy, check: bool) -> Result:
    outcome, _skipped = zfs_quota.recalculate(zfs, hypervisor, given["vms"], None, False, check)
    return _result(outcome)


def _disk_verify(given: Arguments, zfs: Zfs, hypervisor: Vmadm, policy: Policy, check: bool) -> Result:
    verified = disk_verify.verify(zfs, hypervisor, given["vms"], given["repair"], None, 30, check, NOW, 7)
    return _result(verified.outcome)


_RUNS: dict[str, Callable[[Arguments, Zfs, Vmadm, Policy, bool], Result]] = {
    "disk": _disk,
    "disk_adopt": _disk_adopt,
    "disk_verify": _disk_verify,
    "vm": _vm,
    "vm_disks": _vm_disks,
    "vm_snapshot": _vm_snapshot,
    "zfs_quota": _zfs_quota,
}
