# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What zpool says of the features that encrypted datasets and the memory of guests need."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies


def encrypting(stdout, rc=0, stderr=""):
    return Copies(lambda _argv: Answer(rc, stdout, stderr)).encrypting(["zones", "my tank", "old"])


def test_pools_that_can_encrypt():
    """A pool of a version without features has no value."""
    assert encrypting("zones\tactive\nmy tank\tenabled\nold\tdisabled\n") == {"zones", "my tank"}
    assert encrypting("zones\t-\nmy tank\tdisabled\nold\tactive\n") == {"old"}
    assert Copies(pytest.fail).encrypting([]) == set()


@pytest.mark.parametrize("text", ["", "zones\tactive\n", "zones\tactive\nmy tank\tenabled\nold", "what is this\n"])
def test_an_answer_that_is_not_whole(text):
    with pytest.raises(FlexdiskError) as caught:
        encrypting(text)
    assert caught.value.code == "UnexpectedOutput"


def test_a_pool_that_has_gone():
    with pytest.raises(FlexdiskError) as caught:
        encrypting("", 1, "cannot open 'old': no such pool")
    assert caught.value.code == "ResourceNotFound"


@pytest.mark.parametrize(
    ("rc", "stdout", "stderr", "knows"),
    [
        (0, "zones\tactive\n", "", True),
        (0, "zones\tenabled\n", "", True),
        (0, "zones\tdisabled\n", "", False),
        (0, "zones\t-\n", "", False),
        (2, "", "bad property list: invalid property 'feature@bookmark_written'\nusage:\n", False),
    ],
)
def test_pools_that_know_what_was_written_since_a_bookmark(rc, stdout, stderr, knows):
    """OpenZFS before 2.0 knows no such feature."""
    assert Copies(lambda _argv: Answer(rc, stdout, stderr)).knowing_writes("zones") is knows


def test_a_pool_that_cannot_be_asked_what_it_knows():
    with pytest.raises(FlexdiskError) as caught:
        Copies(lambda _argv: Answer(1, "", "cannot open 'zones': no such pool")).knowing_writes("zones")
    assert caught.value.code == "ResourceNotFound"
