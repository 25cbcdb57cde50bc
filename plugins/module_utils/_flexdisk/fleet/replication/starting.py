# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the playbook start_host asks of which host, and what each host of the run is told of the others."""

from __future__ import annotations

import typing as t

Answers = t.Mapping[str, t.Mapping[str, t.Any]]  # results of the step look, by hosts; without vms it has failed


def hosts_to_ask(looks: Answers, every: t.Sequence[str], known: t.Container[str]) -> t.List[str]:
    """Return the hosts outside of the run that must be asked before a VM is started.

    Hosts with replicas may have taken a VM over, and any host may have it since. Without replicas nobody is asked.

    Args:
        looks: what the hosts of the run have answered.
        every: all hosts, also those that --limit leaves out.
        known: the hosts of the inventory.
    """
    peers = [str(peer) for look in looks.values() for vm in look.get("vms") or () for peer in vm["peers"]]
    asked = dict.fromkeys([*peers, *every] if peers else [])
    return [host for host in asked if host not in looks and host in known]


def claims_for(looks: Answers, answers: Answers) -> t.Dict[str, t.Dict[str, t.Any]]:
    """Return, for each host of the run, what other hosts say of its VMs, by their names: "" for one without an answer.

    A host is told of those that say something, and of those that must have been asked: with replicas of its VMs, or
    where these have gone. So all of it together grows with the number of VMs, and not with the square of the hosts.

    Args:
        looks: what the hosts of the run have answered first, when they said in which boot they are.
        answers: what they and the other hosts have answered after that.
    """
    by_vm: t.Dict[str, t.Dict[str, t.List[t.Any]]] = {}
    for host, answer in answers.items():
        for one in _said(answer) or ():
            by_vm.setdefault(str(one["vm"]), {}).setdefault(host, []).append(one)
    result = {}
    for host, look in looks.items():
        claims: t.Dict[str, t.Any] = {}
        named: t.Set[str] = set()
        for vm in look.get("vms") or ():
            named.update(str(peer) for peer in vm["peers"])
            for name, said in by_vm.get(str(vm["vm"]), {}).items():
                claims[name] = [*claims.get(name, ()), *said]
                named.update(str(one["host"]) for one in said if one.get("host"))
        for name in sorted(named.intersection(answers) - claims.keys()):
            claims[name] = "" if _said(answers[name]) is None else []
        result[host] = claims
    return result


def _said(answer: t.Mapping[str, t.Any]) -> t.Optional[t.List[t.Any]]:
    """Return what a host says of the VMs that it has, or had; None without an answer."""
    return [*answer["vms"], *answer["moved"]] if "vms" in answer and "moved" in answer else None
