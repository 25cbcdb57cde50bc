# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""One run of a module: open the host, take the lock, do the work, and end as Ansible wants it."""

from __future__ import annotations

import contextlib
import os
import shutil
import typing as t

from ...hypervisor.protocol import Hypervisor
from ...model.errors import FlexdiskError, Problem, Problems, refusal
from ...model.text import visible_lines
from ...rules.identity import blank_in
from ...rules.naming import check_names
from ...zfs.commands import Zfs
from ..host import lock, progress
from ..host.runner import SYSTEM_PATH, SubprocessRunner, beside_zfs
from .arguments import check_figures, seconds
from .module import Module, check_core, error

# Sockets of libvirt: of the old daemon, and of the daemons of single drivers.
_SOCKETS = tuple(f"/{var}run/libvirt/{name}-sock" for var in ("", "var/") for name in ("libvirt", "virtqemud"))


# Where a node of Proxmox VE has the file system of its cluster, and what a simulated node has beside its program zfs.
_CLUSTER, _NODE_FILES = "/etc/pve", "flexdisk-root"
NOT_THERE = (
    "this host runs Proxmox VE, where this release adds, names, resizes, detaches, attaches and destroys disks, and "
    "takes snapshots; this task is not supported there"
)

# Options that name something; others hold text of any kind.
_NAMES = ("vm", "vms", "name", "newer", "group", "uuid", "pool", "peer_name", "peer_pool", "target_pool", "leave_out")

_Params = t.Mapping[str, t.Any]  # checked by Ansible
_Result = t.Dict[str, t.Any]  # as Ansible prints it


class Call(t.NamedTuple):
    """What the body of a module works with."""

    zfs: Zfs
    hypervisor: Hypervisor
    pool: t.Optional[str]
    """The only pool that is read, None for all."""
    check_mode: bool
    runner: SubprocessRunner


class Answer(t.NamedTuple):
    """How a module ends."""

    result: _Result
    """The arguments of exit_json."""
    failure: t.Optional[_Result] = None
    """The arguments of fail_json if the module fails."""
    warnings: t.Sequence[str] = ()


def _not_there(_root: str, _runner: SubprocessRunner) -> Hypervisor:
    """Refuse a module that may change something, unless it says otherwise (reading.py, changing.py)."""
    raise FlexdiskError("NotSupported", NOT_THERE)


class Drivers(t.NamedTuple):
    """The drivers that travel with a module. A host imports only its own: the other one would take a tenth of the time
    of a run that changes nothing.
    """

    vmadm: t.Callable[[SubprocessRunner], Hypervisor]
    libvirt: t.Callable[[str, SubprocessRunner], Hypervisor]
    """Gets the URI of libvirt."""
    proxmox: t.Callable[[str, SubprocessRunner], Hypervisor] = _not_there
    """Gets the directory with the files of the node, "" for the host itself. By default, nothing is done there."""


def _vmadm(runner: SubprocessRunner) -> Hypervisor:
    from ...hypervisor.vmadm_disks import VmadmDisks

    return VmadmDisks(runner)


def _libvirt(uri: str, _runner: SubprocessRunner) -> Hypervisor:
    from ...hypervisor.libvirt_connection import Connection
    from ...hypervisor.libvirt_disks import LibvirtDisks
    from ...zfs.devices import at

    return LibvirtDisks(Connection(uri, at), uri)


VMS_THAT_ARE_THERE = Drivers(_vmadm, _libvirt)

_Arguments = t.TypeVar("_Arguments")


def run_module(
    module: Module,
    core: str,
    task: str,
    parse: t.Callable[[_Params], t.Tuple[_Arguments, t.Sequence[Problem]]],
    body: t.Callable[[Call, _Arguments], Answer],
    reads: bool = False,
    every_pool: bool = False,
    drivers: Drivers = VMS_THAT_ARE_THERE,
) -> None:
    """Run a module to its end.

    Args:
        task: describes the run to those who wait for the lock.
        parse: returns the arguments for the body, and their problems, before the host is read. May raise FlexdiskError.
        body: carries out the module. May raise FlexdiskError.
        reads: take no lock, as in check mode: the body changes nothing, or takes the locks itself.
        every_pool: lock all pools, even if the parameter names one.
        drivers: those of a module that makes, changes or moves whole VMs are in whole_vms.py.
    """
    params, runner = module.params, SubprocessRunner()
    try:
        arguments, problems = parse(params)
        problems = [*_wrong_names(params), *problems]
        if problems:
            module.fail_json(**refusal(problems))
        zfs, hypervisor = open_host(params, runner, core, drivers)
        pool = None if every_pool else params["pool"]
        with locked(runner, pool, params, task, None if reads or module.check_mode else module.log) as others:
            answer = body(Call(zfs, hypervisor, params["pool"], module.check_mode, runner), arguments)
    except FlexdiskError as exc:
        module.fail_json(**error(exc))
    for warning in (*others, *answer.warnings):
        module.warn(visible_lines(warning))
    if answer.failure is not None:
        module.fail_json(**answer.failure)
    module.exit_json(**answer.result)


def _wrong_names(params: _Params) -> Problems:
    """Return what is wrong with options that name something. Names in entries are checked with each entry."""
    problems = Problems("")
    entries = [key for key, value in params.items() if isinstance(value, list) and any(map(_is_entry, value))]
    if params.get("pool") == "":
        problems.add("InvalidArgument", "pool is empty, which would mean all pools; leave it out for that")
    check_names({key: params[key] for key in _NAMES if params.get(key) and key not in entries}, problems)
    for pool in (params.get(key) for key in ("pool", "peer_pool", "target_pool")):
        if isinstance(pool, str) and blank_in(pool):
            problems.add("NotSupported", blank_in(pool))
    return problems


def _is_entry(value: object) -> bool:
    return isinstance(value, t.Mapping)


def unparsed(params: _Params) -> t.Tuple[_Params, t.Sequence[Problem]]:
    """Return the parameters unchanged, for a module that parses them itself, VM by VM."""
    return params, ()


def open_host(
    params: _Params, runner: SubprocessRunner, core: str, drivers: Drivers = VMS_THAT_ARE_THERE
) -> t.Tuple[Zfs, Hypervisor]:
    """Return storage and hypervisor of this host.

    C(auto) takes vmadm if it exists, else Proxmox VE or a libvirt with a socket. A host with both must say which.

    core: the version of ansible-core. Raises FlexdiskError AnsibleTooOld, InvalidArgument, CommandNotFound,
    NotSupported.
    """
    check_core(core)
    check_figures(params)
    zfs = Zfs(runner, pipe=lambda first, second: runner.carry(first, second, progress.current().add))
    choice, uri = params["hypervisor"], params["libvirt_uri"]
    root = beside_zfs(_NODE_FILES)
    if choice == "auto":
        choice = _detected(root)
    if choice == "vmadm":
        return zfs, drivers.vmadm(runner)
    return zfs, drivers.libvirt(uri, runner) if choice == "libvirt" else drivers.proxmox(root, runner)


def _detected(root: str) -> str:
    """Return which hypervisor this host has. root: the directory with the files of a simulated node, "" without one."""
    if _exists("vmadm"):
        return "vmadm"
    libvirt = not root and any(map(os.path.exists, _SOCKETS))
    proxmox = _exists("qm") and os.path.isdir(root + _CLUSTER)
    if libvirt and proxmox:
        text = "this host has Proxmox VE and the socket of a libvirtd; say which one has the VMs"
        raise FlexdiskError("InvalidArgument", f"{text}: hypervisor: proxmox, or hypervisor: libvirt")
    if libvirt or proxmox:
        return "libvirt" if libvirt else "proxmox"
    text = f"neither the program vmadm, nor qm with {_CLUSTER}, nor the socket of a libvirtd"
    raise FlexdiskError("CommandNotFound", f"no hypervisor found on this host: {text}")


def _exists(program: str) -> bool:
    return bool(shutil.which(program) or shutil.which(program, path=SYSTEM_PATH))


@contextlib.contextmanager
def locked(
    runner: SubprocessRunner,
    pool: t.Optional[str],
    params: _Params,
    task: str,
    log: t.Optional[t.Callable[[str], None]],
) -> t.Iterator[t.List[str]]:
    """Hold the lock of a pool, or all pools (None), for the body, and report its progress.

    A run that only reads has no log. It takes no lock, and gets warnings about the holders instead.
    """
    if log is None:
        yield lock.busy(pool)
    else:
        with lock.exclusive(runner, pool, seconds(params, "lock_timeout"), task) as held_lock, progress.reporting(
            held_lock, log
        ):
            yield []
