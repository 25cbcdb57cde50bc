# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans for the disks of guests, from what the programs of a guest print, and refusals with what was found."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest import growth
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest.layers import Layer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest.observed import (
    Content,
    Swap,
    available_memory,
    fstab_swap,
    parse_swaps,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest.plan import (
    Disk,
    KernelPartition,
    plan,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest.steps import (
    Backup,
    CopySwapHeader,
    Run,
    SetActive,
    Unchanged,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest.table import parse_table
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.sizes import GIB, MIB

M = 2048  # sectors of one MiB


def head(label, kinds=None):
    """The first sectors of a disk: an MBR with partitions of these types, and a header of a GPT."""
    data = bytearray(8192)
    for index, kind in enumerate(kinds or ([0xEE] if label == "gpt" else [0x83])):
        data[446 + 16 * index + 4] = kind
    if label == "gpt":
        data[512:520] = b"EFI PART"
        data[584:592] = (2).to_bytes(8, "little")
        data[592:600] = (128).to_bytes(4, "little") + (128).to_bytes(4, "little")
    return bytes(data)


def disk(label, parts, mib, *, found="", layers=(), kernel=None, kinds=None, **more):
    """A disk of some MiB. parts are (number, start, size, type) in sectors, found their contents in this order."""
    rows = [
        {"node": f"/dev/vda{number}", "start": start, "size": size, "type": kind, "uuid": f"U{number}"}
        for number, start, size, kind in parts
    ]
    text = json.dumps(
        {"partitiontable": {"label": label, "id": "0xabcdef01", "device": "/dev/vda", "partitions": rows}}
    )
    table = parse_table(text, head(label, kinds), mib * MIB, 512)
    kinds_found = dict(zip([number for number, *_rest in parts], found.split(), strict=False))
    contents = {number: Content(kind.replace("-", ""), f"uuid{number}") for number, kind in kinds_found.items()}
    for part in table.partitions:
        contents.setdefault(part.number, Content())
    dump = "label: x\nlast-lba: 1\n" + "".join(
        f"{row['node']} : start= {row['start']}, size= {row['size']}, type={row['type']}\n" for row in rows
    )
    known = {number: KernelPartition(start, size, f"254:{number}") for number, start, size, _kind in parts}
    cast = growth.find_growth(table, contents)
    return Disk("/dev/vda", mib * MIB, layers, table, dump, cast, known if kernel is None else kernel, contents, **more)


def file_system(size, argv=("resize2fs", "/dev/vda1")):
    return Layer("ext4 at /", argv, size)


def programs(planned):
    return [" ".join(step.argv[:1] + step.argv[1:4]) for step in planned.steps if isinstance(step, Run)]


ROOT = [(1, M, 20 * 1024 * M, "83")]
SWAP = [*ROOT, (2, (1 + 20 * 1024) * M, 1024 * M, "82")]
DEBIAN = [*ROOT, (2, (1 + 20 * 1024) * M + 2046, 1024 * M + 2, "5"), (5, (2 + 20 * 1024) * M, 1024 * M, "82")]


def test_the_last_partition_grows():
    planned = plan(disk("dos", ROOT, 50 * 1024, found="ext4", layers=(file_system(20 * GIB),)))
    assert planned.lines == ("~ vda1 20 GiB -> 49.9 GiB", "~ ext4 at / 20 GiB -> 49.9 GiB")
    assert programs(planned) == [
        "sfdisk --no-reread --no-tell-kernel --wipe=never",
        "partx -u --nr 1",
        "resize2fs /dev/vda1",
    ]
    assert f"start={M}, size={(50 * 1024 - 1) * M}," in planned.steps[2].stdin
    assert "last-lba" not in planned.steps[2].stdin
    assert isinstance(planned.steps[0], Backup)


def test_some_versions_of_sfdisk_refuse_the_size_of_sectors_that_they_print():
    """2.35 does. What it is to write is tried before a swap is turned off, and the backup can be written again."""
    here = disk("dos", SWAP, 50 * 1024, found="ext4 swap", layers=(file_system(20 * GIB),))
    here = replace(here, dump=here.dump.replace("last-lba", "sector-size: 512\nlast-lba"))
    planned = plan(here)
    write = next(step for step in planned.steps if isinstance(step, Run) and step.argv[0] == "sfdisk")
    assert "sector-size" not in write.stdin
    assert "sector-size" not in next(step.text for step in planned.steps if isinstance(step, Backup))
    assert "sector-size" in next(step.text for step in planned.steps if isinstance(step, Unchanged))
    [trial] = planned.tests
    assert trial == replace(write, argv=("sfdisk", "--no-act", *write.argv[1:]))


def test_nothing_to_do():
    assert plan(disk("dos", ROOT, 20 * 1024 + 10, found="ext4", layers=(file_system(20 * GIB),))).steps == ()


@pytest.mark.parametrize(("parts", "signatures", "number"), [(SWAP, "ext4 swap", 2), (DEBIAN, "ext4 - swap", 5)])
def test_swap_behind_moves(parts, signatures, number):
    node = f"/dev/vda{number}"
    here = disk(
        "dos",
        parts,
        50 * 1024,
        found=signatures,
        layers=(file_system(20 * GIB),),
        swaps=(Swap("/elsewhere", 0, -2, f"254:{number}"),),
    )
    planned = plan(here)
    assert planned.lines[1] == f"> swap vda{number} moves to the end, 1 GiB, UUID kept"
    done = programs(planned)
    assert done[:2] == [f"swapoff {node}", f"partx -d --nr {number}"]
    assert done[-2:] == [f"swapon {node}", "resize2fs /dev/vda1"]
    undo = [" ".join(argv) for step in reversed(planned.steps) if isinstance(step, Run) for argv in step.undo]
    assert undo[-2:] == [f"partx -a --nr {number} /dev/vda", f"swapon {node}"]


def test_another_swap_of_the_same_name_is_left():
    """A device with other numbers, or a file."""
    swaps = (Swap("/dev/vda2", 0, -2, "8:2"), Swap("/dev/vda2", 0, -2))
    for kernel in (None, {1: KernelPartition(M, 20 * 1024 * M), 2: KernelPartition((1 + 20 * 1024) * M, 1024 * M)}):
        done = programs(plan(disk("dos", SWAP, 50 * 1024, found="ext4 swap", swaps=swaps, kernel=kernel)))
        assert done[0] == "partx -d --nr 2"


def test_the_container_goes_and_comes_around_what_it_contains():
    done = programs(plan(disk("dos", DEBIAN, 50 * 1024, found="ext4 - swap", layers=(file_system(20 * GIB),))))
    assert done[:2] == ["partx -d --nr 5", "partx -d --nr 2"]
    assert done[-3:-1] == ["partx -a --nr 2", "partx -a --nr 5"]


def test_the_priority_of_a_swap_is_kept_and_fstab_is_asked_after_a_killed_run():
    swaps = (Swap("/dev/vda2", 0, 7, "254:2"),)
    on = plan(disk("dos", SWAP, 50 * 1024, found="ext4 swap", swaps=swaps)).steps[-1]
    assert on.argv == ("swapon", "-p", "7", "/dev/vda2")
    for name in ("UUID=uuid2", "PARTUUID=abcdef01-02", "/dev/vda2", '"UUID=uuid2"'):
        fstab = f"# x\n{name} none swap sw,pri=3 0 0\n"
        here = disk("dos", SWAP, 50 * 1024, found="ext4 swap", fstab=fstab)
        assert plan(here).steps[-1].argv == ("swapon", "-o", "sw,pri=3", "/dev/vda2")
    assert plan(disk("dos", SWAP, 50 * 1024, found="ext4 swap")).steps[-1].argv[0] == "partx"
    assert fstab_swap("/dev/vda2 none swap noauto", ["/dev/vda2"]) is None


@pytest.mark.parametrize(("used", "memory", "refused"), [(2048, 1024, True), (960, 1023, True), (960, 1024, False)])
def test_a_swap_in_use_is_not_turned_off_without_memory_for_it(used, memory, refused):
    swaps = (Swap("/dev/vda2", used * MIB, -2, "254:2"),)
    here = disk("dos", SWAP, 50 * 1024, found="ext4 swap", swaps=swaps, memory=memory * MIB)
    if not refused:
        assert "swapoff /dev/vda2" in programs(plan(here))
        return
    message = r"holds (2 GiB|960 MiB), and only (1 GiB|1023 MiB) of memory are available, of which 64 MiB must stay"
    with pytest.raises(FlexdiskError, match=message) as failed:
        plan(here)
    assert failed.value.code == "InsufficientSpace"


def test_a_swap_with_a_flaw_is_only_refused_where_it_would_move():
    here = disk("dos", SWAP, 50 * 1024, found="ext4 swap", flaw="3 bad pages")
    with pytest.raises(FlexdiskError, match="the swap vda2 cannot be moved: it has 3 bad pages") as failed:
        plan(here)
    assert failed.value.code == "UnknownLayout"
    stays = [*ROOT, (2, (1 + 21 * 1024) * M, 1024 * M, "82")]
    assert plan(disk("dos", stays, 22 * 1024 + 1, found="ext4 swap", flaw="3 bad pages")).lines[0].startswith("~ vda1")


def test_what_a_killed_run_has_left_is_done():
    """The table is written, the kernel knows the root as it was, and the swap not at all."""
    parts = [(1, M, 48 * 1024 * M, "83"), (2, (1 + 48 * 1024) * M, 1024 * M, "82")]
    here = disk(
        "dos",
        parts,
        49 * 1024 + 2,
        found="ext4 swap",
        kernel={1: KernelPartition(M, 20 * 1024 * M)},
        fstab="UUID=uuid2 none swap",
        layers=(file_system(20 * GIB),),
    )
    planned = plan(here)
    assert programs(planned) == [
        "partx -u --nr 1",
        "partx -a --nr 2",
        "swapon -o defaults /dev/vda2",
        "resize2fs /dev/vda1",
    ]
    assert planned.lines[:2] == ("~ the kernel learns the partition table", "> vda2 is turned on")
    assert planned.backup == ""


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ({1: KernelPartition(M, 30 * 1024 * M)}, "another vda1"),
        ({1: KernelPartition(M + 1, 20 * 1024 * M)}, "another vda1"),
        ({}, "another vda1"),
        ({1: KernelPartition(M, 20 * 1024 * M), 3: KernelPartition(5, 5)}, "a partition 3 of /dev/vda"),
    ],
)
def test_a_kernel_that_knows_another_table(kernel, message):
    with pytest.raises(FlexdiskError, match=message):
        plan(disk("dos", ROOT, 50 * 1024, found="ext4", kernel=kernel))


def test_only_what_is_concerned_may_differ_in_the_kernel():
    parts = [(1, M, 1024 * M, "83"), (2, 1025 * M, 1024 * M, "83")]
    kernel = {1: KernelPartition(M, 1000 * M), 2: KernelPartition(1025 * M, 1024 * M)}
    with pytest.raises(FlexdiskError, match="another vda1"):
        plan(disk("dos", parts, 50 * 1024, found="ext4 ext4", kernel=kernel))


LOGICAL_ROOT = [(1, M, 100 * M, "83"), (2, 200 * M, 300 * M, "5"), (5, 201 * M, 100 * M, "83")]


@pytest.mark.parametrize(
    ("label", "parts", "signatures", "message"),
    [
        ("dos", [], "", "there is no partition that can grow; found: dos: no partition"),
        ("dos", ROOT, "swap", "no partition that can grow; found: dos: vda1 swap"),
        ("dos", SWAP, "ext4 -", r"vda2, the last one, has nothing that is known.*vda1 ext4, vda2 \?"),
        ("dos", SWAP, "ntfs swap", "vda1, before the swap at the end, has ntfs on it"),
        ("dos", SWAP, "swap swap", "vda1, before the swap at the end, has swap on it"),
        ("gpt", ROOT, "linux_raid_member", "has linux_raid_member on it"),
        (
            "dos",
            [*LOGICAL_ROOT, (6, 400 * M, 50 * M, "82")],
            "ext4 - ext4 swap",
            "vda5 is logical and vda6 lies behind",
        ),
        ("dos", [*LOGICAL_ROOT, (6, 400 * M, 50 * M, "82")], "ext4 - swap swap", "vda5, before the swap at the end"),
        ("dos", [*ROOT, (2, (1 + 20 * 1024) * M, 300 * M, "f")], "ext4", "an extended partition lies behind vda1"),
    ],
)
def test_refused_layouts(label, parts, signatures, message):
    with pytest.raises(FlexdiskError, match=message) as refused:
        plan(disk(label, parts, 50 * 1024, found=signatures))
    assert refused.value.code == "UnknownLayout"


@pytest.mark.parametrize(
    ("label", "kinds", "parts", "message"),
    [
        ("gpt", [0xEE, 0x83], ROOT, "hybrid of GPT and MBR; the MBR has types ee, 83"),
        ("gpt", [0x83], ROOT, "hybrid"),
        ("dos", [0xEE], ROOT, "no valid GPT"),
        ("sun", None, ROOT, "of type sun"),
        ("dos", None, [(1, M, 100 * 1024 * M, "83")], "ends behind the end"),
        ("dos", None, [*ROOT, (2, 5 * M, M, "83")], "vda1 and vda2 overlap"),
        ("dos", None, [*ROOT, (2, 5 * M, M, "83"), (3, 21 * 1024 * M, M, "5")], "vda1 and vda2 overlap"),
        ("dos", None, [(1, M, 100 * M, "5"), (5, 2 * M, 9 * M, "83"), (6, 5 * M, M, "83")], "vda5 and vda6 overlap"),
        ("dos", None, [(1, M, 9 * M, "5"), (5, 2 * M, 5 * M, "83"), (2, 9 * M, M, "83")], "vda1 and vda2 overlap"),
    ],
)
def test_refused_tables(label, kinds, parts, message):
    with pytest.raises(FlexdiskError, match=message):
        disk(label, parts, 50 * 1024, found="ext4 ext4", kinds=kinds)


def test_a_gpt_whose_entries_are_not_behind_its_header():
    """sfdisk would put them there, over a boot loader that may be there."""
    moved = bytearray(head("gpt"))
    moved[584] = 40
    text = json.dumps({"partitiontable": {"label": "gpt", "device": "/dev/vda", "partitions": []}})
    with pytest.raises(FlexdiskError, match="entries of the GPT begin at sector 40"):
        parse_table(text, bytes(moved), GIB, 512)


def test_the_size_of_sectors():
    """Old sfdisk does not say it, so the kernel is asked. What sfdisk says is what it counts in."""
    table = {"label": "dos", "device": "/dev/vda", "partitions": []}

    def sector(kernel, **more):
        return parse_table(json.dumps({"partitiontable": {**table, **more}}), head("dos"), GIB, kernel).sector

    assert (sector(4096), sector(512, sectorsize=4096), sector(0, sectorsize=512)) == (4096, 4096, 512)
    with pytest.raises(FlexdiskError, match="neither sfdisk nor the kernel tells") as refused:
        sector(0)
    assert refused.value.code == "UnexpectedOutput"


def test_the_active_flag_of_a_protective_mbr():
    """It is remembered before the table is written. A killed run may have left nothing else to do."""
    here = disk("gpt", ROOT, 50 * 1024, found="ext4")
    assert not any(isinstance(step, SetActive) for step in plan(here).steps)
    steps = plan(replace(here, table=replace(here.table, active=True))).steps
    names = [type(step).__name__ for step in steps]
    assert names == ["Backup", "Backup", "Unchanged", "Run", "SetActive", "Run"]
    assert (steps[1].name, steps[4].name) == ("0xabcdef01.active", "0xabcdef01.active")
    left = plan(disk("gpt", ROOT, 20 * 1024 + 2, found="ext4", marked=True))
    assert (left.steps, left.lines) == ((steps[4],), ("~ the protective MBR is active again",))
    assert (left.table, left.backup) == (1, "")


@pytest.mark.parametrize("logical", [False, True])
@pytest.mark.parametrize("off", [-M, -8, 0, 1, 8, 127, 1024, 2 * M - 1, 3 * M])
def test_a_swap_whose_headers_would_overlap_stays(off, logical):
    """With space between it and the root, the swap may have nowhere to go. Its header is never written over itself."""
    start, size = 600 * M - off, 100 * M
    swap = [(2, start - 2, size + 2, "5"), (5, start, size, "82")] if logical else [(2, start, size, "82")]
    parts, signatures = [(1, M, 500 * M, "83"), *swap], "ext4 - swap" if logical else "ext4 swap"
    node = f"/dev/vda{swap[-1][0]}"
    for size_of_disk in (701, 702):
        planned = plan(
            disk("dos", parts, size_of_disk, found=signatures, swaps=(Swap(node, 0, -2, f"254:{swap[-1][0]}"),))
        )
        copies = [step for step in planned.steps if isinstance(step, CopySwapHeader)]
        assert all(step.target >= step.source + MIB for step in copies)
        moves = (size_of_disk - 100) * M - start >= M
        assert [bool(copies), f"swapoff {node}" in programs(planned), len(planned.lines) > 1] == [moves] * 3
        assert planned.lines[0].startswith("~ vda1 500 MiB -> ")


def test_an_mbr_ends_at_two_tib():
    planned = plan(disk("dos", ROOT, 3 * 1024 * 1024, found="ext4"))
    assert planned.lines == ("~ vda1 20 GiB -> 2047.9 GiB",)


def test_layers_take_what_the_one_below_gets():
    layers = (
        Layer("pv", ("pvresize",), 20 * GIB - 4 * MIB, MIB, 4 * MIB),
        Layer("vg0/root", ("lvextend",), 15 * GIB, 5 * GIB - 4 * MIB, 4 * MIB, 4 * MIB),
        Layer("crypt", ("cryptsetup",), 15 * GIB - 16 * MIB, 16 * MIB, 512, secret=True),
        file_system(15 * GIB - 16 * MIB),
    )
    planned = plan(Disk("/dev/vda", 50 * GIB, layers))
    assert [line.split()[1] for line in planned.lines] == ["pv", "vg0/root", "crypt", "ext4"]
    assert planned.lines[1] == "~ vg0/root 15 GiB -> 45 GiB"
    assert [step.secret for step in planned.steps] == [False, False, True, False]
    assert plan(Disk("/dev/vda", 20 * GIB, layers)).lines == ()


def test_the_files_of_proc():
    swaps = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/vda2   partition\t1048572\t\t12\t\t-2\n"
    assert parse_swaps(swaps) == (Swap("/dev/vda2", 12288, -2),)
    assert parse_swaps(swaps.replace("/dev/vda2", r"/a\040file"))[0].device == "/a file"
    assert available_memory("MemTotal: 9 kB\nMemAvailable:    2048 kB\n") == 2 * MIB
