# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Until when a key for transfers may be used: sshd reads the time in the zone of the host."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import trust
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.trust import lifetime


@pytest.fixture
def zone(request, monkeypatch):
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(("zone", "hours"), [("UTC0", 0), ("XXX-9", 9), ("XXX+5", -5)], indirect=["zone"])
@pytest.mark.usefixtures("zone")
def test_a_key_expires_by_the_clock_and_the_zone_of_the_host(hours):
    local = datetime.now(timezone(timedelta(hours=hours))).replace(tzinfo=None)
    left = datetime.strptime(trust.expiry(0), "%Y%m%d%H%M%S") - local
    assert abs(left - timedelta(seconds=lifetime(0))) < timedelta(minutes=1)
