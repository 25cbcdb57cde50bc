# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What zpool says of the feature that encrypted datasets need."""

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
