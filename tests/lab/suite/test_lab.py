# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab itself: real ZFS of the expected version, libzfs_core, volumes with devices, Ansible."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness import Lab

MIB = 1 << 20
SCRIPT = Path(__file__).resolve().parents[1] / "lab.py"


def test_pool_is_healthy_and_made_of_4k_sectors(lab: Lab) -> None:
    health, ashift = lab.run(["zpool", "get", "-Hp", "-o", "value", "health,ashift", lab.pool]).stdout.split()
    assert (health, ashift) == ("ONLINE", "12")


def test_pool_properties_are_those_of_a_node(lab: Lab) -> None:
    expected = {"atime": "off", "mountpoint": f"/{lab.pool}", "compression": "off", "mounted": "yes"}
    assert lab.get(lab.pool, *expected) == expected


def test_tools_and_module_are_the_same_openzfs(lab: Lab) -> None:
    tools, module = lab.run(["zfs", "version"]).stdout.split()
    assert re.match(r"zfs-2\.1\.\d+", tools)
    assert module.removeprefix("zfs-kmod-") == tools.removeprefix("zfs-")


def test_libzfs_core_reaches_the_kernel(lab: Lab) -> None:
    text = f"import libzfs_core as l; print(l.lzc_exists(b'{lab.pool}'), l.lzc_exists(b'{lab.pool}/none'))"
    assert lab.python(text).split() == ["True", "False"]


@pytest.mark.parametrize(
    ("size_mib", "block", "reservation"),
    [
        (1024, "8K", 1109393408),
        (64, "4K", 70 * MIB),
        (64, "8K", 68 * MIB),
        (64, "16K", 67 * MIB),
        (64, "64K", 66 * MIB),
    ],
)
def test_automatic_reservation(lab: Lab, scratch: str, size_mib: int, block: str, reservation: int) -> None:
    volume = f"{scratch}/disk0"
    lab.zfs("create", "-b", block, "-V", f"{size_mib}M", volume)
    assert lab.get(volume, "volsize", "refreservation") == {
        "volsize": str(size_mib * MIB),
        "refreservation": str(reservation),
    }


def test_what_a_guest_writes_is_read_back(lab: Lab, scratch: str) -> None:
    volume = f"{scratch}/disk0"
    lab.zfs("create", "-V", "64M", volume)
    device = f"/dev/zvol/{volume}"
    line = f"{scratch}\n"
    write = f"yes '{scratch}' | dd of={device} bs=1M count=8 seek=4 iflag=fullblock oflag=direct status=none"
    lab.run(["sh", "-c", f"udevadm settle && test -b {device} && {write}"])
    read = lab.run(["sh", "-c", f"dd if={device} bs=1M skip=4 count=8 iflag=direct status=none | sha256sum"]).stdout
    written = (line * (8 * MIB // len(line) + 1))[: 8 * MIB]
    assert read.split()[0] == hashlib.sha256(written.encode()).hexdigest()


def test_failing_command_is_reported(lab: Lab) -> None:
    result = lab.run(["zfs", "list", f"{lab.pool}/none"], check=False)
    assert result.returncode == 1
    assert result.stderr == f"cannot open '{lab.pool}/none': dataset does not exist\n"
    with pytest.raises(AssertionError, match="dataset does not exist"):
        lab.zfs("list", f"{lab.pool}/none")


def test_arguments_and_input_arrive_unchanged(lab: Lab) -> None:
    assert lab.run(["printf", "%s|", "a b", "$HOME", "it's", ""]).stdout == "a b|$HOME|it's||"
    assert lab.run(["cat"], stdin="one\ntwo\u00e9").stdout == "one\ntwo\u00e9"


def test_ansible_reaches_the_lab(lab: Lab) -> None:
    assert '"ping": "pong"' in lab.ad_hoc("ansible.builtin.ping").stdout


def test_playbook_finds_this_collection(lab: Lab, tmp_path: Path) -> None:
    playbook = tmp_path / "play.yml"
    where = "lookup('ansible.builtin.config', 'COLLECTIONS_PATHS') | first ~ '/ansible_collections/flexdisk/hypervisor'"
    task = {"ansible.builtin.debug": {"msg": f"found={{{{ ({where} ~ '/plugins') is directory }}}} for={{{{ flag }}}}"}}
    playbook.write_text(json.dumps([{"hosts": "hypervisors", "tasks": [task]}]), encoding="utf-8")
    result = lab.playbook(playbook, "-e", "flag=this")
    assert "found=True for=this" in result.stdout
    assert "lab01" in result.stdout


def test_reset_leaves_an_empty_pool_with_its_properties(lab: Lab) -> None:
    lab.zfs("create", "-p", "-V", "16M", f"{lab.pool}/left/disk0")
    lab.run(["mkdir", "-p", "/var/lib/simnode/left"])
    lab.reset()
    assert f"{lab.pool}/left" not in lab.zfs("list", "-Hr", "-o", "name", lab.pool).splitlines()
    assert lab.get(lab.pool, "atime") == {"atime": "off"}
    assert lab.run(["test", "-e", "/var/lib/simnode/left"], check=False).returncode == 1


def test_nobody_else_resets_the_lab_under_a_suite(lab: Lab) -> None:
    lab.zfs("create", "-p", f"{lab.pool}/kept")
    done = subprocess.run([sys.executable, str(SCRIPT), "reset"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "lab: another suite runs on this lab, and would lose its pool\n")
    assert lab.zfs("list", "-H", "-o", "name", f"{lab.pool}/kept") == f"{lab.pool}/kept"


def test_vmadm_knows_no_vm_after_reset(lab: Lab) -> None:
    lab.reset()
    assert json.loads(lab.run(["vmadm", "lookup", "-j"]).stdout) == []


def test_a_changed_module_in_an_archive_is_compiled_anew(lab: Lab) -> None:
    task = """
import sys, zipfile
with zipfile.ZipFile("/tmp/archive.zip", "w") as archive:
    archive.writestr("sent.py", f"words = {sys.argv[1]!r}")
sys.path.insert(0, "/tmp/archive.zip")
import sent, zipimport
print(sent.words, zipimport._compile_source.__module__)
"""
    said = [lab.run(["python3", "-c", task, words]).stdout for words in ("first", "first", "other")]
    assert said == [f"{words} flexdisk_zipcache\n" for words in ("first", "first", "other")]
