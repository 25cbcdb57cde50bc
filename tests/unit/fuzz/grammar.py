# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The grammar of every command that the collection may run: programs, subcommands, options, names and values."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

_PART = r"(?!\.{1,2}(?:[/@]|\Z))[A-Za-z0-9_.:-]+"
DATASET = rf"[A-Za-z](?!\.)[A-Za-z0-9_.:-]*(?:/{_PART})*"
SNAPSHOT = rf"{DATASET}@[A-Za-z0-9_.:%-]+"
UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_FACT = rf"flexdisk:(?:uuid|name|vm|index|slot|model|type|boot|preserve|description|tags|remaining|element|serial_no|ctime|mtime|intents|intent\.{UUID})"  # fmt: skip  # noqa: E501
_OWN = rf"{_FACT}=[\x20-\x7e]{{1,8191}}"
_NATIVE = r"(?:(?:quota|reservation|refreservation|volsize|volblocksize)=(?:\d+|auto|none)|compression=[a-z0-9-]+)"

GRAMMAR = tuple(
    re.compile(pattern)
    for pattern in (
        rf"zfs\n get\n -Hpr?\n -t\n [a-z,]+\n -o\n name,property,value,source\n [a-z_.:,]+(?:\n {DATASET})*",
        rf"zfs\n get\n -H\w*\n -o\n [a-z,]+\n [a-z_.:,0-9-]+\n {DATASET}(?:@[\w.:%-]+)?",
        rf"zfs\n get\n -Ho\n value\n guid\n {DATASET}(?:@[\w.:%-]+)?",
        rf"zfs\n get\n -Hp\n -o\n name,property,value,source\n all(?:\n {DATASET})+",
        rf"zfs\n get\n -H\w*\n -s\n [a-z,]+\n -o\n [a-z,]+\n [a-z_.:,0-9-]+\n {DATASET}",
        rf"zfs\n set(?:\n {_NATIVE}){{1,2}}\n {DATASET}",
        rf"zfs\n set(?:\n {_OWN})+\n {DATASET}",
        rf"zfs\n inherit\n {_FACT}\n {DATASET}",
        rf"zfs\n create\n -nP\n -o\n volblocksize=\d+\n -V\n \d+\n {DATASET}",
        rf"zfs\n create(?:\n -o\n (?:{_NATIVE}|{_OWN}))+\n -V\n \d+\n {DATASET}",
        rf"zfs\n create\n -o\n mountpoint=none\n -o\n canmount=off\n {DATASET}",
        rf"zfs\n clone(?:\n -o\n (?:{_NATIVE}|{_OWN}))+\n {SNAPSHOT}\n {DATASET}",
        rf"zfs\n rename\n {DATASET}\n {DATASET}",
        rf"zfs\n rename\n {SNAPSHOT}\n {SNAPSHOT}",
        rf"zfs\n snapshot\n {DATASET}@flexdisk-guard",
        rf"zfs\n (?:hold|release)\n flexdisk-guard\n {SNAPSHOT}",
        rf"zfs\n destroy\n {DATASET}/{_PART}(?:/{_PART})*",
        rf"zfs\n destroy\n {DATASET}@flexdisk-guard",
        rf"zpool\n status(?:\n {DATASET})+",
        rf"zdb\n -C\n {DATASET}",
        r"vmadm\n lookup\n -j",
        rf"vmadm\n (?:get|update|start)\n {UUID}",
        rf"vmadm\n (?:create|delete|rollback)-snapshot\n {UUID}\n [A-Za-z0-9_.:%][A-Za-z0-9_.:%-]{{0,63}}",
        rf"zfs\n destroy\n {DATASET}@vmsnap-[A-Za-z0-9_.:%-]+",
        rf"vmadm\n stop\n {UUID}\n -t\n [1-9]\d*",
        rf"imgadm\n get\n {UUID}",
        r"sysinfo",
        r"kstat\n -p\n unix:0:system_pages:freemem",
    )
)
"""Each command in full, its words separated by a newline and a space, which no word may hold."""

PAYLOAD = {"update_disks", "add_disks", "remove_disks", "flexible_disk_size", "quota", "autoboot"}
ENTRY = {"path", "size", "dangerous_allow_shrink", "uuid", "pci_slot", "model", "boot", "compression", "nocreate"}
ENTRY |= {"media", "image_uuid", "image_size"}
PATH = re.compile(rf"/dev/zvol/rdsk/{DATASET}")


def check_command(argv: Sequence[str], stdin: str) -> None:
    """Fails on any command that is not one of ours, word for word."""
    assert all(isinstance(word, str) and "\0" not in word and "\n" not in word for word in argv), argv
    text = "\n ".join(argv)
    assert any(pattern.fullmatch(text) for pattern in GRAMMAR), argv
    if list(argv[:2]) == ["vmadm", "update"]:
        _check_payload(json.loads(stdin))
    else:
        assert stdin == "", argv


def _check_payload(payload: object) -> None:
    """One kind of change, known keys, paths of volumes."""
    assert isinstance(payload, dict), payload
    assert len(payload) == 1, payload
    assert set(payload) <= PAYLOAD, payload
    for path in payload.get("remove_disks", []):
        assert PATH.fullmatch(path), payload
    for entry in [*payload.get("update_disks", []), *payload.get("add_disks", [])]:
        assert set(entry) <= ENTRY, payload
        assert PATH.fullmatch(entry["path"]), payload
    for key in ("flexible_disk_size", "quota"):
        value = payload.get(key, 0)
        assert isinstance(value, int), payload
        assert not isinstance(value, bool), payload
