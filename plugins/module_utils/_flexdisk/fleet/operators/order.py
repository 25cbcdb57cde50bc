# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a playbook knows of its hosts, and what it decides: the arguments of its module for each host."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ...model.errors import FlexdiskError
from .find import Located, find_disks, find_vms

Raw = t.Mapping[str, t.Any]
Here = t.Mapping[str, t.Mapping[str, t.Mapping[str, str]]]


@dataclass(frozen=True)
class Play:
    """The hosts of a play, in its order."""

    variables: t.Mapping[str, Raw]
    """The variables of the playbook by host, as they are meant."""
    read: t.Mapping[str, Raw] = field(default_factory=dict)
    """The result of vm_info by host."""
    unread: t.Sequence[str] = ()
    """The hosts that could not be read."""
    orphans: t.Optional[t.Sequence[Raw]] = None
    """The orphaned volumes of the VM, as disk_info returns them. None: nobody has looked."""
    here: Here = field(default_factory=dict)
    """What of the named VMs or disks each host has: C({name: {vm: UUID}}), or C({name: {disk: UUID}})."""
    approved: t.Mapping[str, str] = field(default_factory=dict)
    """The digests of approved plans by host, also of hosts that are not in the play. "" for a host without a plan."""
    inventory_hosts: t.Container[str] = ()
    """All hosts of the inventory."""
    placed: t.Optional[t.Mapping[str, str]] = None
    """The hosts that were chosen for new VMs. None: nobody has chosen."""


@dataclass
class Order:
    """What comes next: a refusal if there are problems, else another look at the hosts, else the calls."""

    problems: t.List[str] = field(default_factory=list)
    reads: bool = False
    """Whether the VMs of all hosts must be read first."""
    orphans: t.Dict[str, str] = field(default_factory=dict)
    """The VM, by its host, whose orphaned volumes must be read first."""
    place: t.Dict[str, t.List[t.Dict[str, t.Any]]] = field(default_factory=dict)
    """The new VMs that each host may get, if hosts must be chosen for them first."""
    calls: t.Dict[str, t.Dict[str, t.Any]] = field(default_factory=dict)
    """The arguments of the module by host. A host without any is left alone."""
    lines: t.Dict[str, t.List[str]] = field(default_factory=dict)
    """What is shown beside the result of the module, by host."""
    here: Here = field(default_factory=dict)
    """As in Play: how the user calls the VMs of each host."""
    left_out: t.List[str] = field(default_factory=list)
    """What is wrong with names that are left out."""
    without: str = ""
    """Which hosts have nothing that was named, as a sentence."""


def _never(_variables: Raw) -> bool:
    return False


def _always(_variables: Raw) -> bool:
    return True


def _vm(variables: Raw) -> t.Sequence[str]:
    return [variables["flexdisk_vm"]]


def _fine(_known: t.Any) -> t.Sequence[str]:
    return ()


@dataclass(frozen=True)
class Playbook:
    """How a playbook decides. Functions of the variables take those of one host."""

    calls: t.Callable[[Play], Order]
    """The calls, once all names are found."""
    names: t.Callable[[Raw], t.Sequence[str]] = _vm
    """The VMs, or disks, that the user names."""
    finds_disks: t.Callable[[Raw], bool] = _never
    """Whether they are disks."""
    strict: t.Callable[[Raw], bool] = _always
    """Whether all names are refused if a host could not be read."""
    check: t.Callable[[Raw], t.Sequence[str]] = _fine
    """What is wrong with the variables, before a host is read."""
    check_all: t.Callable[[Play], t.Sequence[str]] = _fine
    """What is wrong with those of all hosts together."""
    gone: t.Callable[[Raw], bool] = _never
    """Whether a name may be the UUID of a VM that has left nothing but detached disks."""
    exact: bool = False
    """Whether the beginning of a UUID is refused."""
    optional: bool = False
    """Whether a VM may be on no host."""
    reads: t.Callable[[Raw], bool] = _never
    """Whether the hosts are read although no VM is named."""
    goes_on: bool = False
    """Whether names that do not mean exactly one are left out, and are problems at the end."""


def decide(playbook: Playbook, play: Play) -> Order:
    """Return what a playbook does on each host."""
    variables = play.variables.values()
    problems = _by_hosts({host: playbook.check(given) for host, given in play.variables.items()})
    problems += playbook.check_all(play)
    names = list(dict.fromkeys(name for given in variables for name in playbook.names(given)))
    reads = bool(names) or any(map(playbook.reads, variables))
    if problems or (reads and not play.read):
        return Order(problems, reads=reads)
    located = _find(playbook, play, names) if names else Located({host: {} for host in play.variables}, [])
    if located.problems and not playbook.goes_on:
        return Order(located.problems)
    try:
        order = playbook.calls(replace(play, here=located.here))
    except FlexdiskError as exc:
        return Order([exc.message])
    quiet = playbook.optional or playbook.goes_on
    without = "" if not names or quiet else _without(located.here, names)
    if order.orphans:
        return Order(orphans=order.orphans, here=located.here, without=without)
    left_out = [*located.problems, *order.left_out]
    return replace(order, here=located.here, left_out=left_out, without=without)


def _find(playbook: Playbook, play: Play, names: t.Sequence[str]) -> Located:
    variables = list(play.variables.values())
    strict = any(map(playbook.strict, variables))
    if any(map(playbook.finds_disks, variables)):
        return find_disks(play.read, names, play.unread, strict)
    gone = any(map(playbook.gone, variables))
    return find_vms(play.read, names, play.unread, strict, playbook.optional, gone, playbook.exact)


def given_options(variables: Raw, **options: str) -> t.Dict[str, t.Any]:
    """Return the options of a module that the user has given. options: the variable of each."""
    return {option: variables[name] for option, name in options.items() if name in variables}


def _by_hosts(problems: t.Mapping[str, t.Sequence[str]]) -> t.List[str]:
    """Return the problems, each once. One that not all hosts have begins with those that have it."""
    hosts: t.Dict[str, t.List[str]] = {}
    for host, texts in problems.items():
        for text in texts:
            hosts.setdefault(text, []).append(host)
    return [text if len(some) == len(problems) else f"{', '.join(some)}: {text}" for text, some in hosts.items()]


def _without(here: Here, names: t.Sequence[str]) -> str:
    hosts = [host for host, some in here.items() if not some]
    return f"{', '.join(hosts)} {'does' if len(hosts) == 1 else 'do'} not have {', '.join(names)}" if hosts else ""
