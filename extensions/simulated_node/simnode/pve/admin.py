# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What neither `qm` nor `pvesm` can do: guests, other processes, a cluster without quorum, and SIGKILL, for tests.

Each command takes the node and its arguments and returns exit code, stdout and stderr.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List

from simnode.node import Node
from simnode.pve import power, qemu
from simnode.pve.host import Result
from simnode.pve.on_node import NodeHost
from simnode.pve.task import Run, qemus


def pve_guest(run: Run, argv: List[str]) -> None:
    """pve-guest VMID deaf|answers: whether the guest gives disks up and powers off when it is asked to.

    A guest that answers again gives up what it was asked for meanwhile: QEMU then lacks disks that the file has.
    """
    vmid, switch = str(int(argv[0])), {"deaf": True, "answers": False}[argv[1]]
    deaf = {*run.host.state.get("deaf", [])} - {vmid}
    run.host.state["deaf"] = sorted({*deaf, vmid} if switch else deaf)
    if not switch:
        qemu.let_go_late(run, int(vmid))


def pve_power_off(run: Run, argv: List[str]) -> None:
    """pve-power-off VMID: the guest powers off by itself; then what is pending is applied."""
    vmid = int(argv[0])
    if not qemu.is_running(run, vmid):
        raise ValueError
    qemu.end(run, vmid)
    power.cleanup(run, vmid)


def pve_lose_power(run: Run, argv: List[str]) -> None:
    """pve-lose-power: the host loses power and boots. No QEMU runs then, and nothing pending was applied."""
    if argv:
        raise ValueError
    for vmid in [*qemus(run)]:
        qemu.end(run, int(vmid))


def pve_plugged(run: Run, argv: List[str]) -> None:
    """pve-plugged VMID: what the QEMU of a running VM has, as JSON: by key the size, the device and the serial."""
    disks: Dict[str, Any] = qemu.plugged(run, int(argv[0]))
    shown = {key: one and {name: one[name] for name in ("size", "device", "serial")} for key, one in disks.items()}
    run.say(json.dumps(shown, sort_keys=True))


def pve_quorum(run: Run, argv: List[str]) -> None:
    """pve-quorum on|off: without a quorum, /etc/pve can be read only."""
    lost = {"on": False, "off": True}[argv[0]]
    run.host.state["no_quorum"] = False
    run.host.write("/etc/pve/.members", json.dumps({"cluster": {"quorate": int(not lost)}}))
    run.host.state["no_quorum"] = lost


def pve_lock(run: Run, argv: List[str]) -> None:
    """pve-lock PATH on|off: another process holds the flock of this file."""
    path, switch = argv[0], {"on": True, "off": False}[argv[1]]
    others = {*run.host.state.get("locked", [])} - {path}
    run.host.state["locked"] = sorted({*others, path} if switch else others)


def pve_kill(run: Run, argv: List[str]) -> None:
    """pve-kill COUNT: the next qm or pvesm gets SIGKILL after so many steps, which are zfs commands and written files.

    0: none does.
    """
    run.host.state["kill_after"] = int(argv[0])


def _guarded(act: Callable[[Run, List[str]], None]) -> Callable[[Node, List[str]], Result]:
    def command(node: Node, argv: List[str]) -> Result:
        host = NodeHost(node)
        run = Run(host)
        try:
            act(run, argv)
        except (IndexError, KeyError, ValueError):
            return 2, "", f"usage: {(act.__doc__ or '').partition(':')[0]}\n"
        host.note_open()
        return 0, "".join(run.out), "".join(run.err)

    command.__doc__ = act.__doc__
    return command


COMMANDS: Dict[str, Callable[[Node, List[str]], Result]] = {
    "pve-guest": _guarded(pve_guest),
    "pve-power-off": _guarded(pve_power_off),
    "pve-lose-power": _guarded(pve_lose_power),
    "pve-plugged": _guarded(pve_plugged),
    "pve-quorum": _guarded(pve_quorum),
    "pve-lock": _guarded(pve_lock),
    "pve-kill": _guarded(pve_kill),
}
