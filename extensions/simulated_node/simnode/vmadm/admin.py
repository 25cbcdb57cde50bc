# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What no vmadm can do: images put in place, states and faults for tests and rehearsals.

Each command takes the host and its arguments and returns exit code, stdout and stderr.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Optional

from simnode.vmadm import boundaries, create, images, lifecycle, machine, store
from simnode.vmadm.errors import VmError
from simnode.vmadm.host import DEFAULT_POOL, Result, VmadmHost


def _record(host: VmadmHost, uuid: str) -> store.Record:
    if uuid not in store.records(host):
        raise VmError("VM %s not found" % uuid)
    return store.records(host)[uuid]


def vm_state(host: VmadmHost, argv: List[str]) -> None:
    """vm-state UUID STATE: a transitional state such as stopping or provisioning; `-` ends it."""
    uuid, state = argv
    record = _record(host, uuid)
    record.pop("transition", None)
    record.pop("failed", None)
    if state == "failed":
        record["failed"] = True
    elif state != "-":
        record["transition"] = state
        record["transition_expire"] = int(host.now() + 300) * 1000


def vm_stop_hangs(host: VmadmHost, argv: List[str]) -> None:
    """vm-stop-hangs UUID on|really|off: the guest ignores ACPI, so that stop ends by force at its time-out.

    With `really` the time-out is waited for in real time; a stop that is killed meanwhile has changed nothing.
    """
    uuid, switch = argv
    record = _record(host, uuid)
    record.pop("stop_hangs", None)
    if switch in ("on", "really"):
        record["stop_hangs"] = switch


def vm_stop_takes(host: VmadmHost, argv: List[str]) -> None:
    """vm-stop-takes UUID SECONDS: the guest shuts down so long after it was asked to, whoever waits for it."""
    _record(host, argv[0])["stop_takes"] = float(argv[1])


def vm_fault(host: VmadmHost, argv: List[str]) -> None:
    """vm-fault POINT [kill|late:SECONDS|timeout|fail ...]: what happens when vmadm comes to a point.

    A point is called as "delete uninstall"; boundaries.py has them all. Each fault is for one time. Without any,
    nothing happens there any more.
    """
    boundaries.plan(host, argv[0], argv[1:])


def vm_boot(host: VmadmHost, argv: List[str]) -> None:
    """vm-boot: the host loses power and boots. Its VMs stop; those with autoboot start again."""
    if argv:
        raise ValueError
    host.state["boots"] = host.state.get("boots", 0) + 1
    for record in [one for one in store.records(host).values() if one["zone_state"] == "running"]:
        autoboot = record["cfg"]["autoboot"]
        lifecycle.halt(host, record)
        if autoboot:
            lifecycle.boot(host, record)


def vm_finish(host: VmadmHost, argv: List[str]) -> None:
    """vm-finish: every vmadm that nobody waits for any longer does the rest of its work now."""
    if argv:
        raise ValueError
    create.finish(host, at_once=True)
    lifecycle.end_guests(host)


def vm_lose_event(host: VmadmHost, argv: List[str]) -> None:
    """vm-lose-event UUID [COUNT]: the next updates are applied but never confirmed by vminfod."""
    _record(host, argv[0])["lost_events"] = int(argv[1]) if len(argv) > 1 else 1


def vm_make_legacy(host: VmadmHost, argv: List[str]) -> None:
    """vm-make-legacy UUID [slots] [uuids]: disks as an old vmadm configured them, without slots and uuids."""
    parts = argv[1:] or ["slots", "uuids"]
    for device in _record(host, argv[0])["devices"]:
        if "slots" in parts:
            device.pop("pci_slot", None)
        if "uuids" in parts:
            device.pop("uuid", None)


def image_import(host: VmadmHost, argv: List[str]) -> None:
    """image-import UUID SIZE_MIB [pool=P] [name=N] [type=zvol] [bootrom=uefi] [nocloud=yes]."""
    options: Dict[str, str] = dict(word.split("=", 1) for word in argv[2:])
    bootrom: Optional[str] = options.get("bootrom")
    name = options.get("name", "base")
    images.import_image(
        host,
        argv[0],
        int(argv[1]),
        options.get("pool", DEFAULT_POOL),
        name=name,
        kind=options.get("type", "zvol"),
        bootrom=bootrom,
        nocloud=options.get("nocloud") == "yes",
    )


def _guarded(act: Callable[[VmadmHost, List[str]], None]) -> Callable[[VmadmHost, List[str]], Result]:
    def run(host: VmadmHost, argv: List[str]) -> Result:
        try:
            act(host, argv)
        except (IndexError, ValueError):
            return 2, "", "usage: %s\n" % (act.__doc__ or "").split(":", 1)[0]
        except VmError as error:
            return 1, "", error.message + "\n"
        return 0, "", ""

    run.__doc__ = act.__doc__
    return run


COMMANDS: Dict[str, Callable[[VmadmHost, List[str]], Result]] = {
    "vm-state": _guarded(vm_state),
    "vm-stop-hangs": _guarded(vm_stop_hangs),
    "vm-stop-takes": _guarded(vm_stop_takes),
    "vm-fault": _guarded(vm_fault),
    "vm-boot": _guarded(vm_boot),
    "vm-finish": _guarded(vm_finish),
    "vm-lose-event": _guarded(vm_lose_event),
    "vm-make-legacy": _guarded(vm_make_legacy),
    "image-import": _guarded(image_import),
    "machine": _guarded(machine.change),
}
