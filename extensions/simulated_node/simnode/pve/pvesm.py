# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program `pvesm`: storages and their volumes."""

from __future__ import annotations

import re
from typing import Dict, List

from simnode.pve import drive, qm, storage
from simnode.pve.arguments import PVESM
from simnode.pve.errors import NotRecorded, ParameterError, PveError
from simnode.pve.host import DEVICES, STORAGE_CFG, PveHost, Result
from simnode.pve.task import Run

Options = Dict[str, str]
_SIZE = re.compile(r"(\d+)([KMGT]?)")
_KIB = {"": 1, "K": 1, "M": 1 << 10, "G": 1 << 20, "T": 1 << 30}
_NO_FIGURES = " ".join(["0".rjust(15)] * 3)


def main(host: PveHost, argv: List[str]) -> Result:
    """Run `pvesm` with these arguments; exit status, stdout, stderr."""
    return qm.execute(host, argv, PVESM, {}, _WORK)


def _list(run: Run, words: List[str], options: Options) -> None:
    place = storage.zfs_storage(run, words[0])
    found = []
    for content in [options["content"]] if "content" in options else place.contents:
        if content not in ("images", "rootdir"):
            raise NotRecorded(f"a list of {content}")
        items = storage.listed(run, place)
        if content == "images":
            found = [item for item in items if options.get("vmid", str(item.volume.owner)) == str(item.volume.owner)]
    rows = sorted((item.volume.id(), str(item.size), str(item.volume.owner)) for item in found)
    wide = max([5, *[len(row[0]) for row in rows]])
    digits = max([4, *[len(row[1]) for row in rows], 10 if rows else 4])
    run.say(f"{'Volid':<{wide}} {'Format':<7} {'Type':<9} {'Size':>{digits}} VMID")
    for name, size, owner in rows:
        run.say(f"{name:<{wide}} {'raw':<7} {'images':<9} {size:>{digits}} {owner}")


def _status(run: Run, _words: List[str], options: Options) -> None:
    rows = {}
    for name, one in sorted(storage.storages(run).items()):
        if one.is_here:
            rows[name] = f"{one.kind:>10} " + _figures(run, one)
    wanted = options.get("storage", "")
    if wanted and wanted not in rows:
        storage.storage(run, wanted)
    shown = [name for name in rows if wanted in ("", name)]
    wide = max(len(name) for name in shown) + 1
    heads = f"{'Type':>10} {'Status':>10} {'Total (KiB)':>15} {'Used (KiB)':>15} {'Available (KiB)':>15} {'%':>8}"
    run.say(f"{'Name':<{wide}} {heads}")
    for name in shown:
        run.say(f"{name:<{wide}} {rows[name]}")


def _figures(run: Run, one: storage.Storage) -> str:
    if one.disabled:
        return f"{'disabled':>10} {_NO_FIGURES} {'N/A':>8}"
    if one.kind == "zfspool":
        try:
            storage.activate(run, one)
            text = run.zfs("get", "-o", "value", "-Hp", "available,used", one.dataset)
        except PveError as error:
            run.warn(error.text)
            return f"{'inactive':>10} {_NO_FIGURES} {'0.00%':>8}"
        available, used = (int(word) for word in text.split())
    else:
        used, available = run.host.disk_space(one.settings.get("path", "/"))
    total = used + available
    share = f"{100 * used / total if total else 0:.2f}%"
    return f"{'active':>10} {total // 1024:>15} {used // 1024:>15} {available // 1024:>15} {share:>8}"


def _path(run: Run, words: List[str], _options: Options) -> None:
    name, at, snapshot = words[0].partition("@")
    one = storage.volume(name)
    run.say(f"{DEVICES}{storage.dataset(run, one)}{at}{snapshot}")


def _alloc(run: Run, words: List[str], options: Options) -> None:
    place, vmid, name, size = words
    match = _SIZE.fullmatch(size)
    if match is None:
        raise ParameterError({"size": "value does not match the regex pattern"})
    one = storage.for_images(run, place)
    if options.get("format", "raw") != "raw":
        raise PveError(f"unsupported format '{options['format']}' at simulated.", 25)
    if name and re.fullmatch(rf"vm-{vmid}-\S+", name) is None:
        raise PveError(f"illegal name '{name}' - should be 'vm-{vmid}-*'", 25)
    made = storage.create(run, one, int(vmid), int(match.group(1)) * _KIB[match.group(2)], name)
    run.say(f"successfully created '{made.id()}'")


def _free(run: Run, words: List[str], options: Options) -> None:
    """Destroy a volume, whoever uses it. Errors of the task are printed, and the status is 0."""
    name = words[0] if drive.split_volume(words[0]) else f"{options.get('storage', '')}:{words[0]}"
    if drive.split_volume(name) is None:
        raise NotRecorded(f"the removal of '{words[0]}' without a storage")
    one = storage.volume(name)
    storage.zfs_storage(run, one.storage)
    try:
        storage.destroy(run, one)
    except NotRecorded:
        raise
    except PveError as error:
        run.err.append(error.text + "\n")
        return
    run.say(f"Removed volume '{one.id()}'")


def _add(run: Run, words: List[str], options: Options) -> None:
    kind, name = words
    if kind != "zfspool" or "pool" not in options:
        raise NotRecorded(f"a new storage of type {kind}")
    found = storage.storages(run)
    if name in found:
        raise NotRecorded(f"a new storage of the name {name}, which another one has")
    run.host.zfs(["get", "-o", "value", "-Hp", "mountpoint", options["pool"]])
    values = {key: options[key] for key in ("pool", *sorted(options.keys() - {"pool"}))}
    found[name] = storage.Storage(name, kind, values)
    run.host.write(STORAGE_CFG, storage.write(found))


def _remove(run: Run, words: List[str], _options: Options) -> None:
    found = storage.storages(run)
    if words[0] not in found:
        raise NotRecorded(f"the removal of the storage {words[0]}, which is none")
    del found[words[0]]
    run.host.write(STORAGE_CFG, storage.write(found))


def _extract(run: Run, words: List[str], _options: Options) -> None:
    storage.dataset(run, storage.volume(words[0]))
    raise PveError(f"unable to use volume {words[0]} - content type needs to be 'backup'")


_WORK: Dict[str, qm.Work] = {
    "list": _list,
    "status": _status,
    "path": _path,
    "alloc": _alloc,
    "free": _free,
    "add": _add,
    "remove": _remove,
    "extractconfig": _extract,
}
