# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""SSH access for one stream to one dataset: the line of authorized_keys, known hosts, the command line of ssh.

A key permits one command on one dataset, long enough for all streams of a sync to begin. OpenSSH knows `restrict` since
7.2 and `expiry-time` since 7.7.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
import typing as t

from ...model.errors import FlexdiskError
from ...model.sizes import MIB
from ...rules.identity import NAMES, PREFIX
from ...rules.replicas import BACK, COMING_SNAPSHOTS, KEEP, RESERVED, SENT, TAKEN

MARK = "flexdisk-receive-"
_EXPIRES = re.compile(r'restrict,expiry-time="(\d{14})",')
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")
# Properties of a stream that are never taken over. All of them are known to ZFS of illumos, Linux and FreeBSD.
_NOT_RECEIVED = (
    *("mountpoint", "canmount", "sharenfs", "sharesmb", "setuid", "exec", "devices"),
    *("quota", "refquota", "reservation", "refreservation"),
)
_OURS = tuple(PREFIX + name for name in dict.fromkeys((*NAMES, SENT, COMING_SNAPSHOTS, RESERVED, BACK, KEEP, TAKEN)))
_SLOWEST = MIB  # bytes a second: a link that is slower is of no use
_AT_LEAST = 3600  # seconds


class Address(t.NamedTuple):
    """Where a host is reached."""

    host: str
    port: int = 22


def check_address(address: Address) -> t.List[str]:
    """Return the problems with the address."""
    wrong = []
    if not (_NAME.fullmatch(address.host) or is_ip(address.host)):
        wrong.append(f"address {address.host!r:.100} is neither a name nor an IP address")
    if not 0 < address.port < 65536:
        wrong.append(f"port {address.port}: from 1 to 65535")
    return wrong


def is_ip(text: str) -> bool:
    """Return whether the text is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def lifetime(amount: int) -> int:
    """Return seconds in which the streams of a sync with so many bytes of data begin."""
    return _AT_LEAST + amount // _SLOWEST


def receive_command(zfs: str, dataset: str, properties: t.Mapping[str, str], note: str) -> str:
    """Return the command that a key opens: it notes its process in a file, and receives into the dataset.

    own: the properties that the dataset gets. A stream may carry properties, and a package of streams (zfs send -R)
    even datasets below with their own. None of ours comes with it, none that mounts or shares anything, and none that
    takes space.
    """
    options = [word for key, value in properties.items() for word in ("-o", f"{key}={value}")]
    left_out = [word for key in (*_NOT_RECEIVED, *_OURS) if key not in properties for word in ("-x", key)]
    parts = [zfs, "receive", "-s", "-u", *options, *left_out, dataset]
    return f"echo $$ >{shlex.quote(note)} && exec {' '.join(map(shlex.quote, parts))}"


def get_command(zfs: str, command: t.Sequence[str]) -> str:
    """Return the command that a key opens: it prints what zfs get prints. words: those of zfs get, from zfs on."""
    return " ".join(map(shlex.quote, (zfs, *command[1:])))


def authorized(command: str, key: str, uuid: str, expires: str) -> str:
    """Return a line of authorized_keys. uuid: of the disk that is received, or of the VM that is asked for. expires:
    YYYYMMDDHHMMSS by the clock and zone of that host.

    Raises FlexdiskError InvalidArgument for a command that cannot stand there.
    """
    if set(command) & set('"\\\n'):
        raise FlexdiskError("InvalidArgument", f"this cannot stand in authorized_keys: {command}")
    return f'restrict,expiry-time="{expires}",command="{command}" {key} {MARK}{uuid}'


def without(text: str, uuids: t.Collection[str], now: str) -> str:
    """Return the text of authorized_keys without the lines for these disks and VMs, and without our lines that have
    expired.

    now: as expires in authorized().
    """
    marks = {MARK + uuid for uuid in uuids}

    def stays(line: str) -> bool:
        label = (line.split() or [""])[-1]
        expires = _EXPIRES.match(line)
        expired = label.startswith(MARK) and expires is not None and expires[1] < now
        return label not in marks and not expired

    return "".join(filter(stays, text.splitlines(keepends=True)))


def known_hosts(address: Address, keys: t.Iterable[str]) -> str:
    """Return a file of known hosts with the keys of one."""
    shown = address.host if address.port == 22 else f"[{address.host}]:{address.port}"
    return "".join(f"{shown} {key}\n" for key in keys)


def ssh(address: Address, key: str, known: str) -> t.Tuple[str, ...]:
    """Return the words of ssh. key and known are files. No other key, no agent, no forwarding, no configuration of the
    host.

    It ends if it hears nothing for a minute.
    """
    options = {
        "BatchMode": "yes",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "PreferredAuthentications": "publickey",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": known,
        "GlobalKnownHostsFile": "/dev/null",
        "ClearAllForwardings": "yes",
        "ConnectTimeout": "20",
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "4",
        "LogLevel": "ERROR",
    }
    parts = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return ("ssh", "-F", "none", "-T", *parts, "-i", key, "-p", str(address.port), "-l", "root", address.host)
