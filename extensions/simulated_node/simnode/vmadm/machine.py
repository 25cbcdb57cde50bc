# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Memory and CPUs of the machine, and the programs `sysinfo` and `kstat`, which tell of them."""

from __future__ import annotations

import json
from typing import Dict, List

from simnode.vmadm import jsvalues as js
from simnode.vmadm import store, vmobj
from simnode.vmadm.errors import VmError
from simnode.vmadm.host import BUILDSTAMP, SERVER_UUID, Result, VmadmHost

# MiB, but for the number of CPUs. `own` is what the system itself takes.
DEFAULTS = {"memory": 65536, "own": 4096, "cpus": 16}
PAGES_PER_MIB = 256
FREE_PAGES = "unix:0:system_pages:freemem"
BOOT_TIME = "unix:0:system_misc:boot_time"
# The host boots on a day in 2024, and after each boot on the next one.
BOOTED, DAY = 1704067200, 86400
SYSINFO_USAGE = "Usage: sysinfo: [-f] [-p] [-u]\n"
KSTAT_USAGE = "Usage:\tkstat -p module:instance:name:statistic ...\n"


def figures(host: VmadmHost) -> Dict[str, int]:
    """Return what the machine has, by the keys of DEFAULTS."""
    return {**DEFAULTS, **host.state.get("machine", {})}


def change(host: VmadmHost, argv: List[str]) -> None:
    """machine [memory=MIB] [own=MIB] [cpus=N]: set the machine's memory and CPUs, and the memory of its system."""
    pairs = [word.split("=", 1) for word in argv]
    wanted = {key: int(value) for key, value in pairs}
    if not wanted or not set(wanted) <= set(DEFAULTS) or min(wanted.values()) < 0:
        raise ValueError
    if {**figures(host), **wanted}["own"] > {**figures(host), **wanted}["memory"]:
        raise VmError("own cannot be more than memory")
    host.state["machine"] = {**host.state.get("machine", {}), **wanted}


def free(host: VmadmHost) -> int:
    """Return the MiB that neither the system nor a running VM uses."""
    running = [record for record in store.records(host).values() if vmobj.state_of(record) == "running"]
    memory = sum(int(js.to_number(record["cfg"].get("ram", 0))) for record in running)
    known = figures(host)
    return max(0, known["memory"] - known["own"] - memory)


def sysinfo(host: VmadmHost, argv: List[str]) -> Result:
    """Run the `sysinfo` program, with the keys that are the same on every machine."""
    if argv not in ([], ["-f"]):
        return 2, SYSINFO_USAGE, ""
    known = figures(host)
    values = {
        "Live Image": BUILDSTAMP,
        "System Type": "SunOS",
        "VM Capable": True,
        "Bhyve Capable": True,
        "UUID": SERVER_UUID,
        "CPU Total Cores": known["cpus"],
        "MiB of Memory": str(known["memory"]),
    }
    return 0, json.dumps(values, indent=2) + "\n", ""


def kstat(host: VmadmHost, argv: List[str]) -> Result:
    """Run the `kstat` program, with free memory and the boot time. No other statistic exists."""
    if argv[:1] != ["-p"] or len(argv) < 2:
        return 2, "", KSTAT_USAGE
    booted = host.state.get("booted", BOOTED + DAY * host.state.get("boots", 0))
    known = {FREE_PAGES: free(host) * PAGES_PER_MIB, BOOT_TIME: booted}
    lines = [f"{name}\t{known[name]}\n" for name in argv[1:] if name in known]
    return (0 if lines else 1), "".join(lines), ""
