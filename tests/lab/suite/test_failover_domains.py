# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The first machine loses its power, and the other one brings its domain back: two real libvirt, ZFS and SSH.

FLEXDISK_SEED chooses when failovers are killed, FLEXDISK_POINTS how many.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator

import pytest
from guests import Guest
from harness import Lab
from pair import Both
from paired_domains import (
    NAME,
    autostarts,
    contents,
    converge,
    definition,
    disks,
    fill,
    paired_domains,
    state,
)

pytestmark = pytest.mark.full
POINTS = int(os.environ.get("FLEXDISK_POINTS") or 20)
SEED = int(os.environ.get("FLEXDISK_SEED") or random.SystemRandom().randrange(1_000_000))
VM = ("-e", f"flexdisk_vm={NAME}")
# With pipelining, a module is a Python that reads its program from ssh. The folder of its archive says which one runs.
KILL = """
for again in $(seq 100); do
    ls -d /tmp/ansible_*host_step_payload_* >/dev/null 2>&1 && pkill -9 -x -f /usr/bin/python3 && break
    sleep 0.2
done
rm -rf /tmp/ansible_*_payload_*
"""
IN_A_ROW = 4  # kills of one failover, at most


@pytest.fixture
def both(lab: Lab, peer: Lab) -> Iterator[Both]:
    """A stopped domain, with data."""
    yield from paired_domains(lab, peer)


def play(both: Both, playbook: str, *words: str, status: int = 0) -> str:
    """What the playbook prints."""
    done = both.play(playbook, *words)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def failover(target: Lab) -> tuple[str, ...]:
    """The words of a failover to a machine."""
    words = ("-e", "flexdisk_fenced=true", "-e", "flexdisk_max_data_loss=3600")
    return (*VM, "-e", f"flexdisk_target={target.name}", *words)


def replicates(both: Both, target: Lab) -> None:
    """With failover."""
    play(both, "replicate", *VM, "-e", f"flexdisk_replica_host={target.name}", "-e", "flexdisk_failover=true")


def ends(both: Both) -> None:
    """The old home ends the domain, and gives up what only it has."""
    for word in ("returned", "given_up"):
        play(both, "failover_vm", *VM, "-e", f"flexdisk_failover_state={word}")


def test_a_failover_and_the_way_back(lab: Lab, peer: Lab, both: Both) -> None:
    """The guest sees its disks there as here. What it wrote after the last sync is kept until the word."""
    here, there = Guest(lab, NAME), Guest(peer, NAME)
    seen = here.start()
    play(both, "replicate", "-e", "flexdisk_failover=true")
    assert not autostarts(lab)
    fill(lab, disks(lab)["data"]["path"], 3, 9)
    play(both, "replicate")
    before, kept, xml = disks(lab), contents(lab), definition(lab)
    fill(lab, before["root"]["path"], 10, 9)
    lost = contents(lab)["root"]
    lab.run(["sync"])
    lab.lose_power()
    assert state(lab) == "shut off"

    assert f"{lab.name}, the host of {NAME}, answers" in play(both, "failover_vm", *failover(peer), status=2)
    both.hide(lab.name)
    play(both, "failover_vm", *failover(peer))
    there.wait_for(seen)
    assert (contents(peer), definition(peer), autostarts(peer)) == (kept, xml, False)
    after = disks(peer)
    for name, disk in before.items():
        same = ("uuid", "pci_slot", "size", "type", "preserve", "boot")
        assert [after[name][key] for key in same] == [disk[key] for key in same]

    both.hide("")
    assert f"{peer.name} has taken it over" in play(both, "start_host", "--limit", lab.name)
    assert state(lab) == "shut off"
    play(both, "failover_vm", *VM, "-e", "flexdisk_failover_state=returned")
    assert disks(lab) == {}
    place = f"/dev/zvol/zones/flexdisk/diverged/{before['root']['uuid']}"
    assert lab.run(["sha256sum", place]).stdout.split()[0] == lost
    play(both, "failover_vm", *VM, "-e", "flexdisk_failover_state=given_up")

    replicates(both, lab)
    play(both, "move_vm", *VM, "-e", f"flexdisk_target={lab.name}")
    here.wait_for(seen)
    assert (contents(lab), definition(lab), disks(peer), autostarts(lab)) == (kept, xml, {}, False)
    converge(lab, {"disks": [{"name": name} for name in before]})
    lab.lose_power()
    assert state(lab) == "shut off"
    play(both, "start_host", "--limit", lab.name)
    here.wait_for(seen)
    play(both, "replicate", *VM, "-e", f"flexdisk_replica_host={peer.name}", "-e", "flexdisk_failover=false")
    assert autostarts(lab)


def killed(both: Both, target: Lab, seconds: float) -> bool:
    """Begin a failover, or go on, and kill what runs on the target after so many seconds. Whether it did not end."""
    words = both.argv("failover_vm", *failover(target))
    with subprocess.Popen(words, cwd=both.lab.workdir, env=both.lab.environment(), stdout=subprocess.DEVNULL) as run:
        time.sleep(seconds)
        target.run(["sh", "-c", KILL])
        return run.wait() != 0


def test_killed_anywhere(lab: Lab, peer: Lab, both: Both, capsys: pytest.CaptureFixture[str]) -> None:
    """There and back again, each failover killed at some moments until it ends. The domain never runs on both."""
    dice = random.Random(SEED)
    home, target, points = lab, peer, 0
    Guest(lab, NAME).virsh("start")
    replicates(both, peer)
    took = 30.0
    while points < POINTS:
        kept = contents(home)
        Guest(home, NAME).virsh("destroy")
        both.hide(home.name)
        for _again in range(IN_A_ROW):
            at = dice.uniform(0, took)
            if not killed(both, target, at):
                break
            points += 1
            with capsys.disabled():
                print(f"\nfailovers: seed {SEED}, point {points}: {at:.1f} s: {state(target) or 'begun'}", flush=True)
            assert state(home) == "shut off"
        began = time.monotonic()
        play(both, "failover_vm", *failover(target))
        took = max(took, time.monotonic() - began)
        assert (state(home), state(target), contents(target)) == ("shut off", "running", kept)
        both.hide("")
        assert f"{target.name} has taken it over" in play(both, "start_host", "--limit", home.name)
        ends(both)
        assert state(home) == ""
        replicates(both, home)
        home, target = target, home
