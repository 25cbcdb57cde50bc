# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keeps secrets out of the output. Ansible replaces a secret wherever it occurs, also in sizes, uuids and messages."""

from __future__ import annotations

import re
import typing as t

from ...model.errors import Problem, Problems

# Shorter words also occur in results, as sizes, states, names of steps and groups of a uuid.
SHORTEST = 8
HIDDEN = "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"
OPTIONS = ("secret_metadata", "template")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_SECRET = frozenset(
    (
        "pw",
        "pwd",
        "passwd",
        "password",
        "passwords",
        "passphrase",
        "passphrases",
        "secret",
        "secrets",
        "token",
        "tokens",
        "credential",
        "credentials",
    )
)
_KEYS = frozenset(("api", "private", "access", "secret", "encryption", "signing"))  # before the word key
_DOCUMENTS = ("user-data", "cloud-init:user-data")  # of cloud-init: they often have passwords and keys
_Vm = t.Mapping[str, t.Any]


def problems(vms: t.Sequence[_Vm]) -> t.List[Problem]:
    """Problems of secrets that cannot be kept out of the output without spoiling it, each named by its key."""
    result: t.List[Problem] = []
    for vm in vms:
        problems = Problems(str(vm["vm"]))
        for key, value in (vm.get("secret_metadata") or {}).items():
            if not isinstance(value, str):
                problems.add("InvalidArgument", f"secret_metadata {key}: its value must be a string")
            elif len(value) < SHORTEST:
                text = (
                    f"secret_metadata {key}: its value has less than {SHORTEST} characters, so it cannot be "
                    "told from the rest "
                    "of the output; take a longer one, or customer_metadata for what is no secret"
                )
                problems.add("InvalidArgument", text)
        for key in vm.get("customer_metadata") or {}:
            if is_secret(str(key)):
                text = f"customer_metadata {key}: its name says that it is a secret; secret_metadata is masked"
                problems.add("InvalidArgument", text)
        for path in _secret_options(vm.get("options") or {}):
            problems.add("InvalidArgument", f"options {path}: options are shown and logged; set it with vmadm")
        if vm.get("template") and "<domain" not in vm["template"]:
            problems.add("InvalidArgument", "template: it has no <domain>, so it is not the XML of a VM")
        result += problems
    return result


def is_secret(name: str) -> bool:
    """Whether a name says that its value is a secret, in any usual spelling: root_pw, root-pw, apiKey, DB_SECRET_1."""
    parts = [word.lower() for word in _WORD.findall(name)]
    pairs = zip(parts, parts[1:])
    return (
        name in _DOCUMENTS
        or bool(_SECRET.intersection(parts))
        or any(first in _KEYS and second in ("key", "keys") for first, second in pairs)
        or any(word in ("apikey", "apikeys") for word in parts)
    )


def _secret_options(options: t.Any, above: str = "") -> t.Iterator[str]:
    """Return the paths of options whose names say that they are secrets, wherever they are."""
    if isinstance(options, list):
        for one in options:
            yield from _secret_options(one, above)
    for key, value in options.items() if isinstance(options, dict) else ():
        path = f"{above}{key}"
        if is_secret(str(key)) and value not in (None, ""):
            yield path
        else:
            yield from _secret_options(value, f"{path}.")


def hidden(vms: t.Sequence[_Vm]) -> t.List[t.Dict[str, t.Any]]:
    """The VMs without their secrets, for an output in which Ansible replaces nothing."""
    return [{key: HIDDEN if vm[key] and key in OPTIONS else vm[key] for key in vm} for vm in vms]
