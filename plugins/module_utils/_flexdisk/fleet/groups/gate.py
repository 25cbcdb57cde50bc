# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gate of a group as a task declares it: the probes of each member, and how often they are repeated."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass
from urllib.parse import urlsplit

from ...model.durations import parse_seconds
from ...model.errors import FlexdiskError, Problem, Problems, named
from . import placeholders

_Raw = t.Mapping[str, t.Any]
FACTS = ("name", "index", "host", "address")  # the placeholders of a member
MAX_SECONDS = 3600  # seconds
CONNECTED = "connected"
_PORT = re.compile(r"[0-9]{1,5}")
_PLAIN = re.compile(r"[!-~]*")  # what can stand in a request: no blanks, no control characters, ASCII alone


class Tcp(t.NamedTuple):
    """A probe that succeeds if a port takes connections. timeout: seconds."""

    address: str
    port: int
    timeout: int

    def __str__(self) -> str:
        return f"tcp {f'[{self.address}]' if ':' in self.address else self.address}:{self.port}"


class Http(t.NamedTuple):
    """A probe that succeeds if a URL answers with one of the statuses. timeout: seconds."""

    url: str
    status: t.Tuple[int, ...]
    timeout: int
    validate_certs: bool

    def __str__(self) -> str:
        return f"http {self.url}"


Probe = t.Union[Tcp, Http]


@dataclass(frozen=True)
class ProbedMember:
    """A member with its probes, all of which must succeed."""

    name: str
    running: bool
    # None for a member that fails without a probe.
    probes: t.Tuple[Probe, ...] = ()
    # Its guest agent is connected, or need not be.
    agent: bool = True


@dataclass(frozen=True)
class Gate:
    """The members of a gate, and how often they are probed."""

    members: t.Tuple[ProbedMember, ...]
    # Failed probes after which a member is probed again.
    retries: int = 0
    # Seconds between two probes of a member.
    delay: int = 0
    # Seconds that a member must succeed without a failure.
    stable_for: int = 0
    # Seconds after which members that are not decided fail, 0 for no limit.
    limit: int = 0


def parse_gate(raw: _Raw) -> t.Tuple[Gate, t.List[Problem]]:
    """Return the arguments of group_gate, whose types Ansible has checked, and all their problems."""
    problems = Problems("")
    if raw["retries"] < 0:
        problems.add("InvalidArgument", f"retries is {raw['retries']}, but must not be negative")
    delay = problems.attempt("", _seconds, "delay", raw["delay"], 0)
    stable_for = problems.attempt("", _seconds, "stable_for", raw["stable_for"], 0)
    if raw.get("limit", 0) < 0:
        problems.add("InvalidArgument", f"limit is {raw['limit']}, but must not be negative")
    if stable_for and delay == 0:
        problems.add("InvalidArgument", "delay is 0, so that members would be asked without a pause during stable_for")
    templates = _probe_templates(raw["tcp"], raw["http"], problems)
    members = _members(raw["members"] or (), templates, raw["guest_agent"], problems)
    return Gate(members, raw["retries"], delay, stable_for, raw.get("limit", 0)), list(problems)


class _ProbeTemplate(t.NamedTuple):
    """A question with placeholders still in it: key is the option, build makes the question of what is filled in."""

    key: str
    template: t.Dict[str, t.Any]
    build: t.Callable[[t.Dict[str, t.Any]], Probe]


def _probe_templates(tcp: t.Optional[_Raw], http: t.Optional[_Raw], problems: Problems) -> t.List[_ProbeTemplate]:
    """Return the probes that are valid. The problems of the others are added."""
    result = []
    if tcp is not None:
        timeout = problems.attempt("", _seconds, "tcp.timeout", tcp["timeout"], 1)
        template = {"address": tcp["address"] or "{instance.address}", "port": tcp["port"]}
        result.append(_ProbeTemplate("tcp", template, lambda of: _tcp(of, timeout)))
    if http is not None:
        seconds = problems.attempt("", _seconds, "http.timeout", http["timeout"], 1)
        status = tuple(problems.attempt("", _status, item) for item in http["status"])
        if not status:
            problems.add("InvalidArgument", "http.status is empty, so no answer would do")
        result.append(
            _ProbeTemplate("http", {"url": http["url"]}, lambda of: _http(of, status, seconds, http["validate_certs"]))
        )
    for declared in list(result):
        before = len(problems)
        problems.attempt("", named, declared.key, placeholders.check, declared.template, FACTS)
        if len(problems) > before:
            result.remove(declared)
    return result


def _members(
    raw: t.Sequence[_Raw], templates: t.Sequence[_ProbeTemplate], with_agent: bool, problems: Problems
) -> t.Tuple[ProbedMember, ...]:
    """Return the members with their probes. A problem that several members share is reported once."""
    names: t.Set[str] = set()
    seen = {problem.message for problem in problems}
    members = []
    for entry in raw:
        name = entry["name"]
        if not name or name in names:
            problems.add("InvalidArgument", f"{name} is there twice" if name else "a member has no name")
        names.add(name)
        member_problems = Problems(name)
        probes = _probes_of(entry, templates, member_problems)
        agent_ready = not (with_agent and entry["running"]) or _has_agent(entry, member_problems)
        members.append(ProbedMember(name, entry["running"], probes if agent_ready else (), agent_ready))
        problems += [problem for problem in member_problems if problem.message not in seen]
        seen |= {problem.message for problem in member_problems}
    return tuple(members)


def _has_agent(entry: _Raw, problems: Problems) -> bool:
    """Return whether the guest agent of a running member is connected."""
    if not entry["guest_agent"]:
        problems.add("InvalidArgument", "guest_agent: the hypervisor reports no channel for a guest agent")
    return bool(entry["guest_agent"] == CONNECTED)


def _probes_of(entry: _Raw, templates: t.Sequence[_ProbeTemplate], problems: Problems) -> t.Tuple[Probe, ...]:
    """Return the probes of a member. One that does not run needs no host or index."""
    facts = {key: entry[key] for key in FACTS if entry[key] not in (None, "")}
    facts.setdefault("address", entry["name"])
    ready = [one for one in templates if entry["running"] or placeholders.used(one.template) <= set(facts)]
    probes = [problems.attempt("", _build_probe, one, facts) for one in ready]
    return tuple(probe for probe in probes if probe is not None) if entry["running"] else ()


def _build_probe(declared: _ProbeTemplate, facts: t.Mapping[str, t.Any]) -> Probe:
    def build() -> Probe:
        return declared.build(placeholders.filled(declared.template, facts))

    probe: Probe = named(declared.key, build)
    return probe


def _tcp(of: _Raw, timeout: int) -> Tcp:
    if not _PLAIN.fullmatch(of["address"]):
        raise FlexdiskError("InvalidArgument", f"{of['address']!r} is not an address")
    port = str(of["port"])
    if isinstance(of["port"], bool) or not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535:
        raise FlexdiskError("InvalidArgument", f"{of['port']!r} is not a port, a number from 1 to 65535")
    return Tcp(of["address"], int(port), timeout)


def _http(of: _Raw, status: t.Tuple[int, ...], timeout: int, validate_certs: bool) -> Http:
    """Raises FlexdiskError InvalidArgument for a URL that cannot be asked as it is written."""
    url = str(of["url"])
    try:
        parts = urlsplit(url)
        usable = parts.hostname and parts.port != 0 and _PLAIN.fullmatch(url)
    except ValueError:
        usable = None
    if not usable or parts.scheme not in ("http", "https"):
        raise FlexdiskError("InvalidArgument", f"{url!r} is not a URL that begins with http:// or https:// and a host")
    if parts.username is not None:
        raise FlexdiskError("InvalidArgument", f"the URL for {parts.hostname} has a user, but nobody is logged in")
    return Http(url, status, timeout, validate_certs)


def _status(value: int) -> int:
    if not 100 <= value <= 599:
        raise FlexdiskError("InvalidArgument", f"http.status: {value} is not a status, a number from 100 to 599")
    return value


def _seconds(name: str, value: object, minimum: int) -> int:
    seconds = int(named(name, parse_seconds, value))
    if not minimum <= seconds <= MAX_SECONDS:
        raise FlexdiskError("InvalidArgument", f"{name} is {seconds} s, but must be {minimum} s to {MAX_SECONDS} s")
    return seconds
