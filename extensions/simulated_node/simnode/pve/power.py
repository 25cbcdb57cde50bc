# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start and end of VMs. Whenever a QEMU has ended, what is pending is applied in the background."""

from __future__ import annotations

import time
from typing import Dict

from simnode.pve import cluster, config_text, qemu, settings, storage, vmfile
from simnode.pve.errors import NotRecorded, PveError
from simnode.pve.host import MIB, NODE
from simnode.pve.pending import Change
from simnode.pve.task import Run, qemus

Options = Dict[str, str]
SHUTDOWN_SECONDS = 60
AGENT_SECONDS = 3
STATE_EXTRA_MIB = 500
DEFAULT_MEMORY_MIB = 512


def memory_mib(main: config_text.Values) -> int:
    """Return the memory of a VM."""
    return int(main.get("memory", str(DEFAULT_MEMORY_MIB)).rpartition("=")[2])


def start(run: Run, vmid: int, options: Options) -> None:
    """`qm start`. Raises PveError."""
    run.worker = True
    config = vmfile.load(run, vmid)
    if cluster.is_highly_available(run.host, vmid):
        run.say(f"Requesting HA start for VM {vmid}")
        cluster.request_state(run.host, vmid, "started")
        return
    with run.lock(vmfile.lock_path(vmid)):
        resumed = config.main.get("lock") == "suspended"
        if resumed:
            if "vmstate" in config.main:
                raise NotRecorded("the resumption of a VM from its state on disk")
            run.say("Resuming suspended VM")
        else:
            vmfile.check_lock(config, options.get("skiplock") == "1")
        start_locked(run, vmid, config)
        if resumed:
            run.say("Resumed VM, removing state")
            config = vmfile.load(run, vmid, quiet=True)
            del config.main["lock"]
            vmfile.save(run, vmid, config)


def start_locked(run: Run, vmid: int, config: config_text.VmConfig) -> None:
    """Start a VM whose lock is held: apply what is pending first. Raises PveError."""
    if settings.is_on(config.main, "template"):
        raise PveError("you can't start a vm if it's a template")
    if qemu.is_running(run, vmid):
        raise PveError(f"VM {vmid} already running")
    if config.pending:
        change = Change(run, vmid, config)
        change.apply()
        config = change.config
    qemu.start(run, vmid, config.main)


def cleanup(run: Run, vmid: int) -> None:
    """Apply what is pending after a QEMU has ended, as `qm cleanup` does in the background. Nobody sees its errors."""
    quiet = Run(run.host)
    quiet.worker = True
    if not vmfile.exists(quiet, vmid) or not run.host.lock(vmfile.lock_path(vmid)):
        return
    try:
        config = vmfile.load(quiet, vmid, quiet=True)
        if config.pending:
            Change(quiet, vmid, config).apply()
    finally:
        run.host.unlock(vmfile.lock_path(vmid))


def _here(run: Run, vmid: int, options: Options) -> None:
    """Refuse a VM that is not here, is locked, or that HA manages. Raises PveError."""
    if not vmfile.exists(run, vmid):
        raise PveError(f"unable to find configuration file for VM {vmid} on node '{NODE}'")
    vmfile.check_lock(vmfile.load(run, vmid), options.get("skiplock") == "1")
    if cluster.is_highly_available(run.host, vmid):
        raise NotRecorded(f"the end of VM {vmid}, which HA manages")


def stop(run: Run, vmid: int, options: Options) -> None:
    """`qm stop`. Raises PveError."""
    run.worker = True
    _here(run, vmid, options)
    with run.lock(vmfile.lock_path(vmid)):
        ended = qemu.is_running(run, vmid)
        if ended:
            qemu.end(run, vmid)
    if ended:
        cleanup(run, vmid)


def shutdown(run: Run, vmid: int, options: Options) -> None:
    """`qm shutdown`. Raises PveError when the guest does not power off in time."""
    run.worker = True
    try:
        _here(run, vmid, options)
    except NotRecorded:
        raise
    except PveError as error:
        if not vmfile.exists(run, vmid):
            raise PveError(f"{error.text}\n\n{error.text}", error.status) from None
        raise
    if not qemu.is_running(run, vmid):
        run.err.append(f"VM {vmid} not running\n\n")
        return
    _power_down(run, vmid, options)
    cleanup(run, vmid)


def _power_down(run: Run, vmid: int, options: Options) -> None:
    main = vmfile.load(run, vmid, quiet=True).main
    timeout = float(options.get("timeout", SHUTDOWN_SECONDS))
    with run.lock(vmfile.lock_path(vmid)):
        if main.get("agent", "0").partition(",")[0] in ("1", "enabled=1") and not qemu.answers(run, vmid):
            run.host.sleep(AGENT_SECONDS)
            run.say(f"QEMU Guest Agent is not running - VM {vmid} qga command 'guest-ping' failed - got timeout")
        if qemu.answers(run, vmid):
            run.host.sleep(qemu.ANSWER_SECONDS)
        else:
            run.host.sleep(timeout)
            if options.get("forceStop") != "1":
                raise PveError("VM quit/powerdown failed - got timeout")
            run.say("VM still running - terminating now with SIGTERM")
        qemu.end(run, vmid)


def reboot(run: Run, vmid: int, options: Options) -> None:
    """`qm reboot`: a shutdown, and a start. Raises PveError."""
    run.worker = True
    _here(run, vmid, options)
    _running(run, vmid)
    _power_down(run, vmid, {key: value for key, value in options.items() if key == "timeout"})
    with run.lock(vmfile.lock_path(vmid)):
        start_locked(run, vmid, vmfile.load(run, vmid, quiet=True))


def _running(run: Run, vmid: int) -> None:
    if not qemu.is_running(run, vmid):
        raise PveError(f"VM {vmid} not running", 2)


def reset(run: Run, vmid: int, options: Options) -> None:
    """`qm reset`. Raises PveError."""
    _here(run, vmid, options)
    _running(run, vmid)


def suspend(run: Run, vmid: int, options: Options) -> None:
    """`qm suspend`: the VM pauses, or its state goes to disk and it ends. Raises PveError."""
    run.worker = True
    _here(run, vmid, options)
    _running(run, vmid)
    if options.get("todisk") != "1":
        qemus(run)[str(vmid)]["paused"] = True
        return
    date = time.strftime("%Y-%m-%d", time.gmtime(run.host.now()))
    with run.lock(vmfile.lock_path(vmid)):
        config = vmfile.load(run, vmid, quiet=True)
        config.main["lock"] = "suspending"
        config.main.update(saved_state(run, vmid, config.main, f"suspend-{date}"))
        config = vmfile.save(run, vmid, config)
        run.say("State saved, quitting")
        config.main["lock"] = "suspended"
        vmfile.save(run, vmid, config)
        qemu.end(run, vmid)
    cleanup(run, vmid)


def saved_state(run: Run, vmid: int, main: config_text.Values, name: str) -> config_text.Values:
    """Save the state of a running VM to a volume of its own. Return the settings that say so."""
    disks = [disk for disk in config_text.drives(main).values() if not disk.is_cdrom and not disk.is_path]
    if not disks:
        raise NotRecorded("where the state of a VM without disks goes")
    place = storage.zfs_storage(run, disks[0].volume.partition(":")[0])
    kib = (2 * memory_mib(main) + STATE_EXTRA_MIB) * MIB // 1024
    volume = storage.create(run, place, vmid, kib, f"vm-{vmid}-state-{name}")
    return {
        "vmstate": volume.id(),
        "runningcpu": "simulated",
        "runningmachine": main.get("machine", "simulated"),
        "running-nets-host-mtu": "",
    }


def resume(run: Run, vmid: int, options: Options) -> None:
    """`qm resume`. Raises PveError."""
    _here(run, vmid, options)
    _running(run, vmid)
    qemus(run)[str(vmid)].pop("paused", None)


def wait(run: Run, vmid: int, options: Options) -> None:
    """`qm wait`: until the VM has ended. Raises PveError when it does not in time."""
    if not vmfile.exists(run, vmid):
        raise vmfile.missing(vmid)
    if not qemu.is_running(run, vmid):
        return
    if "timeout" not in options:
        raise NotRecorded("a wait without an end")
    run.say(f"waiting until VM {vmid} stops (PID {qemu.pid(run, vmid)})")
    run.host.sleep(float(options["timeout"]))
    raise PveError("wait failed - got timeout", 25)


def cleanup_command(run: Run, vmid: int) -> None:
    """`qm cleanup`."""
    run.err.append(f"Starting cleanup for {vmid}\n")
    if not qemu.is_running(run, vmid):
        cleanup(run, vmid)
    run.err.append(f"Finished cleanup for {vmid}\n")
