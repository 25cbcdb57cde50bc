# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the hypervisor knows of a disk goes with it from VM to VM, and with its copies."""

from __future__ import annotations

import json

import pytest

from .conftest import ONE, TWO, Bench

OPTIONS = {"guest_block_size": "4096", "notrim": True}
PARTS = [
    "<driver name='qemu' type='qcow2' cache='writeback'/>",
    "<alias name='ua-data'/>",
    "<iotune><total_iops_sec>100</total_iops_sec></iotune>",
]


@pytest.fixture
def known(bench: Bench) -> Bench:
    """Disk a of web01 has what the hypervisor can know."""
    path = bench.disk("a").path
    if bench.kind == "vmadm":
        bench.host.run("vmadm", "update", ONE, stdin=json.dumps({"update_disks": [{"path": path, **OPTIONS}]}))
        return bench
    if bench.kind == "proxmox":
        file = bench.host.config(ONE)
        file.write_text(file.read_text().replace("disk-1,", "disk-1,cache=writeback,iothread=1,"))
        return bench
    text = bench.host.domains.xml(ONE, False)
    old = text[text.index("<driver", text.rindex("<disk", 0, text.index(path))) :]
    bench.host.domains.add(text.replace(old, "".join(PARTS) + old.partition("/>")[2]))
    return bench


def of(bench: Bench, name: str) -> tuple[str, str]:
    element = bench.disk(name).element
    return element.text, element.format


def test_taken_by_another_vm(known):
    had = of(known, "a")
    assert had[0]
    known.four_steps({"name": "a", "vm": "web02", "from_vm": "web01", "state": "attached", "take": True})
    assert (of(known, "a"), "a" in known.names(TWO)) == (had, True)


def test_a_copy_has_the_same(known):
    """It has the same format. An alias is given only once in a VM."""
    had = of(known, "a")
    known.four_steps({"name": "twin", "source": "a"})
    assert of(known, "twin") == had
    done = known.four_steps({"name": "twin", "vm": "web01", "state": "attached"})
    text, form = of(known, "twin")
    if known.kind == "libvirt":
        assert ("ua-data" in text, form) == (False, "qcow2")
        assert "without alias ua-data" in done.diff
    else:
        assert (text, form) == had


def test_a_copy_of_another_format_keeps_its_size(known):
    if known.kind == "libvirt":
        for wish in ({"name": "twin", "source": "a", "size": 64}, {"name": "a", "vm": "web01", "size": 64}):
            assert "qcow2" in known.refused("NotSupported", wish)
    else:
        known.four_steps({"name": "twin", "source": "a", "size": 64})
