# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gate without sockets: its declaration with all refusals, and its decision on a clock that the test moves."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.gate import (
    Gate,
    Http,
    ProbedMember,
    Tcp,
    parse_gate,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.watch import Clock, watch
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import refusal

SSH = Tcp("192.0.2.1", 22, 3)
WEB = {"name": "web-0", "index": 0, "host": "hv01", "address": "192.0.2.10", "running": True, "guest_agent": ""}
OTHER = {"name": "web-1", "index": None, "host": None, "address": None, "running": True, "guest_agent": ""}
DOWN = {**OTHER, "running": False}


def arguments(**given):
    """Arguments as Ansible hands them over."""
    defaults = {
        "members": [WEB],
        "tcp": None,
        "http": None,
        "guest_agent": False,
        "retries": 0,
        "delay": 5,
        "stable_for": 0,
    }
    return {**defaults, **given}


def tcp(port, address=None, timeout=3):
    return {"port": port, "address": address, "timeout": timeout}


def http(url, status=(200,), timeout=3, validate_certs=True):
    return {"url": url, "status": list(status), "timeout": timeout, "validate_certs": validate_certs}


# -- the declaration


def test_a_gate_as_it_is_declared():
    gate, problems = parse_gate(
        arguments(
            members=[WEB, OTHER],
            tcp=tcp("22"),
            http=http("https://{instance.address}:8443/{instance.name}", (200, 204), "PT5S", False),
            retries=3,
            delay="PT1M",
            stable_for="90",
        )
    )
    assert problems == []
    assert (gate.retries, gate.delay, gate.stable_for) == (3, 60, 90)
    assert gate.members == (
        ProbedMember(
            "web-0", True, (Tcp("192.0.2.10", 22, 3), Http("https://192.0.2.10:8443/web-0", (200, 204), 5, False))
        ),
        ProbedMember("web-1", True, (Tcp("web-1", 22, 3), Http("https://web-1:8443/web-1", (200, 204), 5, False))),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("port", "address", "wanted"),
    [
        ("{instance.index}1", "{instance.host}", Tcp("hv01", 71, 3)),
        ("{instance.index}", None, Tcp("192.0.2.10", 7, 3)),
        (65535, "::1", Tcp("::1", 65535, 3)),
    ],
)
def test_ports_and_addresses_with_placeholders(port, address, wanted):
    gate, problems = parse_gate(arguments(members=[{**WEB, "index": 7}], tcp=tcp(port, address)))
    assert problems == []
    assert gate.members[0].probes == (wanted,)


def test_a_question_is_named_by_what_it_asks():
    assert [str(SSH), str(Tcp("::1", 80, 1)), str(Http("http://a/", (200,), 1, True))] == [
        "tcp 192.0.2.1:22",
        "tcp [::1]:80",
        "http http://a/",
    ]


def test_a_member_that_does_not_run_has_no_questions_and_needs_no_host():
    gate, problems = parse_gate(arguments(members=[DOWN], tcp=tcp(22, "{instance.host}")))
    assert (gate.members, problems) == ((ProbedMember("web-1", False),), [])


@pytest.mark.parametrize(
    ("state", "needed", "agent"),
    [("connected", True, True), ("disconnected", True, False), ("disconnected", False, True), ("", False, True)],
)
def test_only_a_member_with_its_guest_agent_is_asked_where_that_is_needed(state, needed, agent):
    member = {**WEB, "guest_agent": state}
    gate, problems = parse_gate(arguments(members=[member], guest_agent=needed, tcp=tcp(22)))
    assert problems == []
    assert gate.members == (ProbedMember("web-0", True, (Tcp("192.0.2.10", 22, 3),) if agent else (), agent),)


def test_of_a_member_that_does_not_run_nobody_needs_to_tell():
    assert parse_gate(arguments(members=[DOWN], guest_agent=True))[1] == []


NO_URL = "is not a URL that begins with http:// or https:// and a host [InvalidArgument]"
KNOWN = "{instance.address}, {instance.host}, {instance.index}, {instance.name}"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"retries": -1, "delay": -5, "stable_for": "1m"}, [
            "retries is -1, but must not be negative [InvalidArgument]",
            "delay: -5 is not a duration: write seconds, or PT1H30M5S [InvalidArgument]",
            "stable_for: '1m' is not a duration: write seconds, or PT1H30M5S [InvalidArgument]",
        ]),
        ({"stable_for": "PT1H1S"}, ["stable_for is 3601 s, but must be 0 s to 3600 s [InvalidArgument]"]),
        ({"stable_for": 1, "delay": 0},
         ["delay is 0, so that members would be asked without a pause during stable_for [InvalidArgument]"]),
        ({"tcp": tcp(22, timeout=0), "http": http("http://a/", (99, 200, 600), "PT2H")}, [
            "tcp.timeout is 0 s, but must be 1 s to 3600 s [InvalidArgument]",
            "http.timeout is 7200 s, but must be 1 s to 3600 s [InvalidArgument]",
            "http.status: 99 is not a status, a number from 100 to 599 [InvalidArgument]",
            "http.status: 600 is not a status, a number from 100 to 599 [InvalidArgument]",
        ]),
        ({"http": http("http://a/", ())}, ["http.status is empty, so no answer would do [InvalidArgument]"]),
        ({"tcp": tcp("{instance.port}", "{instance.ip}"), "http": http("ftp://a")}, [
            f"tcp: {{instance.ip}}, {{instance.port}}: no such placeholder; those here are {KNOWN} [InvalidArgument]",
            f"web-0: http: 'ftp://a' {NO_URL}",
        ]),
        ({"members": [WEB, OTHER], "tcp": tcp(65536)},
         ["web-0: tcp: 65536 is not a port, a number from 1 to 65535 [InvalidArgument]"]),
        ({"members": [DOWN], "tcp": tcp(0)},
         ["web-1: tcp: 0 is not a port, a number from 1 to 65535 [InvalidArgument]"]),
        ({"members": [WEB, OTHER], "tcp": tcp(22, "{instance.host}")},
         ["web-1: tcp: {instance.host}: no such placeholder; those here are {instance.address}, {instance.name}"
          " [InvalidArgument]"]),
        ({"members": [WEB, WEB, {**WEB, "name": ""}]},
         ["web-0 is there twice [InvalidArgument]", "a member has no name [InvalidArgument]"]),
        ({"members": [{**OTHER, "guest_agent": "disconnected"}, WEB, {**OTHER, "name": "web-2"}], "guest_agent": True},
         ["web-0: guest_agent: the hypervisor reports no channel for a guest agent [InvalidArgument]"]),
        ({"http": http("http://me:secret@a/")},
         ["web-0: http: the URL for a has a user, but nobody is logged in [InvalidArgument]"]),
    ],
)  # fmt: skip
def test_refusals(given, said):
    _gate, problems = parse_gate(arguments(**given))
    assert refusal(problems, noun="")["msg"].splitlines() == said
    assert {problem.code for problem in problems} == {"InvalidArgument"}


@pytest.mark.parametrize("port", [True, "22 ", "", "-1", 1.5, None, ["22"], "{instance.name}"])
def test_what_is_no_port(port):
    _gate, problems = parse_gate(arguments(tcp=tcp(port)))
    assert [problem.vm for problem in problems] == ["web-0"]
    assert "is not a port" in problems[0].message


@pytest.mark.parametrize(
    "url",
    ["", "a", "http:/a", "http://", "http://:80/", "http://a:0/", "http://a:99999/", "http://a:b/", "file:///etc",
     "http://a/ b", "http://a/\r\nHost: b", "http://\u00e4/", "http://[a", "http://2001:db8::1:80/",
     "{instance.index}"],
)  # fmt: skip
def test_what_is_no_url(url):
    _gate, problems = parse_gate(arguments(http=http(url)))
    assert [problem.message.endswith(NO_URL[:-18]) for problem in problems] == [True]


@pytest.mark.parametrize("address", ["a b", "a\n", "\u00e4"])
def test_what_is_no_address(address):
    _gate, problems = parse_gate(arguments(tcp=tcp(22, address)))
    assert [problem.message for problem in problems] == [f"tcp: {address!r} is not an address"]


# -- the decision over time


class World:
    """A clock, and members that say yes or no at times that the test chooses."""

    def __init__(self, says, takes=0.0):
        self.time = 100.0
        self.says = says
        self.takes = takes
        self.asked = []
        self.told = []

    def sleep(self, seconds):
        assert seconds >= 0
        self.time += seconds

    def ask(self, members):
        assert members
        at = self.time - 100
        self.asked.append((at, [member.name for member in members]))
        self.time += self.takes
        return {member.name: "" if self.says(member.name, at) else f"no at {at:.0f}" for member in members}

    def watch(self, **gate):
        members = gate.pop("members", (ProbedMember("a", True, (SSH,)),))
        clock = Clock(lambda: self.time, self.sleep)
        return watch(Gate(tuple(members), **gate), self.ask, clock, lambda text: self.told.append((self.time, text)))


def times(world):
    return [at for at, _names in world.asked]


def test_one_attempt_decides_without_retries():
    world = World(lambda name, _at: name == "a")
    found = world.watch(members=[ProbedMember("a", True, (SSH,)), ProbedMember("b", True, (SSH,))], delay=5)
    assert world.asked == [(0, ["a", "b"])]
    assert found == {
        "changed": False,
        "msg": "1 of 2 members in service; b: no at 0",
        "members": [{"name": "a", "in_service": True, "why": ""}, {"name": "b", "in_service": False, "why": "no at 0"}],
        "serving": ["a"],
        "failing": ["b"],
    }


def test_only_those_that_say_no_are_asked_again():
    world = World(lambda name, at: name == "a" or at >= 10)
    found = world.watch(members=[ProbedMember(name, True, (SSH,)) for name in "ab"], retries=9, delay=5)
    assert world.asked == [(0, ["a", "b"]), (5, ["b"]), (10, ["b"])]
    assert found["serving"] == ["a", "b"]


def test_retries_are_attempts_beyond_the_first():
    world = World(lambda *_any: False, takes=2)
    assert world.watch(retries=2, delay=5)["members"][0]["why"] == "no at 14"
    assert times(world) == [0, 7, 14]


@pytest.mark.parametrize(("takes", "asked"), [(0, [0, 5, 10, 15]), (2, [0, 7, 14])])
def test_a_gate_ends_at_its_limit(takes, asked):
    """So that the lease of the group outlasts it, whatever its members answer."""
    world = World(lambda name, at: name == "b" or at < 0, takes=takes)
    members = [ProbedMember("a", True, (SSH,)), ProbedMember("b", True, (SSH,))]
    found = world.watch(members=members, retries=10**6, delay=5, stable_for=10**6, limit=20)
    assert times(world) == asked
    assert world.time - 100 <= 20
    assert [member["why"] for member in found["members"]] == [
        f"no at {asked[-1]}; given up after 20 s (limit)", "not yes for long enough; given up after 20 s (limit)",
    ]  # fmt: skip


def test_what_does_not_run_is_never_asked_or_waited_for():
    world = World(lambda *_any: True)
    found = world.watch(members=[ProbedMember("a", False)], retries=9, delay=5, stable_for=60)
    assert (world.asked, world.time) == ([], 100)
    assert found["msg"] == "0 of 1 member in service; a: not running"


def test_without_questions_only_running_counts():
    world = World(lambda *_any: False)
    found = world.watch(members=[ProbedMember("a", True), ProbedMember("b", False)], retries=9, delay=5, stable_for=60)
    assert (world.asked, found["serving"], found["failing"]) == ([], ["a"], ["b"])


def test_a_guest_agent_that_is_not_connected_is_not_waited_for():
    world = World(lambda *_any: True)
    found = world.watch(
        members=[ProbedMember("a", True, agent=False), ProbedMember("b", False, agent=False)], retries=9, delay=5
    )
    assert (world.asked, world.time) == ([], 100)
    assert found["msg"] == "0 of 2 members in service; a: guest agent not connected; b: not running"


def test_no_members():
    assert World(lambda *_any: False).watch(members=())["msg"] == "0 of 0 members in service"


def test_a_yes_is_asked_each_delay_and_once_more_at_the_end():
    world = World(lambda *_any: True)
    assert world.watch(delay=5, stable_for=12)["serving"] == ["a"]
    assert times(world) == [0, 5, 10, 12]


def test_the_time_of_a_yes_begins_when_it_is_said():
    world = World(lambda *_any: True, takes=2)
    assert world.watch(delay=60, stable_for=10)["serving"] == ["a"]
    assert times(world) == [0, 12]


def test_an_answer_that_takes_longer_than_stable_for_is_confirmed_by_another():
    world = World(lambda *_any: True, takes=9)
    assert world.watch(delay=1, stable_for=2)["serving"] == ["a"]
    assert times(world) == [0, 10, 19]


def test_a_no_begins_the_time_again_and_costs_an_attempt():
    world = World(lambda _name, at: at != 5)
    assert world.watch(retries=1, delay=5, stable_for=10)["serving"] == ["a"]
    assert times(world) == [0, 5, 10, 15, 20]
    world = World(lambda _name, at: at != 5)
    assert world.watch(retries=0, delay=5, stable_for=10)["msg"] == "0 of 1 member in service; a: no at 5"


def test_the_others_are_told_of_every_thirty_seconds_at_most():
    world = World(lambda _name, at: at >= 70)
    world.watch(members=[ProbedMember(name, True, (SSH,)) for name in "ab"], retries=99, delay=10)
    assert world.told == [
        (130, "after 30 s still waiting for a, b"),
        (160, "after 60 s still waiting for a, b"),
    ]


@given(
    st.lists(st.booleans(), max_size=60),
    st.booleans(),
    st.floats(0, 7),
    st.integers(0, 5),
    st.integers(1, 9),
    st.integers(0, 20),
)
def test_a_gate_keeps_its_word(history, afterwards, takes, retries, delay, stable_for):
    """Whatever a member says second by second: yes only after stable_for without a no, no only after all attempts."""

    def says(_name, at):
        return history[int(at)] if at < len(history) else afterwards

    world = World(says, takes)
    found = world.watch(retries=retries, delay=delay, stable_for=stable_for)
    said = [(at, says("a", at)) for at in times(world)]
    noes = [at for at, yes in said if not yes]
    if found["serving"]:
        since = noes[-1] if noes else -1.0
        streak = [at for at, yes in said if yes and at > since]
        assert streak[-1] == times(world)[-1]
        assert not stable_for or streak[-1] >= streak[0] + takes + stable_for - 1e-6
        assert len(noes) <= retries
    else:
        assert len(noes) == retries + 1
        assert noes[-1] == times(world)[-1]
    assert world.time - 100 <= (retries + 1) * (stable_for + delay + 3 * takes) + stable_for + 3 * takes
    gaps = [later - earlier for earlier, later in itertools.pairwise(times(world))]
    assert stable_for or all(gap >= delay + takes - 1e-6 for gap in gaps)
