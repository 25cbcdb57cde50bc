# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arguments of vmadm: options in any place, key=value pairs, a uuid."""

from __future__ import annotations

import math
import re
from typing import Any, Dict, List, NamedTuple, Optional

from simnode.vmadm import jsvalues as js
from simnode.vmadm.errors import Usage, VmError

USAGE = """Usage: /usr/sbin/vmadm <command> [options]

create [-f <filename>]
create-snapshot <uuid> <snapname>
console <uuid>
delete <uuid>
delete-snapshot <uuid> <snapname>
events [-fjr] [uuid]
get <uuid>
info <uuid> [type,...]
install <uuid>
kill [-s SIGNAL|-SIGNAL] <uuid>
list [-p] [-H] [-o field,...] [-s field,...] [field=value ...]
lookup [-j|-1] [-o field,...] [field=value ...]
reboot <uuid> [-F]
receive [-f <filename>]
reprovision <uuid> [-f <filename>]
rollback-snapshot <uuid> <snapname>
send <uuid> [target]
start <uuid> [option=value ...]
stop <uuid> [-F] [-t timeout]
sysrq <uuid> <nmi|screenshot>
update <uuid> [-f <filename>]
 -or- update <uuid> property=value [property=value ...]
validate create [-f <filename>]
validate update <brand> [-f <filename>]

For more detailed information on the use of this command,type 'man vmadm'.
"""
_SWITCHES = {
    "j": "json",
    "1": "unique",
    "p": "parsable",
    "h": "header",
    "H": "no_header",
    "F": "force",
    "v": "verbose",
    "d": "debug",
    "r": "ready",
}
_VALUED = {"f": "file", "o": "output", "s": "sortby", "t": "timeout"}
_LONG_SWITCHES = ("json", "unique", "parsable", "header", "force", "verbose", "debug", "ready")
_LONG_VALUED = {"file": "file", "output": "output", "order": "output", "sortby": "sortby", "timeout": "timeout"}
_UUID_SHAPE = re.compile(r".{8}-.{4}-.{4}-.{4}-.{12}\Z")


class Arguments(NamedTuple):
    options: Dict[str, Any]
    rest: List[str]


def parse(argv: List[str]) -> Arguments:
    options: Dict[str, Any] = {}
    rest: List[str] = []
    remaining = list(argv)
    while remaining:
        argument = remaining.pop(0)
        if argument == "--":
            rest.extend(remaining)
            break
        if argument.startswith("--") and len(argument) > 2:
            _long(argument[2:], remaining, options)
        elif argument.startswith("-") and len(argument) > 1:
            _short(argument[1:], remaining, options)
        else:
            rest.append(argument)
    return Arguments(options, rest)


def _long(argument: str, remaining: List[str], options: Dict[str, Any]) -> None:
    name, equals, value = argument.partition("=")
    if name in _LONG_VALUED:
        options[_LONG_VALUED[name]] = value if equals else (remaining.pop(0) if remaining else "")
    elif name in _LONG_SWITCHES:
        options[name] = True


def _short(letters: str, remaining: List[str], options: Dict[str, Any]) -> None:
    for letter in letters:
        if letter in _SWITCHES:
            options[_SWITCHES[letter]] = True
        elif letter in _VALUED:
            options[_VALUED[letter]] = remaining.pop(0) if remaining else ""


_TAKE_PAYLOADS = ("create", "update", "validate", "reprovision", "receive", "recv")


def reads_stdin(argv: List[str]) -> bool:
    """Return whether a command line takes its payload from stdin, not from a file or arguments."""
    if not argv or argv[0] not in _TAKE_PAYLOADS:
        return False
    arguments = parse(argv[1:])
    return arguments.options.get("file", "-") == "-" and not (argv[0] == "update" and len(arguments.rest) > 1)


def take_uuid(command: str, arguments: Arguments) -> str:
    """Return and remove the first argument if it looks like a UUID. Raises Usage."""
    if arguments.rest and _UUID_SHAPE.match(arguments.rest[0]):
        return arguments.rest.pop(0)
    raise Usage("Invalid or missing UUID for " + command)


def key_values(pairs: List[str]) -> Dict[str, Any]:
    """Parse key=value pairs. Without =, the value is empty."""
    return {key: value for key, _equals, value in (pair.partition("=") for pair in pairs)}


def read_payload(options: Dict[str, Any], stdin: str) -> Any:
    """Return the JSON document of -f FILE or of stdin."""
    name = options.get("file", "-")
    text = stdin
    if name != "-":
        try:
            with open(name, encoding="utf-8") as stream:
                text = stream.read()
        except FileNotFoundError as error:
            raise VmError("File: %s does not exist." % name) from error
        except OSError as error:
            raise VmError("Error reading: %s %s" % (name, error)) from error
    try:
        return js.loads(text)
    except ValueError as error:
        raise VmError("Invalid JSON payload: %s" % error) from error


def timeout_of(options: Dict[str, Any]) -> Optional[float]:
    """Return -t in seconds, None if it is missing or no number."""
    number = js.to_number(options["timeout"]) if "timeout" in options else 0
    return number if number and not math.isnan(number) else None
