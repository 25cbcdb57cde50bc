# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which settings a VM's file may have, and which values of them are known."""

from __future__ import annotations

import re
from typing import Dict, List, Optional

from simnode.pve import drive

_SWITCHES = "acpi autostart freeze kvm localtime numa onboot protection reboot tablet tdf template keephugepages"
_NUMBERS = "cores sockets vcpus smp balloon cpuunits shares snaptime migrate_speed"
_TEXTS = (
    "affinity agent amd-sev arch args audio0 bios boot bootdisk cdrom cicustom cipassword citype ciupgrade ciuser cpu "
    "cpulimit description hookscript hotplug hugepages intel-tdx ivshmem keyboard lock machine memory meta "
    "migrate_downtime name nameserver ostype parent rng0 running-nets-host-mtu runningcpu runningmachine scsihw "
    "searchdomain smbios1 snapstate spice_enhancements sshkeys startdate startup tags vga vmgenid vmstate "
    "vmstatestorage watchdog allow-ksm"
)
_SETTABLE = (
    "agent args bios boot bootdisk cores description hookscript hotplug lock machine memory name net0 onboot "
    "protection scsihw startup tags template"
)
_NUMBERED = {"net": 32, "ipconfig": 32, "hostpci": 16, "numa": 8, "parallel": 3, "serial": 4, "usb": 14, "virtiofs": 10}
SWITCHES = frozenset(_SWITCHES.split())
NUMBERS = frozenset(_NUMBERS.split())
KNOWN = (
    SWITCHES
    | NUMBERS
    | frozenset(_TEXTS.split())
    | frozenset(f"{name}{number}" for name, count in _NUMBERED.items() for number in range(count))
    | frozenset(drive.DRIVES)
    | frozenset(drive.UNUSED)
)
"""Names that a file may have. A value of most is kept as it is, and never looked at."""
SETTABLE = frozenset(_SETTABLE.split())
"""What the simulated `qm set` can change, beside disks: that of the others was never seen."""
AT_ONCE = frozenset(("description", "name", "onboot", "protection", "tags", "startup", "hookscript", "lock"))
"""What changes while the VM runs."""
MAX_DESCRIPTION = 8192
LOCKS = "backup, clone, create, migrate, rollback, snapshot, snapshot-delete, suspending, suspended"
_NOT_IN_SNAPSHOT = ("parent", "lock", "snapstate", "digest")
_TAG = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9_+.-]*")


def problem_in_file(key: str, value: str) -> str:
    """Return why a line of a VM's file is dropped, '' if it is kept."""
    if key not in KNOWN:
        return f"unknown setting '{key}'"
    if drive.is_drive(key) or drive.is_unused(key):
        try:
            drive.parse(key, value)
        except drive.BadDrive as bad:
            return str(bad).rstrip("\n")
        return ""
    return _type_problem(key, value)


def _type_problem(key: str, value: str) -> str:
    if key in SWITCHES and drive.boolean(value) is None:
        return f"type check ('boolean') failed - got '{value}'"
    if (key in NUMBERS or key == "memory") and re.fullmatch(r"(current=)?\d+", value) is None:
        return f"type check ('integer') failed - got '{value}'"
    return ""


def problem(key: str, value: str) -> str:
    """Return why `qm set` refuses the value, '' if it takes it."""
    if drive.is_drive(key) or drive.is_unused(key):
        try:
            drive.parse(key, value, key + ".")
        except drive.BadDrive as bad:
            return drive.refusal(bad)
        return ""
    if key == "description" and len(value) > MAX_DESCRIPTION:
        return f"value may only be {MAX_DESCRIPTION} characters long"
    if key == "lock" and value not in LOCKS.split(", "):
        return f"value '{value}' does not have a value in the enumeration '{LOCKS}'"
    if key == "boot" and _empty_item(value):
        return "invalid format - missing key in comma-separated list property\n"
    if key == "tags" and not all(_TAG.fullmatch(tag) for tag in re.split(r"[;, ]+", value) if tag):
        return "invalid format - invalid characters in tag\n"
    return _type_problem(key, value)


def _empty_item(value: str) -> bool:
    return any("=" in item and not item.partition("=")[2] for item in value.split(","))


def normal(key: str, value: str) -> str:
    """Return the value as `qm` writes it."""
    if key in SWITCHES:
        return drive.boolean(value) or value
    if key == "tags":
        return ";".join(sorted({tag.lower() for tag in re.split(r"[;, ]+", value) if tag}))
    return value


def boot_order(main: Dict[str, str]) -> Optional[List[str]]:
    """Return the devices of a boot order, None where the VM has no such list."""
    text = main.get("boot", "")
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if equals and name == "order":
            return [device for device in value.split(";") if device]
    return None if text.strip() else []


def order_text(devices: List[str]) -> str:
    """Return the value of `boot` for these devices."""
    return "order=" + ";".join(devices) if devices else ""


def is_on(main: Dict[str, str], key: str) -> bool:
    """Return whether a switch of the VM is on."""
    return drive.boolean(main.get(key, "0")) == "1"
