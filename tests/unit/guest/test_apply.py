# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Single steps of a growth: the lock, the backup, the header of a swap, and what fails there."""

from __future__ import annotations

import fcntl
import os
import re
from dataclasses import replace

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.guest import guest_apply
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.runner import SubprocessRunner
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest.layers import check_luks, crypt_layer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest.steps import (
    Backup,
    CopySwapHeader,
    Plan,
    Run,
    SetActive,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from .conftest import run

M = 1 << 20


@pytest.fixture
def disk(tmp_path):
    path = tmp_path / "disk"
    path.write_bytes(bytes(8 * M))
    return path


def doer(folder, passphrase=""):
    return guest_apply.GuestApplier(SubprocessRunner(), str(folder), passphrase)


def test_a_disk_that_another_program_has_locked_is_left(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(guest_apply, "LOCK_TIMEOUT", 0.3)
    plan = Plan(str(disk), 8 * M, steps=(Backup("a", "b"),), table=1)
    with disk.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(FlexdiskError, match="another program has locked") as refused:
            doer(tmp_path / "backups").apply(plan)
    assert refused.value.code == "Locked"
    assert not (tmp_path / "backups").exists()
    doer(tmp_path / "backups").apply(plan)
    assert (tmp_path / "backups" / "a").read_text() == "b"


def test_a_trial_reads_its_own_text_and_no_passphrase(tmp_path):
    """What sfdisk does not take is refused before anything changes, with what it said."""
    trial = Run(("sh", "-c", "grep -q good || { echo unsupported header; exit 2; }"), "good\n")
    doer(tmp_path, "secret").test(Plan("/dev/x", 0, tests=(trial,)))
    with pytest.raises(FlexdiskError, match="ended with status 2: unsupported header") as refused:
        doer(tmp_path, "secret").test(Plan("/dev/x", 0, tests=(replace(trial, stdin="bad\n"),)))
    assert refused.value.code == "GrowthFailed"


def test_a_lock_of_a_moment_is_waited_for(disk, tmp_path, monkeypatch):
    """As udev has it on a disk that has just grown."""
    waited = []
    with disk.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        monkeypatch.setattr(guest_apply.time, "sleep", lambda _time: waited.append(fcntl.flock(other, fcntl.LOCK_UN)))
        doer(tmp_path / "backups").apply(Plan(str(disk), 8 * M, steps=(Backup("a", "b"),), table=1))
    assert waited == [None]
    assert (tmp_path / "backups" / "a").exists()


def test_a_program_holds_the_lock_after_the_run_was_killed(disk, tmp_path):
    """A child that outlives the run keeps the disk locked: it has the descriptor."""
    script = "import fcntl,sys\nfcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    opened = (
        "import fcntl, os, sys\n"
        "ours = [each for each in range(3, 99) if os.path.realpath(f'/proc/self/fd/{each}') == sys.argv[1]]\n"
        "modes = [fcntl.fcntl(each, fcntl.F_GETFL) & os.O_ACCMODE for each in ours]\n"
        "raise SystemExit(modes != [os.O_RDWR])"
    )
    doer(tmp_path).apply(Plan(str(disk), 0, steps=(Run(("python3", "-c", opened, str(disk))),), table=1))
    with pytest.raises(FlexdiskError, match="ended with status 1"):
        doer(tmp_path).apply(Plan(str(disk), 0, steps=(Run(("python3", "-c", script, str(disk))),), table=1))


def test_a_backup_that_cannot_be_written(disk, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FlexdiskError, match=r"the backup .* cannot be written") as failed:
        doer(tmp_path / "file").step(str(disk), Backup("a", "b"))
    assert failed.value.code == "FileFailed"


def test_an_undo_that_fails_does_not_hide_the_cause(disk, tmp_path):
    """All of it is tried, the last step first, but not that of the step that failed."""
    first, second, third = (("touch", str(tmp_path / name)) for name in ("first", "second", "third"))
    steps = (
        Run(("true",), undo=(("ls", "/nowhere"), first)),
        Run(("true",), undo=(("no-such-program",), second)),
        Run(("ls", "/the cause"), undo=(third,)),
    )
    with pytest.raises(FlexdiskError) as failed:
        doer(tmp_path).apply(Plan(str(disk), 0, steps=steps, table=3))
    message = r"ls /the cause ended .*; what was done before could not be undone: no-such-program .*; ls /nowhere ended"
    assert re.match(message, failed.value.message.replace("\n", " "))
    assert failed.value.code == "GrowthFailed"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "first", "second"]


@pytest.mark.usefixtures("tools")
def test_nothing_is_undone_when_the_table_is_written(disk, tmp_path):
    touch = ("touch", str(tmp_path / "undone"))
    steps = (Run(("true",), undo=(touch,)), Run(("sfdisk", "--version")), Run(("false",)))
    with pytest.raises(FlexdiskError, match="false ended with status 1"):
        doer(tmp_path).apply(Plan(str(disk), 0, steps=steps, table=3))
    assert not (tmp_path / "undone").exists()


@pytest.mark.usefixtures("tools")
def test_the_active_flag_is_set_again_if_sfdisk_fails(disk, tmp_path):
    """It may have written the table before."""
    with disk.open("r+b") as file:
        file.seek(466)
        file.write(b"\xee")
    marker, active = Backup("a.active", "the flag"), SetActive("a.active")
    steps = (marker, Run(("sfdisk", "--no-such-option")), active)
    with pytest.raises(FlexdiskError, match=r"^sfdisk --no-such-option ended"):
        doer(tmp_path).apply(Plan(str(disk), 0, steps=steps, table=3))
    assert disk.read_bytes()[462] == 0x80
    assert not (tmp_path / "a.active").exists()
    with pytest.raises(FlexdiskError, match=r"^ls /nowhere ended with status 2: [^;]*$"):
        doer(tmp_path).apply(Plan(str(disk), 0, steps=(Run(("ls", "/nowhere")), *steps), table=4))


def test_a_passphrase_goes_to_stdin_only(disk, tmp_path):
    program = ("sh", "-c", 'read -r line; [ "$line" = secret ] && ! grep -q secret /proc/$$/environ')
    doer(tmp_path, "secret").step(str(disk), Run(program, secret=True))
    with pytest.raises(FlexdiskError, match="ended with status 1"):
        doer(tmp_path, "secret").step(str(disk), Run(program))


def test_the_real_cryptsetup_tells_a_wrong_passphrase(tools, disk, tmp_path):
    header = tmp_path / "luks"
    header.touch()
    os.truncate(header, 32 * M)
    cheap = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")
    tools("cryptsetup", "luksFormat", "-q", *cheap, "--key-file=-", str(header), stdin="right")
    layer = crypt_layer("data", str(header), "offset: 1 sectors\nsize: 2 sectors\n", True, 64 * M)
    plan = Plan(str(disk), 8 * M, tests=(Run(layer.test, secret=True),))
    doer(tmp_path, "right").test(plan)
    with pytest.raises(FlexdiskError, match=f"luks_passphrase is none of those of {header}") as refused:
        doer(tmp_path, "wrong").test(plan)
    assert refused.value.code == "InvalidArgument"
    check_luks(str(header), tools("cryptsetup", "luksDump", str(header)))
    header.write_bytes(bytes(M))
    with pytest.raises(FlexdiskError, match=r"cryptsetup open .* ended with status") as failed:
        doer(tmp_path, "right").test(plan)
    assert failed.value.code == "GrowthFailed"


@pytest.mark.parametrize("page", [4096, 65536])
def test_the_header_of_a_swap(tools, disk, tmp_path, page):
    """Over what lay there before, and over the swap itself."""
    swap = tmp_path / "swap"
    swap.write_bytes(bytes(2 * M))
    tools("mkswap", "-q", "-p", str(page), "-L", "words", str(swap))
    disk.write_bytes(bytes(M) + swap.read_bytes() + b"x" * 5 * M)
    guest_apply.copy_swap_header(str(disk), CopySwapHeader(M, 4 * M))
    data = disk.read_bytes()
    assert data[4 * M : 4 * M + page] == swap.read_bytes()[:page]
    assert data[4 * M + page : 5 * M] == bytes(M - page)
    assert data[5 * M :] == b"x" * 3 * M
    where = ("-O", str(4 * M), "-S", str(2 * M), str(disk))
    assert "words" in run("blkid", "-p", "-o", "value", "-s", "LABEL", *where)


def test_a_protective_mbr_that_has_gone(disk, tmp_path):
    marker = tmp_path / "a.active"
    marker.touch()
    with pytest.raises(FlexdiskError, match="has no protective MBR any more") as failed:
        doer(tmp_path).step(str(disk), SetActive("a.active"))
    assert failed.value.code == "Changed"
    assert marker.exists()
    with disk.open("r+b") as file:
        file.seek(466)
        file.write(b"\xee")
    doer(tmp_path).step(str(disk), SetActive("a.active"))
    data = disk.read_bytes()
    assert (data[462], data.count(0), marker.exists()) == (0x80, 8 * M - 2, False)
    with pytest.raises(FlexdiskError, match="not removed") as failed:
        doer(tmp_path).step(str(disk), SetActive("a.active"))
    assert failed.value.code == "FileFailed"


def test_a_swap_with_bad_pages_or_without_header_stays(tools, disk):
    with pytest.raises(FlexdiskError, match="has no header of version 1"):
        guest_apply.copy_swap_header(str(disk), CopySwapHeader(M, 4 * M))
    tools("mkswap", "-q", str(disk))
    with disk.open("r+b") as file:
        file.seek(1032)
        file.write(b"\1")
    with pytest.raises(FlexdiskError, match="has 1 bad pages"):
        guest_apply.copy_swap_header(str(disk), CopySwapHeader(0, 4 * M))
