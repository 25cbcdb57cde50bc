# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the dataset of a VM with failover says: the hypervisor does not start the VM with the host, start_host does."""

from __future__ import annotations

import re
import typing as t
from dataclasses import replace

from ..model.dataset import Dataset
from ..model.vm import Vm, VmConfig
from .replicas import hosts, is_host

FAILOVER_PROPERTY = "failover"
# The boot of this host in which it was known to be the home of the VM. It says nothing about other boots or hosts.
BOOT = "at_home"
# Hosts that may have a record with which they take the VM over, whatever its disks note. A host is written down before
# it gets its record, and taken out when it has lost it: start_host and moves ask all of them.
RIVALS = "failover.rivals"
_MOST = 1_000_000  # takeovers of one VM
_TEXT = re.compile(r"(on|off|none):(\d{1,9})\Z")


class FailoverSetting(t.NamedTuple):
    """The failover setting of a VM."""

    # The VM starts with its home.
    autoboot: bool
    # How often another host has taken the VM over. If two hosts have the VM, the one with the higher term is its home.
    term: int = 0


def encode(setting: FailoverSetting) -> str:
    """The value of FACT."""
    return f"{'on' if setting.autoboot else 'off'}:{setting.term}"


def rivals_of(user: t.Mapping[str, str]) -> t.List[str]:
    """The hosts in the value of RIVALS, from our properties of a dataset. What is no host is left out."""
    return [name for name in user.get(RIVALS, "").split(",") if is_host(name)]


def encode_rivals(names: t.Iterable[str]) -> str:
    """The value of RIVALS."""
    return ",".join(sorted(set(names)))


def takers_of(vm: Vm, here: str = "") -> t.List[str]:
    """The hosts that may take a VM over: they have a record, or replicas. here: this host, which is none of them."""
    return sorted({*(name for disk in vm.disks for name in hosts(disk)), *rivals_of(vm.root.user)} - {here})


def properties_at(vm: Vm, here: str, target: str) -> t.Dict[str, str]:
    """Return our properties of the VM's dataset as target gets them. Neither host is among its rivals there."""
    known = encode_rivals(one for one in takers_of(vm, here) if one != target) if vm.config.failover else ""
    marks = {key: value for key, value in vm.root.user.items() if key != RIVALS}
    return {**marks, RIVALS: known} if known else marks


def is_plausible(text: str) -> bool:
    """Whether another host may tell this value: its term leaves room for all takeovers that can follow."""
    match = _TEXT.match(text)
    return match is not None and int(match[2]) < _MOST


def decode(text: str) -> t.Optional[FailoverSetting]:
    """The wish in the value of FACT; None for anything else."""
    match = _TEXT.match(text)
    return FailoverSetting(match[1] == "on", int(match[2])) if match and match[1] != "none" else None


def encode_without_failover(setting: FailoverSetting) -> str:
    """The value of FACT when a VM loses its failover. It keeps its term: an old record must never have the same one."""
    return f"none:{setting.term}" if setting.term else ""


def with_failover_setting(config: VmConfig, datasets: t.Mapping[str, Dataset]) -> VmConfig:
    """The configuration of a VM with failover has the wish in the place of the hypervisor's autoboot."""
    root = datasets.get(config.dataset)
    setting = decode(root.user.get(FAILOVER_PROPERTY, "")) if root is not None else None
    return replace(config, autoboot=setting.autoboot, failover=True) if setting is not None else config


def setting_of(config: VmConfig, root: Dataset) -> FailoverSetting:
    """The wish of a VM, with failover or without."""
    text = root.user.get(FAILOVER_PROPERTY, "")
    return decode(text) or FailoverSetting(config.autoboot, term_of(text))


def term_of(text: str) -> int:
    """The term in the value of FACT, which a VM keeps without failover, too."""
    match = _TEXT.match(text)
    return int(match[2]) if match else 0
