# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scenarios of streams between two labs, and what only real machines show: killed processes and lost power."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator

import boot
import pytest
from _pytest.mark import ParameterSet
from harness import Lab

from tests.streams.pair import POOL, Done, Host, Pair
from tests.streams.scenarios import MIB, REPLICA, SCENARIOS, disk, next_snapshot, run

SHARE = ("first_stream", "cut_increment")
KEY = "/root/.ssh/streams"
SSH = (
    "ssh", "-F", "none", "-i", KEY, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
    "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
    "-o", "ServerAliveInterval=2", "-o", "ServerAliveCountMax=2",
)  # fmt: skip
SLOW = """
import sys, time
while data := sys.stdin.buffer.read(1 << 20):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    time.sleep(0.2)
"""
KILLS = {"sender": "^zfs send", "ssh": "^ssh .*receive", "receiver": "^zfs receive"}
BEGUN_SECONDS = 60.0


class LabHost(Host):
    """A machine of the lab."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def run(self, *argv: str) -> Done:
        done = self.lab.run(argv, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    def run_with(self, stdin: str, *argv: str) -> Done:
        done = self.lab.run(argv, stdin=stdin, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    def write(self, volume: str, start: int, length: int, seed: str) -> None:
        del seed  # no two writes are the same
        words = f"bs=1M seek={start} count={length} oflag=direct status=none"
        self.shell(f"udevadm settle; dd if=/dev/urandom of=/dev/zvol/{volume} {words}")

    def digest(self, volume: str) -> str:
        before = self.get(volume, "volmode")
        self.zfs("set", "volmode=default", volume)
        try:
            return self.shell(f"udevadm settle -E /dev/zvol/{volume}; sha256sum /dev/zvol/{volume}").split()[0]
        finally:
            self.shell("udevadm settle")
            self.zfs(*(("set", "volmode=none") if before == "none" else ("inherit", "volmode")), volume)

    def shell(self, text: str) -> str:
        return self.lab.run(["sh", "-euc", text]).stdout


class LabPair(Pair):
    """Both machines. They reach each other by ssh, in a network of their own."""

    def __init__(self, source: Lab, target: Lab) -> None:
        self.source: LabHost = LabHost(source)
        self.target: LabHost = LabHost(target)
        self.ssh = shlex.join([*SSH, f"root@{boot.peer_address(target.name)}"])

    def pipe(self, send: list[str], receive: list[str], cut: int) -> Done:
        sender = shlex.join(["zfs", *send]) + (f" 2>/dev/null | head -c {cut}" if cut else "")
        return self.source.run("sh", "-c", f"{sender} | {self.ssh} {shlex.join(['zfs', *receive])}")

    def pipe_back(self, send: list[str], receive: list[str], cut: int) -> Done:
        """Through this machine, for the target may not log in to the source."""
        del cut
        sender = shlex.join(["zfs", *send])
        path = "/var/tmp/stream"
        done = self.target.run("sh", "-c", f"{sender} >{path}")
        if done.rc:
            return done
        self.source.shell(f"{self.ssh} cat {path} >{path}")
        return self.source.run("sh", "-c", f"{shlex.join(['zfs', *receive])} <{path}")

    def begin(self, send: str, receive: str) -> None:
        """The same in the background, 5 MiB in a second at most. It has begun when a part has arrived."""
        script = f"zfs send {send} | python3 -c {shlex.quote(SLOW)} | {self.ssh} zfs receive {receive}"
        self.source.shell(f"setsid sh -c {shlex.quote(script)} >/dev/null 2>&1 &")
        until = time.monotonic() + BEGUN_SECONDS
        while not self.target.run("pgrep", "-f", KILLS["receiver"]).stdout and time.monotonic() < until:
            time.sleep(0.2)
        time.sleep(2)


def share(names: Iterable[str], wanted: Iterable[str]) -> list[ParameterSet]:
    """All of the names; those that are not wanted are for the full run."""
    return [pytest.param(name, marks=[] if name in wanted else pytest.mark.full) for name in names]


@pytest.fixture(scope="module")
def pair(lab: Lab, peer: Lab) -> Iterator[LabPair]:
    """Two machines with empty pools, the first of which may log in to the second."""
    for one in (lab, peer):
        one.reset()
    lab.run(["sh", "-euc", f"mkdir -p /root/.ssh; rm -f {KEY}; ssh-keygen -q -t ed25519 -N '' -f {KEY}; sync"])
    public = lab.run(["cat", f"{KEY}.pub"]).stdout
    peer.run(["sh", "-euc", "mkdir -p /root/.ssh; cat > /root/.ssh/authorized_keys; sync"], stdin=public)
    yield LabPair(lab, peer)
    for one in (lab, peer):
        one.run(["rm", "-rf", "/root/.ssh"])
        one.reset()


@pytest.mark.parametrize("name", share(SCENARIOS, SHARE))
def test_streams(pair: LabPair, name: str) -> None:
    run(pair, name)


def interrupted(pair: LabPair, name: str) -> str:
    """A replica whose second increment is on its way."""
    name = f"{POOL}/{name}"
    disk(pair, name)
    pair.sent(f"{name}@1", f"{REPLICA} {name}")
    next_snapshot(pair, name, "2", 40)
    pair.begin(f"-Lec -i @1 {name}@2", f"-s -u {name}")
    return name


def goes_on(pair: LabPair, name: str) -> None:
    """The target has a token, and the rest of the stream makes the replica whole."""
    assert pair.target.snapshots(name) == ["1"]
    pair.sent(f"-t {pair.target.token(name)}", f"-s -u {name}")
    assert pair.target.snapshots(name) == ["1", "2"]
    assert pair.target.digest(name) == pair.source.digest(name)


@pytest.mark.parametrize("victim", share(KILLS, []))
def test_a_killed_process(pair: LabPair, victim: str) -> None:
    """What has arrived is kept, whoever is killed."""
    name = interrupted(pair, f"killed-{victim}")
    host = pair.target if victim == "receiver" else pair.source
    assert host.run("pkill", "-9", "-f", KILLS[victim]).rc == 0
    time.sleep(1)
    token = pair.target.token(name)
    left = int(pair.source.zfs("send", "-nP", "-t", token).splitlines()[-1].split()[1])
    assert left < 39 * MIB, "a part had arrived"
    goes_on(pair, name)


@pytest.mark.full
def test_a_target_that_loses_power(pair: LabPair) -> None:
    """It has the token of an empty part, or of a part; nothing that was complete is lost."""
    name = interrupted(pair, "target-reset")
    pair.target.lab.lose_power()
    goes_on(pair, name)


@pytest.mark.full
def test_a_source_that_loses_power(pair: LabPair) -> None:
    """The receiver waits for ever, for nobody tells it: it must be ended. Then the stream goes on."""
    name = interrupted(pair, "source-reset")
    pair.source.lab.lose_power()
    assert pair.target.run("pgrep", "-f", KILLS["receiver"]).rc == 0
    assert "partially-complete state" in pair.refused(f"-i @1 {name}@2", f"-s -u {name}")
    assert pair.target.run("pkill", "-9", "-f", KILLS["receiver"]).rc == 0
    time.sleep(1)
    goes_on(pair, name)


@pytest.mark.full
def test_encrypted_volumes(pair: LabPair) -> None:
    """Sent raw they need no key, here or there. A stream that is not raw leaves its target unencrypted."""
    name = f"{POOL}/encrypted"
    key = "echo passwordpassword | zfs"
    pair.source.shell(f"{key} create -o encryption=on -o keyformat=passphrase -V 64M {name}")
    pair.source.write(name, 0, 4, "")
    pair.source.zfs("snapshot", f"{name}@1")
    pair.sent(f"{name}@1", f"-u {name}-plain")
    assert pair.target.get(f"{name}-plain", "encryption") == "off"
    pair.sent(f"-w {name}@1", f"{REPLICA} {name}")
    assert pair.target.get(name, "keystatus") == "unavailable"
    pair.target.zfs("set", "refreservation=auto", name)
    next_snapshot(pair, name, "2")
    assert "key must be loaded" in pair.refused(f"-i @1 {name}@2", f"-s -u {name}")
    assert "cannot perform raw receive" in pair.refused(f"-w -i @1 {name}@2", f"-s -u {name}-plain")
    before = pair.source.digest(name)
    pair.source.shell(f"udevadm settle; zfs unload-key {name}")
    pair.sent(f"-w -i @1 {name}@2", f"-s -u {name}")
    pair.target.shell(f"{key} load-key {name}")
    assert pair.target.digest(name) == before
    assert pair.target.get(name, "written") == "0"


@pytest.mark.full
def test_a_raw_stream_to_a_pool_that_cannot_encrypt(pair: LabPair) -> None:
    """It is refused until the feature is enabled."""
    name, file = f"{POOL}/for-old", "/var/tmp/old.img"
    pair.source.shell(f"echo passwordpassword | zfs create -o encryption=on -o keyformat=passphrase -V 64M {name}")
    pair.source.zfs("snapshot", f"{name}@1")
    pair.target.shell(f"truncate -s 512M {file}; zpool create -o feature@encryption=disabled old {file}")
    try:
        asked = "zpool get -H -o value feature@encryption old"
        assert pair.target.shell(asked) == "disabled\n"
        failure = "cannot receive new filesystem stream: pool must be upgraded to receive this stream.\n"
        assert pair.refused(f"-w {name}@1", f"{REPLICA} old/disk") == failure
        pair.target.shell("zpool set feature@encryption=enabled old")
        assert pair.target.shell(asked) == "enabled\n"
        pair.sent(f"-w {name}@1", f"{REPLICA} old/disk")
        assert pair.target.shell(asked) == "active\n"
    finally:
        pair.target.shell(f"udevadm settle; zpool destroy old; rm {file}")


def test_contents_of_files(pair: LabPair) -> None:
    """A disk that is a file arrives with its mode, byte by byte, and an increment follows while it is mounted."""
    name = f"{POOL}/files"
    fresh = "dd if=/dev/urandom bs=1M status=none conv=notrunc"
    pair.source.shell(f"zfs create {name}; {fresh} count=9 of=/{name}/disk.qcow2; chmod 600 /{name}/disk.qcow2")
    pair.source.zfs("snapshot", f"{name}@1")
    pair.sent(f"-Lec {name}@1", f"-s -u -o readonly=on -o canmount=noauto {name}")
    pair.source.shell(f"{fresh} count=2 of=/{name}/disk.qcow2")
    pair.source.zfs("snapshot", f"{name}@2")
    pair.target.zfs("mount", name)
    pair.sent(f"-Lec -i @1 {name}@2", f"-s -u {name}")
    look = f"stat -c %a /{name}/disk.qcow2; sha256sum /{name}/disk.qcow2"
    assert pair.target.shell(look) == pair.source.shell(look)
    assert pair.target.get(name, "written") == "0"


@pytest.mark.full
def test_an_estimate_is_near_what_is_sent(pair: LabPair) -> None:
    """For data that does not compress: to 5 %, the rest of an interrupted stream, too."""
    name = interrupted(pair, "estimated")
    assert pair.target.run("pkill", "-9", "-f", KILLS["receiver"]).rc == 0
    time.sleep(1)
    for words in (f"{name}@1", f"-i @1 {name}@2", f"-t {pair.target.token(name)}"):
        told = int(pair.source.zfs("send", "-nP", *words.split()).splitlines()[-1].split()[1])
        sent = int(pair.source.shell(f"zfs send {words} | wc -c"))
        assert abs(told - sent) < sent / 20, (words, told, sent)
