# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""One run of the module host_step: a step of a move, a failover or a sync, with its arguments checked by one table."""

from __future__ import annotations

import typing as t

from ...fleet.replication import host_steps
from ...hypervisor.protocol import Hypervisor
from ...model.errors import FlexdiskError, Problem
from ..host.runner import SubprocessRunner
from .module import Module, error
from .module_run import Answer, Call, run_module
from .whole_vms import WHOLE_VMS

_Params = t.Mapping[str, t.Any]
_Dict = t.Dict[str, t.Any]
Log = t.Callable[[str], None]


class HostRun(t.NamedTuple):
    """The steps of one kind."""

    task: t.Callable[[_Params], str]
    """Describes the run to those who wait for the lock."""
    parse: t.Callable[[_Params], t.Tuple[t.Any, t.Sequence[Problem]]]
    """Returns the checked arguments for run, and all problems. Raises FlexdiskError if one cannot be read at all."""
    run: t.Callable[[Call, Log, _Params, t.Any], Answer]
    """Carries out the step. Log writes a line to the host's log."""
    reads: t.Collection[str] = ()
    """The steps that change nothing, or take the locks by themselves."""
    every_pool: bool = True
    """Whether all pools are locked, also if one is named."""


def checked(module: Module, validator: t.Any) -> _Dict:
    """Return the arguments of the step by their names, with all defaults, beside the options of the module.

    validator: Ansible's ArgumentSpecValidator. The module fails with all problems of the arguments.
    """
    params = module.params
    run, step = params["run"], params["step"]
    errors = [host_steps.unknown_step(run, step)]
    arguments: _Dict = {}
    if not errors[0]:
        result = validator(host_steps.spec(run, step)).validate(params["arguments"])
        errors, arguments = result.error_messages, result.validated_parameters
    if any(errors):
        module.fail_json(**error(FlexdiskError("InvalidArgument", f"{run}, {step}: {'; '.join(errors)}")))
    module_options = {key: value for key, value in params.items() if key != "arguments"}
    return {**host_steps.defaults(), **arguments, **module_options}


def _libvirt(uri: str, runner: SubprocessRunner) -> Hypervisor:
    from ...hypervisor.libvirt_driver import Libvirt
    from ...hypervisor.libvirt_memory import LibvirtMemory, MemoryConnection
    from ...zfs.devices import at

    domains = MemoryConnection(uri, at)
    return Libvirt(domains, uri, runner, guest_memory=LibvirtMemory(domains))


def run_step(module: Module, core: str, host_run: HostRun) -> None:
    """Carry out a step with checked arguments, and end the module. core: the version of ansible-core."""
    params = module.params
    run_module(
        module,
        core,
        host_run.task(params),
        host_run.parse,
        lambda call, given: host_run.run(call, module.log, params, given),
        reads=params["step"] in host_run.reads,
        every_pool=host_run.every_pool,
        drivers=WHOLE_VMS._replace(libvirt=_libvirt),
    )
