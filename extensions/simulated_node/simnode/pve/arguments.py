# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command lines of `qm` and `pvesm`: which options a command has, and how they are written."""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Sequence, Tuple

from simnode.pve import drive, settings
from simnode.pve.errors import ParameterError, Unparsed

_VMIDS = ("vmid", "newid", "target-vmid")
_SETTINGS = tuple(sorted(settings.KNOWN - {"parent", "snaptime", "snapstate", "meta", "runningcpu", "runningmachine",
                                           "running-nets-host-mtu", "vmstate"}))  # fmt: skip


class Command(NamedTuple):
    """A command: its positional arguments, those of them that may be missing, its options, and its usage."""

    name: str
    positional: Tuple[str, ...] = ("vmid",)
    optional: Tuple[str, ...] = ()
    options: Tuple[str, ...] = ()
    switches: Tuple[str, ...] = ()
    required: Tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        words = [self.name, *[f"<{word}>" for word in self.positional], *[f"[<{word}>]" for word in self.optional]]
        words += [f"--{word} <string>" for word in self.required]
        if self.options or self.switches or self.required:
            words.append("[OPTIONS]")
        return " ".join(words)


_LOCKED = ("skiplock",)
QM: Dict[str, Command] = {
    command.name[3:]: command
    for command in (
        Command("qm set", options=("digest", "delete", "revert", *_SETTINGS), switches=("force", "skiplock")),
        Command("qm create", options=_SETTINGS),
        Command("qm destroy", switches=("purge", "destroy-unreferenced-disks", "skiplock")),
        Command("qm config", options=("snapshot",), switches=("current",)),
        Command("qm pending"),
        Command("qm status", switches=("verbose",)),
        Command("qm list", ()),
        Command("qm start", options=("timeout",), switches=_LOCKED),
        Command("qm stop", options=("timeout",), switches=_LOCKED),
        Command("qm shutdown", options=("timeout",), switches=("forceStop", "keepActive", "skiplock")),
        Command("qm reboot", options=("timeout",)),
        Command("qm reset", switches=_LOCKED),
        Command("qm suspend", switches=("todisk", "skiplock")),
        Command("qm resume", switches=_LOCKED),
        Command("qm wait", options=("timeout",)),
        Command("qm unlock"),
        Command("qm cleanup", ("vmid", "clean-shutdown", "guest-requested")),
        Command("qm template"),
        Command("qm clone", ("vmid", "newid"), (), ("name", "description", "snapname", "storage", "target"), ("full",)),
        Command("qm snapshot", ("vmid", "snapname"), (), ("description",), ("vmstate",)),
        Command("qm delsnapshot", ("vmid", "snapname"), switches=("force",)),
        Command("qm rollback", ("vmid", "snapname"), switches=("start",)),
        Command("qm listsnapshot"),
        Command("qm disk resize", ("vmid", "disk", "size"), (), ("digest",), ("skiplock",)),
        Command("qm disk unlink", ("vmid",), switches=("force",), required=("idlist",)),
        Command("qm disk rescan", (), (), ("vmid",), ("dryrun",)),
        Command("qm disk move", ("vmid", "disk"), ("storage",),
                ("target-vmid", "target-disk", "digest", "target-digest"), ("delete",)),
    )
}  # fmt: skip
ALIASES = {"resize": "disk resize", "unlink": "disk unlink", "rescan": "disk rescan", "move-disk": "disk move",
           "move_disk": "disk move", "disk move_disk": "disk move"}  # fmt: skip
PVESM: Dict[str, Command] = {
    command.name[6:]: command
    for command in (
        Command("pvesm list", ("storage",), (), ("vmid", "content")),
        Command("pvesm status", (), (), ("storage", "content", "target"), ("enabled",)),
        Command("pvesm path", ("volume",)),
        Command("pvesm alloc", ("storage", "vmid", "filename", "size"), (), ("format",)),
        Command("pvesm free", ("volume",), (), ("storage",)),
        Command("pvesm add", ("type", "storage"), (), ("pool", "content", "nodes", "blocksize", "mountpoint"),
                ("sparse", "disable")),
        Command("pvesm remove", ("storage",)),
        Command("pvesm extractconfig", ("volume",)),
    )
}  # fmt: skip


def find(table: Dict[str, Command], argv: Sequence[str], aliases: Dict[str, str]) -> Tuple[Command, List[str]]:
    """Return the command and the rest of its arguments. Raises Unparsed for none."""
    for count in (2, 1):
        name = " ".join(argv[:count])
        name = aliases.get(name, name)
        if len(argv) >= count and name in table:
            return table[name], list(argv[count:])
    program = next(iter(table.values())).name.partition(" ")[0]
    raise Unparsed(f"ERROR: unknown command '{program} {' '.join(argv[:1])}'".rstrip())


def parse(command: Command, argv: Sequence[str]) -> Tuple[List[str], Dict[str, str]]:
    """Return the positional arguments, '' for those that are missing, and the options. Raises PveError."""
    words: List[str] = []
    options: Dict[str, str] = {}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if re.match(r"--?[A-Za-z0-9]", word) is None:
            words.append(word)
            continue
        given, equals, value = word.lstrip("-").partition("=")
        name = _option(command, given)
        if not equals:
            value = _value(name in command.switches, name, rest)
        options[name] = value
    if len(words) > len(command.positional) + len(command.optional):
        raise Unparsed("400 too many arguments")
    if len(words) < len(command.positional):
        raise Unparsed("400 not enough arguments")
    for name in command.required:
        if name not in options:
            raise ParameterError({name: "property is missing and it is not optional"})
    words += [""] * (len(command.positional) + len(command.optional) - len(words))
    _check_types(command, words, options)
    return words, options


def _option(command: Command, given: str) -> str:
    """Return the option that is meant: options may be abbreviated, and upper case counts as lower case."""
    known = (*command.options, *command.switches, *command.required)
    exact = [name for name in known if name.lower() == given.lower()]
    found = exact or [name for name in known if name.lower().startswith(given.lower())]
    if len(found) == 1:
        return found[0]
    if found:
        raise Unparsed(f"Option {given.lower()} is ambiguous ({', '.join(sorted(found))})\n400 unable to parse option")
    raise Unparsed(f"Unknown option: {given.lower()}\n400 unable to parse option")


def _value(is_switch: bool, name: str, rest: List[str]) -> str:
    may_be_bare = is_switch or name in settings.SWITCHES
    if may_be_bare and (not rest or rest[0].startswith("-")):
        return "1"
    if not rest:
        raise Unparsed(f"Option {name} requires an argument\n400 unable to parse option")
    return rest.pop(0)


def _check_types(command: Command, words: List[str], options: Dict[str, str]) -> None:
    values = dict(zip((*command.positional, *command.optional), words))
    values.update({name: options[name] for name in _VMIDS if name in options})
    problems: Dict[str, str] = {}
    for name in [name for name in values if name in _VMIDS]:
        if not values[name].isdigit():
            problems[name] = f"type check ('integer') failed - got '{values[name]}'"
        elif not 100 <= int(values[name]) <= 999999999:
            problems[name] = "invalid format - value does not look like a valid VM ID\n"
    for name in command.switches:
        if name in options and drive.boolean(options[name]) is None:
            problems[name] = f"type check ('boolean') failed - got '{options[name]}'"
        elif name in options:
            options[name] = drive.boolean(options[name]) or ""
    if problems:
        raise ParameterError(problems)
