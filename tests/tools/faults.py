# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interrupts every scenario of the modules at every command in every way, on the simulated node.

Usage: faults.py [--driver vmadm|proxmox] [--seed N] [--workers N] [--scenario NAME ...] [--only POINT [--real]]

A point is SCENARIO:KIND:N, with more KIND:N for faults during the runs after the first. Exits 1 on failures.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import resource
import sys
import time
from collections import defaultdict

from tree import ROOT

sys.path.insert(1, str(ROOT))
importlib.import_module("tests.conftest")  # makes collection and simulator importable

from tests.faults import campaign
from tests.faults.campaign import Job, Verdict
from tests.faults.driver import Point

EXPLAINED = 20
PROGRESS = 10
WIDTH = 300


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("FLEXDISK_SEED") or random.randrange(1_000_000)))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--driver", default=campaign.VMADM, choices=[*campaign.SCENARIOS_OF])
    parser.add_argument("--scenario", action="append")
    parser.add_argument("--only", type=Point.parse, help="SCENARIO:KIND:N")
    parser.add_argument("--real", action="store_true", help="run that point through real processes")
    arguments = parser.parse_args()
    known = campaign.SCENARIOS_OF[arguments.driver]
    wanted = [*(arguments.scenario or ()), *([arguments.only.scenario] if arguments.only else ())]
    for name in (one for one in wanted if one not in known):
        parser.error(f"{arguments.driver} has no scenario {name}; it has: {', '.join(known)}")
    return arguments


def one(job: Job) -> int:
    """Try one point and tell what came of it."""
    complaints = campaign.try_out(job).complaints
    print("\n".join([f"{job}: {len(complaints)} complaints", *complaints]))
    return 1 if complaints else 0


def main() -> int:
    """Returns the exit status."""
    arguments = parse()
    if arguments.only:
        return one(Job(arguments.only, arguments.real, arguments.driver))
    names = arguments.scenario or list(campaign.SCENARIOS_OF[arguments.driver])
    print(f"faults: {arguments.driver}, seed {arguments.seed}, {arguments.workers} processes", flush=True)
    start = time.monotonic()
    wanted = [job for name in names for job in campaign.jobs(name, arguments.seed, arguments.driver)]
    verdicts = defaultdict(list)
    failed: list[Verdict] = []
    total = len(wanted)
    for number, verdict in enumerate(campaign.run(sorted(wanted, key=lambda job: job.real), arguments.workers), 1):
        if number % (total // PROGRESS or 1) == 0:
            print(f"{number} of {total} points, {time.monotonic() - start:.0f} s", flush=True)
        verdicts[verdict.job.point.scenario].append(verdict)
        if verdict.complaints:
            failed.append(verdict)
            print_failure(verdict, len(failed))
    odd = [f"{name}: {text}" for name in names for text in campaign.prepared(name, arguments.driver)[1].complaints]
    report(verdicts, names, arguments.driver)
    for text in odd:
        print(f"UNDISTURBED {text}")
    print(
        f"{len(names)} scenarios, {total} injection points, {sum(job.real for job in wanted)} of them real, "
        f"{len(failed) + len(odd)} failures, {time.monotonic() - start:.0f} s, {cpu_seconds():.0f} s of CPU, "
        f"seed {arguments.seed}"
    )
    return 1 if failed or odd else 0


def cpu_seconds() -> float:
    """What this process and all that it has waited for have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def report(verdicts: dict[str, list[Verdict]], names: list[str], driver: str) -> None:
    """One line for each scenario."""
    print(f"{'scenario':20} {'commands':>8} {'points':>7} {'nested':>7} {'real':>5} {'failures':>8}")
    for name in names:
        mine = verdicts[name]
        nested = sum(len(v.job.point.faults) > 1 for v in mine)
        bad = sum(bool(v.complaints) for v in mine)
        commands = len(campaign.prepared(name, driver)[1].calls)
        real = sum(v.job.real for v in mine)
        print(f"{name:20} {commands:8} {len(mine):7} {nested:7} {real:5} {bad:8}")


def print_failure(verdict: Verdict, number: int) -> None:
    """How it can be had again, and of the first ones what was wrong."""
    print(f"FAILED: .venv/bin/python tests/tools/faults.py --only {verdict.job}", flush=True)
    if number <= EXPLAINED:
        print("\n".join(f"    {text[:WIDTH]}" for text in verdict.complaints), flush=True)


if __name__ == "__main__":
    sys.exit(main())
