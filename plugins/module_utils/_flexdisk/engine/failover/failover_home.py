# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Turns failover of VMs on and off, and makes the records that hosts with their replicas need."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...fleet.replication.record import Record, undated
from ...hypervisor.protocol import Hypervisor, whole_vms
from ...model.command import Runner
from ...model.desired import Policy
from ...model.errors import FlexdiskError, Problem
from ...model.text import cut
from ...model.vm import Vm
from ...plan.vm_move import refusals
from ...rules.failover import (
    FAILOVER_PROPERTY,
    RIVALS_PROPERTY,
    encode_rivals,
    encode_setting,
    encode_without_failover,
    setting_of,
    takers_of,
)
from ...rules.inventory import Host
from ...rules.power import NOT_HOME, why_home_unknown
from ...zfs.commands import Zfs
from ..host.observe import observe
from ..modules.vm_info import chosen
from ..moves.vm_departure import MoveSource
from ..steps import autoboot, power
from .guests_service import why_host_starts_all


class Marked(t.NamedTuple):
    """The outcome of marking VMs for failover."""

    changed: bool
    records: t.List[Record]
    """The records of the VMs that have failover."""
    failures: t.List[str]
    """Why there is no record of a VM that has failover."""
    problems: t.List[Problem]


class FailoverHome:
    """Turns failover of VMs on and off, on their home."""

    def __init__(self, zfs: Zfs, hypervisor: Hypervisor, runner: Runner) -> None:
        self._zfs = zfs
        self._hypervisor = hypervisor
        self._departure = MoveSource(zfs, hypervisor, runner, Policy())

    def set_failover(
        self, names: t.Sequence[str], wanted: t.Optional[bool], here: str, check_mode: bool, peer: str = ""
    ) -> Marked:
        """Turn failover of VMs on or off, and return the records of those that have it.

        A VM that moves is left alone. A VM that another host may have taken over gets no record. If such a VM would
        lose its failover, nothing is changed at all.

        Args:
            wanted: None: leave failover as it is, but turn it off where no host can take the VM over.
            here: the name of this host for others.
            peer: the host that gets the records, noted on the VMs as one that can take them over.
        """
        host = observe(self._zfs, self._hypervisor, all_pools=True)
        vms, problems = chosen(host, names)
        vms = [vm for vm in vms if vm.config.uuid not in host.moves]
        all_start = why_host_starts_all(self._hypervisor)
        if wanted:
            new = [vm for vm in vms if not vm.config.failover]
            problems += [problem for vm in new for problem in self._problems_of_vm(host, vm)]
            problems += [Problem("NotSupported", f"on this host, {all_start}", vm.label) for vm in new if all_start]
        if problems:
            return Marked(False, [], [], problems)
        unsure = {vm.config.uuid: why_home_unknown(vm) for vm in vms if why_home_unknown(vm)}
        to_enable = [vm for vm in vms if wanted or (wanted is None and vm.config.failover and takers_of(vm, here))]
        to_disable = [vm for vm in vms if vm.config.failover and vm not in to_enable]
        problems = [
            Problem(NOT_HOME, unsure[vm.config.uuid], vm.label) for vm in to_disable if vm.config.uuid in unsure
        ]
        if problems:
            return Marked(False, [], [], problems)
        failures = [
            f"VM {vm.label}: {unsure[vm.config.uuid]} [{NOT_HOME}]" for vm in to_enable if vm.config.uuid in unsure
        ]
        failures += [f"{here}: {all_start}"] if to_enable and all_start else []
        to_enable = [vm for vm in to_enable if vm.config.uuid not in unsure]
        changed = [self._set_failover(vm, here, peer, check_mode) for vm in to_enable] + [
            self._unset_failover(vm, check_mode) for vm in to_disable
        ]
        records = []
        for vm in to_enable:
            try:
                records.append(self._record(host, vm, here, peer))
            except FlexdiskError as exc:
                failures.append(f"VM {vm.label}: {exc.message} [{exc.code}]")
        return Marked(any(changed), records, failures, [])

    def _problems_of_vm(self, host: Host, vm: Vm) -> t.List[Problem]:
        return refusals(host, vm, whole_vms(self._hypervisor).description(vm.config.uuid).host_bound)

    def _set_failover(self, vm: Vm, here: str, peer: str, check_mode: bool) -> bool:
        """Write the failover setting and possible takers, then turn autoboot off. Return whether anything changed."""
        known = encode_rivals({*takers_of(vm, here), *([peer] if peer else [])})
        facts = {} if known == vm.root.user.get(RIVALS_PROPERTY, "") else {RIVALS_PROPERTY: known}
        starts = not vm.config.failover or self._hypervisor.vm(vm.config.uuid).autoboot
        if starts:
            facts[FAILOVER_PROPERTY] = encode_setting(setting_of(vm.config, vm.root))
        if facts and not check_mode:
            self._zfs.set_facts(vm.root.name, facts)
        if starts and not check_mode:
            if not vm.config.failover:
                power.note_home(self._zfs, self._hypervisor, vm)
            autoboot.keep_off(self._hypervisor, _with_failover(vm))
        return bool(facts)

    def _unset_failover(self, vm: Vm, check_mode: bool) -> bool:
        """Restore autoboot, then remove the failover setting."""
        uuid, wanted = vm.config.uuid, vm.config.autoboot
        if not check_mode:
            if self._hypervisor.vm(uuid).autoboot != wanted:
                self._hypervisor.set_autoboot(uuid, wanted)
            self._zfs.set_facts(
                vm.root.name,
                {FAILOVER_PROPERTY: encode_without_failover(setting_of(vm.config, vm.root)), RIVALS_PROPERTY: ""},
            )
        return True

    def _record(self, host: Host, vm: Vm, here: str, peer: str) -> Record:
        problems = self._problems_of_vm(host, vm)
        if problems:
            texts = [f"disk {one.disk}: {one.message}" if one.disk else one.message for one in problems]
            raise FlexdiskError(problems[0].code, "; ".join(cut(texts)))
        description = whole_vms(self._hypervisor).description(vm.config.uuid)
        record = undated(self._departure.record(host, _with_failover(vm), description, here, peer))
        return replace(
            record, marks={**record.marks, FAILOVER_PROPERTY: encode_setting(setting_of(vm.config, vm.root))}
        )


def _with_failover(vm: Vm) -> Vm:
    return replace(vm, config=replace(vm.config, failover=True))
