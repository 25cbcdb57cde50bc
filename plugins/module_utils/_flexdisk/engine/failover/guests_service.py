# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The service libvirt-guests of a host: whether it starts domains whose autostart is off."""

from __future__ import annotations

import glob
import os
import re

_UNITS = "/etc/systemd/system/*.wants/libvirt-guests.service"
# Each script has its own default, which distributions change.
_SCRIPTS = ("/usr/libexec/libvirt-guests.sh", "/usr/lib/libvirt/libvirt-guests.sh")
_SETTINGS = ("/etc/sysconfig/libvirt-guests", "/etc/default/libvirt-guests")
_ON_BOOT = re.compile(r"""^[ \t]*ON_BOOT=["']?(\w+)""", re.MULTILINE)


def why_guests_start(root: str = "") -> str:
    """Return why domains start after a boot although their autostart is off, and what ends that; "" if they do not.

    The service starts what ran when the host was shut down, if it is enabled and ON_BOOT is start. root: where the
    host's files are, "" for the root directory.
    """
    if not glob.glob(glob.escape(root) + _UNITS):
        return ""
    values = [value for path in (*_SCRIPTS, *_SETTINGS) for value in _ON_BOOT.findall(_text(root + path))]
    if values and values[-1] != "start":
        return ""
    place = next((path for path in _SETTINGS if os.path.exists(root + path)), _SETTINGS[0])
    text = "its service libvirt-guests starts, after a boot, all domains that ran when the host was shut down, although"
    return f"{text} another host may have taken them over; set ON_BOOT=ignore in {place}"


def _text(path: str) -> str:
    """Return the text of a file, "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
