# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulated node as a node of Proxmox VE: its files, and the volumes that its QEMUs have open."""

from __future__ import annotations

import fcntl
import os
from typing import IO, Any, Dict, List, Optional, Tuple

from simnode.node import Node
from simnode.pve.errors import Killed, PveError
from simnode.pve.host import DEVICES, NODE, STORAGE_CFG, Device, Result
from simnode.zfs import kernel
from simnode.zfs.errors import ZfsError

FOLDER = "root"
"""Where the files of a node in a directory are: DIR/root/etc/pve/... stands for /etc/pve/..."""

OPEN = "open"
"""The fault with the guids of volumes that a process has open: they cannot be destroyed."""

_LINKS = {"/etc/pve/local": f"nodes/{NODE}", "/etc/pve/qemu-server": f"nodes/{NODE}/qemu-server"}
_CLUSTER = "/etc/pve/"
_READ_ONLY = "simulated: /etc/pve is read-only, the cluster has no quorum"
DEFAULT_STORAGE = """dir: local
\tpath /var/lib/vz
\tcontent iso,vztmpl,backup

zfspool: local-zfs
\tpool {pool}/data
\tcontent images,rootdir
\tsparse 1
"""


class NodeHost:
    """A PveHost on the simulated node. A node in memory has its files in memory, too."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.state: Dict[str, Any] = node.state.setdefault("pve", {})
        self._root = os.path.join(node.directory, FOLDER) if node.directory is not None else None
        self._held: Dict[str, Optional[IO[str]]] = {}

    def note_open(self) -> None:
        """Tell ZFS which volumes the QEMUs have open."""
        storage = self.node.pools
        guids = sorted(
            int(one["identity"])
            for qemu in self.state.get("running", {}).values()
            for one in qemu["plugged"].values()
            if one is not None
        )
        if guids != storage.faults.get(OPEN, []):
            storage.faults[OPEN] = guids
            if not guids:
                del storage.faults[OPEN]
            storage.dirty = True

    # -- ends in the middle -------------------------------------------------------------------------------------------

    def _done(self, label: str) -> None:
        left = self.state.get("kill_after", 0)
        if left:
            self.state["kill_after"] = left - 1
            if left == 1:
                raise Killed
        if self.node.at_boundary is not None:
            self.node.at_boundary(label)

    # -- commands ----------------------------------------------------------------------------------------------------

    def zfs(self, argv: List[str]) -> Result:
        self.note_open()
        result = self.node.zfs(argv)
        if argv != ["mount", "-a"]:
            self._done(f"zfs {argv[0]}")
        return result

    def zpool(self, argv: List[str]) -> Result:
        return self.node.zpool(argv)

    def now(self) -> float:
        return self.node.now()

    def sleep(self, seconds: float) -> None:
        self.node.sleep(seconds)

    # -- files -------------------------------------------------------------------------------------------------------

    def read(self, path: str) -> Optional[str]:
        path = _plain(path)
        if self._root is None:
            return self._files.get(path)
        try:
            with open(self._root + path, encoding="utf-8", errors="surrogateescape", newline="") as stream:
                return stream.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, path: str, text: str) -> None:
        path = _plain(path)
        self._writable(path)
        if self._root is None:
            self._files[path] = text
        else:
            os.makedirs(os.path.dirname(self._root + path), exist_ok=True)
            fresh = f"{self._root}{path}.tmp.{os.getpid()}"
            with open(fresh, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
                stream.write(text)
            os.replace(fresh, self._root + path)
        self._done(f"write {path}")

    def remove(self, path: str) -> None:
        path = _plain(path)
        self._writable(path)
        if self._root is None:
            del self._files[path]
        else:
            os.remove(self._root + path)
        self._done(f"remove {path}")

    def names(self, folder: str) -> List[str]:
        folder = _plain(folder)
        if self._root is None:
            start = folder.rstrip("/") + "/"
            return sorted({path[len(start) :].partition("/")[0] for path in self._files if path.startswith(start)})
        try:
            return sorted(os.listdir(self._root + folder))
        except FileNotFoundError:
            return []

    @property
    def _files(self) -> Dict[str, str]:
        files: Dict[str, str] = self.state.setdefault("files", {})
        return files

    def _writable(self, path: str) -> None:
        if path.startswith(_CLUSTER) and self.state.get("no_quorum"):
            raise PveError(_READ_ONLY)

    # -- locks -------------------------------------------------------------------------------------------------------

    def lock(self, path: str) -> bool:
        if path in self.state.get("locked", []) or path in self._held:
            return False
        if self._root is None:
            self._held[path] = None
            return True
        os.makedirs(os.path.dirname(self._root + path), exist_ok=True)
        stream = open(self._root + path, "a")  # noqa: SIM115  unlock() closes it
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.close()
            return False
        self._held[path] = stream
        return True

    def unlock(self, path: str) -> None:
        stream = self._held.pop(path)
        if stream is not None:
            stream.close()

    # -- volumes -----------------------------------------------------------------------------------------------------

    def device(self, path: str) -> Optional[Device]:
        if not path.startswith(DEVICES):
            return None
        try:
            dataset = self.node.pools.dataset(path[len(DEVICES) :])
        except ZfsError:
            return None
        return Device(dataset.volsize, str(dataset.guid)) if dataset.volsize else None

    def copy(self, source: str, target: str) -> None:
        pools = self.node.pools
        for start, end, content, _birth in list(pools.dataset(source).extents):
            try:
                kernel.write(pools, pools.dataset(target), start, end, content)
            except ZfsError as error:
                raise PveError(f"copy failed: {error.text}") from None

    def disk_space(self, path: str) -> Tuple[int, int]:
        return 4 << 30, 96 << 30


def _plain(path: str) -> str:
    for link, target in _LINKS.items():
        if path == link or path.startswith(link + "/"):
            return f"/etc/pve/{target}{path[len(link) :]}"
    return path


def is_installed(directory: str) -> bool:
    """Return whether the node in a directory is one of Proxmox VE."""
    return os.path.isdir(os.path.join(directory, FOLDER))


def link_files(directory: str) -> None:
    """Make the folders and links of /etc/pve for a node in a directory."""
    root = os.path.join(directory, FOLDER)
    os.makedirs(f"{root}/etc/pve/nodes/{NODE}/qemu-server", exist_ok=True)
    for link, target in _LINKS.items():
        if not os.path.islink(root + link):
            os.symlink(target, root + link)


def install(node: Node, pool: str) -> None:
    """Make the simulated node one of Proxmox VE: the folders and links of /etc/pve, and a storage.cfg."""
    host = NodeHost(node)
    if node.directory is not None:
        link_files(str(node.directory))
    if host.read(STORAGE_CFG) is None:
        host.write(STORAGE_CFG, DEFAULT_STORAGE.format(pool=pool))
    if node.zfs(["list", "-H", "-o", "name", f"{pool}/data"])[0] != 0:
        node.zfs(["create", f"{pool}/data"])


def run(node: Node, program: str, argv: List[str]) -> Result:
    """Run one of the programs of Proxmox VE on the simulated node."""
    from simnode import pve

    host = NodeHost(node)
    try:
        return pve.run(program, host, argv)
    finally:
        host.note_open()
        host.state.pop("kill_after", None)
