# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a VM may be started on this host. Everything that starts a VM asks here (docs/architecture.md, Doors)."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.errors import FlexdiskError
from ..model.vm import SAVED, Intent, Vm, VmConfig
from . import exchange, rollbacks
from .differences import in_conversion
from .failover import AT_HOME_PROPERTY
from .keys import KEY_NOT_LOADED, key_missing

# Who asks. A task: any module that changes VMs of this host. START_HOST has asked the hosts with the VM's replicas. A
# move or a failover that brings the VM here has ended it on the other host. GIVEN_UP: a move that has not left.
TASK, START_HOST, ARRIVAL, GIVEN_UP = "task", "start_host", "arrival", "given_up"
NOT_HOME = "NotAtHome"
MEMORY_LOST = "which loses what the guest had in its memory"
_CANNOT_SHUT_DOWN = ("paused", "crashed", "suspended")  # its guest does not run, and would not see the request
_UNKNOWABLE = "this host does not tell one boot from the next (its hypervisor says no time of the boot)"
_BY_HAND = "make sure that no other host has it, then start it by hand (vmadm start or virsh start {})"


def why_not_started(vm: Vm, asks: str = TASK) -> t.Tuple[str, str]:
    """Return the code and the message why the VM may not be started on this host; two empty texts if it may."""
    if asks in (TASK, START_HOST) and vm.config.frozen:
        return "MovedAway", f"{vm.config.frozen}; it is not started here"
    if asks == ARRIVAL:
        return "", ""
    volumes = [disk.volume for disk in vm.disks]
    locked = [key_missing(one.encryptionroot, one.keylocation) for one in volumes if one.locked]
    if locked:
        return KEY_NOT_LOADED, "; ".join(dict.fromkeys(locked))
    if vm.shared and not vm.ran:
        return "InUse", f"{'; '.join(vm.shared)}; two writers would destroy its data: stop the other VM first"
    down = why_kept_down(vm)
    if down:
        return "InUse", down
    if asks != START_HOST and vm.config.failover and not vm.at_home:
        return NOT_HOME, _elsewhere(vm)
    return "", ""


def is_off(config: VmConfig) -> bool:
    """Return whether no guest of the VM runs: it is stopped, or the memory of its guest is in a file."""
    return config.state in ("stopped", SAVED)


def stop_command(config: VmConfig) -> str:
    """Return the command with which somebody stops the VM on its host. It gives the saved memory of a guest up."""
    if config.state == SAVED:
        return f"virsh managedsave-remove {config.uuid}, {MEMORY_LOST}"
    if config.identity_in_zfs and config.state in _CANNOT_SHUT_DOWN:
        return f"virsh destroy {config.uuid}, which halts it and keeps its disks"
    return stop_command_of(config.uuid, config.identity_in_zfs)


def stop_command_of(uuid: str, libvirt: bool) -> str:
    """Return the command with which somebody stops a VM that runs."""
    return f"virsh shutdown {uuid}" if libvirt else f"vmadm stop {uuid}"


def check_start(vm: Vm, asks: str = TASK) -> None:
    """Raise FlexdiskError if the VM may not be started on this host."""
    code, message = why_not_started(vm, asks)
    if code:
        raise FlexdiskError(code, message)


def _elsewhere(vm: Vm) -> str:
    if vm.home_unknowable:
        return f"it has failover, and {_UNKNOWABLE}, so another host may have taken it over; {_way_to_start(vm)}"
    then = "and starts it" if vm.config.autoboot else "and after that, this task starts it"
    return (
        "it has failover, and nobody has asked since this host has booted whether another host has taken it over; "
        f"the playbook start_host asks {then}, and failover_vm starts it on another host"
    )


def _way_to_start(vm: Vm) -> str:
    """Return how to start a VM on a host that does not tell one boot from the next."""
    return "the playbook start_host asks and starts it" if vm.config.autoboot else _BY_HAND.format(vm.config.uuid)


def why_home_unknown(vm: Vm) -> str:
    """Return why another host may have taken the VM over; "" if none has.

    In this case the VM and its disks do not leave, nothing of it is sent, and its failover is neither prepared nor
    given up. A running VM was started here by somebody who may.
    """
    if not vm.config.failover or vm.at_home or vm.config.state == "running":
        return ""
    first = "give its move up with flexdisk_move_state=stays first; then " if vm.config.frozen else ""
    begin = "it has failover and does not run, and"
    if vm.home_unknowable:
        text = f"{begin} {_UNKNOWABLE}, so another host may have taken it over; {first}{_way_to_start(vm)}"
        return f"{text}. Run this again while it runs"
    return (
        f"{begin} nobody has asked since this host has booted whether another host has taken it over; {first}the "
        "playbook start_host asks, also without replicas with flexdisk_start_unasked=true. If no host has, run this "
        "again; if one has, failover_vm with flexdisk_failover_state=returned ends the VM here"
    )


def why_possibly_stale(vm: Vm) -> str:
    """Return why a failover must not use the VM on this host: it is a copy that may be old; "" if it is not."""
    if not why_home_unknown(vm):
        return ""
    start = "starts it" if vm.config.autoboot else "lets it be started"
    why = "nobody has asked since this host has booted whether another host has taken it over"
    if vm.home_unknowable:
        why = f"{_UNKNOWABLE}, so another host may have taken it over"
    return (
        f"has a copy of it, which is stopped, and {why}. What another host has written since then is not in this copy. "
        "If another host has replicas from there, give it as flexdisk_target. To bring this copy up, the playbook "
        f"start_host asks all hosts, and {start} if none has taken it over. If one that may have is gone for good, "
        f"flexdisk_start_unasked=true of start_host {start} nevertheless, without what was written there"
    )


def with_home_state(vm: Vm, boot: str) -> Vm:
    """Return the VM with at_home set. boot: the current boot of the host, "" if it is not known.

    A failover needs a home that is down. So nobody has taken the VM over if it was at home in the same boot.
    """
    return replace(vm, at_home=bool(boot) and vm.root.user.get(AT_HOME_PROPERTY) == boot, home_unknowable=not boot)


def why_kept_down(vm: Vm) -> str:
    """Return why a VM must stay stopped until the interrupted task is done again; "" if it need not."""
    begun = exchange.why_refused(vm)
    left = vm.interrupted
    if begun or left is None:
        return begun
    if left.rollback:
        return interrupted_run_text(left, vm)
    if not left.boots or vm.boots or any(in_conversion(vm, d) for d in vm.detached):
        return ""
    return (
        f"its boot disk left it in a run that was interrupted at {left.since}, and it cannot run without one; do the "
        "same task again, or list its boot disk with boot: true and an image, or the uuid of a detached one with "
        "boot: true and recreate: true"
    )


def interrupted_run_text(entry: Intent, vm: t.Optional[Vm] = None) -> str:
    """Return the message about an interrupted run of this host: what is unfinished, and what completes it. vm: its VM,
    None if it is not known.
    """
    if entry.rollback and vm is not None and vm.config.prefixes:
        return rollbacks.interrupted_text(vm, entry)
    if entry.rollback:
        return (
            f"a rollback to snapshot {entry.rollback} was interrupted at {entry.since}, so its "
            "disks may be of different times; "
            "vm_snapshot with state=rolled_back and this name ends it, or says what does"
        )
    return f"a run was interrupted at {entry.since}; vm_disks finishes it when the VM is listed"
