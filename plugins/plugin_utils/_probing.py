# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the probes of a gate, over sockets of the controller, many at the same time."""

from __future__ import annotations

import http.client
import queue
import re
import socket
import ssl
import threading
import time
import typing as t
from urllib.parse import urlsplit

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.gate import (
    Http,
    Probe,
    ProbedMember,
    Tcp,
)

MAX_THREADS = 50
WAKE_UP_INTERVAL = 0.5  # seconds. A signal that reached another thread is handled when the main thread wakes up.
EXTRA_TIME = 1.0  # seconds beyond all time-outs of a member, for what knows none: the look-up of a name
_HEADERS = {"User-Agent": "flexdisk.hypervisor", "Accept": "*/*", "Connection": "close"}
_STATUS_LINE = re.compile(rb"HTTP/1\.[0-9] ([0-9]{3})(?: [^\n]*)?\r?\n")
_MAX_LINE = 4096

_Answers = t.Dict[str, str]


def probe_all(members: t.Sequence[ProbedMember], at_once: int = MAX_THREADS) -> _Answers:
    """Return why each member says no, "" if it says yes.

    Each has a thread of its own, and one that does not end in time is left behind. So they are daemons: nothing waits
    for them when the task ends or is interrupted.
    """
    answers: _Answers = {}
    waiting = list(reversed(members))
    ends: t.Dict[str, float] = {}
    results: queue.Queue[t.Tuple[str, str]] = queue.Queue()
    while waiting or ends:
        while waiting and len(ends) < at_once:
            member = waiting.pop()
            ends[member.name] = time.monotonic() + _limit(member)
            threading.Thread(target=_probe_member, args=(member, results), daemon=True).start()
        left = max(0.0, min(ends.values()) - time.monotonic())
        try:
            name, why = results.get(timeout=min(left, WAKE_UP_INTERVAL))
        except queue.Empty:
            if left > WAKE_UP_INTERVAL:
                continue
            name = min(ends, key=lambda one: ends[one])
            why = "no answer in time"
        if ends.pop(name, None) is not None:
            answers[name] = why
    return answers


def _limit(member: ProbedMember) -> float:
    return EXTRA_TIME + sum(probe.timeout for probe in member.probes)


def _probe_member(member: ProbedMember, results: queue.Queue[t.Tuple[str, str]]) -> None:
    """Put the member's name there, with why it says no: the first question without a yes."""
    for probe in member.probes:
        why = why_unhealthy(probe)
        if why:
            results.put((member.name, f"{probe}: {why}"))
            return
    results.put((member.name, ""))


def why_unhealthy(probe: Probe) -> str:
    """Return why the answer to a question is no, "" if it is yes."""
    try:
        return _tcp(probe) if isinstance(probe, Tcp) else _http(probe)
    except TimeoutError:
        return f"no answer within {probe.timeout} s"
    except ssl.SSLCertVerificationError as exc:
        return f"certificate: {exc.verify_message}"
    except (OSError, http.client.HTTPException, ValueError) as exc:
        return getattr(exc, "strerror", None) or str(exc) or type(exc).__name__


def _tcp(probe: Tcp) -> str:
    socket.create_connection((probe.address, probe.port), probe.timeout).close()
    return ""


def _http(probe: Http) -> str:
    """Only the status counts, so nothing behind it is read and no redirect is followed."""
    end = time.monotonic() + probe.timeout
    connection = _connection(probe)
    try:
        connection.connect()
        connection.request("GET", _target(probe.url), headers=_HEADERS)
        line = _first_line(connection.sock, end)
    finally:
        connection.close()
    match = _STATUS_LINE.match(line)
    if match is None:
        return "no answer" if not line else "what answers does not speak HTTP"
    status = int(match[1])
    return "" if status in probe.status else f"status {status}, not {' or '.join(map(str, probe.status))}"


def _connection(probe: Http) -> http.client.HTTPConnection:
    """Return a connection to the URL's own host: proxies are not looked for."""
    parts = urlsplit(probe.url)
    host = parts.hostname or ""
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, parts.port or 80, timeout=probe.timeout)
    context = ssl.create_default_context()
    if not probe.validate_certs:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, parts.port or 443, timeout=probe.timeout, context=context)


def _target(url: str) -> str:
    """Return what a request asks for: the path with its query. A fragment is never sent."""
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _first_line(connected: socket.socket, end: float) -> bytes:
    """Return an answer up to the end of a line. Raises TimeoutError at `end`, however slowly it drips."""
    line = b""
    while b"\n" not in line and len(line) < _MAX_LINE:
        connected.settimeout(max(0.001, end - time.monotonic()))
        more = connected.recv(_MAX_LINE)
        if not more:
            break
        line += more
    return line
