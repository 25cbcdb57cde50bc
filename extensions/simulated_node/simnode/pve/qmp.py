# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The monitor of a VM's QEMU: what it answers, and a server for the sockets of a node in a directory.

The protocol is that of QEMU's documentation. Of Proxmox VE it is known where the socket is, and that `qdev` of a disk
contains its key.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from functools import partial
from typing import IO, Any, Callable, Dict

from simnode.node import Node
from simnode.pve.on_node import FOLDER, NodeHost

SOCKETS = "run/qemu-server"
_VERSION = {"qemu": {"major": 10, "minor": 1, "micro": 2}, "package": "simulated"}
GREETING = {"QMP": {"version": _VERSION, "capabilities": []}}
_LOOK_SECONDS = 0.05
Reply = Dict[str, Any]
Qemus = Callable[[], Dict[str, Any]]


class Monitor:
    """A connection to the monitor of a running VM's QEMU."""

    def __init__(self) -> None:
        self._negotiated = False

    def answer(self, qemu: Dict[str, Any], request: Dict[str, Any]) -> Reply:
        """Return the reply to a command. `qemu`: what the QEMU has at this moment, as the node's state says it."""
        reply = self._reply(qemu, str(request.get("execute", "")))
        return {**reply, "id": request["id"]} if "id" in request else reply

    def _reply(self, qemu: Dict[str, Any], command: str) -> Reply:
        if command == "qmp_capabilities":
            self._negotiated = True
            return {"return": {}}
        if not self._negotiated:
            return _error("CommandNotFound", "Expecting capabilities negotiation with 'qmp_capabilities'")
        if command == "query-block":
            return {"return": [_block(key, one) for key, one in sorted(qemu["plugged"].items())]}
        if command == "query-status":
            paused = bool(qemu.get("paused"))
            return {"return": {"running": not paused, "status": "paused" if paused else "running"}}
        return _error("CommandNotFound", f"The command {command} has not been found")


def _error(kind: str, text: str) -> Reply:
    return {"error": {"class": kind, "desc": text}}


def _block(key: str, one: Any) -> Dict[str, Any]:
    qdev = f"/machine/peripheral/{key}/virtio-backend" if key.startswith("virtio") else key
    block = {"device": f"drive-{key}", "qdev": qdev, "type": "unknown", "locked": False, "removable": one is None}
    if one is not None:
        image = {"filename": one["device"], "format": "raw", "virtual-size": one["size"]}
        block["inserted"] = {"file": one["device"], "ro": False, "drv": "raw", "image": image}
    return block


def of_node(directory: str) -> Dict[str, Any]:
    """Return the running QEMUs of a node in a directory by the numbers of their VMs."""
    with Node.open(directory) as node:
        return dict(NodeHost(node).state.get("running", {}))


def serve(directory: str, running_qemus: Callable[[str], Dict[str, Any]] = of_node) -> None:
    """Serve the sockets of the running VMs of a node in a directory, until this process is ended.

    `running_qemus` reads them, as of_node() does.
    """
    folder = os.path.join(directory, FOLDER, SOCKETS)
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)  # the path of a socket must be short
    servers: Dict[str, socket.socket] = {}
    while True:
        running = {name[:-4] for name in os.listdir(".") if name.endswith(".pid")}
        for vmid in [vmid for vmid in servers if vmid not in running]:
            server = servers.pop(vmid)
            server.shutdown(socket.SHUT_RDWR)  # whoever waits for a connection wakes up
            server.close()
            os.unlink(f"{vmid}.qmp")
        for vmid in sorted(running - {*servers}):
            servers[vmid] = _listen(partial(running_qemus, directory), vmid)
        time.sleep(_LOOK_SECONDS)


def _listen(qemus: Qemus, vmid: str) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    fresh = f".{vmid}.new"
    if os.path.exists(fresh):
        os.unlink(fresh)
    server.bind(fresh)
    server.listen()
    os.replace(fresh, f"{vmid}.qmp")  # who sees it can connect
    threading.Thread(target=_accept, args=(qemus, vmid, server), daemon=True).start()
    return server


def _accept(qemus: Qemus, vmid: str, server: socket.socket) -> None:
    while True:
        try:
            connection, _address = server.accept()
        except OSError:
            return
        with connection, connection.makefile("rw") as stream:
            _converse(qemus, vmid, stream)


def _converse(qemus: Qemus, vmid: str, stream: IO[str]) -> None:
    """Answer line after line, until the other side or the QEMU has ended."""
    monitor = Monitor()
    stream.write(json.dumps(GREETING) + "\n")
    stream.flush()
    for line in stream:
        qemu = qemus().get(vmid)
        if qemu is None:
            return
        stream.write(json.dumps(monitor.answer(qemu, json.loads(line))) + "\n")
        stream.flush()
