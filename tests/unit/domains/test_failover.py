# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failover is for vmadm only. It is said in check mode, which the role vm_replica asks for first."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_home import (
    FailoverHome,
)


@pytest.mark.parametrize("check", [True, False])
def test_a_domain_cannot_have_failover(linux, check):
    linux.adopted(32)
    before = linux.fingerprint()
    home = FailoverHome(linux.zfs(), linux.driver(), linux.runner)
    [told] = home.set_failover(["web01"], True, "lab01", check).problems
    assert (told.code, told.vm[:5]) == ("NotSupported", "web01")
    assert told.message == "failover works with vmadm only, not with libvirt; replicas work with both"
    assert linux.fingerprint() == before
