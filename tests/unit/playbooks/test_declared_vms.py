# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes of one VM that the inventory declares otherwise are refused: the next run for it would undo them."""

from __future__ import annotations

import pytest

from .nodes import Nodes

PACKAGES = [{"name": name, "disk": "10GiB", "flexible_disk": True, "memory": "1GiB"} for name in ("small", "large")]
CHANGES = [
    (
        "change_package",
        ["-e", "flexdisk_package=large"],
        "declares the package of VM web01, which is on hv01",
        'Write {"package": "large"} to virtual_machine_vms of hv01, in the entry web01',
    ),
    (
        "delete_vm",
        [],
        "declares VM web01, which is on hv01, and the next run for it would undo this change. Nothing was changed.",
        "Take it out of virtual_machine_vms of hv01, in the entry web01",
    ),
]


@pytest.mark.parametrize(("playbook", "words", "why", "instead"), CHANGES, ids=["change_package", "delete_vm"])
def test_what_is_declared_is_changed_there(tmp_path, playbook, words, why, instead):
    nodes = Nodes(tmp_path, {"hv01": "", "hv02": ""})
    uuid = nodes.create("hv01", "web01", 1024, 2, {}, flexible=4)
    before = nodes.run("hv01", "vmadm", "get", uuid)
    nodes.variables["all"] = {"flexdisk_packages": PACKAGES}
    nodes.variables["hv01"] = {"virtual_machine_vms": [{"vm": "web01", "package": "small"}]}
    call = (playbook, "-e", "flexdisk_vm=web01", *words)
    for more in (["--check"], []):
        status, printed = nodes.play(*call, *more)
        assert status == 2, printed
        text = printed.replace('\\"', '"')
        assert why in text
        assert instead in text
    assert nodes.run("hv01", "vmadm", "get", uuid) == before
    nodes.variables["hv01"] = {}
    status, printed = nodes.play(*call, "--check")
    assert status == 0, printed
    assert "web01" in printed
