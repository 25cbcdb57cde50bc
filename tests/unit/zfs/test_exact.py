# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A volume is destroyed only if it still is the one that was read."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs import exact
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

VOLUME = Dataset("zones/flexdisk/u", "volume", guid=(1 << 64) - 5, user={"uuid": "the-uuid"})


class Library:
    """What libzfs_core answers, or raises; remembers what it was asked."""

    def __init__(self, said):
        self.said = said
        self.asked = None

    def lzc_channel_program(self, pool, program, params):
        self.asked = (pool, program, params)
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


def destroyed(library, snapshots=()):
    calls = []

    def runner(argv, stdin="", timeout=300):
        calls.append(list(argv))
        return Answer(0, "", "")

    return exact.destroy(Zfs(runner, lambda seconds: None), library, VOLUME, snapshots), calls


def test_one_transaction_compares_and_destroys():
    library = Library(b"destroyed")
    assert destroyed(library, ["zones/flexdisk/u@s"]) == ("libzfs_core", [])
    pool, program, params = library.asked
    assert (pool, params) == (b"zones", [b"zones/flexdisk/u", b"-5", b"the-uuid", b"zones/flexdisk/u@s"])
    assert program.index(b"get_prop") < program.index(b"zfs.check.destroy") < program.index(b"zfs.sync.destroy")


@pytest.mark.parametrize("said", [b"guid", b"uuid", b"snapshots"])
def test_another_volume_of_the_name_stays(said):
    with pytest.raises(FlexdiskError, match=f"changed since it was read: another {said.decode()}") as caught:
        destroyed(Library(said))
    assert caught.value.code == "Changed"


@pytest.mark.parametrize("said", [b"busy", b"errno 16", 5, OSError("no /dev/zfs")])
def test_what_it_cannot_do_the_command_line_tries(said):
    """That waits for udev to let go of the device, and says in words why not."""
    for snapshots in ((), ("zones/flexdisk/u@s",)):
        flags = ["-r"] if snapshots else []
        assert destroyed(Library(said), snapshots) == ("cli", [["zfs", "destroy", *flags, "zones/flexdisk/u"]])
    assert destroyed(None) == ("cli", [["zfs", "destroy", "zones/flexdisk/u"]])
