# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replicas of disks between both machines, on real ZFS, over real SSH."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import guests
import pytest
from guests import Disk, Guest
from harness import Lab
from pair import Both, changed

VM = "aaaaaaaa-0000-4000-8000-000000000201"
MIB = 1 << 20
REPLICAS = "zones/flexdisk/replica"


@pytest.fixture
def both(lab: Lab, peer: Lab) -> Iterator[Both]:
    """A VM with two disks and no free space on the first machine, which is stopped."""
    for one in (lab, peer):
        one.reset()
    payload = {
        "uuid": VM,
        "alias": "db01",
        "brand": "bhyve",
        "ram": 128,
        "vcpus": 1,
        "quota": 1,
        "autoboot": False,
        "flexible_disk_size": 160,
        "disks": [{"boot": True, "model": "virtio", "size": 96}, {"model": "virtio", "size": 64}],
    }
    lab.run(["vmadm", "create"], stdin=json.dumps(payload))
    lab.run(["vmadm", "stop", VM, "-F"], check=False)
    yield Both(lab, peer, flexdisk_replicas=[{"vm": "db01", "host": peer.name}])
    for one in (lab, peer):
        one.reset()


@pytest.fixture
def domains(lab: Lab, peer: Lab) -> Iterator[Both]:
    """The same with libvirt; the last of three disks is a file."""
    guest = Guest(lab, "db01", "q35", 1)
    for one in (lab, peer):
        guest.remove()
        one.reset()
    root = f"zones/{guests.uuid(1)}"
    lab.zfs("create", "-o", "mountpoint=none", "-o", "volmode=dev", root)
    volumes = [Disk(f"{root}/disk{number}", number + 1, f"unknown-{number}") for number in range(2)]
    for volume in volumes:
        lab.zfs("create", "-V", "48M", volume.dataset)
    lab.run(["udevadm", "settle"])
    guest.define(volumes)
    entries: list[dict[str, Any]] = [{"name": "root", "pci_slot": "1:0:0"}, {"name": "data", "pci_slot": "2:0:0"}]
    entries.append({"name": "logs", "type": "file", "size": 32})
    declared = {"vm": "db01", "flexible_disk_size": "1GiB", "disks": entries}
    lab.ad_hoc("flexdisk.hypervisor.vm_disks", json.dumps({"hypervisor": "libvirt", "vms": [declared]}))
    yield Both(lab, peer, flexdisk_replicas=[{"vm": "db01", "host": peer.name}], flexible_disks_hypervisor="libvirt")
    guest.remove()
    for one in (lab, peer):
        one.reset()


def write(lab: Lab, disk: int, start: int, count: int) -> None:
    """Write so many MiB of random data."""
    device = f"/dev/zvol/zones/{VM}/disk{disk}"
    lab.run(["dd", "if=/dev/urandom", f"of={device}", "bs=1M", f"seek={start}", f"count={count}", "conv=fsync,notrunc"])


def disks(lab: Lab) -> list[str]:
    """The uuids of the VM's disks."""
    found = json.loads(lab.run(["vmadm", "get", VM]).stdout)
    return [disk["uuid"] for disk in found["disks"]]


def hashes(lab: Lab) -> list[str]:
    """The contents of the disks."""
    return [lab.run(["sha256sum", f"/dev/zvol/zones/{VM}/disk{n}"]).stdout.split()[0] for n in range(2)]


def hashes_there(peer: Lab, uuids: list[str]) -> list[str]:
    """The contents of the newest snapshot of the replicas."""
    return [digest_there(peer, f"{REPLICAS}/{uuid}", False) for uuid in uuids]


def replicate(both: Both, *words: str) -> str:
    """What the playbook prints."""
    done = both.play("replicate", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def started(lab: Lab, argv: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A command that runs meanwhile. It ends with the test."""
    running = subprocess.Popen(
        argv,
        cwd=lab.workdir,
        env=lab.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield running
        running.communicate()
    finally:
        kill(running)
        lab.run(["pkill", "-x", "ssh"], check=False)


def sends(running: subprocess.Popen[str]) -> str:
    """Wait until the playbook shows how far a disk has come. That line."""
    assert running.stdout is not None
    before = []
    for line in iter(running.stdout.readline, ""):
        if ", VM db01, disk " in line:
            return line
        before.append(line)
    pytest.fail(f"nothing was sent:\n{''.join(before)}")


def kill(running: subprocess.Popen[str]) -> None:
    """Kill a playbook with all its processes."""
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)


def results(printed: str) -> list[dict[str, Any]]:
    """The results of verbose output."""
    return [json.loads(text) for text in re.findall(r"=> (\{.*\})$", printed, re.MULTILINE)]


@pytest.mark.full
def test_replicas(lab: Lab, peer: Lab, both: Both) -> None:
    write(lab, 0, 0, 60)
    write(lab, 1, 3, 20)
    predicted = next(one["stream_bytes"] for one in results(replicate(both, "--check", "-vv")) if "stream_bytes" in one)
    printed = replicate(both, "-vv")
    sent = next(one["sent"] for one in results(printed) if "sent" in one)
    assert abs(predicted - sent[0]["sent_bytes"]) < sent[0]["sent_bytes"] / 20
    uuids = disks(lab)
    assert hashes_there(peer, uuids) == hashes(lab)
    assert not changed(replicate(both, "--check"))
    assert not changed(replicate(both))
    write(lab, 0, 0, 96)  # all that the quota has room for beside the first snapshot
    write(lab, 1, 0, 64)
    replicate(both)
    assert hashes_there(peer, uuids) == hashes(lab)
    lawful = json.dumps({"vms": ["db01"]})
    assert '"changed": false' in lab.ad_hoc("flexdisk.hypervisor.zfs_quota", lawful).stdout


@pytest.mark.full
def test_an_interrupted_transfer(lab: Lab, peer: Lab, both: Both) -> None:
    """It shows how far it has come. Killed in the middle, the same command goes on where it was."""
    write(lab, 0, 0, 60)
    argv = both.argv("replicate", "-e", "flexdisk_bandwidth_limit=1MiB")
    with started(lab, argv) as running:
        shown = sends(running)
        lab.run(["pkill", "-x", "ssh"])
        assert running.stdout is not None
        rest = running.stdout.read()
    assert re.search(r"VM db01, disk disk0: sending, \S+ MiB of \S+ MiB \(\d+ %\), \S+ KiB/s, \d+ s left", shown)
    assert running.returncode == 2
    assert "The replicas of this VM are not complete: db01" in rest
    sent = next(one["sent"] for one in results(replicate(both, "-vv")) if "sent" in one)
    assert sent[0]["sent_bytes"] < 58 * MIB
    assert hashes_there(peer, disks(lab)) == hashes(lab)


def test_a_key_opens_nothing_else(lab: Lab, peer: Lab, both: Both) -> None:
    """While a transfer runs, its key opens no shell, no other dataset and no port."""
    write(lab, 0, 0, 40)
    lab.zfs("create", "-V", "16M", "zones/other")
    lab.zfs("snapshot", "zones/other@one")
    argv = both.argv("replicate", "-e", "flexdisk_bandwidth_limit=1MiB")
    with started(lab, argv) as running:
        sends(running)
        pid = lab.run(["pgrep", "-nx", "ssh"]).stdout.strip()
        words = lab.run(["cat", f"/proc/{pid}/cmdline"]).stdout.split("\0")[:-1]
        let_in = peer.run(["cat", "/root/.ssh/authorized_keys"]).stdout
        assert all(f"flexdisk-receive-{uuid}" in let_in for uuid in disks(lab))
        for more in (["touch", "/tmp/shell"], ["zfs", "receive", "zones/stolen"]):
            send = "zfs send zones/other@one"
            done = lab.run(["sh", "-c", f"{send} | {shlex.join([*words, *more])}"], check=False)
            assert done.returncode != 0
            assert "partially-complete state" in done.stderr or "destination" in done.stderr, done.stderr
        forward = [word.replace("ClearAllForwardings=yes", "ClearAllForwardings=no") for word in words[:-1]]
        done = lab.run(
            [*forward, "-o", "ExitOnForwardFailure=yes", "-N", "-R", "9999:localhost:22", words[-1]], check=False
        )
        assert "remote port forwarding failed" in done.stderr
        assert peer.run(["test", "-e", "/tmp/shell"], check=False).returncode == 1
        assert "stolen" not in peer.zfs("list", "-H", "-o", "name")
    assert running.returncode == 0
    let_in = peer.run(["cat", "/root/.ssh/authorized_keys"]).stdout
    assert not any(uuid in let_in for uuid in disks(lab))
    assert lab.run([*words], check=False).returncode == 255
    assert hashes_there(peer, disks(lab)) == hashes(lab)


@pytest.mark.full
def test_the_controller_dies(lab: Lab, peer: Lab, both: Both) -> None:
    """A long transfer goes on to its end. Until then, another run is told who is at work."""
    write(lab, 0, 0, 90)
    with started(lab, both.argv("replicate", "-e", "flexdisk_bandwidth_limit=1MiB")) as running:
        sends(running)
        kill(running)
        refused = both.play("replicate").stdout
        assert f"the disks are being replicated by a transfer to {peer.name} (pid " in refused
        lab.run(["sh", "-c", "while pgrep -x ssh; do sleep 1; done"])
    assert not re.search(r"about [\d.]+ [MG]iB", replicate(both, "--check", "--diff"))
    replicate(both)
    assert hashes_there(peer, disks(lab)) == hashes(lab)
    assert not changed(replicate(both))


@pytest.mark.full
@pytest.mark.parametrize("which", [0, 1], ids=["home", "peer"])
def test_a_host_that_loses_power(lab: Lab, peer: Lab, both: Both, which: int) -> None:
    """In the middle of a stream. The same command goes on, although the other side may still wait."""
    write(lab, 0, 0, 60)
    with started(lab, both.argv("replicate", "-e", "flexdisk_bandwidth_limit=1MiB")) as running:
        sends(running)
        (lab, peer)[which].lose_power()
        running.kill()
    wait = "Locked" if which else ""
    for _try in range(9):
        done = both.play("replicate")
        if done.returncode == 0:
            break
        assert wait in done.stdout + done.stderr
        lab.run(["sleep", "15"])
    assert done.returncode == 0, done.stdout
    assert hashes_there(peer, disks(lab)) == hashes(lab)
    assert not changed(replicate(both))


@pytest.mark.full
def test_disks_of_libvirt(lab: Lab, peer: Lab, domains: Both) -> None:
    """Volumes and a file go to another host, grow, and are idle again."""
    root = f"/dev/zvol/zones/{guests.uuid(1)}"
    said = lab.ad_hoc("flexdisk.hypervisor.disk_info", json.dumps({"hypervisor": "libvirt"})).stdout
    found = {disk["name"]: disk for disk in json.loads(said[said.index("{") :])["disks"]}
    paths = {"root": f"{root}/disk0", "data": f"{root}/disk1", "logs": found["logs"]["path"]}
    for path in paths.values():
        lab.run(["dd", "if=/dev/urandom", f"of={path}", "bs=1M", "count=9", "conv=fsync,notrunc"])
    replicate(domains)
    grown = {"vm": "db01", "disks": [{"name": name, "size": 64} for name in paths]}
    lab.ad_hoc("flexdisk.hypervisor.vm_disks", json.dumps({"hypervisor": "libvirt", "vms": [grown]}))
    for path in paths.values():
        lab.run(["dd", "if=/dev/urandom", f"of={path}", "bs=1M", "seek=50", "count=2", "conv=fsync,notrunc"])
    lab.zfs("snapshot", "-r", f"zones/{guests.uuid(1)}@mine")
    replicate(domains)
    for name, path in paths.items():
        where = f"{REPLICAS}/{found[name]['uuid']}"
        there = peer.get(where, "volsize", "refreservation", "readonly", "volmode", "mounted")
        here = lab.get(found[name]["volume"], "volsize", "refreservation")
        assert {key: there[key] for key in here} == here
        assert there["readonly"] == "on"
        assert there["mounted"] == "no" if name == "logs" else there["volmode"] == "none"
        assert f"{where}@mine" in peer.zfs("list", "-H", "-o", "name", "-t", "snapshot", where).split()
        assert digest_there(peer, where, name == "logs") == lab.run(["sha256sum", path]).stdout.split()[0]
    assert not changed(replicate(domains, "--check"))
    assert not changed(replicate(domains))


def digest_there(peer: Lab, where: str, is_file: bool) -> str:
    """The contents of the newest snapshot of a replica."""
    newest = peer.zfs("list", "-H", "-o", "name", "-t", "snapshot", "-s", "createtxg", where).split()[-1]
    peer.zfs("clone", "-o", "mountpoint=/mnt/look" if is_file else "volmode=dev", newest, "zones/look")
    peer.run(["udevadm", "settle"])
    found = peer.run(["sha256sum", "/mnt/look/disk.raw" if is_file else "/dev/zvol/zones/look"]).stdout.split()[0]
    peer.run(["sh", "-c", "udevadm settle; zfs destroy zones/look || { sleep 2; zfs destroy zones/look; }"])
    return found
