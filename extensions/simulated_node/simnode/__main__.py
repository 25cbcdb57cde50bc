# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Administration of simulated nodes: `python -m simnode --dir DIR init | advance | load | fault | ...`."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

from simnode import ssh, vmadm
from simnode.node import PVE, REMOTE, Node, PoolSpec
from simnode.pve import admin as pve_admin
from simnode.pve import on_node
from simnode.vmadm import admin
from simnode.zfs import numbers

LOCKS = "flexdisk-locks"
PROGRAMS = ("zfs", "zpool", "zdb", *vmadm.PROGRAMS, "guest", *REMOTE)
PVE_PROGRAMS = ("zfs", "zpool", "zdb", *PVE, "guest", *REMOTE)
PVE_FILES = "flexdisk-root"
"""The link beside the programs of a node of Proxmox VE to its files: /etc/pve, /run/qemu-server and others."""

_PROGRAM = """#!{python} -IS
import gc

gc.disable()  # to look for garbage, and to take the interpreter apart, takes a sixth of a program's time

import os
import sys

sys.path.insert(0, {library!r})

from simnode.node import run_program

status = run_program({directory!r}, {program!r}, sys.argv[1:])
sys.stderr.flush()
os._exit(status)
"""
_WRAPPER = """#!/bin/sh
exec {python} -IS {script} "$@"
"""


def install_programs(directory: Path) -> None:
    """Write DIR/bin: programs that work on the node in `directory` whatever the environment, and a place for locks.

    The modules lock what `zfs` reaches. A folder of this name beside it is theirs: so nodes do not share the host's.
    """
    binaries = directory / "bin"
    binaries.mkdir(parents=True, exist_ok=True)
    (binaries / LOCKS).mkdir(mode=0o700, exist_ok=True)
    ssh.make_host_key(directory)
    is_pve = on_node.is_installed(str(directory))
    if is_pve and not (binaries / PVE_FILES).is_symlink():
        (binaries / PVE_FILES).symlink_to(os.path.join("..", on_node.FOLDER))
    for program in PVE_PROGRAMS if is_pve else PROGRAMS:
        text = program_text(directory, program)
        path = binaries / program
        if len(sys.executable) > 100 or " " in sys.executable:
            hidden = binaries / f".{program}.py"
            hidden.write_text(text)
            text = _WRAPPER.format(python=shlex.quote(sys.executable), script=shlex.quote(str(hidden)))
        path.write_text(text)
        path.chmod(0o755)


def program_text(directory: Path, program: str) -> str:
    """Return the Python script for a program of the node in `directory`."""
    library = str(Path(__file__).resolve().parent.parent)
    return _PROGRAM.format(python=sys.executable, library=library, directory=str(directory), program=program)


def pool_spec(text: str) -> PoolSpec:
    """NAME:SIZE[:VDEV[xDISKS][:VERSION]], e.g. zones:64G, tank:1T:raidz1x5:2.3."""
    parts = text.split(":")
    spec = PoolSpec(name=parts[0], size=numbers.parse(parts[1]) if len(parts) > 1 else 64 << 30)
    if len(parts) > 2 and parts[2]:
        kind, _x, disks = parts[2].partition("x")
        spec = spec._replace(vdevs=[{"type": kind, "disks": int(disks or 1)}])
    if len(parts) > 3:
        spec = spec._replace(version=parts[3])
    return spec


def _init(directory: Path, arguments: argparse.Namespace) -> None:
    if (directory / "state.json").exists():
        sys.exit(f"simnode: {directory} has a node already; remove the folder to make a new one")
    if arguments.scenario and arguments.pool:
        sys.exit("simnode: a scenario has its own pool; give --scenario or --pool")
    if arguments.scenario and arguments.proxmox:
        sys.exit("simnode: a scenario has a hypervisor of its own; give --scenario or --proxmox")
    if arguments.scenario:
        from simnode import scenarios

        try:
            node = scenarios.build(arguments.scenario, directory, arguments.seed)
        except scenarios.ScenarioError as error:
            sys.exit(f"simnode: {error}")
    else:
        specs = [_pool(text) for text in arguments.pool or ["rpool:64G::2.3" if arguments.proxmox else "zones:64G"]]
        node = Node.create(directory, specs, arguments.seed)
        if arguments.proxmox:
            on_node.install(node, specs[0].name)
    node.save()
    install_programs(directory)


def _pool(text: str) -> PoolSpec:
    try:
        spec = pool_spec(text)
    except ValueError as error:
        sys.exit(f"simnode: --pool {text}: {error}")
    if not spec.name or spec.size < 1 << 30:
        sys.exit(f"simnode: --pool {text}: a pool has a name and 1G at least, such as zones:64G")
    return spec


def _hosts(folder: Path, arguments: argparse.Namespace) -> None:
    from simnode import hosts

    try:
        hosts.make(folder, arguments.names, arguments.proxmox)
    except ValueError as error:
        sys.exit(f"simnode: {error}")


def _load(directory: Path, arguments: argparse.Namespace) -> None:
    from simnode import export
    from simnode.export_layout import ExportError

    files = (arguments.vms, arguments.zfs, arguments.pool_status, arguments.zdb)
    try:
        texts = [Path(file).read_text() if file else "" for file in files]
    except OSError as error:
        sys.exit(f"simnode: {error}")
    try:
        with Node.open(directory) as node:
            export.load(node, *texts)
    except ExportError as error:
        sys.exit(f"simnode: {error}")


def _fault(directory: Path, arguments: argparse.Namespace) -> None:
    value: Any = json.loads(arguments.value)
    with Node.open(directory) as node:
        faults: Dict[str, Any] = node.pools.faults
        if value:
            faults[arguments.name] = value
        else:
            faults.pop(arguments.name, None)
        node.pools.dirty = True


def _guests(directory: Path, arguments: argparse.Namespace) -> None:
    from simnode import guests

    if (arguments.switch == "on") != bool(arguments.program):
        sys.exit("usage: guests on COMMAND... | off")
    if not Path("/proc/self/stat").exists():
        sys.exit("simnode: guests as processes need the /proc of Linux")
    with Node.open(directory):
        if arguments.switch == "on":
            guests.switch_on(directory, arguments.program)
        else:
            guests.switch_off(directory)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="simnode", description="A simulated node of SmartOS or Proxmox VE in a directory."
    )
    parser.add_argument("--dir", required=True, type=Path, help="the node's directory")
    commands = parser.add_subparsers(dest="command", required=True)
    init = commands.add_parser("init", help="create a node and its programs in DIR/bin")
    init.add_argument("--scenario", help="demo, proxmox, empty or bench:N")
    init.add_argument("--pool", action="append", help="NAME:SIZE[:VDEV[xDISKS][:VERSION]], may be repeated")
    init.add_argument("--proxmox", action="store_true", help="a node of Proxmox VE: qm and pvesm instead of vmadm")
    init.add_argument("--seed", type=int, default=1, help="seed for the guids")
    hosts = commands.add_parser(
        "hosts", help="create nodes in DIR that reach each other, with an inventory for Ansible"
    )
    hosts.add_argument("names", nargs="+", help="their names; the first one gets the VMs of a scenario")
    hosts.add_argument("--proxmox", action="store_true", help="nodes of Proxmox VE")
    advance = commands.add_parser("advance", help="move the clock")
    advance.add_argument("seconds", type=float)
    load = commands.add_parser("load", help="load an export of a real node")
    load.add_argument("--vms", required=True, help="output of vmadm lookup -j")
    load.add_argument("--zfs", required=True, help="output of zfs get -Hp all")
    load.add_argument("--pool-status", help="output of zpool status")
    load.add_argument("--zdb", help="output of zdb -C POOL, needed for a raidz or dRAID pool")
    fault = commands.add_parser("fault", help="switch a fault on or off")
    fault.add_argument("name", help="readonly, suspended or busy:DATASET")
    fault.add_argument("value", help="a JSON value: true, false or a count")
    connect = commands.add_parser("connect", help="let ssh reach another node")
    connect.add_argument("address", help="the name by which it is reached")
    connect.add_argument("other", type=Path, help="the directory of that node")
    guests = commands.add_parser("guests", help="run a process for each running VM (Linux only)")
    guests.add_argument("switch", choices=("on", "off"))
    guests.add_argument("program", nargs=argparse.REMAINDER, help="COMMAND...; the VM's UUID is put behind it")
    commands.add_parser("pve-qmp", help="serve the monitors of the VMs of Proxmox VE, until this process is ended")
    for name, command in (*admin.COMMANDS.items(), *pve_admin.COMMANDS.items()):
        extra = commands.add_parser(name, help=(command.__doc__ or "").partition("\n")[0])
        extra.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def _admin(directory: Path, arguments: argparse.Namespace) -> int:
    with Node.open(directory) as node:
        if arguments.command in pve_admin.COMMANDS:
            status, out, err = pve_admin.COMMANDS[arguments.command](node, arguments.arguments)
        else:
            status, out, err = admin.COMMANDS[arguments.command](node, arguments.arguments)
    sys.stdout.write(out)
    sys.stderr.write(err)
    return status


def main(argv: Optional[List[str]] = None) -> int:
    """Run the administration command; returns the exit status."""
    arguments = _parser().parse_args(argv)
    directory = arguments.dir.resolve()
    if arguments.command not in ("init", "hosts") and not (directory / "state.json").exists():
        sys.exit(f"simnode: {directory} is no node; `init` makes one")
    if arguments.command == "init":
        _init(directory, arguments)
    elif arguments.command == "hosts":
        _hosts(directory, arguments)
    elif arguments.command == "advance":
        with Node.open(directory) as node:
            node.clock.advance(arguments.seconds)
    elif arguments.command == "load":
        _load(directory, arguments)
    elif arguments.command == "fault":
        _fault(directory, arguments)
    elif arguments.command == "pve-qmp":
        from simnode.pve import qmp

        qmp.serve(str(directory))
    elif arguments.command == "connect":
        ssh.connect(directory, arguments.address, arguments.other)
    elif arguments.command == "guests":
        _guests(directory, arguments)
    else:
        return _admin(directory, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
