# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that variables of playbooks name. Modules run on them even if the play does not include them."""

from __future__ import annotations

import typing as t

VARIABLES = ("flexdisk_target", "flexdisk_replica_host")
LISTED = "flexdisk_replicas"


def problems(variables: t.Mapping[str, t.Any], hosts: t.Collection[str]) -> t.List[str]:
    """Return what is wrong with the hosts that the variables name. hosts: the hypervisors."""
    return [_words(where, str(host), hosts) for where, host in named(variables) if str(host) not in hosts]


def named(variables: t.Mapping[str, t.Any]) -> t.List[t.Tuple[str, object]]:
    """Return the hosts that the variables name, each with where it is named. A value of a wrong type names none."""
    listed = variables.get(LISTED)
    replicas = [one for one in listed if isinstance(one, t.Mapping)] if isinstance(listed, list) else []
    return [
        *((name, variables[name]) for name in VARIABLES if variables.get(name)),
        *((f"{LISTED}, vm {one.get('vm', '')}", one["host"]) for one in replicas if one.get("host")),
    ]


def _words(where: str, host: str, hosts: t.Collection[str]) -> str:
    known = ", ".join(list(hosts)[:20]) + (f" and {len(hosts) - 20} more" if len(hosts) > 20 else "")
    return (
        f"{where}: {host} is none of the hypervisors, {known}. A host outside the group hypervisors has to be among"
        " those of flexdisk_hosts"
    )
