# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Properties of the dataset of a VM with failover. start_host starts such a VM, not the hypervisor."""

from __future__ import annotations

import re
import typing as t
from dataclasses import replace

from ..model.dataset import Dataset
from ..model.vm import Vm, VmConfig
from .replicas import hosts, is_host

FAILOVER_PROPERTY = "failover"
# The boot of this host in which it was known to be the home of the VM. Other boots and hosts do not count.
AT_HOME_PROPERTY = "at_home"
# Hosts that may have a record with which they can take the VM over, even if its disks note no replica there. A host is
# added before it gets its record, and removed after it has lost it: start_host and moves ask all of them.
RIVALS_PROPERTY = "failover.rivals"
_MOST = 1_000_000  # takeovers of one VM
_TEXT = re.compile(r"(on|off|none):(\d{1,9})\Z")


class FailoverSetting(t.NamedTuple):
    """The failover setting of a VM."""

    # The VM starts with its home.
    autoboot: bool
    # How often another host has taken the VM over. If two hosts have the VM, the one with the higher term is its home.
    term: int = 0


def encode_setting(setting: FailoverSetting) -> str:
    """Return the value of the property FAILOVER_PROPERTY."""
    return f"{'on' if setting.autoboot else 'off'}:{setting.term}"


def rivals_of(user: t.Mapping[str, str]) -> t.List[str]:
    """Return the hosts in the property RIVALS. Invalid names are left out."""
    return [name for name in user.get(RIVALS_PROPERTY, "").split(",") if is_host(name)]


def encode_rivals(names: t.Iterable[str]) -> str:
    """Return the value of the property RIVALS."""
    return ",".join(sorted(set(names)))


def takers_of(vm: Vm, here: str = "") -> t.List[str]:
    """Return the hosts that may take the VM over: those with its record or replicas, without this host, here."""
    return sorted({*(name for disk in vm.disks for name in hosts(disk)), *rivals_of(vm.root.user)} - {here})


def properties_at(vm: Vm, here: str, target: str) -> t.Dict[str, str]:
    """Return our properties of the VM's dataset as `target` gets them. Neither of the two hosts is in RIVALS there."""
    known = encode_rivals(one for one in takers_of(vm, here) if one != target) if vm.config.failover else ""
    marks = {key: value for key, value in vm.root.user.items() if key != RIVALS_PROPERTY}
    return {**marks, RIVALS_PROPERTY: known} if known else marks


def is_plausible(text: str) -> bool:
    """Whether to accept this value from another host: its term must leave room for all takeovers that can follow."""
    match = _TEXT.match(text)
    return match is not None and int(match[2]) < _MOST


def decode_setting(text: str) -> t.Optional[FailoverSetting]:
    """Return the setting in the value of FAILOVER_PROPERTY; None for anything else."""
    match = _TEXT.match(text)
    return FailoverSetting(match[1] == "on", int(match[2])) if match and match[1] != "none" else None


def encode_without_failover(setting: FailoverSetting) -> str:
    """Return FAILOVER_PROPERTY's value for a VM without failover. Its term stays, so old records never have it."""
    return f"none:{setting.term}" if setting.term else ""


def with_failover_setting(config: VmConfig, datasets: t.Mapping[str, Dataset]) -> VmConfig:
    """Return the configuration with the autoboot of the failover setting, if any, instead of the hypervisor's."""
    root = datasets.get(config.dataset)
    setting = decode_setting(root.user.get(FAILOVER_PROPERTY, "")) if root is not None else None
    return replace(config, autoboot=setting.autoboot, failover=True) if setting is not None else config


def setting_of(config: VmConfig, root: Dataset) -> FailoverSetting:
    """Return the failover setting of a VM. For a VM without failover, it has the hypervisor's autoboot."""
    text = root.user.get(FAILOVER_PROPERTY, "")
    return decode_setting(text) or FailoverSetting(config.autoboot, term_of(text))


def term_of(text: str) -> int:
    """Return the term in the value of FAILOVER_PROPERTY. A VM without failover keeps it, too."""
    match = _TEXT.match(text)
    return int(match[2]) if match else 0
