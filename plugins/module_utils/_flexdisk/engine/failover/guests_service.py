# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What starts domains of libvirt after a boot although their autostart is off: libvirt-guests, and libvirt itself."""

from __future__ import annotations

import glob
import os
import re
import typing as t

from ...hypervisor.protocol import Hypervisor

# A link in such a folder enables a unit. A package can have one, too.
_FOLDERS = ("/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_UNITS = tuple(
    f"{folder}/*.{kind}/libvirt-guests.service" for folder in _FOLDERS for kind in ("wants", "requires", "upholds")
)
# The service of OpenRC has other settings than the script of libvirt.
_RUNLEVELS = "/etc/runlevels/*/libvirt-guests"
# Each script has its own default, which distributions change.
_SCRIPTS = (
    "/usr/libexec/libvirt-guests.sh",
    "/usr/lib/libvirt/libvirt-guests.sh",
    "/usr/lib64/libvirt/libvirt-guests.sh",
)
# Each distribution reads one of these files. It is not always the one that somebody has edited.
_SETTINGS = ("/etc/sysconfig/libvirt-guests", "/etc/default/libvirt-guests", "/etc/conf.d/libvirt-guests")
_READ_BY_SCRIPT = re.compile(r"""(sysconfig|default|conf\.d)["']?/libvirt-guests""")
_DEFAULT = re.compile(r"""^[ \t]*ON_BOOT=["']?(\w*)""", re.MULTILINE)
# A line that sets a variable of a shell script and does nothing else.
_ASSIGNMENT = re.compile(r"""[ \t]*(\w+)=("[^"$`\\]*"|'[^']*'|[\w.,:/+=@%-]*)[ \t]*(?:[ \t]#.*)?""", re.ASCII)
_NOTHING = re.compile(r"[ \t]*(?:#.*)?")
_START = "start"
_MAY_HAVE = "although another host may have taken them over"

_QEMU_CONF = "/etc/libvirt/qemu.conf"
_SHUTDOWN = ("auto_shutdown_try_save", "auto_shutdown_try_shutdown", "auto_shutdown_poweroff")
_RESTORE = "auto_shutdown_restore"


def why_host_starts_all(hypervisor: Hypervisor) -> str:
    """Return why this host starts VMs after a boot that another host may have taken over, and what ends that."""
    return why_guests_start() if hypervisor.capabilities.name == "libvirt" else ""


def why_guests_start(root: str = "") -> str:
    """Return why domains start after a boot although their autostart is off, and what ends that; "" if they do not.

    root: where the host's files are, "" for the root directory.
    """
    return "; ".join(text for text in (_why_service_starts(root), _why_libvirt_starts(root)) if text)


def _why_service_starts(root: str) -> str:
    """Return why libvirt-guests starts domains. It starts those that ran when the host was shut down, if it is enabled
    and ON_BOOT is start. What is not understood counts as that.
    """
    text = "its service libvirt-guests starts, after a boot, all domains that ran when the host was shut down,"
    text = f"{text} {_MAY_HAVE}"
    if _matches(root, _RUNLEVELS):
        return f"{text}; take it out of the runlevel (rc-update del libvirt-guests)"
    if not any(_matches(root, pattern) for pattern in _UNITS):
        return ""
    scripts = [_text(root + path) or "" for path in _SCRIPTS if os.path.exists(root + path)]
    defaults = [values[-1] for values in map(_DEFAULT.findall, scripts) if values]
    default = _START if _START in defaults or len(defaults) < max(1, len(scripts)) else defaults[-1]
    read = {f"/etc/{name}/libvirt-guests" for script in scripts for name in _READ_BY_SCRIPT.findall(script)}
    places = [path for path in _SETTINGS if path in read or os.path.exists(root + path)]
    values = {path: _on_boot(root + path, default) for path in places}
    wrong = [path for path, (value, _line) in values.items() if value == _START]
    if not (wrong or (not places and default == _START)):
        return ""
    lines = [f"line {values[path][1]} of {path}" for path in wrong if values[path][1]]
    text = f"{text}; set ON_BOOT=ignore in {' and in '.join(wrong or _SETTINGS[:1])}"
    return f"{text} ({' and '.join(lines)} must go: only NAME=value and comments are understood)" if lines else text


def _on_boot(path: str, default: str) -> t.Tuple[str, int]:
    """Return what a file with settings makes of ON_BOOT, and the number of its first line that is not understood, 0 for
    none. With such a line, or if the file cannot be read, it is start.
    """
    text = _text(path)
    if text is None:
        return (_START if os.path.exists(path) else default), 0
    value = default
    for number, line in enumerate(text.split("\n"), 1):
        setting = _ASSIGNMENT.fullmatch(line)
        if setting is None and not _NOTHING.fullmatch(line):
            return _START, number
        if setting is not None and setting.group(1) == "ON_BOOT":
            value = setting.group(2).strip("\"'")
    return value, 0


def _why_libvirt_starts(root: str) -> str:
    """Return why libvirt itself (from 11.2) starts domains again that it has stopped when the host was shut down."""
    text = _text(root + _QEMU_CONF) or ""
    found = dict(re.findall(r"^[ \t]*(auto_shutdown_\w+)[ \t]*=[ \t]*(.*?)[ \t\r]*(?:#.*)?$", text, re.MULTILINE))
    stops = [name for name in _SHUTDOWN if found.get(name, "none").strip("\"'") != "none"]
    if not stops or found.get(_RESTORE) == "0":
        return ""
    text = f"{stops[0]} in {_QEMU_CONF} lets libvirt start, after a boot, what it stopped when the host was shut down,"
    return f"{text} {_MAY_HAVE}; set {_RESTORE} = 0 there"


def _matches(root: str, pattern: str) -> t.List[str]:
    return glob.glob(glob.escape(root) + pattern)


def _text(path: str) -> t.Optional[str]:
    """Return the text of a file, None if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            return file.read()
    except OSError:
        return None
