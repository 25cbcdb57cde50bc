# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab as a guest with a ZFS pool on a grown disk, a loop device: what guest_growth does with real zpool and zdb."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import recipe
import remote
from harness import Lab

pytestmark = pytest.mark.full

MIB = 1 << 20
POOL = "guestpool"
FOLDER = "/var/tmp/guest-zfs"
DISK = f"{FOLDER}/disk"
SOURCES = remote.ROOT / "plugins" / "module_utils" / "_flexdisk"
SFDISK = "/usr/local/sbin/sfdisk"  # the lab's image has its libraries alone
SMALL, GROWN = 1200, 2400  # MiB. The file is sparse.
# The module finds disks by what a loop device does not have. The rest of it is this.
GROW = f"""
import json, sys
sys.path.insert(0, "{FOLDER}")
from _flexdisk.engine.guest.guest_grow import grow
from _flexdisk.engine.host.runner import SubprocessRunner
from _flexdisk.model.errors import FlexdiskError

kname, check = sys.argv[1:]
params = {{"logical_volume": None, "luks_passphrase": None, "backup_dir": "{FOLDER}/backups"}}
try:
    print(json.dumps(grow(SubprocessRunner(), kname, params, check == "check")))
except FlexdiskError as exc:
    print(json.dumps({{"error": exc.code, "msg": exc.message}}))
"""
# blkid wants to see several uberblocks, so several transactions are made.
FILL = f"""
head -c {20 * MIB} /dev/urandom > /{POOL}/file
for _n in 1 2 3 4 5 6; do date +%N > /{POOL}/small; zpool sync {POOL}; done
sha256sum < /{POOL}/file
"""
AWAY = f"""
zpool destroy -f {POOL} 2> /dev/null || zpool export -f {POOL} 2> /dev/null || true
for device in $(losetup -n -O NAME -j {DISK}); do losetup -d $device; done
rm -rf {FOLDER} {SFDISK}
"""


class Machine:
    """The lab with a disk of SMALL MiB."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        unpack = f"mkdir -p {FOLDER}/_flexdisk; tar -xC {FOLDER}/_flexdisk"
        remote.script(AWAY + unpack, stdin=remote.archive(SOURCES))
        own = shutil.which("sfdisk", path=recipe.SEARCH_PATH)
        assert own, "needs sfdisk of Debian's package fdisk"
        remote.script(f"cat > {SFDISK}; chmod +x {SFDISK}; {SFDISK} --version", stdin=Path(own).read_bytes())
        self.device = self.shell(f"truncate -s {SMALL}M {DISK}; losetup -P -f --show {DISK}").strip()

    def shell(self, text: str) -> str:
        """What a script prints."""
        return self.lab.run(["sh", "-euc", text]).stdout

    def partition(self, table: str) -> None:
        """Write a table and let the kernel know it."""
        self.lab.run([SFDISK, "-q", self.device], stdin=table)
        self.shell("udevadm settle")

    def create(self, *devices: str) -> str:
        """Make the pool, and a file in it, whose hash is returned."""
        self.lab.run(["zpool", "create", "-f", "-m", f"/{POOL}", POOL, *devices])
        return self.shell(FILL)

    def enlarge(self) -> None:
        """Let the disk grow."""
        self.shell(f"truncate -s {GROWN}M {DISK}; losetup -c {self.device}; udevadm settle")

    def grow(self, *, check: bool = False) -> dict[str, Any]:
        """What guest_growth returns, or its error."""
        kname = self.device.rpartition("/")[2]
        done = self.lab.run(["python3", "-c", GROW, kname, "check" if check else "do"]).stdout
        return dict(json.loads(done))

    def size(self) -> int:
        """Of the pool, in bytes."""
        return int(self.lab.run(["zpool", "list", "-Hp", "-o", "size", POOL]).stdout)

    def table(self) -> str:
        """The partitions."""
        return self.lab.run([SFDISK, "-d", self.device]).stdout

    def check(self, part: str, before: str) -> None:
        """The pool is whole, imported anew, and has the file."""
        self.shell(f"zpool export {POOL}; zpool import -d {part} {POOL}; zpool scrub -w {POOL}")
        assert "is healthy" in self.shell(f"zpool status -x {POOL}")
        assert self.shell(f"sha256sum < /{POOL}/file") == before


@pytest.fixture
def machine(lab: Lab) -> Iterator[Machine]:
    """The lab with a disk, and without it afterwards."""
    yield Machine(lab)
    remote.script(AWAY)


@pytest.mark.parametrize("table", ["label: gpt\nsize=16MiB\nsize=+\n", "label: dos\nsize=+\n"])
def test_a_pool_on_a_partition_grows(machine: Machine, table: str) -> None:
    machine.partition(table)
    part = f"{machine.device}p{2 if 'gpt' in table else 1}"
    before = machine.create(part)
    assert machine.grow().get("changed") is False
    machine.enlarge()
    size, dump = machine.size(), machine.table()
    predicted = machine.grow(check=True)
    assert (machine.size(), machine.table()) == (size, dump)
    done = machine.grow()
    assert done == predicted, done
    new = machine.size()
    name = part.rpartition("/")[2]
    assert done["steps"][-1].startswith(f"~ ZFS pool {POOL} on {name} ")
    assert new > size + 1000 * MIB
    assert machine.lab.run(["zpool", "list", "-Hp", "-o", "expandsize", POOL]).stdout.strip() == "-"
    assert not machine.grow()["changed"]
    machine.check(part, before)
    assert machine.size() == new
    assert not machine.grow()["changed"]


def test_a_pool_without_a_partition_table_grows(machine: Machine) -> None:
    """ZFS makes no table on a loop device, as it does on a disk."""
    before = machine.create(machine.device)
    assert machine.grow()["changed"] is False
    machine.enlarge()
    size = machine.size()
    grown = machine.grow()
    assert grown.get("changed") is True, grown
    assert machine.size() > size + 1000 * MIB
    again = machine.grow()
    assert again.get("changed") is False, again
    machine.check(machine.device, before)


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        (f"zpool export {POOL}", "NotMounted", "is not imported"),
        (f"zpool export {POOL}; zpool import -o readonly=on -d DEVICEp2 {POOL}", "NotMounted", "read-only"),
        (f"zpool attach -f {POOL} DEVICEp2 DEVICEp1", "UnknownLayout", "part of a mirror in the ZFS pool"),
    ],
)
def test_what_is_refused(machine: Machine, spoil: str, code: str, words: str) -> None:
    machine.partition("label: gpt\nsize=500MiB\nsize=500MiB\n")
    machine.create(f"{machine.device}p2")
    machine.enlarge()
    machine.shell(f"{spoil.replace('DEVICE', machine.device)}; sleep 2")
    dump = machine.table()
    refused = machine.grow()
    assert (refused.get("error"), words in refused["msg"], machine.table()) == (code, True, dump), refused
