# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the cluster says about VMs beside their own files: replication, HA and backup jobs."""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple

from simnode.pve.errors import NotRecorded
from simnode.pve.host import HA_RESOURCES, JOBS_CFG, REPLICATION_CFG, PveHost

_HEAD = re.compile(r"([a-z]+):\s*(\S+)\s*")


class Section(NamedTuple):
    """A section of such a file: the word before the colon, the one behind it, and the indented lines below."""

    kind: str
    name: str
    values: Dict[str, str]


def sections(text: str) -> List[Section]:
    """Return the sections of a file of the cluster."""
    found: List[Section] = []
    for line in text.splitlines():
        head = _HEAD.fullmatch(line)
        if head:
            found.append(Section(head.group(1), head.group(2), {}))
        elif found and line[:1].isspace() and line.strip():
            key, _blank, value = line.strip().partition(" ")
            found[-1].values[key] = value.strip()
    return found


def write(found: List[Section]) -> str:
    """Return the text of such a file, keys sorted."""
    text = ""
    for section in found:
        text += f"{section.kind}: {section.name}\n"
        text += "".join(f"\t{key} {section.values[key]}\n" for key in sorted(section.values)) + "\n"
    return text


def replication_jobs(host: PveHost, vmid: int) -> List[str]:
    """Return the names of the VM's replication jobs."""
    names = [section.name for section in sections(host.read(REPLICATION_CFG) or "")]
    return [name for name in names if name.rpartition("-")[0] == str(vmid)]


def is_highly_available(host: PveHost, vmid: int) -> bool:
    """Return whether HA manages the VM."""
    return any(
        section.kind == "vm" and section.name == str(vmid) for section in sections(host.read(HA_RESOURCES) or "")
    )


def request_state(host: PveHost, vmid: int, state: str) -> None:
    """Tell HA which state the VM shall have."""
    found = sections(host.read(HA_RESOURCES) or "")
    for section in found:
        if section.kind == "vm" and section.name == str(vmid):
            section.values["state"] = state
    host.write(HA_RESOURCES, write(found))


def leave_backup_jobs(host: PveHost, vmid: int) -> None:
    """Take the VM out of all backup jobs that name it."""
    text = host.read(JOBS_CFG)
    if text is None:
        return
    found = sections(text)
    changed = False
    for section in found:
        ids = section.values.get("vmid", "").split(",")
        if str(vmid) not in ids:
            continue
        ids.remove(str(vmid))
        if not ids:
            raise NotRecorded(f"backup job {section.name}, which has no VM but {vmid}")
        section.values["vmid"] = ",".join(ids)
        changed = True
    if changed:
        host.write(JOBS_CFG, write(found))
