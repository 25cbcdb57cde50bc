# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two programs at once: the one reads what the other writes, and nobody waits for one that has gone."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.runner import SubprocessRunner
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

MANY = "i=0; while [ $i -lt 40000 ]; do echo 0123456789abcdef; i=$((i+1)); done"


def carry(*programs, runner=None):
    return (runner or SubprocessRunner()).carry(*programs, lambda _count: None)


def test_the_second_reads_the_first():
    runner = SubprocessRunner()
    first, second = carry(("sh", "-c", MANY), ("wc", "-c"), runner=runner)
    assert (first.rc, second.rc, second.stderr.strip()) == (0, 0, "680000")
    assert runner.calls == 2


@pytest.mark.parametrize("first", ["cat", "wc -c"])
def test_the_first_has_nothing_to_read(first):
    assert carry(("sh", "-c", first), ("cat",))[1].stderr.strip() in ("", "0")


def test_what_each_says_is_kept_apart():
    first, second = carry(("sh", "-c", "echo a >&2; exit 3"), ("sh", "-c", "cat; echo b >&2; exit 4"))
    assert (first.rc, first.stderr, second.rc, second.stderr) == (3, "a\n", 4, "b\n")


def test_a_reader_that_goes_ends_the_writer():
    first, second = carry(("sh", "-c", MANY), ("sh", "-c", "exit 1"))
    assert first.rc != 0
    assert second.rc == 1


def test_a_reader_that_is_not_there():
    with pytest.raises(FlexdiskError, match="no-such-program is not on this host's PATH"):
        carry(("sleep", "60"), ("no-such-program",))
