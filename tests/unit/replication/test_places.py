# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a VM is that shall move, by what hosts say."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.places import Wanted, find
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.moves import Sighting

VM = "aaaaaaaa-0000-4000-8000-000000000202"
NONE, HERE = Sighting("", ""), Sighting(VM, "")
LEAVES, LEFT = Sighting(VM, "leaving", "hv02", VM), Sighting("", "moved", "hv02", VM, 1, asks=("hv03",))
PARTS = LEFT._replace(vm=VM)
COMES = Sighting(VM, "coming", "hv01", VM, 1)
ALONE = NONE._replace(unmanaged="not adopted: it has no dataset")
ARRIVES, TAKES = COMES._replace(has_left=True), COMES._replace(taking=True)


def found(seen, target="hv02", state="moved", unasked=False):
    return find(seen, Wanted("db01", target, state, unasked))


@pytest.mark.parametrize(
    ("seen", "homes", "source"),
    [
        ({"hv01": HERE, "hv02": NONE}, ["hv01"], "hv01"),
        ({"hv01": HERE, "hv02": HERE}, ["hv01", "hv02"], "hv01"),
        ({"hv01": NONE, "hv02": NONE}, [], ""),
        ({"hv01": LEAVES, "hv02": COMES}, ["hv01"], "hv01"),
        ({"hv01": PARTS, "hv02": COMES, "hv03": NONE}, ["hv01"], "hv01"),
        ({"hv01": LEFT, "hv02": COMES, "hv03": NONE}, [], "hv01"),
        ({"hv02": COMES}, [], "hv01"),
        ({"hv02": ARRIVES, "hv03": HERE._replace(had=0)}, [], "hv01"),
        ({"hv02": ARRIVES, "hv03": HERE._replace(had=1)}, ["hv03"], "hv03"),
        ({"hv02": ARRIVES, "hv03": HERE}, ["hv03"], "hv03"),
        ({"hv02": COMES, "hv03": HERE._replace(had=0)}, [], "hv01"),
        ({"hv01": LEFT, "hv02": COMES, "hv03": HERE._replace(had=0)}, [], "hv01"),
        ({"hv02": TAKES, "hv03": HERE._replace(had=0)}, ["hv03"], "hv03"),
        ({"hv02": ARRIVES, "hv03": LEAVES._replace(term=0, had=0)}, [], "hv01"),
        ({"hv02": ARRIVES, "hv03": HERE._replace(vm=VM[::-1], had=0)}, ["hv03"], "hv03"),
    ],
)
def test_where_it_is(seen, homes, source):
    """A move of the VM with a higher term makes a home an old one. A failover that has only begun does not."""
    assert (found(seen).homes, found(seen).source) == (homes, source)


@pytest.mark.parametrize(
    ("seen", "how", "text"),
    [
        ({"hv01": HERE, "hv02": NONE}, {}, []),
        ({"hv01": HERE, "hv02": HERE}, {}, ["db01 is on hv01 and hv02"]),
        ({"hv01": NONE, "hv02": NONE}, {}, ["db01 is on none of hv01, hv02"]),
        ({"hv01": NONE, "hv02": ALONE}, {}, ["db01 is on hv02, but not adopted: it has no dataset"]),
        ({"hv01": HERE, "hv02": ALONE}, {}, []),
        (
            {"hv02": ARRIVES, "hv03": HERE._replace(had=0)},
            {"target": "hv03"},
            [
                "what hv03 has is from before it was taken over",
                "hv02 has all that it had; go on with flexdisk_target=hv02",
            ],
        ),
        ({"hv02": COMES}, {"state": "stays"}, ["db01 comes from hv01, which is not among the hosts of this run"]),
        ({"hv01": LEAVES, "hv02": COMES}, {"state": "stays"}, []),
        (
            {"hv01": LEAVES, "hv02": COMES},
            {"target": "hv03"},
            ["with flexdisk_target=hv02 and flexdisk_move_state=stays"],
        ),
        ({"hv01": HERE, "hv02": TAKES}, {"target": "hv03"}, ["gives that up with flexdisk_failover_state=stays"]),
        ({"hv01": LEFT, "hv02": COMES}, {}, ["hv03 could not be asked whether it has been taken over"]),
        ({"hv01": LEFT, "hv02": COMES}, {"unasked": True}, []),
        (
            {"hv01": LEFT, "hv02": COMES},
            {"state": "stays"},
            ["has left hv01 for hv02, so it is too late to give the move up"],
        ),
        ({"hv01": PARTS, "hv02": COMES}, {"state": "stays"}, []),
        (
            {"hv01": LEFT, "hv02": COMES},
            {"target": "hv01"},
            ["is on none of", "left hv01 for hv02; go on with flexdisk_target=hv02"],
        ),
        ({"hv01": LEFT}, {"target": "hv01"}, ["is on none of hv01; hv01 says that it has gone to hv02"]),
        (
            {"hv01": LEFT, "hv02": COMES, "hv03": LEFT._replace(term=2)},
            {},
            ["taken over while it moved: hv03 says that it went on from there"],
        ),
        ({"hv01": LEFT, "hv02": COMES, "hv03": LEFT}, {}, []),
        ({"hv01": HERE, "hv02": HERE}, {"state": "forgotten"}, []),
        (
            {"hv01": LEFT, "hv02": COMES},
            {"state": "forgotten"},
            ["on its way to hv02, and its tombstone is needed until it is there; go on with"],
        ),
    ],
)
def test_what_speaks_against_it(seen, how, text):
    problems = found(seen, **how).problems
    assert len(problems) == len(text)
    assert [one for one, lines in zip(text, problems, strict=True) if one not in lines] == []
