# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook status on two simulated nodes: what it shows, and when it fails."""

from __future__ import annotations

import pytest

from .nodes import Nodes


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    made = Nodes(tmp_path_factory.mktemp("nodes"), {"hv01": "", "hv02": ""})
    made.create("hv01", "db01", 1024, 2, {}, flexible=6)
    made.run("hv01", "zfs", "create", "-o", "mountpoint=none", "zones/flexdisk")
    return made


def test_nothing_is_half_done(nodes):
    nodes.run("hv01", "zfs", "inherit", "flexdisk:lease.web", "zones/flexdisk")
    for words in ((), ("--check",)):
        status, printed = nodes.play("status", *words)
        assert status == 0, printed
        assert "nothing is half done on 2 hosts" in printed
        assert "changed=1" not in printed


def test_what_is_half_done_fails_for_a_monitoring(nodes):
    nodes.run("hv01", "zfs", "set", "flexdisk:lease.web=?", "zones/flexdisk")
    status, printed = nodes.play("status")
    assert status == 2, printed
    assert "half done  hv01  -      group web: its lease cannot be read" in printed
    assert "go on:   ansible-playbook flexdisk.hypervisor.update_group -e flexdisk_group=web" in printed
    assert "1 half done" in printed
    status, printed = nodes.play("status", "-e", "flexdisk_status_fail_on=never")
    assert status == 0, printed
    assert "group web: its lease cannot be read" in printed
    status, printed = nodes.play("status", "--limit", "hv02")
    assert status == 0, printed


def test_a_host_that_is_down_is_named(nodes):
    nodes.run("hv01", "zfs", "set", "flexdisk:lease.web=?", "zones/flexdisk")
    status, printed = nodes.play("status", "-e", "flexdisk_status_fail_on=never", unreachable="hv02")
    assert status == 4, printed
    assert "hv02 could not be read, and may have more" in printed
    assert "its lease cannot be read" in printed
