# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action group_gate on real sockets: servers that are late, flap, refuse, redirect, hang and drip."""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ansible.playbook.task import Task
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ansible_collections.flexdisk.hypervisor.plugins.action import group_gate
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.gate import (
    Http,
    ProbedMember,
    Tcp,
)
from ansible_collections.flexdisk.hypervisor.plugins.modules import group_gate as documented
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _probing

from .actions import plain, playbook

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTATION = yaml.safe_load(documented.DOCUMENTATION)
EXAMPLES = yaml.safe_load(documented.EXAMPLES)


def test_the_options_are_as_documented():
    assert plain(DOCUMENTATION["options"], told=True) == plain(group_gate.ARGUMENTS)


# -- servers


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, dict(self.headers)))
        status, headers = self.server.answer(self.path)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_args):
        pass


class Server(http.server.ThreadingHTTPServer):
    """Answers each request with what `answer` says of its path: a status and headers."""

    daemon_threads = True
    request_queue_size = 200

    def __init__(self, answer, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.answer = answer
        self.asked = []


@contextmanager
def serving(answer=lambda _path: (200, {}), port=0, context=None):
    """A server and its port."""
    server = Server(answer, port)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def talking(talk):
    """The port of a server that does talk(connection) with each connection, and closes it."""
    threads = []

    def converse(connection):
        with connection, suppress(OSError):
            talk(connection)

    def accept():
        with suppress(OSError):
            while True:
                connection, _address = listening.accept()
                threads.append(threading.Thread(target=converse, args=(connection,)))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threads.append(threading.Thread(target=accept))
        threads[0].start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def hang(connection):
    """Answer nothing until the other side has gone."""
    while connection.recv(1000):
        pass


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


# -- one question


def web(port, path="/", status=(200,), timeout=1, scheme="http", validate_certs=True):
    return Http(f"{scheme}://127.0.0.1:{port}{path}", status, timeout, validate_certs)


def test_an_open_and_a_closed_port():
    with talking(hang) as port:
        assert _probing.why_unhealthy(Tcp("127.0.0.1", port, 1)) == ""
    assert _probing.why_unhealthy(Tcp("127.0.0.1", closed_port(), 1)) == "Connection refused"


def test_a_port_that_does_not_answer():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        fillers = [socket.socket() for _number in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        assert _probing.why_unhealthy(Tcp("127.0.0.1", port, 1)) == "no answer within 1 s"
        for filler in fillers:
            filler.close()


def test_a_name_that_nobody_has():
    assert _probing.why_unhealthy(Tcp("nobody.invalid", 80, 1)) in (
        "Name or service not known",
        "Temporary failure in name resolution",
        "No address associated with hostname",
    )


@pytest.mark.parametrize("name", ["a" * 64 + ".invalid", "a..b"])
def test_what_is_no_name_is_a_no_and_no_traceback(name):
    assert _probing.why_unhealthy(Tcp(name, 80, 1)) != ""


@pytest.mark.parametrize(
    ("status", "wanted", "said"),
    [
        (200, (200,), ""),
        (204, (200, 204), ""),
        (503, (200,), "status 503, not 200"),
        (503, (200, 204), "status 503, not 200 or 204"),
        (503, (503,), ""),
    ],
)
def test_statuses(status, wanted, said):
    with serving(lambda _path: (status, {})) as server:
        assert _probing.why_unhealthy(web(server.server_port, status=wanted)) == said


def test_a_redirect_is_its_status():
    with serving(lambda path: (302, {"Location": "/there"}) if path == "/" else (200, {})) as server:
        assert _probing.why_unhealthy(web(server.server_port)) == "status 302, not 200"
        assert _probing.why_unhealthy(web(server.server_port, status=(302,))) == ""
        assert [path for path, _headers in server.asked] == ["/", "/"]


@pytest.mark.parametrize(
    ("path", "asked"),
    [("", "/"), ("?a=b", "/?a=b"), ("/a%20b;c?d=e&f#g", "/a%20b;c?d=e&f"), ("//a/b", "//a/b")],
)
def test_what_a_server_is_asked(path, asked):
    with serving() as server:
        assert _probing.why_unhealthy(web(server.server_port, path)) == ""
        ((seen, headers),) = server.asked
    # http.server itself makes one slash of several at the beginning
    assert seen == asked.replace("//", "/")
    assert headers["Host"] == f"127.0.0.1:{server.server_port}"
    assert headers["Connection"] == "close"


def test_proxies_are_not_used(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    with serving() as server:
        assert _probing.why_unhealthy(web(server.server_port)) == ""


def test_a_server_that_hangs():
    begun = time.monotonic()
    with talking(hang) as port:
        assert _probing.why_unhealthy(web(port)) == "no answer within 1 s"
    assert time.monotonic() - begun > 0.9


def test_a_server_that_drips_is_not_waited_for():
    def drip(connection):
        for byte in b"HTTP/1.1 200 a very long reason":
            time.sleep(0.2)
            connection.send(bytes([byte]))

    with talking(drip) as port:
        assert _probing.why_unhealthy(web(port)) == "no answer within 1 s"


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"", "no answer"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "what answers does not speak HTTP"),
        (b"x" * 5000, "what answers does not speak HTTP"),
        (b"HTTP/1.1 200", "what answers does not speak HTTP"),
        (b"HTTP/1.0 200\r\n", ""),
        (b"HTTP/1.1 200 OK\n", ""),
    ],
)
def test_what_is_said_by_hand(sent, said):
    def talk(connection):
        connection.recv(1000)
        connection.sendall(sent)

    with talking(talk) as port:
        assert _probing.why_unhealthy(web(port)) == said


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A file with a certificate of 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "guest")])
    begin = datetime.datetime(2020, 1, 1)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), begin, begin.replace(2120))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "guest.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


def test_certificates(certificate, monkeypatch):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with serving(context=context) as server:
        question = web(server.server_port, scheme="https")
        assert _probing.why_unhealthy(question) == "certificate: self-signed certificate"
        assert _probing.why_unhealthy(question._replace(validate_certs=False)) == ""
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert _probing.why_unhealthy(question) == ""
        other = question._replace(url=question.url.replace("127.0.0.1", "localhost"))
        assert "localhost" in _probing.why_unhealthy(other)


# -- all members


def asked(name, *questions):
    return ProbedMember(name, True, questions)


def test_all_are_asked_at_once():
    """A hundred members that take half a second each: fifty at a time."""
    lock, now, most = threading.Lock(), [0], [0]

    def answer(_path):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.5)
        with lock:
            now[0] -= 1
        return 200, {}

    with serving(answer) as server:
        begun = time.monotonic()
        found = _probing.probe_all([asked(f"m{n}", web(server.server_port, timeout=20)) for n in range(100)])
        took = time.monotonic() - begun
    assert found == {f"m{n}": "" for n in range(100)}
    assert 1 < most[0] <= 50
    assert took >= 1


def test_both_questions_must_be_answered_with_yes():
    with serving() as server:
        port, bad = server.server_port, closed_port()
        found = _probing.probe_all(
            [
                asked("a", Tcp("127.0.0.1", port, 1), web(port)),
                asked("b", Tcp("127.0.0.1", bad, 1), web(port)),
                asked("c", Tcp("127.0.0.1", port, 1), web(bad)),
            ]
        )
    assert found == {
        "a": "",
        "b": f"tcp 127.0.0.1:{bad}: Connection refused",
        "c": f"http http://127.0.0.1:{bad}/: Connection refused",
    }


def test_each_question_has_its_own_time(monkeypatch):
    """Two slow answers, each in time, take longer together than one may."""
    monkeypatch.setattr(_probing, "EXTRA_TIME", 0.2)
    monkeypatch.setattr(_probing, "why_unhealthy", lambda question: time.sleep(0.8) or "")
    assert _probing.probe_all([asked("slow", Tcp("a", 1, 1), Tcp("a", 2, 1))]) == {"slow": ""}


def test_who_knows_no_time_out_is_left_behind(monkeypatch):
    """The look-up of a name cannot be ended. The others have their turn meanwhile."""
    monkeypatch.setattr(_probing, "EXTRA_TIME", 0.2)
    monkeypatch.setattr(_probing, "why_unhealthy", lambda question: time.sleep(3) if question.port == 1 else "")
    members = [asked("slow", Tcp("a", 1, 0.1)), asked("quick", Tcp("a", 2, 9))]
    begun = time.monotonic()
    assert _probing.probe_all(members, at_once=1) == {"slow": "no answer in time", "quick": ""}
    assert time.monotonic() - begun < 2


@contextmanager
def signals_reach_another_thread():
    """The kernel may give a signal of the process to any thread that does not block it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    ended = threading.Event()

    def take():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        ended.wait()

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Alarm(Exception):
    pass


def test_a_signal_that_another_thread_got_ends_the_questions():
    def alarm(_number, _frame):
        raise Alarm

    former = signal.signal(signal.SIGALRM, alarm)
    with talking(hang) as port, signals_reach_another_thread():
        start = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            with pytest.raises(Alarm):
                _probing.probe_all([asked("a", web(port, timeout=6))])
            assert time.monotonic() - start < 4
        finally:
            signal.signal(signal.SIGALRM, former)


# -- the action


def gate(check_mode=False, **arguments):
    """The result of the action, and what it displayed."""
    lines = []
    task = Task()
    task.check_mode, task.args = check_mode, arguments
    action = group_gate.ActionModule(task, SimpleNamespace(_shell=SimpleNamespace(tmpdir=None)), None, None, None, None)
    action._display = SimpleNamespace(display=lambda line, stderr: lines.append(line))
    return action.run(), lines


def local(name, **more):
    return {"name": name, "address": "127.0.0.1", **more}


def test_a_server_that_comes_up_late():
    port = closed_port()
    late = threading.Timer(0.7, lambda: servers.append(Server(lambda _path: (200, {}), port)))
    servers = []
    late.start()
    tcp = {"port": port, "timeout": 1}
    found, _lines = gate(members=[local("web-0"), local("web-1", running=False)], tcp=tcp, retries=20, delay=1)
    late.join()
    servers[0].server_close()
    assert (found["serving"], found["failing"]) == (["web-0"], ["web-1"])
    assert found["msg"] == "1 of 2 members in service; web-1: not running"


def test_a_server_that_flaps_does_not_count_before_it_is_stable():
    statuses = iter([200, 503, 200, 200, 200, 200])
    with serving(lambda _path: (next(statuses), {})) as server:
        url = f"http://{{instance.address}}:{server.server_port}/{{instance.name}}/{{instance.index}}"
        found, _lines = gate(members=[local("web-4", index=4)], http={"url": url}, retries=1, delay=1, stable_for=2)
        assert found["serving"] == ["web-4"]
        assert {path for path, _headers in server.asked} == {"/web-4/4"}
        assert len(server.asked) in (4, 5)


def test_a_no_is_no_failure():
    with serving(lambda path: (503 if path == "/web-2" else 200, {})) as server:
        url = f"http://127.0.0.1:{server.server_port}/{{instance.name}}"
        found, _lines = gate(members=[local(f"web-{n}") for n in range(4)], http={"url": url})
    why = f"http http://127.0.0.1:{server.server_port}/web-2: status 503, not 200"
    assert not found.get("failed")
    assert (found["changed"], found["msg"]) == (False, f"3 of 4 members in service; web-2: {why}")
    assert found["members"][2] == {"name": "web-2", "in_service": False, "why": why}


def test_check_mode_asks_once():
    with serving(lambda path: (503 if path == "/a" else 200, {})) as server:
        url = f"http://127.0.0.1:{server.server_port}/{{instance.name}}"
        found, _lines = gate(True, members=[local("a"), local("b")], http={"url": url}, retries=9, stable_for=60)
        assert sorted(path for path, _headers in server.asked) == ["/a", "/b"]
    assert (found["serving"], found["failing"]) == (["b"], ["a"])


def test_long_waits_are_told_of(monkeypatch):
    watch = sys.modules[group_gate.watch.__module__]
    monkeypatch.setattr(watch, "NOTICE_INTERVAL", 0)
    found, lines = gate(members=[local("a"), local("b")], tcp={"port": closed_port()}, retries=1, delay=0)
    assert found["failing"] == ["a", "b"]
    assert lines == ["group_gate: after 0 s still waiting for a, b"]


def test_a_refusal_has_all_reasons():
    refused, _lines = gate(members=[local("a")], tcp={"port": 0}, retries=-1)
    assert (refused["failed"], refused["error_code"]) == (True, "InvalidArgument")
    assert refused["msg"].splitlines() == [
        "retries is -1, but must not be negative [InvalidArgument]",
        "a: tcp: 0 is not a port, a number from 1 to 65535 [InvalidArgument]",
    ]


# -- as a user runs it


def test_the_examples_and_a_refusal_run(tmp_path):
    said = "a: tcp: '0' is not a port, a number from 1 to 65535 [InvalidArgument]"
    refused = [
        {
            "flexdisk.hypervisor.group_gate": {"members": [{"name": "a"}], "tcp": {"port": "{{ 0 }}"}},
            "register": "refused",
            "ignore_errors": True,
        },
        {
            "ansible.builtin.assert": {
                "that": [
                    "refused.error_code == 'InvalidArgument'",
                    f'refused.msg == "{said.replace(chr(39) + "0" + chr(39), "0")}"',
                ]
            }
        },
    ]
    with serving() as server:
        text = yaml.safe_dump(EXAMPLES).replace("8080", str(server.server_port))
        for last in ("10", "11"):
            text = text.replace(f"192.0.2.{last}", "127.0.0.1")
        command, env = playbook(tmp_path, *yaml.safe_load(text.replace("stable_for: 10", "stable_for: 1")), *refused)
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("All assertions passed") == 2
    assert [path for path, _headers in server.asked] == ["/health"] * 4


def test_an_interrupt_ends_it_at_once(tmp_path):
    """While members hang, and no question has been answered yet."""
    connected = threading.Event()

    def talk(connection):
        connected.set()
        hang(connection)

    with talking(talk) as port:
        http_question = {"url": f"http://127.0.0.1:{port}/", "timeout": 120}
        gate_task = {
            "flexdisk.hypervisor.group_gate": {"members": [{"name": "a"}], "http": http_question, "retries": 99}
        }
        command, env = playbook(tmp_path, gate_task)
        running = subprocess.Popen(
            command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            assert connected.wait(60)
            os.killpg(running.pid, signal.SIGINT)
            assert running.wait(60) != 0
        finally:
            running.kill()
            running.wait()
