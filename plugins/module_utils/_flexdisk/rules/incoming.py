# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the inventory of this host allows in VMs that come from other hosts, beyond what every host allows."""

from __future__ import annotations

import json
import posixpath
import typing as t

# Names that can be allowed; every other entry is an absolute path. A driver refuses those of the names that it knows.
NAMES = frozenset(
    (
        *("seclabel none", "disk driver qcow2"),
        *(
            "add_pci_devices",
            "bhyve_extra_opts",
            "bootrom",
            "com1",
            "com2",
            "limit_priv",
            "pci_devices",
            "zone_dataset_uuid",
        ),
        *("allow_dhcp_spoofing", "allow_ip_spoofing", "allow_mac_spoofing", "allow_restricted_traffic"),
        "allow_unfiltered_promisc",
    )
)
OPTION = "incoming_allowed"
VARIABLE = "flexdisk_incoming_allowed"


def problems(given: t.Iterable[str]) -> t.List[str]:
    """Return what is wrong with the entries: each is one of NAMES, or an absolute path other than /."""
    wrong = []
    for entry in given:
        path = entry.startswith("/") and entry != "/" and posixpath.normpath(entry) == entry
        if not path and entry not in NAMES:
            names = ", ".join(sorted(NAMES))
            wrong.append(f"{OPTION} {entry!r:.100} is neither an absolute path below / nor one of: {names}")
    return wrong


def way_out(refused: t.Sequence[str], host: str, here: str, allowed: t.Iterable[str] = ()) -> str:
    """Return what the user can do about the parts of a VM that this host refuses.

    host: the host that describes the VM. here: this host. allowed: what its inventory allows already.
    """
    fixed = [word for word in refused if not _entry(word)]
    advice = [f"change on {host} what cannot be allowed: {'; '.join(fixed)}"] if fixed else []
    if len(fixed) < len(refused):
        line = [*dict.fromkeys([*allowed, *filter(None, map(_entry, refused))])]
        text = f"to allow it, write to the variables of {here} in the inventory"
        advice.insert(0, f"{text}: {VARIABLE}: {json.dumps(line, ensure_ascii=False)}")
    return "; ".join(advice)


def _entry(refused: str) -> str:
    """Return the entry of OPTION that would allow it: its name, or the path at its end; "" if none would."""
    path = refused[refused.rfind(" ", 0, refused.find("/")) + 1 :]  # it may have spaces itself
    allowed = [word for word in (refused, refused.split(" ")[0]) if word in NAMES]
    return next(iter([*allowed, *([] if problems([path]) else [path])]), "")


def allows_path(allowed: t.Collection[str], path: str) -> bool:
    """Whether a path is allowed, or lies in a folder that is. A path with `..` is not."""
    if not path.startswith("/") or posixpath.normpath(path) != path:
        return False
    return any(path == entry or path.startswith(entry + "/") for entry in allowed if entry.startswith("/"))
