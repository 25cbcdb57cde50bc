# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Leases of groups: what we write is read back, nothing else is believed, and two runs never have the same one."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import LeaseDeclaration
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import lease, property_text
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import VM_NAME

TOKEN = "0ab21b0c-66b5-4e04-a5c9-3ea52e5a4a4e"
OTHER = TOKEN[:-1] + "f"
NOW = 1767225600
HELD = lease.Lease(TOKEN, "deploy@ctl1", NOW, NOW, 900)
TEXT = lease.encode(HELD)
MINE = LeaseDeclaration("web", TOKEN, "deploy@ctl1")
THEIRS = LeaseDeclaration("web", OTHER, "ops@ctl2")
CLEAR = "zfs inherit x"
GROUPS = st.from_regex(VM_NAME)
HOLDERS = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=200)


def decide(wanted, value=TEXT, now=NOW, **changes):
    return lease.decide(value, replace(wanted, **changes), now, CLEAR)


def told(**changes):
    data = {**HELD._asdict(), "since": "2026-01-01T00:00:00Z", "renewed": "2026-01-01T00:00:00Z", **changes}
    return lease.decode(property_text.encode_text(json.dumps(data)))


# -- how it is written


@given(GROUPS)
def test_every_group_has_a_property_of_its_own(group):
    name = lease.lease_property(group)
    assert re.fullmatch(r"[a-z0-9:._-]{1,200}", name), "ZFS knows nothing else"
    assert lease.group_of(name) == group


def test_the_property_of_an_ordinary_group_has_its_name():
    assert lease.lease_property("web") == "lease.web"
    assert (lease.lease_property("Web"), lease.group_of("lease.:web")) == ("lease.:web", "Web")


@pytest.mark.parametrize("name", ["web", "lease.", "lease.:", "lease.:1", "lease.Web", "lease.-a", "intent." + TOKEN])
def test_other_properties_are_no_leases(name):
    assert lease.group_of(name) == ""
    assert lease.reported(name, lease.encode(HELD), NOW) is None


@given(HOLDERS, st.integers(0, 4 * 10**9), st.integers(0, 4 * 10**9), st.integers(10, 86400))
def test_what_is_written_is_read(holder, since, renewed, ttl):
    written = lease.Lease(TOKEN, holder, since, renewed, ttl)
    text = lease.encode(written)
    assert lease.decode(text) == written
    assert text.isascii()
    assert text.isprintable()
    assert len(text) < property_text.LIMIT


@pytest.mark.parametrize(
    "changes",
    [
        {"token": ""}, {"token": "x"}, {"token": 1}, {"token": TOKEN.upper()}, {"holder": ""}, {"holder": "x" * 201},
        {"holder": "a\nb"}, {"holder": None}, {"since": ""}, {"since": 5}, {"since": "2026-13-01T00:00:00Z"},
        {"renewed": "0001-01-01T00:00:00Z"}, {"renewed": "2026-1-01T00:00:00Z"}, {"renewed": "9999-12-31T23:59:59Z"},
        {"renewed": None}, {"ttl": 9}, {"ttl": 86401}, {"ttl": True}, {"ttl": "900"}, {"ttl": 900.0}, {"surplus": 1},
    ],
)  # fmt: skip
def test_one_wrong_part_spoils_it(changes):
    assert told() == HELD
    assert told(**changes) is None


@pytest.mark.parametrize("value", ["-", "x", "{}", "[]", "null", "1", "[" * 8000, '{"a":' * 1500, "%ff", "1" * 5000])
def test_garbage(value):
    assert lease.standing(value, TOKEN, NOW) == lease.UNREADABLE


@given(st.text(), st.text())
def test_any_text(name, value):
    lease.reported(name, value, NOW)
    lease.decide(value, MINE, NOW, CLEAR)


# -- who gets it


def test_a_free_lease_is_taken():
    done = decide(MINE, "")
    assert done == ("web: deploy@ctl1 has the lease until 2026-01-01T00:15:00Z", HELD, None, True, True, "", "")


def test_a_renewal_is_written_and_no_change():
    done = decide(MINE, now=NOW + 10, ttl=60, holder="a new name")
    assert done.lease == lease.Lease(TOKEN, "a new name", NOW, NOW + 10, 60)
    assert (done.previous, done.writes, done.changed, done.code) == (HELD, True, False, "")


def test_a_second_run_is_told_who_is_at_work():
    done = decide(THEIRS, now=NOW + 12)
    assert (done.code, done.lease, done.writes, done.changed) == ("InUse", HELD, False, False)
    assert done.msg == (
        "web: deploy@ctl1 has the lease since 2026-01-01T00:00:00Z, renewed 12 s ago, "
        "expires at 2026-01-01T00:15:00Z. With take_over: true this run takes it all the same"
    )


@pytest.mark.parametrize(("later", "taken"), [(899, False), (900, True)])
def test_it_expires_by_itself(later, taken):
    done = decide(THEIRS, now=NOW + later)
    assert done.changed is taken
    if taken:
        assert done.msg.endswith("deploy@ctl1 had it, renewed 900 s ago, expired at 2026-01-01T00:15:00Z")


def test_the_same_run_renews_what_has_expired():
    done = decide(MINE, now=NOW + 5000, renew=True)
    assert (done.code, done.changed, done.lease.since, done.lease.renewed) == ("", False, NOW, NOW + 5000)


def test_a_run_whose_lease_was_taken_over_is_told_by_whom():
    taken = decide(THEIRS, take_over=True, now=NOW + 1)
    assert (taken.changed, taken.previous, taken.lease.since) == (True, HELD, NOW + 1)
    assert "before, deploy@ctl1 had it, renewed 1 s ago, expires at" in taken.msg
    for renew, message in ((False, "web: ops@ctl2 has"), (True, "web: this run has lost the lease, ops@ctl2 has")):
        done = decide(MINE, lease.encode(taken.lease), NOW + 2, renew=renew)
        assert (done.code, done.writes) == ("InUse", False)
        assert done.msg.startswith(message)


def test_to_take_over_what_one_has_is_a_renewal():
    done = decide(MINE, take_over=True)
    assert (done.changed, done.writes) == (False, True)


@pytest.mark.parametrize("value", ["", lease.encode(HELD._replace(token=OTHER, holder="ops@ctl2"))])
def test_only_to_renew_takes_nothing(value):
    """A run that took over may have ended, and this run must still learn that it lost the lease."""
    done = decide(MINE, value, NOW + 900, renew=True)
    assert (done.code, done.writes, done.changed) == ("LeaseLost", False, False)
    assert "nobody has it now" in done.msg
    assert ("ops@ctl2 had it last" in done.msg) is bool(value)


def test_a_release():
    done = decide(MINE, hold=False, now=NOW + 5000)
    assert (done.lease, done.previous, done.writes, done.changed) == (None, HELD, True, True)


@pytest.mark.parametrize(
    ("value", "now", "warned"),
    [
        ("", NOW, ""),
        (TEXT, NOW, "deploy@ctl1 has"),
        (TEXT, NOW + 900, ""),
        ("x", NOW, "1 bytes"),
    ],
)
def test_a_release_by_another_is_no_error(value, now, warned):
    done = decide(THEIRS, value, now, hold=False)
    assert (done.writes, done.changed, done.code) == (False, False, "")
    assert warned in done.warning
    assert bool(done.warning) is bool(warned)


def test_what_cannot_be_read_is_refused_with_the_way_out():
    done = decide(MINE, "x" * 5000)
    assert (done.code, done.writes) == ("LeaseUnreadable", False)
    assert "5000 bytes" in done.msg
    assert "'zfs inherit x' removes it" in done.msg
    assert len(done.msg) < 250
    taken = decide(MINE, "x" * 5000, take_over=True)
    assert (taken.changed, taken.previous, taken.lease) == (True, None, HELD)


@pytest.mark.parametrize(("back", "message"), [(60, "renewed 0 s ago"), (61, "which is 61 s from now: the clock")])
def test_a_clock_that_was_set_back_makes_it_last_longer(back, message):
    done = decide(THEIRS, now=NOW - back)
    assert done.code == "InUse"
    assert message in done.msg
    assert decide(THEIRS, now=NOW + 899).code == "InUse"
    healed = decide(MINE, now=NOW - back)
    assert healed.lease.expires == NOW - back + 900
    assert decide(THEIRS, now=NOW - back, take_over=True).changed


def test_the_results():
    assert lease.result(None) is None
    times = {"since": "2026-01-01T00:00:00Z", "renewed": "2026-01-01T00:00:00Z", "expires": "2026-01-01T00:15:00Z"}
    assert lease.result(HELD) == {"token": TOKEN, "holder": "deploy@ctl1", "ttl": 900, **times}
    shown = {"group": "web", "readable": True, "token": TOKEN, "holder": "deploy@ctl1", **times}
    assert lease.reported("lease.web", lease.encode(HELD), NOW) == {**shown, "expired": False}
    assert lease.reported("lease.web", lease.encode(HELD), NOW + 900) == {**shown, "expired": True}
    assert lease.reported("lease.web", "x", NOW) == {"group": "web", "readable": False}


# -- two runs


class Race(RuleBasedStateMachine):
    """Two runs, one property, one clock. until is to when each run may believe that it has the lease."""

    def __init__(self):
        super().__init__()
        self.now, self.value = NOW, ""
        self.until = {TOKEN: 0, OTHER: 0}

    def ask(self, token, **request):
        before = lease.decode(self.value)
        wanted = LeaseDeclaration("web", token, "run " + token[-1], **request)
        done = lease.decide(self.value, wanted, self.now, CLEAR)
        assert done.writes or not done.changed
        assert done.previous == before
        if done.writes:
            self.value = lease.encode(done.lease) if done.lease is not None else ""
        assert lease.decode(self.value) == done.lease, "what is told is what is there"
        return done

    @rule(token=st.sampled_from([TOKEN, OTHER]), ttl=st.integers(10, 100), renew=st.booleans())
    def hold(self, token, ttl, renew):
        mine = lease.standing(self.value, token, self.now) == lease.MINE
        done = self.ask(token, ttl=ttl, renew=renew)
        self.until[token] = 0 if done.code else self.now + ttl
        assert mine == (not done.changed and not done.code)
        assert not (renew and done.changed)

    @rule(token=st.sampled_from([TOKEN, OTHER]), ttl=st.integers(10, 100))
    def take_over(self, token, ttl):
        assert self.ask(token, ttl=ttl, take_over=True).code == ""
        self.until = {TOKEN: 0, OTHER: 0, token: self.now + ttl}

    @rule(token=st.sampled_from([TOKEN, OTHER]))
    def release(self, token):
        done = self.ask(token, hold=False)
        assert done.code == ""
        self.until[token] = 0

    @rule(seconds=st.integers(-200, 200))
    def time_goes(self, seconds):
        """What has expired stays so for the run, even if the clock is set back then."""
        self.now += seconds
        self.until = {token: until if self.now < until else 0 for token, until in self.until.items()}

    @invariant()
    def never_two(self):
        holders = [token for token, until in self.until.items() if self.now < until]
        assert len(holders) <= 1
        if holders:
            holder = lease.decode(self.value)
            assert holder is not None
            assert holder.token == holders[0], "a run that has not been refused has the lease"


Race.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestRace = Race.TestCase
