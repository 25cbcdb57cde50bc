# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/guests.md says what new guests get: the command makes the file, and the play hands it over whole."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tree import TARGET_PYTHONS

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.packages import parse_packages
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.vm import parse_vm

ROOT = Path(__file__).resolve().parents[3]
GUESTS = ROOT / "extensions" / "guests"
SCRIPT = (GUESTS / "Expand-SystemVolume.ps1").read_bytes()
PAGE = (ROOT / "docs" / "guests.md").read_text()
SECTION = PAGE.split("## New guests\n")[1].split("\n## ")[0]


@pytest.fixture
def made(tmp_path):
    """The file that the command of the page makes."""
    (block,) = re.findall(r"^```console\n\$ (.*)\n```$", SECTION, re.MULTILINE)
    command = block.replace("COLLECTION", str(ROOT)).replace("python3", sys.executable)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    (file,) = tmp_path.iterdir()
    return file


def test_the_play_gives_the_whole_file_to_the_vm(made):
    plays = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)]
    (vm,) = plays[0][0]["tasks"][0]["flexdisk.hypervisor.vm"]["vms"]
    metadata = vm["secret_metadata"]
    ((key, given),) = metadata.items()
    assert key == "cloud-init:user-data"
    assert given == f"{{{{ lookup('ansible.builtin.file', '{made.name}') }}}}"
    metadata[key] = made.read_text()
    packages, problems = parse_packages([{"name": vm["package"], "disk": "100GiB", "flexible_disk": True}])
    declared, more = parse_vm(vm, packages)
    assert [*problems, *more] == []
    assert dict(declared.metadata) == {key: made.read_text()}


def test_own_keys_go_below(made):
    both = yaml.safe_load(made.read_text() + "packages:\n  - nginx\n")
    assert both["packages"] == ["nginx"]
    assert len(both["bootcmd"]) == 1
    assert round(len(made.read_bytes()) / 1000) == int(re.search(r"of about (\d+) KB", SECTION)[1])


def test_the_python_that_is_named_is_the_lowest_that_is_tested():
    found = re.findall(r"Python (\d+\.\d+) or later", SECTION)
    assert found == [TARGET_PYTHONS[0]] * 2, "for the tool, and for the guest"


def test_what_is_told_of_the_script_for_windows():
    text = SCRIPT.decode("ascii")  # Windows PowerShell takes everything else for the code page of the system
    switches = set(re.findall(r"^    \[switch\] \$(\w+)", text, re.MULTILINE))
    assert "SupportsShouldProcess = $true" in text
    assert set(re.findall(r"`?-([A-Z]\w+)(?::\$false)?`", SECTION)) <= {"WhatIf", "Confirm", *switches}
    assert switches <= set(re.findall(r"-([A-Z]\w+)", SECTION))
    assert "NO WINDOWS HAS RUN THIS SCRIPT YET" in text
    assert "**No Windows has run this script.**" in SECTION


def test_the_recovery_partition_is_of_the_right_type():
    """As Microsoft's procedure has it; a wrong one shows the partition to users, or hides it from Windows."""
    text = SCRIPT.decode()
    assert "'de94bba4-06d1-4d40-a16a-bfd50179d6ac'" in text
    assert "'gpt attributes=0x8000000000000001'" in text
    assert "'set id=27'" in text


def test_other_files_are_looked_for_before_anything_changes():
    """That they are found was never run. What is allowed is the same in the script and on the page."""
    text = SCRIPT.decode()
    calls = text[text.index("Is64BitOperatingSystem") :]
    order = [
        "@(Get-OtherFile",
        "ShouldProcess(",
        "Suspend-BitLocker",
        "Invoke-RecoveryRelease",
        "Invoke-RecoveryRemoval",
    ]
    assert sorted(order, key=calls.index) == order
    (allowed,) = re.findall(r"-notin (.*) \}$", text, re.MULTILINE)
    names = re.findall(r"'(.*?)'", allowed)
    assert names[0] == "Recovery"
    assert (
        "anything outside of\n`\\Recovery\\WindowsRE`, but for " + " and ".join(f"`{n}`" for n in names[1:]) in SECTION
    )
