# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replicas of disks between both machines, on real ZFS, over real SSH."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from harness import Lab
from pair import Both

VM = "aaaaaaaa-0000-4000-8000-000000000201"
MIB = 1 << 20
REPLICAS = "zones/flexdisk/replica"


@pytest.fixture
def both(lab: Lab, peer: Lab) -> Iterator[Both]:
    """A VM with two disks on the first machine, which is stopped."""
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
        "flexible_disk_size": 512,
        "disks": [{"boot": True, "model": "virtio", "size": 96}, {"model": "virtio", "size": 64}],
    }
    lab.run(["vmadm", "create"], stdin=json.dumps(payload))
    lab.run(["vmadm", "stop", VM, "-F"], check=False)
    yield Both(lab, peer, flexdisk_replicas=[{"vm": "db01", "host": peer.name}])
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
    found = []
    for uuid in uuids:
        listed = peer.zfs("list", "-H", "-o", "name", "-t", "snapshot", "-s", "createtxg", f"{REPLICAS}/{uuid}")
        peer.zfs("clone", "-o", "volmode=dev", listed.split()[-1], "zones/look")
        peer.run(["udevadm", "settle"])
        found.append(peer.run(["sha256sum", "/dev/zvol/zones/look"]).stdout.split()[0])
        peer.run(["sh", "-c", "udevadm settle; zfs destroy zones/look || { sleep 2; zfs destroy zones/look; }"])
    return found


def replicate(both: Both, *words: str) -> str:
    """What the playbook prints."""
    done = both.play("replicate", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def results(printed: str) -> list[dict[str, Any]]:
    """The results of verbose output."""
    return [json.loads(text) for text in re.findall(r"=> (\{.*\})$", printed, re.MULTILINE)]


def changed(printed: str) -> bool:
    return " changed=0 " not in next(line for line in printed.splitlines() if line.startswith("lab01"))


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


def test_an_interrupted_transfer(lab: Lab, peer: Lab, both: Both) -> None:
    """It shows how far it has come. Killed in the middle, the same command goes on where it was."""
    write(lab, 0, 0, 60)
    argv = both.argv("replicate", "-e", "flexdisk_bandwidth_limit=1MiB")
    with subprocess.Popen(
        argv, cwd=lab.workdir, env=lab.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        assert running.stdout is not None
        shown = next(line for line in iter(running.stdout.readline, "") if "replica_send: VM db01" in line)
        lab.run(["pkill", "-x", "ssh"])
        rest = running.stdout.read()
    assert re.search(r"VM db01, disk disk0: \S+ MiB sent, \S+ KiB/s, \d+ s left", shown)
    assert running.returncode == 2
    assert "The replicas of db01 are not complete" in rest
    sent = next(one["sent"] for one in results(replicate(both, "-vv")) if "sent" in one)
    assert sent[0]["sent_bytes"] < 58 * MIB
    assert hashes_there(peer, disks(lab)) == hashes(lab)


def test_a_key_opens_nothing_else(lab: Lab, peer: Lab, both: Both) -> None:
    """While a transfer runs, its key opens no shell, no other dataset and no port."""
    write(lab, 0, 0, 40)
    lab.zfs("create", "-V", "16M", "zones/other")
    lab.zfs("snapshot", "zones/other@one")
    argv = both.argv("replicate", "-e", "flexdisk_bandwidth_limit=1MiB")
    with subprocess.Popen(argv, cwd=lab.workdir, env=lab.environment(), stdout=subprocess.PIPE, text=True) as running:
        lab.run(["sh", "-c", "until pgrep -x ssh; do sleep 0.2; done"])
        pid = lab.run(["pgrep", "-nx", "ssh"]).stdout.strip()
        words = lab.run(["cat", f"/proc/{pid}/cmdline"]).stdout.split("\0")[:-1]
        assert len(peer.run(["cat", "/root/.ssh/authorized_keys"]).stdout.split("flexdisk-receive-")) == 3
        before = peer.zfs("list", "-H", "-o", "name")
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
        assert peer.zfs("list", "-H", "-o", "name") == before
        running.communicate()
    assert running.returncode == 0
    assert "flexdisk" not in peer.run(["cat", "/root/.ssh/authorized_keys"]).stdout
    assert lab.run([*words], check=False).returncode == 255
    assert hashes_there(peer, disks(lab)) == hashes(lab)
