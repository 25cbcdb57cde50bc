# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cases of `qm` and `pvesm`: the state before one, one run of the simulated program in it, and what differs."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

from simnode import Node, PoolSpec, pve
from simnode.pve.errors import Killed
from simnode.pve.host import STORAGE_CFG, config_path, vms_of_node
from simnode.pve.on_node import NodeHost, link_files

CASES = Path(__file__).resolve().parent / "data" / "proxmox"
POOL = "rpool"
STORAGES = """dir: local
\tpath /var/lib/vz
\tcontent iso,vztmpl,backup

zfspool: local-zfs
\tpool rpool/data
\tcontent images,rootdir
\tsparse 1

zfspool: thick
\tpool rpool/thick
\tblocksize 16k
\tcontent images
"""
MASKS = {
    "{UUID}": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "{TIME}": r"(?:\d{10}|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)",
    "{DATE}": r"\d{4}-\d\d-\d\d",
    "{QEMU}": r"\d+(?:\.\d+)+",
    "{MACHINE}": r"\S+",
    "{CPU}": r"\S+",
    "{UPID}": r"UPID:\S+",
    "{PID}": r"\d+ *",
    "{N}": r"[^\n]+",
    "{PERL}": r"[^\n]+?",
    "{PROGRESS}": r"[^\n]+(?:\n[^\n]+)*?",
}
BEFORE = {"{TIME}": "1767225600", "{UUID}": "aaaaaaaa-0000-4000-8000-000000000001"}
ACTIVATION = (["zpool", "list", "-o", "name", "-H"], ["zfs", "mount", "-a"])
"""The commands that the cases leave out, but those of WITH_ACTIVATION."""

WITH_ACTIVATION = ("pvesm-001", "pvesm-008", "pvesm-013")
LISTS = ["zfs", "list", "-o", "name,volsize,origin,type,refquota"]
PATIENCE = 8
"""Seconds above which a case says how long it took."""

OTHER_COMMANDS = {
    "resize-026": "the record has a second zfs get, which no other resize has. That there is a snapshot, which is what "
    "the case is about, no command before has shown",
}
"""Cases whose list of zfs commands is not compared, and why. All else of them is."""


def cases() -> dict[str, dict[str, Any]]:
    """Every case by its id."""
    found = {}
    for path in sorted(CASES.glob("*.json")):
        found.update({case["id"]: case for case in json.loads(path.read_text())["cases"]})
    return found


class RecordingHost(NodeHost):
    """The simulated node, which notes the commands and lets happen to them what a case says."""

    def __init__(self, node: Node, inject: dict[str, Any]) -> None:
        super().__init__(node)
        self.commands: list[list[str]] = []
        self._inject = inject
        self._count = 0

    def zpool(self, argv: list[str]) -> tuple[int, str, str]:
        self.commands.append(["zpool", *argv])
        return super().zpool(argv)

    def zfs(self, argv: list[str]) -> tuple[int, str, str]:
        command = ["zfs", *argv]
        self.commands.append(command)
        wanted = self._inject.get("command")
        if not wanted or command[: len(wanted)] != wanted or self._inject.get("of", "") not in " ".join(command):
            return super().zfs(argv)
        self._count += 1
        if self._count < self._inject.get("nth", 1):
            return super().zfs(argv)
        if "rc" in self._inject:
            return self._inject["rc"], "", self._inject["stderr"]
        if self._inject["kill"] == "after":
            super().zfs(argv)
        raise Killed


# -- before ----------------------------------------------------------------------------------------------------------


def _filled(text: str) -> str:
    for mask, value in BEFORE.items():
        text = text.replace(mask, value)
    return text


def prepare(case: dict[str, Any], directory: Path | None = None) -> tuple[Node, RecordingHost]:
    """A node in the state before the case: in memory, or with its files in a directory."""
    node = Node.create(directory, [PoolSpec(name=POOL, size=256 << 30, version="2.3")])
    if directory is not None:
        link_files(str(directory))
    before, inject = case["before"], case.get("inject", {})
    _make_volumes(node, case)
    host = RecordingHost(node, inject)
    host.write(STORAGE_CFG, before.get("storage_cfg", STORAGES))
    for vmid, text in before.get("config", {}).items():
        host.write(config_path(int(vmid)), _filled(text))
    for path, text in before.get("files", {}).items():
        host.write(path, text)
    for vmid in before.get("running", []):
        plugged = {key: _open(host, vmid, key, size) for key, size in before["plugged"][str(vmid)].items()}
        host.state.setdefault("running", {})[str(vmid)] = {"pid": 4000 + vmid, "plugged": plugged}
    if before.get("guest") == "does not answer":
        host.state["deaf"] = [str(vmid) for vmid in before["running"]]
    if "flock" in inject:
        host.state["locked"] = [inject["flock"]]
    host.note_open()
    return node, host


def _open(host: RecordingHost, vmid: int, key: str, size: int | None) -> dict[str, Any] | None:
    """What QEMU has of a disk; of a volume that was renamed away meanwhile, nobody asks for more than its size."""
    if size is None:
        return None
    text = host.read(config_path(vmid)) or ""
    [line] = re.findall(rf"^{key}: (\S+)", text.partition("\n[")[0], re.MULTILINE)
    volume = line.partition(",")[0]
    path = volume if volume.startswith("/") else "/dev/zvol/" + _dataset(volume)
    found = host.device(path)
    return {"size": size, "device": path, "identity": found.identity if found else "0"}


def _dataset(volume: str) -> str:
    storage, _colon, name = volume.partition(":")
    return {"local-zfs": "rpool/data/", "thick": "rpool/thick/"}[storage] + name.rpartition("/")[2]


def _make_volumes(node: Node, case: dict[str, Any]) -> None:
    volumes = case["before"].get("volumes", [])
    for name in ("rpool/data", "rpool/thick", "rpool/flexdisk"):
        _zfs(node, "create", name)
    for volume in sorted(volumes, key=lambda one: "origin" in one):
        _zfs(node, "create", "-p", volume["name"].rpartition("/")[0])
        size = _size_of_snapshots(case, volume)
        if "origin" in volume:
            _zfs(node, "clone", volume["origin"], volume["name"])
        else:
            sparse = [] if "refreservation" in volume else ["-s"]
            _zfs(node, "create", *sparse, "-b", "16k", "-V", str(size), volume["name"])
        for snapshot in volume.get("snapshots", []):
            _zfs(node, "snapshot", f"{volume['name']}@{snapshot}")
        if size != volume["volsize"]:
            _zfs(node, "set", f"volsize={volume['volsize']}", volume["name"])
        if "flexdisk:uuid" in volume:
            _zfs(node, "set", f"flexdisk:uuid={volume['flexdisk:uuid']}", volume["name"])
    assert volumes_of(node) == {one["name"]: one for one in volumes}, "the state before the case is not what it says"


def _size_of_snapshots(case: dict[str, Any], volume: dict[str, Any]) -> int:
    """The size that a volume had when its snapshot was taken: only a rollback shows it."""
    if case["argv"][:2] == ["qm", "rollback"]:
        for one in case["after"].get("volumes", []):
            if one["name"] == volume["name"]:
                return int(one["volsize"])
    return int(volume["volsize"])


def _zfs(node: Node, *argv: str) -> None:
    status, _out, err = node.zfs(list(argv))
    assert status == 0, (argv, err)


# -- after -----------------------------------------------------------------------------------------------------------


def volumes_of(node: Node) -> dict[str, dict[str, Any]]:
    """Every volume as the cases describe it."""
    found = {}
    for name, dataset in sorted(node.pools.pools[POOL].datasets.items()):
        if not dataset.volsize:
            continue
        one: dict[str, Any] = {"name": name, "volsize": dataset.volsize}
        if dataset.refreservation:
            one["refreservation"] = dataset.refreservation
        if dataset.snapshots:
            one["snapshots"] = [snapshot.fullname.partition("@")[2] for snapshot in dataset.snapshots]
        if dataset.origin is not None:
            one["origin"] = dataset.origin.fullname
        if "flexdisk:uuid" in dataset.props:
            one["flexdisk:uuid"] = dataset.props["flexdisk:uuid"]
        found[name] = one
    return found


def matches(expected: str, text: str) -> bool:
    """Whether a text is the expected one, masks apart."""
    pattern = re.escape(expected)
    for mask, regex in MASKS.items():
        pattern = pattern.replace(re.escape(mask) + (r"\ " * 5 if mask == "{PID}" else ""), regex)
        pattern = pattern.replace(re.escape(mask), regex)
    return re.fullmatch(pattern, text) is not None


def differences(case: dict[str, Any]) -> list[str]:
    """What the simulated program does otherwise than the real one did: nothing, in one of the orders that there are."""
    if case.get("order") != "any":
        return _differences(case, [])
    keys = [word.lstrip("-") for word in case["argv"] if word.startswith("--")] + [*case["before"].get("config", {})]
    differences: list[str] = []
    for order in itertools.permutations(keys):
        differences = _differences(case, list(order))
        if not differences:
            return []
    return differences


def _differences(case: dict[str, Any], order: list[str]) -> list[str]:
    node, host = prepare(case)
    if order:
        host.state["order"] = order
    start = node.now()
    status, out, err = pve.run(case["argv"][0], host, case["argv"][1:])
    seconds = node.now() - start
    differences = []
    same = status == case["rc"] if case["rc"] < 0 else (status == 0) == (case["rc"] == 0) and status != 96
    if not same:
        differences.append(f"status {status} instead of {case['rc']}")
    for name, text in (("stdout", out), ("stderr", err)):
        if not matches(case[name], text):
            differences.append(f"{name}:\n{text!r}\ninstead of\n{case[name]!r}")
    differences += _state_differences(case, node, host)
    if case["id"] not in OTHER_COMMANDS:
        differences += _command_differences(case, host)
    if not case.get("seconds", 0) - 5 <= seconds <= case.get("seconds", PATIENCE):
        differences.append(f"{seconds} seconds instead of {case.get('seconds', f'at most {PATIENCE}')}")
    return differences


def _state_differences(case: dict[str, Any], node: Node, host: RecordingHost) -> list[str]:
    before, after = case["before"], case["after"]
    differences = []
    wanted = {**{key: _filled(text) for key, text in before.get("config", {}).items()}, **after.get("config", {})}
    known = {str(vmid): host.read(config_path(vmid)) for vmid in vms_of_node(host)}
    for vmid in sorted({*wanted, *known}):
        text, expected = known.get(vmid), wanted.get(vmid)
        same = text is None if expected is None else text is not None and matches(expected, text)
        if not same:
            differences.append(f"file of {vmid}:\n{text}\ninstead of\n{expected}")
    volumes = {one["name"]: one for one in after.get("volumes", before.get("volumes", []))}
    if not matches(json.dumps(volumes, sort_keys=True), json.dumps(volumes_of(node), sort_keys=True)):
        differences.append(f"volumes {volumes_of(node)} instead of {volumes}")
    running = sorted(int(vmid) for vmid in host.state.get("running", {}))
    if running != after.get("running", before.get("running", [])):
        differences.append(f"running {running}")
    plugged = {
        vmid: {key: one and one["size"] for key, one in qemu["plugged"].items()}
        for vmid, qemu in host.state.get("running", {}).items()
    }
    expected = {**({} if "running" in after else before.get("plugged", {})), **after.get("plugged", {})}
    if plugged != expected:
        differences.append(f"plugged {plugged} instead of {expected}")
    files = {**before.get("files", {}), **after.get("files", {})}
    differences += [f"{path}:\n{host.read(path)}" for path in files if host.read(path) != files[path]]
    return differences


def _command_differences(case: dict[str, Any], host: RecordingHost) -> list[str]:
    commands = host.commands
    if case["id"] not in WITH_ACTIVATION:
        commands = [one for one in commands if not any(one[: len(words)] == words for words in ACTIVATION)]
    expected = case["zfs"]
    if case.get("order") == "any":
        commands, expected = sorted(commands), sorted(expected)
    else:
        commands, expected = _lists_sorted(commands), _lists_sorted(expected)
    if not matches(json.dumps(expected), json.dumps(commands)):
        shown = ["\n".join(map(" ".join, one)) for one in (commands, expected)]
        return ["commands:\n" + "\ninstead of\n".join(shown)]
    return []


def _lists_sorted(commands: list[list[str]]) -> list[list[str]]:
    """Storages that are listed one after the other, sorted."""
    found: list[list[str]] = []
    for is_list, group in itertools.groupby(commands, lambda one: one[: len(LISTS)] == LISTS):
        members = list(group)
        found += sorted(members) if is_list else members
    return found
