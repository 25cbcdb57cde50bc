# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arguments of a sync, and its calls on the two hosts."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from .calls import Call

_Dict = t.Dict[str, t.Any]
_Options = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Sync:
    """The variables of the role vm_replica."""

    vms: t.Sequence[str]
    home: str
    peer: str
    """Both by their names in the inventory."""
    home_options: _Options = field(default_factory=dict)
    """Of modules on this host: hypervisor and libvirt_uri."""
    peer_options: _Options = field(default_factory=dict)
    lock_timeout: t.Union[int, str] = 60
    address: str = ""
    """Where the home reaches the peer by SSH."""
    port: int = 22
    authorized_keys: t.Optional[str] = None
    ssh_directories: t.Optional[t.Sequence[str]] = None
    incoming_allowed: t.Sequence[str] = ()
    failover: str = "unchanged"
    """unchanged, present or absent."""
    peer_pool: t.Optional[str] = None
    bandwidth_limit: t.Optional[str] = None
    forget_unseen: bool = False
    keep: t.Optional[t.Mapping[str, int]] = None
    """The older sets that the peer retains, as in RetainCounts. None: as the last sync had it."""
    keep_home: t.Optional[t.Mapping[str, int]] = None
    """The same for the home."""
    goes_on: bool = False
    """Whether a VM that cannot be replicated, or a peer that is lost, is a part of the result and no failure."""
    moves: bool = False
    """Whether the VM is about to move to the peer."""

    @property
    def wants_failover(self) -> t.Optional[bool]:
        """What becomes of the failover of the VMs, None if it stays as it is."""
        return None if self.failover == "unchanged" else self.failover == "present"

    def send_call(self, name: str, step: str, keeps: t.Sequence[str] = (), /, **more: t.Any) -> Call:
        """Return a call of a step of the sync on the home."""
        arguments = {**self._home(step), "peer_name": self.peer}
        return _call(name, self.home, "send", arguments, keeps, more)

    def receive_call(self, name: str, step: str, keeps: t.Sequence[str] = (), /, **more: t.Any) -> Call:
        """Return a call of a step of the sync on the peer."""
        keys = {"authorized_keys": self.authorized_keys}
        arguments = {"step": step, **self.peer_options, "lock_timeout": self.lock_timeout, **keys}
        return _call(name, self.peer, "receive", arguments, keeps, more)

    def home_failover_call(self, name: str, step: str, keeps: t.Sequence[str] = (), /, **more: t.Any) -> Call:
        """Return a call of a step of failover on the home."""
        return _call(name, self.home, "failover", self._home(step), keeps, more)

    def peer_failover_call(self, name: str, step: str, keeps: t.Sequence[str] = (), /, **more: t.Any) -> Call:
        """Return a call of a step of failover on the peer."""
        return self.failover_call(self.peer, self.peer_options, name, step, keeps, **more)

    def failover_call(
        self, host: str, options: _Options, name: str, step: str, keeps: t.Sequence[str], /, **more: t.Any
    ) -> Call:
        """Return a call of a step of failover on any host."""
        arguments = {"step": step, **options, "lock_timeout": self.lock_timeout}
        return _call(name, host, "failover", arguments, keeps, more)

    def look_call(self, name: str, host: str, options: _Options, may_be_lost: bool = False) -> Call:
        """Return a call that tells what a host has of VMs with failover."""
        return Call(name, host, "failover", {"step": "look", **options}, ("vms",), may_be_lost=may_be_lost)

    def _home(self, step: str) -> _Dict:
        return {"step": step, **self.home_options, "lock_timeout": self.lock_timeout}


def commands_to_forget(names: t.Iterable[str], gone: str) -> str:
    """Return the commands that give up what a host has of VMs, although that cannot be asked any more."""
    command = "ansible-playbook flexdisk.hypervisor.replicate -e flexdisk_vm={} -e flexdisk_replica_host={}"
    command += " -e flexdisk_replica_state=absent -e flexdisk_forget_unseen=true --limit 'all:!{}'"
    return "; ".join(command.format(name, gone, gone) for name in names)


def _call(name: str, host: str, run: str, arguments: _Options, keeps: t.Sequence[str], more: _Dict) -> Call:
    """Return a call. more: further arguments, and fields of Call by their names."""
    fields = {key: more.pop(key) for key in ("check", "hidden", "may_fail", "may_be_lost") if key in more}
    return Call(name, host, run, {**arguments, **more}, keeps, **fields)
