# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`ssh` from a simulated node to another, `ssh-keygen` and `getent`: keys without mathematics, but with the same rules.

DIR/ssh is what ~/.ssh and /etc/ssh are elsewhere. Which node has which address is in DIR/ssh/addresses.json.
"""

from __future__ import annotations

import base64
import getopt
import json
import re
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, Optional, Tuple

_LINE = re.compile(r'restrict,expiry-time="(\d{14})",command="([^"]*)" (\S+ \S+) \S+')


def main(directory: Path, program: str, argv: List[str]) -> int:
    """Run a program of the node in this directory."""
    return {"ssh": _ssh, "ssh-keygen": _keygen, "getent": _getent}[program](directory, argv)


def make_host_key(directory: Path) -> None:
    """Give the node a host key."""
    place = directory / "ssh"
    if not place.exists():
        place.mkdir(mode=0o700)
        (place / "ssh_host_ed25519_key.pub").write_text(f"{_new_key()} root@{directory.name}\n")


def _addresses(directory: Path) -> Dict[str, str]:
    path = directory / "ssh" / "addresses.json"
    known: Dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    return known


def connect(directory: Path, address: str, other: Path) -> None:
    """Let the node reach another one at this address."""
    make_host_key(directory)
    path = directory / "ssh" / "addresses.json"
    known = _addresses(directory)
    path.write_text(json.dumps({**known, address: str(other.resolve())}))


def _new_key() -> str:
    return "ssh-ed25519 " + base64.b64encode(secrets.token_bytes(51)).decode()


def _keygen(_directory: Path, argv: List[str]) -> int:
    given = dict(getopt.getopt(argv, "qt:N:C:f:")[0])
    path, key = Path(given["-f"]), _new_key()
    path.touch(mode=0o600)
    path.write_text(f"private half of {key}\n")
    path.with_name(path.name + ".pub").write_text(f"{key} {given.get('-C', '')}\n")
    return 0


def _ssh(directory: Path, argv: List[str]) -> int:
    given, rest = getopt.getopt(argv, "F:Ti:p:l:o:")
    options = dict(value.split("=", 1) for flag, value in given if flag == "-o")
    values = dict(given)
    refusal, command = _authorize(directory, rest[0], values["-i"], options)
    if refusal:
        sys.stderr.write(refusal + "\n")
        return 255
    return subprocess.run(["/bin/sh", "-c", command], check=False).returncode


def _getent(directory: Path, argv: List[str]) -> int:
    """`getent hosts NAME`."""
    if argv[1] not in _addresses(directory):
        return 2
    print(f"192.0.2.1       {argv[1]}")
    return 0


def _authorize(directory: Path, address: str, key: str, options: Dict[str, str]) -> Tuple[str, str]:
    """Return why the other node refuses, and the command that it runs. The client's own command is ignored."""
    known = _addresses(directory)
    if address not in known:
        return f"ssh: Could not resolve hostname {address}: Name or service not known", ""
    folder = Path(known[address]) / "ssh"
    if not folder.exists():
        return f"ssh: connect to host {address} port 22: Connection refused", ""
    host_key = " ".join((folder / "ssh_host_ed25519_key.pub").read_text().split()[:2])
    trusted = Path(options["UserKnownHostsFile"]).read_text().splitlines()
    if f"{address} {host_key}" not in trusted:
        return "Host key verification failed.", ""
    command = _command(folder, Path(key).read_text().rpartition(" of ")[2].strip())
    return ("", command) if command is not None else (f"root@{address}: Permission denied (publickey).", "")


def _command(folder: Path, key: str) -> Optional[str]:
    """Return the command that a key may run, None if it may run none."""
    path = folder / "authorized_keys"
    now = time.strftime("%Y%m%d%H%M%S")
    for match in map(_LINE.fullmatch, path.read_text().splitlines() if path.exists() else ()):
        if match and match[3] == key and now < match[1]:
            return match[2]
    return None
