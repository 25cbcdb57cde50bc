# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All injection points on a simulated node, some of them through real processes, on as many cores as there are."""

from __future__ import annotations

import functools
import pickle
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.faults import driver, proxmox
from tests.faults.driver import Baseline, Point
from tests.faults.kinds import KINDS, Kind
from tests.faults.node import NodeBackend
from tests.faults.processes import ProcessBackend
from tests.faults.proxmox import ProxmoxBackend
from tests.faults.scenarios import SCENARIOS, Scenario
from tests.faults.shim import changes

REAL_ONE_IN = 20
NESTED = 20
CHUNK = 4
VMADM, PROXMOX = "vmadm", "proxmox"
SCENARIOS_OF: Mapping[str, Mapping[str, Scenario]] = {VMADM: SCENARIOS, PROXMOX: proxmox.SCENARIOS}
_BACKENDS: Mapping[str, Callable[..., NodeBackend]] = {VMADM: NodeBackend, PROXMOX: ProxmoxBackend}


@dataclass(frozen=True)
class Job:
    """One point, in process or through real processes. driver: that of the node."""

    point: Point
    real: bool
    driver: str = VMADM

    def __str__(self) -> str:
        other = f" --driver {self.driver}" if self.driver != VMADM else ""
        return f"{self.point}{' --real' if self.real else ''}{other}"


@dataclass(frozen=True)
class Verdict:
    """What came of a job."""

    job: Job
    complaints: list[str]


@functools.cache
def prepared(name: str, of: str = VMADM) -> tuple[bytes, Baseline]:
    """The state in which a scenario begins, and its undisturbed run. of: the driver."""
    scenario, make = SCENARIOS_OF[of][name], _BACKENDS[of]
    backend = make()
    scenario.prepare(backend)
    state = backend.save()
    return state, driver.undisturbed(scenario, make(pickle.loads(state)))


def jobs(scenario: str, seed: int, of: str = VMADM) -> list[Job]:
    """Every point of a scenario. Which ones are real, and which are nested, depends on the seed. Of Proxmox VE, none is
    real: the program that answers for its QEMU is none of these processes.
    """
    _state, baseline = prepared(scenario, of)
    dice = random.Random(f"{scenario}:{seed}")
    every = list(driver.points(baseline, lambda kind: kind.in_process or kind.in_processes))
    points = [point for point in every if _kind(point).in_process]
    nested = driver.nested(baseline, lambda kind: kind.in_process, NESTED, seed)
    fit = [point for point in every if of == VMADM and _worth_processes(baseline, point)]
    real = dice.sample(fit, min(len(fit), round((len(points) + len(nested)) / REAL_ONE_IN)))
    plain = [point for point in points + nested if point not in real]
    return [Job(point, False, of) for point in plain] + [Job(point, True, of) for point in real]


def _kind(point: Point) -> Kind:
    return KINDS[point.faults[0][0]]


def _worth_processes(baseline: Baseline, point: Point) -> bool:
    """Whether its command changes something: processes that only look are like each other."""
    return _kind(point).in_processes and changes(baseline.calls[point.faults[0][1] - 1])


def try_out(job: Job) -> Verdict:
    """Do it."""
    state, baseline = prepared(job.point.scenario, job.driver)
    node = pickle.loads(state)
    if not job.real:
        return Verdict(job, driver.judge(job.point, baseline, _BACKENDS[job.driver](node)))
    folder = tempfile.TemporaryDirectory(prefix="flexdisk-faults-")
    with folder as path, ProcessBackend(Path(path), node) as backend:
        return Verdict(job, driver.judge(job.point, baseline, backend))


def run(wanted: Iterable[Job], workers: int) -> Iterator[Verdict]:
    """Verdicts as they come, in no order."""
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(try_out, wanted, chunksize=CHUNK)
