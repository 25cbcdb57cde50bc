# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two figures that a refusal compares never look equal."""

from __future__ import annotations

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.peers import (
    Peer,
    PeerPool,
    peer_space_problems,
)


def test_a_pool_that_lacks_a_little():
    pools = {"tank": PeerPool(0, 10 << 30)}
    [problem] = peer_space_problems({"tank": (10 << 30) + 2048}, Peer("hv02", "", pools, (), {}))
    assert problem.message == "the replicas need 10485762 KiB in pool tank of hv02, which has 10485760 KiB"
