# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What tests of restores look at: the host that sends, and the one that restores."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import Stopped

from .test_move import swap
from .world import REPLICAS


class Restoring:
    """The host of the replicas sends, and the one of the VM restores. So they have changed their names as in a sync."""

    def __init__(self, world, uuid: str) -> None:
        self.world, self.uuid = world, uuid
        swap(world)
        self.source, self.target = world.home, world.peer
        self.replica = f"{REPLICAS}/{uuid}"

    def go(self, check=False, **more):
        """The lines of the plan."""
        raise NotImplementedError

    def refused(self, **more) -> str:
        """Why it is refused. Nothing has changed then."""
        before = self.state()
        with pytest.raises(Stopped) as caught:
            self.go(**more)
        assert self.state() == before
        return str(caught.value)

    def state(self):
        return [host.node.pools.to_json()["pools"] for host in (self.source, self.target)]

    def there(self):
        return observe(self.target.zfs(), self.target.driver(), all_pools=True)
