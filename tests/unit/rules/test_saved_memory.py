# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory of a guest that moves: restored at most once, over its own disks, and never on two hosts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import saved_memory as memory
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.saved_memory import (
    LOST,
    OPENING,
    RESTORED,
    RESTORING,
    RUNNING,
    SAVED,
    SAVING,
    WORDS,
    Guest,
    Journal,
)

VM = "aaaaaaaa-0000-4000-8000-000000000202"
STATES = ("running", "paused", "stopped", "crashed", "saved")
EVERY_GUEST = [Guest(*parts) for parts in itertools.product(STATES, *[(False, True)] * 4)]


# -- the journal


@pytest.mark.parametrize("word", WORDS)
def test_a_journal_comes_back(word):
    journal = Journal(word, VM)
    assert memory.decode(memory.encode(journal)) == journal


@pytest.mark.parametrize(
    "text",
    [
        "",
        "saved",
        "[]",
        "{}",
        '{"word":"done","vm":"%s"}' % VM,
        '{"word":["saved"],"vm":"%s"}' % VM,
        '{"word":"saving","vm":"x"}',
        '{"word":"saving","vm":7}',
        '{"word":"saving"}',
        '{"word":"saving","vm":"%s","more":1}' % VM,
    ],
)
def test_what_nobody_has_written_is_no_journal(text):
    assert memory.decode(text) is None


@pytest.mark.parametrize(("now", "next_"), [*itertools.product(WORDS, WORDS)])
def test_a_journal_never_goes_back(now, next_):
    journal = Journal(now, VM)
    if WORDS.index(next_) > WORDS.index(now):
        assert memory.advance(journal, next_) == journal._replace(word=next_)
    else:
        with pytest.raises(ValueError, match="does not go back"):
            memory.advance(journal, next_)


# -- whether what has come to a host belongs together


@pytest.mark.parametrize(
    ("there", "disks", "belongs"),
    [
        (["new"], [["old", "new"], ["new"]], "new"),
        (["new", "other"], [["new", "other"], ["old", "new", "other"]], "new"),
        (["old"], [["old", "new"], ["old", "new"]], ""),
        (["new"], [["old", "new"], ["old"]], ""),
        (["new"], [["new"], ["other"]], ""),
        (["other"], [["other"]], ""),
        ([], [["new"]], ""),
        ([], [[]], ""),
    ],
)
def test_memory_belongs_to_replicas_of_its_set(there, disks, belongs):
    """Whatever others have taken since."""
    names = {"old": "flexdisk-sync-0a1b2c3d-1", "new": "flexdisk-sync-0a1b2c3d-2", "other": "hourly"}
    sets = [[names[one] for one in names_] for names_ in (there, *disks)]
    assert memory.common_set(sets[0], sets[1:]) == names.get(belongs, "")


# -- what another host says of a guest

TRAVELLER = {
    "domain": "<domain/>",
    "encrypted": False,
    "memory": 64,
    "qemu": 7002022,
}


NO_VALUES: list[Any] = [None, [], {}, ["kvm"]]


def test_what_a_host_says_of_a_guest_is_read_without_what_else_it_says():
    assert memory.read_traveller({**TRAVELLER, "saved": True}) == TRAVELLER
    assert memory.read_traveller({**TRAVELLER, "encrypted": True})["encrypted"] is True


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[(key, value) for key in TRAVELLER for value in NO_VALUES],
        ("domain", 7),
        ("domain", True),
        *[("encrypted", value) for value in (0, 1, "", "no")],
        *[(key, value) for key in ("memory", "qemu") for value in (0, -1, 1 << 40, 64.0, "64", True)],
    ],
)
def test_a_hostile_word_of_a_guest_is_refused(key, value):
    with pytest.raises(FlexdiskError) as caught:
        memory.read_traveller({**TRAVELLER, key: value})
    assert caught.value.code == "InvalidArgument"


@pytest.mark.parametrize(
    "word",
    [None, "", "kvm", 7, [], {}, [TRAVELLER], *[{k: v for k, v in TRAVELLER.items() if k != key} for key in TRAVELLER]],
)
def test_what_is_not_a_whole_description_of_a_guest_is_refused(word):
    with pytest.raises(FlexdiskError) as caught:
        memory.read_traveller(word)
    assert caught.value.code == "InvalidArgument"


# -- what is next


@pytest.mark.parametrize("guest", EVERY_GUEST)
def test_once_begun_it_is_not_begun_again(guest):
    for word in (RESTORING, RESTORED, RUNNING, LOST):
        assert memory.to_run(word, guest) != memory.RESTORE
        assert memory.to_leave(word, guest) == memory.STAYS


@pytest.mark.parametrize("guest", EVERY_GUEST)
def test_memory_is_restored_only_where_it_belongs_and_nothing_runs(guest):
    for word in ("", *WORDS):
        if memory.to_run(word, guest) == memory.RESTORE:
            assert guest.state == "stopped"
            assert guest.guarded
            assert guest.has_file or word in (SAVED, OPENING)
            assert word in (SAVING, SAVED, OPENING)


@pytest.mark.parametrize("guest", EVERY_GUEST)
def test_only_what_is_saved_and_whole_leaves(guest):
    for word in ("", *WORDS):
        if memory.to_leave(word, guest) == memory.SEND:
            assert guest.state == "stopped"
            assert not word or (word, guest.guarded) == (SAVED, True)
        if memory.to_leave(word, guest) == memory.KEEP:
            assert (word, guest.state, guest.has_file, guest.guarded) == (SAVING, "stopped", True, True)


@pytest.mark.parametrize("guest", EVERY_GUEST)
def test_a_guest_that_runs_is_never_started(guest):
    """Nor is one started cold as long as its memory may still be restored."""
    for word in ("", *WORDS):
        action = memory.to_run(word, guest)
        if guest.state == "running":
            assert action == memory.DONE
        if action == memory.BOOT:
            assert guest.state == "stopped"
            assert word not in (SAVING, SAVED, OPENING) or (word == SAVING and not guest.has_file)


def test_a_restore_that_libvirt_is_still_at_work_on_is_waited_for():
    assert memory.to_run(RESTORING, Guest("paused", is_saving=True)) == memory.WAIT
    assert memory.to_run(RESTORING, Guest("paused")) == memory.RESUME


@pytest.mark.parametrize("word", ["", *WORDS])
def test_what_others_have_saved_is_not_touched(word):
    """Only the start of the VM by hand goes on with that."""
    assert memory.to_run(word, Guest("saved")) == memory.BY_HAND
    assert memory.to_leave(word, Guest("saved")) in (memory.BY_HAND, memory.STAYS, memory.GIVE_UP)


# -- two hosts, on which anything may happen at any moment


@dataclass
class Host:
    """What a host has of the VM. version: of what is on its disks."""

    state: str = "absent"
    version: int = 0
    ended_with_save: bool = False
    saving: bool = False
    word: str = ""
    read_only: bool = False
    figures: int = -1
    """The version that the journal knows."""
    image: tuple[int, int] | None = None
    """Its number, and the version of the disks to which the memory belongs."""
    memory: int = -1
    """The version that the guest knows, if it was restored and has not gone on."""

    def guest(self) -> Guest:
        guarded = (self.read_only or self.word == OPENING) and self.figures == self.version
        ended = self.ended_with_save and self.state == "stopped"
        return Guest(self.state, guarded, self.image is not None, self.saving, ended)

    def start(self) -> None:
        assert self.state == "stopped", "it is there already"
        assert not self.read_only
        self.state, self.ended_with_save, self.memory = "running", False, -1


@dataclass
class Pair:
    """Both hosts, and what a move does with them, command by command."""

    source: Host = field(default_factory=lambda: Host("running"))
    target: Host = field(default_factory=Host)
    moved: bool = False
    images: int = 0
    restored: list[int] = field(default_factory=list)
    boots_by_word: int = 0
    is_open_elsewhere: bool = False
    """Whether a program keeps the disks read-only, which it has opened."""

    def check(self) -> None:
        up = [host for host in (self.source, self.target) if host.state in ("running", "paused")]
        assert len(up) < 2, "both can run"
        assert len(self.restored) == len({*self.restored}), "restored twice"

    def finish_save(self, host: Host) -> None:
        """The daemon ends a save, whether anybody waits for it or not."""
        if host.saving:
            self.images += 1
            host.image, host.saving = (self.images, host.version), False
            host.state, host.ended_with_save = "stopped", True

    def leave(self) -> Iterator[None]:
        host = self.source
        while not self.moved:
            action = memory.to_leave(host.word, host.guest())
            if action == memory.SAVE:
                host.word, host.figures, host.image = SAVING, -1, None
                yield
                if host.state not in ("running", "paused"):
                    return
                host.state = "paused"
                yield
                host.read_only = True
                yield
                host.figures = host.version
                yield
                if host.state not in ("running", "paused"):
                    return
                host.state, host.saving = "paused", True
                yield
                self.finish_save(host)
            elif action == memory.KEEP:
                host.word = SAVED
            elif action == memory.FORGET:
                host.read_only = False
                yield
                host.word = ""
            elif action == memory.SEND:
                yield
                if memory.to_leave(host.word, host.guest()) != memory.SEND:
                    return
                self.moved = True
                self.target = Host("stopped", host.version, word=host.word, read_only=bool(host.word), image=host.image)
                self.target.figures = host.version
                self.source = Host()
            else:
                return
            yield

    def opens(self, host: Host) -> Iterator[None]:
        """Make the disks writable, or leave all as it was."""
        before, host.word = host.word, OPENING
        yield
        host.read_only = False
        yield
        if self.is_open_elsewhere:
            host.read_only = True
            yield
            host.word = before

    @staticmethod
    def boots(host: Host) -> Iterator[None]:
        """Start it without its memory."""
        if host.word not in ("", RUNNING, LOST):
            host.word = LOST
            yield
        host.read_only = False
        yield
        if host.state == "stopped":
            host.start()

    def run(self, by_word: bool) -> Iterator[None]:
        """Arrive, or stay."""
        host = self.target if self.moved else self.source
        while True:
            action = memory.to_run(host.word, host.guest())
            if action == memory.RESTORE and (host.word != OPENING or host.read_only):
                yield from self.opens(host)
                if self.is_open_elsewhere:
                    return
            elif action == memory.RESTORE:
                host.word = RESTORING
                yield
                if host.state != "stopped":
                    continue
                assert host.image is not None
                self.restored.append(host.image[0])
                host.state, host.memory, host.ended_with_save = "paused", host.image[1], False
            elif action == memory.GO_ON:
                host.read_only = False
                yield
                if host.state == "paused":
                    host.state = "running"
            elif action == memory.RESUME:
                host.word = RESTORED
                yield
                if host.state != "paused":
                    continue
                assert host.memory in (-1, host.version), "memory over other disks"
                host.state = "running"
                yield
                host.word = RUNNING
            elif action == memory.BOOT or (action == memory.GIVE_UP and by_word):
                self.boots_by_word += action == memory.GIVE_UP
                yield from self.boots(host)
            elif action == memory.DONE:
                host.read_only = False
                yield
                host.word, host.image = "", None
                return
            else:
                return
            yield


def _killed(steps: Iterator[None], number: int) -> None:
    for _step in itertools.islice(steps, number):
        pass


def _here(pair: Pair) -> Host:
    return pair.target if pair.moved else pair.source


def _by_hand(pair: Pair, what: str) -> None:
    """What an operator, a guest or a fault does on the host that has the VM."""
    host = _here(pair)
    if what == "writes" and host.state == "running":
        host.version += 1
        host.memory = -1
    elif what == "starts" and host.state == "stopped" and not host.read_only:
        host.start()
    elif what == "goes on" and host.state == "paused" and not host.saving:
        assert host.memory in (-1, host.version), "memory over other disks"
        host.state = "running"
    elif what == "is saved elsewhere" and host.state in ("running", "paused") and not host.saving:
        host.state, host.ended_with_save = "stopped", True
    elif what == "a program":
        pair.is_open_elsewhere = not pair.is_open_elsewhere
    elif what == "writable":
        host.read_only = False
    elif what == "ends" and host.state in ("running", "paused") and not host.saving:
        host.state, host.ended_with_save = "stopped", False
    elif what == "daemon":
        host.saving = host.ended_with_save = False
    elif what == "boots" and host.state != "absent":
        host.state, host.saving, host.ended_with_save = "stopped", False, False
    elif what == "saved":
        pair.finish_save(host)


Step = Callable[[Pair], None]
RUNS = st.one_of(
    st.builds(lambda n: lambda pair: _killed(pair.leave(), n), st.integers(0, 9)),
    st.builds(lambda n, word: lambda pair: _killed(pair.run(word), n), st.integers(0, 9), st.booleans()),
)
EVENTS = st.builds(
    lambda what: lambda pair: _by_hand(pair, what),
    st.sampled_from(
        [
            *("writes", "starts", "goes on", "is saved elsewhere", "ends", "daemon", "boots"),
            *("writable", "saved", "saved", "a program"),
        ]
    ),
)


@settings(max_examples=600, deadline=None)
@given(st.lists(st.one_of(RUNS, EVENTS), max_size=25))
def test_whatever_happens_it_is_restored_once_over_its_disks_on_one_host(steps: list[Step]) -> None:
    """And the documented commands, with the word where memory is lost, end in a VM that runs on one host."""
    pair = Pair()
    for step in steps:
        step(pair)
        pair.check()
    pair.is_open_elsewhere = False
    for _again in range(6):
        _killed(pair.run(True), 99)
        pair.check()
        if _here(pair).state == "paused":
            _by_hand(pair, "saved" if _here(pair).saving else "ends")
    assert _here(pair).state == "running"
    assert _here(pair).word == ""


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["leave", "stay"])), max_size=6), st.booleans())
def test_kills_alone_lose_no_memory(kills: list[tuple[int, str]], stays: bool) -> None:
    """Without reboots, faults of the daemon and operators, the guest is booted only if its restore had begun."""
    pair = Pair()
    for number, what in kills:
        _killed(pair.leave() if what == "leave" else pair.run(False), number)
        pair.finish_save(_here(pair))
        pair.check()
    if not stays:
        _killed(pair.leave(), 99)
    for _again in range(3):
        _killed(pair.run(False), 99)
    assert (_here(pair).state, pair.boots_by_word) == ("running", 0)
