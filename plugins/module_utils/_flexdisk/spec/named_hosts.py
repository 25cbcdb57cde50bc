# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that variables of playbooks name, on which modules run although the play may not have them."""

from __future__ import annotations

import typing as t

VARIABLES = ("flexdisk_target", "flexdisk_replica_host")
LISTED = "flexdisk_replicas"


def problems(variables: t.Mapping[str, t.Any], hosts: t.Collection[str]) -> t.List[str]:
    """Return what is wrong with the hosts that the variables name. hosts: the hypervisors."""
    named = [(name, variables[name]) for name in VARIABLES if variables.get(name)]
    replicas = variables.get(LISTED) or []
    named += [(f"{LISTED}, vm {one.get('vm', '')}", one["host"]) for one in replicas if one.get("host")]
    return [_words(where, str(host), hosts) for where, host in named if str(host) not in hosts]


def _words(where: str, host: str, hosts: t.Collection[str]) -> str:
    known = ", ".join(list(hosts)[:20]) + (f" and {len(hosts) - 20} more" if len(hosts) > 20 else "")
    return (
        f"{where}: {host} is none of the hypervisors, {known}. A host outside the group hypervisors has to be among"
        " those of flexdisk_hosts"
    )
