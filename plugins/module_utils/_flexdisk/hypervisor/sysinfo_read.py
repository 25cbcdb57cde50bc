# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parsers of the output of SmartOS's sysinfo and kstat. They take text and run nothing."""

from __future__ import annotations

import re
import typing as t

from ..model.errors import FlexdiskError
from ..model.resources import Resources, checked
from ..model.sizes import MIB
from .vmadm_read import parse_json

FREE_PAGES = "unix:0:system_pages:freemem"
# The second of the boot, and when in the course of the boot its statistics began, to the nanosecond.
BOOT = ("unix:0:system_misc:boot_time", "unix:0:system_misc:crtime")
# The page size of every x86 machine. Statistics count pages without their size.
_PAGE = 4096
_MEMORY = "MiB of Memory"
# Older platforms report only the number of all CPUs, those that are offline included.
_CPUS = ("CPU Online Count", "CPU Total Cores")
_DECIMAL = re.compile(r"\A[0-9]{1,15}(\.[0-9]{1,15})?\Z")
_NUMBER = re.compile(r"\A[0-9]{1,15}\Z")


def parse_resources(sysinfo: str, kstat: str) -> Resources:
    """Return memory and CPUs, from C(sysinfo) and C(kstat -p unix:0:system_pages:freemem).

    Raises FlexdiskError UnexpectedOutput for texts of another form.
    """
    facts = parse_json(sysinfo)
    if not isinstance(facts, dict):
        raise FlexdiskError("UnexpectedOutput", "sysinfo did not print a JSON object")
    cpus = next((key for key in _CPUS if key in facts), _CPUS[-1])
    resources = Resources(_fact(facts, _MEMORY), _free_pages(kstat) * _PAGE // MIB, _fact(facts, cpus))
    return checked(resources, "sysinfo and kstat")


def parse_boot(kstat: str) -> str:
    """Return an identifier of this boot of the host, from C(kstat -p) of BOOT; "" without the second of the boot."""
    known = dict(line.split("\t", 1) for line in kstat.splitlines() if "\t" in line)
    seconds, more = (known.get(name, "") for name in BOOT)
    return f"{seconds}-{more}" if _NUMBER.match(seconds) and _DECIMAL.match(more or "0") else ""


def _fact(facts: t.Mapping[str, t.Any], key: str) -> int:
    """Return a number, which sysinfo prints as a number or as text."""
    value = str(facts.get(key))
    if not _NUMBER.match(value):
        raise FlexdiskError("UnexpectedOutput", f'sysinfo reports "{key}" as {value!r:.60}, which is not a number')
    return int(value)


def _free_pages(kstat: str) -> int:
    name, _tab, value = kstat.rstrip("\n").partition("\t")
    if name != FREE_PAGES or not _NUMBER.match(value):
        raise FlexdiskError("UnexpectedOutput", f"kstat printed {kstat!r:.200} instead of {FREE_PAGES} and a number")
    return int(value)
