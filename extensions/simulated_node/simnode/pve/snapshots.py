# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`qm snapshot`, `delsnapshot` and `rollback`: one zfs command for each volume, one after the other."""

from __future__ import annotations

import re
from typing import Dict, List, Tuple

from simnode.pve import cluster, config_text, drive, power, qemu, settings, storage, vmfile
from simnode.pve.config_text import VmConfig
from simnode.pve.create import new_uuid
from simnode.pve.errors import NotRecorded, ParameterError, PveError
from simnode.pve.task import Run

Options = Dict[str, str]
RESERVED = ("current", "pending")
MAX_NAME = 40
_NAME = re.compile(r"[a-z][a-z0-9_-]+", re.IGNORECASE)
_OF_SNAPSHOT = ("snaptime", "snapstate", "parent", "description", "vmstate", "runningcpu", "runningmachine",
                "running-nets-host-mtu")  # fmt: skip


def _disks(values: config_text.Values) -> List[Tuple[str, str]]:
    """Return the keys and volumes that a snapshot is about."""
    return [(key, disk.volume) for key, disk in config_text.drives(values).items() if not disk.is_cdrom]


def _dataset(run: Run, name: str) -> str:
    if name.startswith("/"):
        raise PveError(storage.FEATURE_MISSING)
    return storage.dataset(run, storage.volume(name))


def _existing(config: VmConfig, name: str) -> config_text.Values:
    if name not in config.snapshots:
        raise PveError(f"snapshot '{name}' does not exist")
    return config.snapshots[name]


# -- take ------------------------------------------------------------------------------------------------------------


def take(run: Run, vmid: int, name: str, options: Options) -> None:
    """`qm snapshot`. Raises PveError: what was made is destroyed again."""
    _check_name(name)
    run.worker = True
    with run.lock(vmfile.lock_path(vmid)):
        config = vmfile.load(run, vmid)
        vmfile.check_lock(config)
        if settings.is_on(config.main, "template"):
            raise PveError("you can't take a snapshot if it's a template")
        if name in config.snapshots:
            raise PveError(f"snapshot name '{name}' already used")
        disks = _disks(config.main)
        datasets = [_dataset(run, volume) for _key, volume in disks]
        config = _prepare(run, vmid, config, name, options)
        if options.get("vmstate") == "1" and qemu.is_running(run, vmid):
            config = _save_state(run, vmid, config, name)
        _take_each(run, vmid, config, name, list(zip(disks, datasets)))
        del config.main["lock"]
        del config.snapshots[name]["snapstate"]
        config.main["parent"] = name
        vmfile.save(run, vmid, config)


def _check_name(name: str) -> None:
    if name.lower() in RESERVED and name not in RESERVED:
        raise NotRecorded(f"a snapshot with the name '{name}', which differs from a reserved one in case only")
    if name in RESERVED:
        raise PveError(f"unable to use snapshot name '{name}' (reserved name)", 2)
    if len(name) > MAX_NAME:
        raise ParameterError({"snapname": f"value may only be {MAX_NAME} characters long"})
    if _NAME.fullmatch(name) is None:  # that it is refused is known, its words are not
        raise ParameterError({"snapname": "invalid format - simulated: this is no name of a snapshot\n"})


def _prepare(run: Run, vmid: int, config: VmConfig, name: str, options: Options) -> VmConfig:
    skipped = ("lock", "description", "vmstate", *config_text.unused(config.main))
    section = {key: value for key, value in config.main.items() if key not in skipped}
    section.update({"snaptime": str(int(run.host.now())), "snapstate": "prepare"})
    if options.get("description"):
        section["description"] = options["description"]
    config.snapshots[name] = section
    config.main["lock"] = "snapshot"
    return vmfile.save(run, vmid, config)


def _save_state(run: Run, vmid: int, config: VmConfig, name: str) -> VmConfig:
    section = config.snapshots[name]
    section.update(power.saved_state(run, vmid, config.main, name))
    run.say(f"saving VM state and RAM using storage '{storage.volume(section['vmstate']).storage}'")
    run.say("completed saving the VM state in 1s, saved 1.00 MiB")
    return vmfile.save(run, vmid, config)


def _take_each(run: Run, vmid: int, config: VmConfig, name: str, disks: List[Tuple[Tuple[str, str], str]]) -> None:
    taken: List[str] = []
    for (key, volume), dataset in disks:
        run.say(f"snapshotting 'drive-{key}' ({volume})")
        try:
            run.zfs("snapshot", f"{dataset}@{name}")
        except PveError as error:
            run.say("snapshot create failed: starting cleanup")
            if "vmstate" in config.snapshots[name]:
                raise NotRecorded("what is left when a snapshot with the state of the VM fails") from None
            for made in taken:
                run.zfs("destroy", f"{made}@{name}")
            del config.main["lock"]
            del config.snapshots[name]
            vmfile.save(run, vmid, config)
            raise PveError(error.text + " ") from None
        taken.append(dataset)


# -- delete ----------------------------------------------------------------------------------------------------------


def delete(run: Run, vmid: int, name: str, options: Options) -> None:
    """`qm delsnapshot`. Raises PveError: the VM stays locked then, and the snapshot is half gone."""
    run.worker = True
    force = options.get("force") == "1"
    with run.lock(vmfile.lock_path(vmid)):
        config = vmfile.load(run, vmid)
        vmfile.check_lock(config)
        section = _existing(config, name)
        if "vmstate" in section:
            raise NotRecorded("the end of a snapshot with the state of the VM")
        config.main["lock"] = "snapshot-delete"
        section["snapstate"] = "delete"
        config = vmfile.save(run, vmid, config)
        for key, volume in _disks(config.snapshots[name]):
            _delete_of(run, volume, name, force)
            config = _forget(run, vmid, config, name, key)
        _close(run, vmid, config, name)


def _delete_of(run: Run, volume: str, name: str, force: bool) -> None:
    try:
        run.zfs("destroy", f"{_dataset(run, volume)}@{name}")
    except PveError as error:
        if not force or isinstance(error, NotRecorded):
            raise
        run.warn(error.text)


def _forget(run: Run, vmid: int, config: VmConfig, name: str, key: str) -> VmConfig:
    section = config.snapshots[name]
    volume = drive.parse(key, section.pop(key)).volume
    if vmfile.is_owned(run, vmid, volume):
        config_text.add_unused(section, volume)
    return vmfile.save(run, vmid, config)


def _close(run: Run, vmid: int, config: VmConfig, name: str) -> None:
    """Take the section out. What only it had becomes unused; its children get its parent."""
    section = config.snapshots.pop(name)
    del config.main["lock"]
    for values in (config.main, *config.snapshots.values()):
        if values.get("parent") == name:
            values.pop("parent")
            if "parent" in section:
                values["parent"] = section["parent"]
    for volume in config_text.unused(section).values():
        config_text.add_unused(config.main, volume)
    vmfile.save(run, vmid, config)


# -- roll back -------------------------------------------------------------------------------------------------------


def roll_back(run: Run, vmid: int, name: str, options: Options) -> None:
    """`qm rollback`. Raises PveError: once it has begun, the VM stays locked then."""
    run.worker = True
    with run.lock(vmfile.lock_path(vmid)):
        config = vmfile.load(run, vmid)
        section = _existing(config, name)
        disks = [(volume, _dataset(run, volume)) for _key, volume in _disks(section)]
        for volume, dataset in disks:
            _check_newest(run, volume, dataset, name)
        if cluster.replication_jobs(run.host, vmid):
            for volume, dataset in disks:
                _check_newest(run, volume, dataset, name)
        if "snapstate" in section:
            raise PveError(f"unable to rollback to incomplete snapshot (snapstate = {section['snapstate']})")
        vmfile.check_lock(config)
        if "vmstate" in section:
            raise NotRecorded("the rollback to a snapshot with the state of the VM")
        config.main["lock"] = "rollback"
        config = vmfile.save(run, vmid, config)
        was_running = qemu.is_running(run, vmid)
        if was_running:
            qemu.end(run, vmid)
        for volume, dataset in disks:
            _check_newest(run, volume, dataset, name)
            run.zfs("rollback", f"{dataset}@{name}")
        config = vmfile.save(run, vmid, _rolled_back(run, vmid, config, name))
        if options.get("start") == "1":
            power.start_locked(run, vmid, config)
    if was_running and options.get("start") != "1":
        power.cleanup(run, vmid)


def _check_newest(run: Run, volume: str, dataset: str, name: str) -> None:
    names = run.zfs("list", "-H", "-r", "-t", "snapshot", "-o", "name", "-s", "creation", dataset).split()
    if names[-1:] == [f"{dataset}@{name}"]:
        return
    if f"{dataset}@{name}" not in names:
        raise NotRecorded(f"the rollback of '{volume}', which has no snapshot '{name}'")
    raise PveError(f"can't rollback, '{name}' is not most recent snapshot on '{volume}'")


def _rolled_back(run: Run, vmid: int, config: VmConfig, name: str) -> VmConfig:
    """Return the configuration of the snapshot. What the VM has had since then is unused."""
    section = config.snapshots[name]
    main = {key: value for key, value in section.items() if key not in _OF_SNAPSHOT}
    for key in config_text.unused(main):
        del main[key]
    if "description" in config.main:
        main["description"] = config.main["description"]
    main["parent"] = name
    if "vmgenid" in main:
        main["vmgenid"] = new_uuid(run)
    retained = set(config_text.volumes(main).values())
    pending = set(config_text.volumes(config.pending).values()) - set(config_text.volumes(config.main).values())
    if pending:
        raise NotRecorded(f"the rollback of a VM with the pending disk '{sorted(pending)[0]}'")
    main.update({key: value for key, value in config_text.unused(config.main).items() if value not in retained})
    for volume in config_text.volumes(config.main).values():
        if volume not in retained and vmfile.is_owned(run, vmid, volume):
            config_text.add_unused(main, volume)
    return VmConfig(main, {}, config.special, config.snapshots)
