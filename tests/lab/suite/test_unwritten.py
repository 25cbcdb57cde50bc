# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What real ZFS says of disks that nobody has written to, and of the least that can be written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from harness import Lab

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.replicas import is_changed
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.unwritten import (
    FRESH_VOLUMES,
    unwritten,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.read import PROPERTIES, parse_get

BLOCKS = (512, 4096, 8192, 131072)
SIZES = ("1M", "16M", "1G", "1T")
COMPRESSIONS = ("off", "lz4", "zle")
WRITES = ("byte", "text", "random", "zeros")
LAST = 16 * 1024 - 1  # KiB of the last KiB of 16 MiB
# Makes and writes all in one process of the lab: a list of [zfs arguments] and of [dataset, what, KiB from the start].
WORK = """
import json, os, random, subprocess, sys, time
for argv in json.load(sys.stdin):
    if argv[0] != "write":
        subprocess.run(argv, check=True)
        continue
    _write, name, what, start = argv
    path = name if name.startswith("/") else "/dev/zvol/" + name
    while not os.path.exists(path):
        time.sleep(0.1)
    data = {"byte": b"x" + bytes(511), "text": b"The quick brown fox " * 25 + b"jumps ....!!",
            "random": random.Random(1).randbytes(512), "zeros": bytes(512)}[what]
    handle = os.open(path, os.O_WRONLY)
    os.pwrite(handle, data, start * 1024)
    os.fsync(handle)
    os.close(handle)
subprocess.run(["zpool", "sync"], check=True)
"""
FILE = "dd if=/dev/null of={} bs=1M seek=16 2> /dev/null"


def work(lab: Lab, *commands: Sequence[Any]) -> None:
    lab.run(["python3", "-c", WORK], stdin=json.dumps(commands))


def look(lab: Lab, root: str) -> Mapping[str, Dataset]:
    """As the modules read it, by the last part of the name."""
    out = lab.zfs("get", "-Hpr", "-o", "name,property,value,source", ",".join(PROPERTIES), root)
    return {found.name.rpartition("/")[2]: found for found in parse_get(out + "\n")}


def volume(name: str, block: int, compression: str = "lz4", size: str = "16M", *more: str) -> list[str]:
    words = ["-o", f"volblocksize={block}", "-o", f"compression={compression}", *more]
    return ["zfs", "create", "-s", *words, "-V", size, name]


def empty(root: str, *more: str) -> list[str]:
    return ["zfs", "create", "-o", "mountpoint=none", "-o", "canmount=off", *more, f"{root}/empty"]


def file_disk(root: str, name: str, compression: str = "lz4") -> list[list[str]]:
    words = ["-o", f"mountpoint=/{root}/{name}", "-o", "recordsize=131072", "-o", f"compression={compression}"]
    marks = ["-o", "flexdisk:type=file", "-o", "flexdisk:size=16777216"]
    path = f"/{root}/{name}/disk.raw"
    return [["zfs", "create", *words, *marks, f"{root}/{name}"], ["sh", "-c", FILE.format(path)]]


def test_fresh_disks_and_one_sector(lab: Lab, scratch: str) -> None:
    """The figures at 4 KiB sectors; one sector of text in blocks of 8 KiB takes no space at all, and is seen."""
    names = [f"{kind}{block}" for block in BLOCKS for kind in ("fresh", "text")]
    made = [volume(f"{scratch}/{name}", block) for block in BLOCKS for name in (f"fresh{block}", f"text{block}")]
    texts = [["write", f"{scratch}/{name}", "text", 0] for name in names if name.startswith("text")]
    image: list[Any] = [
        volume(f"{scratch}/image", 8192),
        ["write", f"{scratch}/image", "random", 0],
        ["zfs", "snapshot", f"{scratch}/image@final"],
        *(["zfs", "clone", f"{scratch}/image@final", f"{scratch}/{name}"] for name in ("clone", "sized", "used")),
        ["zfs", "set", "volsize=32M", f"{scratch}/sized"],
        ["write", f"{scratch}/used", "random", 0],
    ]
    files = [*file_disk(scratch, "file"), *file_disk(scratch, "filled")]
    filled = ["write", f"/{scratch}/filled/disk.raw", "text", LAST]
    work(lab, empty(scratch), *made, *texts, *image, *files, filled)
    found = look(lab, scratch)
    assert (found["empty"].referenced, found["empty"].logicalreferenced) == (98304, 43008)
    fresh, text = found["fresh8192"], found["text8192"]
    assert (fresh.referenced, fresh.logicalreferenced, fresh.logicalused) == (57344, 28672, 28672)
    assert (text.referenced, text.logicalreferenced, text.logicalused) == (57344, 36864, 36864)
    verdicts = {name: unwritten(found[name], found["empty"]) for name in found}
    expected = {name: name.startswith("fresh") for name in names}
    assert {name: verdicts[name] for name in names} == expected
    others = {"image": False, "clone": True, "sized": True, "used": False, "file": True, "filled": False}
    assert {name: verdicts[name] for name in others} == others


def test_a_rename_brings_what_was_written_into_the_figures(lab: Lab, scratch: str) -> None:
    """A detached disk was renamed after the last write: its figures are not a transaction group behind."""
    work(lab, empty(scratch), volume(f"{scratch}/one", 8192))
    text = f"""
import os, subprocess, time
while not os.path.exists("/dev/zvol/{scratch}/one"):
    time.sleep(0.1)
with open("/dev/zvol/{scratch}/one", "wb") as device:
    device.write(b"x" * 512)
subprocess.run(["zfs", "rename", "{scratch}/one", "{scratch}/two"], check=True)
print(subprocess.run(["zfs", "get", "-Hpo", "value", "logicalused", "{scratch}/two"], stdout=-1, text=True).stdout)
"""
    assert int(lab.python(text)) > 28672


@pytest.mark.full
def test_every_block_size_and_compression(lab: Lab, scratch: str) -> None:
    """Zeros are nothing where they are compressed away; everything else is seen, wherever it was written."""
    cases: dict[str, bool] = {}
    commands: list[list[Any]] = [empty(scratch)]
    for block in BLOCKS:
        for compression in COMPRESSIONS:
            for size in SIZES:
                cases[name := f"f-{block}-{compression}-{size}"] = True
                commands.append(volume(f"{scratch}/{name}", block, compression, size))
            for what in WRITES:
                for start in (0, LAST):
                    cases[name := f"w-{block}-{compression}-{what}-{start}"] = what == "zeros" and compression != "off"
                    commands += [volume(f"{scratch}/{name}", block, compression)]
                    commands += [["write", f"{scratch}/{name}", what, start]]
    for compression in COMPRESSIONS:
        for what in WRITES:
            cases[name := f"file-{compression}-{what}"] = what == "zeros" and compression != "off"
            commands += [*file_disk(scratch, name, compression), ["write", f"/{scratch}/{name}/disk.raw", what, 0]]
    work(lab, *commands)
    found = look(lab, scratch)
    assert {name: unwritten(found[name], found["empty"]) for name in cases} == cases


POOL = """
set -eu
dd if=/dev/urandom of=/var/tmp/key bs=32 count=1 2> /dev/null
for number in {disks}; do truncate -s 1G /var/tmp/vdev.$number; done
zpool create -f -o ashift={ashift} -m none sectors {layout} /var/tmp/vdev.*
zfs create -o encryption=on -o keyformat=raw -o keylocation=file:///var/tmp/key -o mountpoint=none sectors/secret
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("ashift", "layout", "disks"),
    [*((ashift, "", 1) for ashift in range(9, 17)), (12, "raidz1", 3), (9, "raidz2", 5), (12, "draid1", 4)],
)
def test_every_sector_size(lab: Lab, ashift: int, layout: str, disks: int) -> None:
    numbers = " ".join(map(str, range(disks)))
    lab.run(["sh", "-c", POOL.format(ashift=ashift, layout=layout, disks=numbers)])
    try:
        for root in ("sectors", "sectors/secret"):
            names = [f"{kind}{block}" for block in BLOCKS for kind in ("fresh", "text")]
            made = [volume(f"{root}/{name}", int(name.lstrip("freshtx"))) for name in names]
            texts = [["write", f"{root}/{name}", "text", 0] for name in names if name.startswith("text")]
            work(lab, empty(root), *made, *texts)
            found = look(lab, root)
            known = (found["empty"].logicalreferenced, root != "sectors") in FRESH_VOLUMES
            verdicts = {name: unwritten(found[name], found["empty"]) for name in names}
            assert verdicts == {name: known and name.startswith("fresh") for name in names}
            assert known or layout, "a sector size whose figures are not in the table"
    finally:
        lab.run(["sh", "-c", "zpool destroy sectors; rm -f /var/tmp/vdev.* /var/tmp/key"])


LOG = """
for disk in {disks}; do
    zfs create -V 16M $disk; udevadm settle
    dd if=/dev/urandom of=/dev/zvol/$disk bs=1M count=1 conv=fsync,notrunc 2> /dev/null
    zfs snapshot $disk@one; udevadm settle; zfs rollback $disk@one
done
zpool sync sectors; zfs get -Hpo value written {disks}
dd if=/dev/zero of=/dev/zvol/{first} bs=512 count=1 seek=9 conv=fsync,notrunc 2> /dev/null
zpool sync sectors; zfs get -Hpo value written {first}
"""


@pytest.mark.full
@pytest.mark.parametrize("ashift", [9, 12, 13])
def test_the_log_of_a_volume_is_reset(lab: Lab, ashift: int) -> None:
    """A rollback does the same to it as an import after a loss of power. It counts as written, and is far less than
    the smallest write.
    """
    lab.run(["sh", "-c", POOL.format(ashift=ashift, layout="", disks="0")])
    try:
        disks = ("sectors/one", "sectors/two")
        lab.run(["zfs", "create", "-o", "mountpoint=none", "-o", "canmount=off", "sectors/flexdisk"])
        said = lab.run(["sh", "-euc", LOG.format(disks=" ".join(disks), first=disks[0])]).stdout
        *reset, smallest = map(int, said.split())
        empty = int(lab.run(["zfs", "get", "-Hpo", "value", "logicalreferenced", "sectors/flexdisk"]).stdout)
        assert [is_changed(size, empty) for size in (*reset, smallest)] == [False, False, True]
        assert min(reset) > 0
    finally:
        lab.run(["sh", "-c", "zpool destroy sectors; rm -f /var/tmp/vdev.* /var/tmp/key"])


def test_what_was_written_since_a_bookmark(lab: Lab, scratch: str) -> None:
    """The memory of a guest that has moved is restored as long as this is 0: a block may take the place of another one,
    and no other figure changes.
    """
    name = f"{scratch}/marked"
    work(lab, volume(name, 8192, "off"), ["write", name, "random", 0])
    mark = [["snapshot", f"{name}@set"], ["bookmark", f"{name}@set", f"{name}#set"], ["destroy", f"{name}@set"]]
    work(lab, *(["zfs", *argv] for argv in [*mark, ["set", "readonly=on", name], ["rename", name, f"{name}2"]]))
    before = lab.get(f"{name}2", "written#set", "referenced", "logicalreferenced")
    work(lab, ["zfs", "inherit", "readonly", f"{name}2"], ["write", f"{name}2", "text", 0])
    after = lab.get(f"{name}2", "written#set", "referenced", "logicalreferenced")
    print(before, after, flush=True)
    assert before.pop("written#set") == "0"
    assert is_changed(int(after.pop("written#set")), 0)
    assert after == before
    assert lab.get(f"{name}2", "written#none") == {"written#none": "-"}
