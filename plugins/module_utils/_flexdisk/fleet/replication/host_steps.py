# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of moves, failovers and syncs on one host, as the module host_step takes them: which arguments each has."""

from __future__ import annotations

import typing as t

_Dict = t.Dict[str, t.Any]
_Spec = t.Dict[str, _Dict]

MODULE = "host_step"
OF_HOST = ("hypervisor", "libvirt_uri", "pool", "lock_timeout")
"""The options of the module itself."""

_TEXTS = {"type": "list", "elements": "str"}
_DICTS = {"type": "list", "elements": "dict"}
_NUMBERS = {"type": "list", "elements": "int", "default": []}
ARGUMENTS: _Spec = {
    "address": {"type": "str"},
    "allow_force_stop": {"type": "bool", "default": False},
    "allow_memory_loss": {"type": "bool", "default": False},
    "allow_restart": {"type": "bool", "default": False},
    "authorized_keys": {"type": "path", "default": "~/.ssh/authorized_keys"},
    "bandwidth_limit": {"type": "str"},
    "begun": {"type": "bool", "default": False},
    "boot": {"type": "str"},
    "complete": _TEXTS,
    "digest": {"type": "str"},
    "disk": {"type": "str"},
    "disks": _TEXTS,
    "elsewhere": {"type": "dict"},
    "exchanges": _DICTS,
    "failover": {"type": "bool"},
    "goes_on": {"type": "bool", "default": False},
    "homes": _NUMBERS,
    "host_keys": _TEXTS,
    "in_place": {"type": "bool", "default": False},
    "incoming_allowed": {**_TEXTS, "default": []},
    "keep": {"type": "dict"},
    "keep_home": {"type": "dict"},
    "leave_out": _TEXTS,
    "left_out": {**_TEXTS, "default": []},
    "max_data_loss": {"type": "int"},
    "memory": {"type": "dict"},
    "name": {"type": "str"},
    "needed": {"type": "int", "default": 0},
    "new_name": {"type": "str"},
    "old": {"type": "bool", "default": False},
    "peer": {"type": "dict"},
    "peer_name": {"type": "str"},
    "peer_pool": {"type": "str"},
    "peers": {"type": "dict"},
    "pools": {"type": "dict"},
    "port": {"type": "int", "default": 22},
    "record": {"type": "dict"},
    "records": _DICTS,
    "since": {"type": "int"},
    "snapshot": {"type": "str"},
    "ssh_directories": {"type": "list", "elements": "path", "default": ["/etc/ssh", "/var/ssh"]},
    "stayed": {"type": "int"},
    "stop_timeout": {"type": "raw", "default": 180},
    "suspends": {"type": "bool", "default": False},
    "target_pool": {"type": "str"},
    "term": {"type": "int"},
    "transfer": {"type": "dict"},
    "transfers": _DICTS,
    "unasked": {"type": "bool", "default": False},
    "unseen": {"type": "bool", "default": False},
    "variables": {"type": "str"},
    "vm": {"type": "str"},
    "vms": _TEXTS,
}
"""All arguments of steps. One that two steps have is the same thing."""


class Step(t.NamedTuple):
    """What a step takes."""

    needs: t.Sequence[str]
    may: t.Sequence[str]
    """What can be left out."""


def _step(needs: str, may: str = "") -> Step:
    return Step(needs.split(), may.split())


_STOPS = "stop_timeout allow_force_stop"
_LEAVES = "vm name peer_name digest transfer"
_PLANS = "address port peer_pool bandwidth_limit"

STEPS: t.Mapping[str, t.Mapping[str, Step]] = {
    "move": {  # a VM goes to another host
        "look": _step("vm name", "peer_name peers suspends allow_memory_loss"),
        "expect": _step("vm record target_pool", "name incoming_allowed memory"),
        "stop": _step(_LEAVES, f"suspends allow_memory_loss {_STOPS}"),
        "renew": _step("vm record"),
        "leave": _step(
            f"{_LEAVES} address host_keys", f"port bandwidth_limit variables suspends allow_memory_loss {_STOPS}"
        ),
        "go": _step("vm peer_name", f"peers unasked {_STOPS}"),
        "arrive": _step(
            "vm peer_name", f"name peers unasked authorized_keys incoming_allowed allow_memory_loss {_STOPS}"
        ),
        "stay": _step("vm", "peers unasked stop_timeout allow_memory_loss"),
        "cancel": _step("vm stayed term", "authorized_keys"),
        "tidy": _step("vm", _STOPS),
        "forget": _step("vm", "peers unseen"),
    },
    "failover": {  # a VM comes back on the host of its replicas
        "mark": _step("vms name", "failover peer_name"),
        "store": _step("records pools", "incoming_allowed"),
        "drop": _step("vms", "homes"),
        "note": _step("vms peer_name"),
        "look": _step("", "vm vms"),
        "take_over": _step(
            "vm", "name peers elsewhere left_out leave_out max_data_loss incoming_allowed authorized_keys"
        ),
        "stay": _step("vm"),
        "start": _step("peers", "name boot unasked"),
        "end": _step("vm peers", "elsewhere begun old authorized_keys"),
        "give_up": _step("vm", "peers elsewhere old authorized_keys"),
    },
    "send": {  # a sync, on the home of the VMs
        "prepare": _step("vms peer peer_name", f"{_PLANS} keep keep_home goes_on"),
        "announce": _step("vms peer peer_name", f"{_PLANS} suspends"),
        "send": _step("transfers address host_keys peer_name", "port bandwidth_limit"),
        "finish": _step("transfers complete peer_name"),
        "remove": _step("vms peer_name"),
    },
    "receive": {  # a sync, on the host of the replicas
        "open": _step("transfers", "authorized_keys ssh_directories goes_on"),
        "close": _step("transfers since", "authorized_keys"),
        "remove": _step("vms", "homes authorized_keys"),
    },
    "restore": {  # disks from replicas on another host; the run send sends them
        "choose": _step("disks", "snapshot"),
        "look": _step("disk new_name", "target_pool in_place"),
        "prepare": _step("disk peer peer_name", "snapshot address port"),
        "open": _step("disk new_name transfers", "target_pool authorized_keys ssh_directories in_place needed"),
        "close": _step("disk new_name transfers", "target_pool authorized_keys in_place"),
        "exchange": _step("exchanges", f"allow_restart {_STOPS}"),
    },
}
"""The steps of each run of the module."""


def spec(run: str, step: str) -> _Spec:
    """Return the argument spec of a step."""
    takes = STEPS[run][step]
    return {
        name: {**ARGUMENTS[name], **({"required": True} if name in takes.needs else {})}
        for name in (*takes.needs, *takes.may)
    }


def unknown_step(run: str, step: str) -> str:
    """Return what is wrong with a step that a run does not have, "" for one that it has."""
    return "" if step in STEPS[run] else f"step {step}: {run} has {', '.join(STEPS[run])}"


def defaults() -> _Dict:
    """Return all arguments as they are if they are not given."""
    return {name: option.get("default") for name, option in ARGUMENTS.items()}


def options(run: str, arguments: t.Mapping[str, t.Any]) -> _Dict:
    """Return the options of the module for a step. arguments: the step, its arguments, and the options of the host."""
    given = {key: value for key, value in arguments.items() if value is not None}
    of_host = {key: given.pop(key) for key in OF_HOST if key in given}
    return {"run": run, "step": given.pop("step"), "arguments": given, **of_host}
