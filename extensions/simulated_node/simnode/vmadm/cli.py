# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The `vmadm` command line. JSON and tables go to stdout, everything for humans to stderr."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from simnode.vmadm import create, lifecycle, lookup, snapshots, update, validate, vminfod, vmobj
from simnode.vmadm import jsvalues as js
from simnode.vmadm.arguments import USAGE, Arguments, key_values, parse, read_payload, take_uuid, timeout_of
from simnode.vmadm.errors import Abort, Cut, Usage, VmError
from simnode.vmadm.host import Result, VmadmHost

ABORTED = 134
_ALIASES = {"boot": "start", "halt": "stop", "destroy": "delete", "json": "get"}
_NOT_SIMULATED = ("console", "events", "install", "kill", "receive", "recv", "send", "sysrq")


class Done(Exception):
    """A command has ended well: what it prints."""

    def __init__(self, out: str = "", message: str = "") -> None:
        super().__init__(message)
        self.out = out
        self.message = message


def main(host: VmadmHost, argv: List[str], stdin: str = "") -> Result:
    """Run `vmadm` with these arguments (without the program's name): exit code, stdout, stderr.

    A negative exit code is the signal that has ended it.
    """
    lifecycle.end_guests(host)
    create.finish(host)
    result = _run(host, argv, stdin)
    if "vminfod" in host.state:
        vminfod.datasets(host)
    return result


def _run(host: VmadmHost, argv: List[str], stdin: str) -> Result:
    try:
        _dispatch(host, list(argv), stdin)
    except Done as done:
        return 0, done.out, done.message + "\n" if done.message else ""
    except VmError as error:
        return 1, "", error.message + "\n"
    except Cut as cut:
        return cut.status, "", ""
    except Abort as abort:
        return ABORTED, "", "\n/usr/vm/node_modules/VM.js\n\n%s\nAbort (core dumped)\n" % abort
    except Usage as usage:
        text = (usage.message + "\n" if usage.message else "") + USAGE
        return (usage.code, text, "") if usage.code == 0 else (usage.code, "", text)
    return 0, "", ""


def _dispatch(host: VmadmHost, argv: List[str], stdin: str) -> None:
    if not argv:
        raise Usage()
    if argv[0] in ("-h", "-?", "help"):
        raise Usage(code=0)
    command = _ALIASES.get(argv[0], argv[0])
    if command in _NOT_SIMULATED:
        raise VmError("vmadm %s is not simulated" % command)
    if command not in _COMMANDS:
        raise Usage('Invalid command: "%s".' % argv[0])
    _COMMANDS[command](host, parse(argv[1:]), stdin)


def _object(payload: Any) -> Dict[str, Any]:
    if not isinstance(payload, dict):
        raise Abort("TypeError: Cannot read properties of %s" % js.compact(payload))
    return payload


def _create(host: VmadmHost, arguments: Arguments, stdin: str) -> None:
    uuid = create.create(host, _object(read_payload(arguments.options, stdin)))
    raise Done(message="Successfully created VM " + uuid)


def _update(host: VmadmHost, arguments: Arguments, stdin: str) -> None:
    uuid = take_uuid("update", arguments)
    payload: Any = key_values(arguments.rest)
    if not payload:
        payload = _object(read_payload(arguments.options, stdin))
    update.update(host, uuid, payload)
    raise Done(message="Successfully updated VM " + uuid)


def _get(host: VmadmHost, arguments: Arguments, _stdin: str) -> None:
    uuid = take_uuid("get", arguments)
    host.sleep(1.0)
    try:
        vm = vmobj.load(host, uuid)
    except VmError as error:
        raise VmError("zoneadm: %s: No such zone configured" % uuid) from error
    raise Done(js.dumps(vm) + "\n")


def _lookup(host: VmadmHost, arguments: Arguments, _stdin: str) -> None:
    options = arguments.options
    if "output" in options and not options.get("json"):
        raise VmError("Cannot specify -o without -j")
    host.sleep(1.0)
    vms = lookup.lookup(host, key_values(arguments.rest))
    if options.get("unique") and len(vms) != 1:
        raise VmError("Requested unique lookup but found %d results." % len(vms))
    if not options.get("json"):
        raise Done("".join(vm["uuid"] + "\n" for vm in vms))
    if "output" in options:
        vms = lookup.only(vms, options["output"])
    raise Done(js.dumps(vms) + "\n")


def _list(host: VmadmHost, arguments: Arguments, _stdin: str) -> None:
    options = arguments.options
    host.sleep(1.0)
    parsable = bool(options.get("parsable"))
    header = not options.get("no_header") and (not parsable or bool(options.get("header")))
    raise Done(
        lookup.table(
            host,
            key_values(arguments.rest),
            options.get("output", lookup.DEFAULT_COLUMNS),
            options.get("sortby", lookup.DEFAULT_SORT),
            parsable,
            header,
        )
    )


def _start(host: VmadmHost, arguments: Arguments, _stdin: str) -> None:
    uuid = take_uuid("start", arguments)
    try:
        lifecycle.start(host, uuid)
    except VmError as error:
        if error.code == "EALREADYRUNNING":
            raise Done(message=error.message) from error
        raise
    raise Done(message="Successfully started VM " + uuid)


def _stop(host: VmadmHost, arguments: Arguments, _stdin: str) -> None:
    uuid = take_uuid("stop", arguments)
    try:
        if arguments.options.get("force"):
            lifecycle.force_stop(host, uuid)
        else:
            lifecycle.stop(host, uuid, timeout_of(arguments.options))
    except VmError as error:
        if error.code == "ENOTRUNNING":
            raise Done(message=error.message) from error
        raise
    raise Done(message="Successfully completed stop for VM " + uuid)


def _reboot(host: VmadmHost, arguments: Arguments, _stdin: str) -> None:
    uuid = take_uuid("reboot", arguments)
    lifecycle.reboot(host, uuid, timeout_of(arguments.options), bool(arguments.options.get("force")))
    raise Done(message="Successfully completed reboot for VM " + uuid)


def _delete(host: VmadmHost, arguments: Arguments, _stdin: str) -> None:
    uuid = take_uuid("delete", arguments)
    try:
        create.delete(host, uuid)
    except VmError as error:
        raise VmError("Failed to delete VM %s: %s" % (uuid, error.message)) from error
    raise Done(message="Successfully deleted VM " + uuid)


def _reprovision(host: VmadmHost, arguments: Arguments, stdin: str) -> None:
    uuid = take_uuid("reprovision", arguments)
    payload = _object(read_payload(arguments.options, stdin))
    try:
        create.reprovision(host, uuid, payload)
    except VmError as error:
        raise VmError("Failed to reprovision VM %s: %s" % (uuid, error.message)) from error
    raise Done(message="Successfully reprovisioned VM " + uuid)


def _snapshot(
    command: str, act: Callable[[VmadmHost, str, str], None], success: str
) -> Callable[[VmadmHost, Arguments, str], None]:
    def run(host: VmadmHost, arguments: Arguments, _stdin: str) -> None:
        uuid = take_uuid(command, arguments)
        if len(arguments.rest) != 1:
            raise Usage('Wrong number of parameters to "%s"' % command)
        act(host, uuid, arguments.rest[0])
        raise Done(message="%s snapshot %s for VM %s" % (success, arguments.rest[0], uuid))

    return run


def _validate(host: VmadmHost, arguments: Arguments, stdin: str) -> None:
    rest = arguments.rest
    if not rest:
        raise Usage("Will not validate without a valid action.")
    if rest[0] == "update" and len(rest) != 2:
        raise Usage("Will not validate without a valid action and brand.")
    payload = _object(read_payload(arguments.options, stdin))
    host.sleep(1.0)
    brand = rest[1] if rest[0] == "update" else payload.get("brand", js.UNDEFINED)
    errors = validate.validate(host, brand, rest[0], payload)
    if errors:
        raise VmError(js.dumps(errors.as_dict()))
    raise Done(message="VALID '%s' payload for %s brand VMs." % (rest[0], brand))


def _info(host: VmadmHost, arguments: Arguments, _stdin: str) -> None:
    uuid = take_uuid("info", arguments)
    host.sleep(1.0)
    vm = vmobj.load(host, uuid)
    if vm["state"] != "running":
        reason = 'Unable to get info for vm from state "%s", must be "running".' % vm["state"]
        raise VmError("Unable to get VM info for VM %s: %s" % (uuid, reason))
    raise Done(js.dumps({"vnc": {"host": "10.0.0.1", "port": 40000, "display": 34100}}) + "\n")


_COMMANDS: Dict[str, Callable[[VmadmHost, Arguments, str], None]] = {
    "create": _create,
    "update": _update,
    "get": _get,
    "lookup": _lookup,
    "list": _list,
    "start": _start,
    "stop": _stop,
    "reboot": _reboot,
    "delete": _delete,
    "reprovision": _reprovision,
    "validate": _validate,
    "info": _info,
    "create-snapshot": _snapshot("create-snapshot", snapshots.create, "Created"),
    "delete-snapshot": _snapshot("delete-snapshot", snapshots.delete, "Deleted"),
    "rollback-snapshot": _snapshot("rollback-snapshot", snapshots.rollback, "Rolled back"),
}
