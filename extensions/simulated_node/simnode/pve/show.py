# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What only reads: `qm config`, `pending`, `status`, `list`, `listsnapshot`."""

from __future__ import annotations

import time
from typing import Dict, List

from simnode.pve import config_text, drive, power, qemu, settings, vmfile
from simnode.pve.config_text import Values, VmConfig
from simnode.pve.errors import NotRecorded, ParameterError, PveError
from simnode.pve.host import GIB, MIB, vms_of_node
from simnode.pve.task import Run, qemus

Options = Dict[str, str]
_TIME_COLUMN, _TEXT_COLUMN = 32, 56


def config(run: Run, vmid: int, options: Options) -> None:
    """`qm config`. Raises PveError."""
    if options.get("current") == "1" and "snapshot" in options:
        problem = "cannot use 'snapshot' parameter with 'current'"
        raise ParameterError({"current": problem, "snapshot": problem})
    found = vmfile.load(run, vmid)
    values = dict(found.main)
    if "snapshot" in options:
        if options["snapshot"] not in found.snapshots:
            raise PveError(f"snapshot '{options['snapshot']}' does not exist")
        values = found.snapshots[options["snapshot"]]
    elif options.get("current") != "1":
        values.update({key: value for key, value in found.pending.items() if key != "delete"})
        for key in found.deletes:
            values.pop(key, None)
    for key in sorted(values):
        run.say(f"{key}: {_shown(key, values[key])}")


def _shown(key: str, value: str) -> str:
    return config_text.encoded(value.rstrip()) if key == "description" else value


def pending(run: Run, vmid: int) -> None:
    """`qm pending`. Raises PveError."""
    found = vmfile.load(run, vmid)
    for key in sorted({*found.main, *found.pending} - {"delete"}):
        if key in found.deletes:
            run.say(f"del {key}: {_shown(key, found.main[key])}")
            continue
        if key in found.main:
            run.say(f"cur {key}: {_shown(key, found.main[key])}")
        if key in found.pending:
            run.say(f"new {key}: {_shown(key, found.pending[key])}")


def _state(run: Run, vmid: int) -> str:
    one = qemus(run).get(str(vmid))
    if one is None:
        return "stopped"
    return "paused" if one.get("paused") else "running"


def _boot_disk_size(main: Values) -> int:
    for device in settings.boot_order(main) or []:
        if drive.is_drive(device) and device in main:
            return drive.size_of(drive.parse(device, main[device]).options.get("size", "0")) or 0
    return 0


def status(run: Run, vmid: int, options: Options) -> None:
    """`qm status`. Raises PveError."""
    main = vmfile.load(run, vmid).main
    state = _state(run, vmid)
    if options.get("verbose") != "1":
        run.say(f"status: {state}")
        return
    if state != "stopped":
        raise NotRecorded("qm status --verbose of a running VM")
    values = {
        "cpus": int(main.get("cores", "1")) * int(main.get("sockets", "1")),
        "maxdisk": _boot_disk_size(main),
        "maxmem": power.memory_mib(main) * MIB,
        "name": main.get("name", f"VM {vmid}"),
        "qmpstatus": state,
        "status": state,
        "vmid": vmid,
        **dict.fromkeys(("disk", "mem", "memhost", "netin", "netout", "uptime"), 0),
    }
    for key in sorted(values):
        run.say(f"{key}: {values[key]}")


def list_vms(run: Run) -> None:
    """`qm list`."""
    rows = [["VMID", "NAME", "STATUS", "MEM(MB)", "BOOTDISK(GB)", "PID"]]
    for vmid in vms_of_node(run.host):
        main = vmfile.load(run, vmid).main
        size = f"{_boot_disk_size(main) / GIB:.2f}"
        rows.append([str(vmid), main.get("name", f"VM {vmid}"), _state(run, vmid), str(power.memory_mib(main)), size,
                     str(qemu.pid(run, vmid))])  # fmt: skip
    for row in rows if len(rows) > 1 else []:
        run.say("%10s %-20s %-10s %-10s %12s %-10s" % tuple(row))


def list_snapshots(run: Run, vmid: int) -> None:
    """`qm listsnapshot`: a tree, in which a snapshot is below its parent. Raises PveError."""
    _branch(run, vmfile.load(run, vmid), "", 0)


def _branch(run: Run, found: VmConfig, parent: str, depth: int) -> None:
    known = found.snapshots
    names: List[str] = sorted(name for name in known if _parent(found, known[name]) == parent)
    for name in names:
        section = known[name]
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(int(section.get("snaptime", "0"))))
        text = section.get("description", "no-description").partition("\n")[0]
        run.say(f"{' ' * depth + '`-> ' + name:<{_TIME_COLUMN}}{when:<{_TEXT_COLUMN - _TIME_COLUMN}}{text}")
        _branch(run, found, name, depth + 1)
    if _parent(found, found.main) == parent:
        run.say(f"{' ' * depth + '`-> current':<{_TEXT_COLUMN}}You are here!")


def _parent(found: VmConfig, values: Values) -> str:
    parent = values.get("parent", "")
    return parent if parent in found.snapshots else ""
