# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Memory and CPUs of a SmartOS host, on recorded answers of sysinfo and kstat."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import sysinfo_read
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer, changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

# As a platform of 2018 prints it, but for what nobody here reads.
SYSINFO = """{
  "Live Image": "20180510T153535Z",
  "System Type": "SunOS",
  "VM Capable": true,
  "CPU Type": "Intel(R) Xeon(R) CPU E5645 @ 2.40GHz",
  "CPU Physical Cores": 2,
  "UUID": "92bc54eb-a652-11e0-a095-001e671d5838",
  "CPU Total Cores": 24,
  "MiB of Memory": "47184",
  "Zpool Size in GiB": 2719,
  "Disks": {
  }
}
"""
KSTAT = "unix:0:system_pages:freemem\t632476\n"


def told(**changes):
    return json.dumps({**json.loads(SYSINFO), **{key.replace("_", " "): value for key, value in changes.items()}})


def test_what_is_read():
    assert sysinfo_read.parse_resources(SYSINFO, KSTAT) == (47184, 632476 * 4096 // 1048576, 24)
    assert sysinfo_read.parse_resources(told(CPU_Online_Count=22), KSTAT).cpus == 22
    assert sysinfo_read.parse_resources(told(CPU_Total_Cores="24"), KSTAT).cpus == 24
    assert sysinfo_read.parse_resources(told(MiB_of_Memory=47184), KSTAT).memory == 47184


def test_free_memory_is_rounded_down():
    assert [
        sysinfo_read.parse_resources(SYSINFO, KSTAT.replace("632476", pages)).free_memory
        for pages in ("0", "255", "256", "511")
    ] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("sysinfo", "kstat", "message"),
    [
        ("", KSTAT, "sysinfo did not print a JSON object"),
        ("[]", KSTAT, "sysinfo did not print a JSON object"),
        ("{}", KSTAT, 'sysinfo reports "MiB of Memory" as '),
        (told(MiB_of_Memory=""), KSTAT, "sysinfo reports \"MiB of Memory\" as '', which"),
        (told(MiB_of_Memory="0"), KSTAT, "sysinfo and kstat tells of 0 MiB"),
        (told(MiB_of_Memory="4"), KSTAT, "4 MiB of memory, 2470 MiB of them free"),
        (told(CPU_Total_Cores=True), KSTAT, 'sysinfo reports "CPU Total Cores" as '),
        (told(CPU_Total_Cores=0), KSTAT, "and 0 CPUs"),
        (told(CPU_Online_Count=None), KSTAT, 'sysinfo reports "CPU Online Count" as '),
        (SYSINFO, "", "kstat printed '' instead of unix:0:system_pages:freemem and a number"),
        (SYSINFO, KSTAT + KSTAT, "kstat printed 'unix:"),
        (SYSINFO, KSTAT.replace("632476", "-1"), "kstat printed 'unix:"),
        (SYSINFO, KSTAT.replace("freemem", "availrmem"), "kstat printed 'unix:"),
    ],
)
def test_what_is_no_answer(sysinfo, kstat, message):
    with pytest.raises(FlexdiskError) as caught:
        sysinfo_read.parse_resources(sysinfo, kstat)
    assert caught.value.code == "UnexpectedOutput"
    assert message in caught.value.message


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers())
KEYS = st.sampled_from(["MiB of Memory", "CPU Total Cores", "CPU Online Count"])


@given(st.text() | st.dictionaries(KEYS, VALUES).map(json.dumps), st.text() | st.just(KSTAT))
def test_any_text_is_read_or_refused(sysinfo, kstat):
    try:
        sysinfo_read.parse_resources(sysinfo, kstat)
    except FlexdiskError as exc:
        code = exc.code
    else:
        code = "UnexpectedOutput"
    assert code == "UnexpectedOutput"


class Recorded:
    def __init__(self, **answers):
        self.answers = {"sysinfo": Answer(0, SYSINFO, ""), "kstat": Answer(0, KSTAT, ""), **answers}
        self.calls = []

    def __call__(self, argv, stdin="", timeout=300):
        self.calls.append(list(argv))
        return self.answers[argv[0]]


def test_two_processes_that_change_nothing():
    runner = Recorded()
    assert Vmadm(runner).resources().cpus == 24
    assert runner.calls == [["sysinfo"], ["kstat", "-p", "unix:0:system_pages:freemem"]]
    assert not any(map(changes, runner.calls))


@pytest.mark.parametrize("program", ["sysinfo", "kstat"])
def test_a_failure_names_the_program(program):
    with pytest.raises(FlexdiskError, match=rf"\(rc 1 of: {program}"):
        Vmadm(Recorded(**{program: Answer(1, "", "")})).resources()


@pytest.mark.parametrize(
    ("kstat", "boot"),
    [
        (
            "unix:0:system_misc:boot_time\t1704067200\nunix:0:system_misc:crtime\t38.183748911\n",
            "1704067200-38.183748911",
        ),
        ("unix:0:system_misc:boot_time\t1704067200\n", "1704067200-"),
        ("unix:0:system_misc:crtime\t38.183748911\n", ""),
        ("unix:0:system_misc:boot_time\tyesterday\n", ""),
        ("unix:0:system_misc:boot_time\t1704067200\nunix:0:system_misc:crtime\tx y\n", ""),
        ("", ""),
    ],
)
def test_what_tells_boots_apart(kstat, boot):
    assert sysinfo_read.parse_boot(kstat) == boot
