# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes that change places in an interrupted restore belong to it, whichever VM another task is about."""

from __future__ import annotations

import json

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk import run as run_disk
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_disks import converge
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy

from .test_restore import made
from .test_restore_in_place import WHY, Site, killed

OTHER = "bbbbbbbb-0000-4000-8000-000000000303"


@pytest.fixture
def site(tmp_path, monkeypatch):
    site = Site(made("vmadm", tmp_path, monkeypatch))
    disks = [{"boot": True, "model": "virtio", "size": 64}]
    given = {"uuid": OTHER, "alias": "other", "brand": "bhyve", "ram": 256, "vcpus": 1, "quota": 1, "disks": disks}
    site.target.node.run(["vmadm", "create"], json.dumps({**given, "flexible_disk_size": 512}))
    return site


def attached(site, disk):
    """The task vm_disks of the other VM, which lists a disk of this one by its UUID."""
    declared = {"vm": "other", "disks": [{"uuid": disk.uuid}], "unlisted": "keep"}
    return converge(
        site.target.zfs(), site.target.driver(), [declared], Policy(allow_restart=True, stop_timeout=9), None, False
    )


def copied(site, disk):
    given = {"name": "copy", "source": disk.uuid}
    return run_disk(site.target.zfs(), site.target.driver(), [given], Policy(), None, False)


def test_no_other_vm_takes_them(site):
    """Neither what was restored, nor what the disk had, wherever both are at that moment."""
    saved, refused = site.world.saved(), 0
    for number in range(72, 1000, 3):
        if not killed(site, number, True):
            break
        host = site.there()
        if "exchange" in {key for one in host.datasets.values() for key in one.user}:
            for disk in [one for one in host.detached if one.uuid not in host.duplicates]:
                before = site.state()
                assert WHY in str(attached(site, disk).problems), (number, disk.volume.name)
                assert WHY in str(copied(site, disk).problems), (number, disk.volume.name)
                assert site.state() == before
                refused += 1
            site.go()
            site.whole()
        site.world.restore(saved)
    assert refused > 3
