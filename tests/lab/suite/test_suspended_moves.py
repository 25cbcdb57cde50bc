# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest moves with its memory between two real libvirt, ZFS and SSH, and writes numbered records all the time."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator

import guests
import pytest
from guests import Guest
from harness import Lab
from pair import Both
from paired_domains import NAME, autostarts, definition, disks, paired_domains, state

pytestmark = pytest.mark.full
MEMORY = f"zones/flexdisk/move/{guests.uuid(1)}/memory"
PLACE = "0000:02:00.0"  # of the disk with the records
# A record is a sector with its number, and is acknowledged in the memory of the guest once it is on the disk.
WRITER = (
    "(n=0; while :; do n=$((n+1)); printf '%0511d\\n' $n | dd of={device} bs=512 seek=$n conv=notrunc,fsync 2>/dev/null"
    " && echo $n >> /acknowledged; sleep 1; done) > /dev/null 2>&1 < /dev/null &"
)
# Waits until the journal of the memory has a word. With pipelining, a module is a Python that reads its program from
# ssh.
UNTIL = """
for again in $(seq 6000); do
    zfs get -H -o value flexdisk:memory {memory} 2>/dev/null | grep -q '"{word}"' && break
    sleep 0.05
done
[ {word} = saving ] || pkill -9 -x -f /usr/bin/python3
zfs get -H -o value flexdisk:memory {memory}
"""


@pytest.fixture
def both(lab: Lab, peer: Lab) -> Iterator[Both]:
    """A stopped domain with three volumes."""
    yield from paired_domains(lab, peer, "thick")


class Writer:
    """A guest that was booted once, and writes records since."""

    def __init__(self, lab: Lab) -> None:
        guest = Guest(lab, NAME)
        seen = guest.start()
        self._path = disks(lab)["data"]["path"]
        guest.ask(WRITER.format(device=next(f"/dev/{one.device}" for one in seen if one.address == PLACE)))
        self._last = 0
        self._uptime = 0.0
        self._disks = self._ask(guest, "disks")
        self._boot = self._ask(guest, "cat /proc/sys/kernel/random/boot_id")
        self._xml = _seen_by_guest(guest)
        self._stored = definition(lab)

    @staticmethod
    def _ask(guest: Guest, command: str) -> str:
        return guest.ask(command).strip()

    def goes_on(self, lab: Lab) -> None:
        """It was not booted, has its disks where they were, misses no record, and writes on."""
        guest = Guest(lab, NAME)
        assert state(lab) == "running"
        assert self._ask(guest, "cat /proc/sys/kernel/random/boot_id") == self._boot
        uptime = float(self._ask(guest, "cat /proc/uptime").split()[0])
        assert uptime > self._uptime
        self._uptime = uptime
        assert self._ask(guest, "disks") == self._disks
        before = self._acknowledged(guest)
        assert before >= self._last
        self._ask(guest, "sleep 3")
        self._last = self._acknowledged(guest)
        assert self._last > before, "it writes no records any more"
        read = ["dd", f"if={self._path}", "bs=512", "skip=1", f"count={self._last}", "iflag=direct", "status=none"]
        assert [int(line) for line in lab.run(read).stdout.split()] == [*range(1, self._last + 1)]
        assert (_seen_by_guest(guest), definition(lab)) == (self._xml, self._stored)
        assert {disk["volume"]: lab.get(disk["volume"], "readonly") for disk in disks(lab).values()} == {
            disk["volume"]: {"readonly": "off"} for disk in disks(lab).values()
        }
        print(f"\n{lab.name}: {self._last} records, up for {uptime:.0f} s", flush=True)

    def _acknowledged(self, guest: Guest) -> int:
        return int(self._ask(guest, "tail -n 1 /acknowledged"))


def _seen_by_guest(guest: Guest) -> list[str]:
    """The lines of the running domain without what its host has chosen for itself."""
    xml = guest.virsh("dumpxml", "--security-info")
    return sorted(re.sub(r" id='\d+'|/domain-\d+-| dev='vnet\d+'| index='\d+'|<seclabel.*", "", xml).splitlines())


def play(both: Both, target: Lab, *words: str, how: str = "suspended", status: int = 0) -> str:
    """Move the domain. What the playbook prints."""
    done = both.play("move_vm", *argv(target, *words, how=how))
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def argv(target: Lab, *words: str, how: str = "suspended") -> list[str]:
    """The words of a move to a machine."""
    variables = (f"flexdisk_vm={NAME}", f"flexdisk_target={target.name}", f"flexdisk_move_how={how}")
    return [*(word for one in variables for word in ("-e", one)), *words]


def idle(printed: str) -> bool:
    """Whether a play has changed nothing on any machine."""
    recap = printed[printed.index("PLAY RECAP") :]
    return recap.count(" changed=0 ") == recap.count(" changed=")


def nothing_left(*machines: Lab) -> None:
    """No saved memory is anywhere."""
    for machine in machines:
        assert machine.run(["zfs", "list", MEMORY], check=False).returncode == 1
        assert machine.run(["sh", "-c", "ls -A /var/lib/flexdisk/memory 2>/dev/null || true"]).stdout == ""


def killed_when_saved(both: Both, home: Lab, target: Lab) -> None:
    """Begin a move, and kill the controller and what runs on the host once the memory is saved."""
    words = both.argv("move_vm", *argv(target))
    with subprocess.Popen(words, cwd=both.lab.workdir, env=both.lab.environment(), stdout=subprocess.DEVNULL) as run:
        for word in ("saving", "saved"):
            script = UNTIL.format(memory=MEMORY, word=word)
            said = home.run(["sh", "-c", script], seconds=1800).stdout
            run.kill()
    assert '"saved"' in said
    home.run(["sh", "-c", "rm -rf /tmp/ansible_*_payload_*"])


def cannot_start(lab: Lab) -> None:
    """Whoever starts the domain without its memory is refused, and nobody has written to its disks."""
    assert state(lab) == "shut off"
    volumes = [disk["volume"] for disk in disks(lab).values()]
    before = [lab.get(volume, "readonly", "written") for volume in volumes]
    assert [volume["readonly"] for volume in before] == ["on"] * 3
    started = lab.run(["virsh", "start", NAME], check=False)
    print(started.stdout + started.stderr, flush=True)
    assert started.returncode != 0, "a domain was started whose memory is saved"
    assert "Read-only file system" in started.stderr
    assert state(lab) == "shut off"
    assert [lab.get(volume, "readonly", "written") for volume in volumes] == before


def test_killed_after_the_save(lab: Lab, peer: Lab, both: Both) -> None:
    """Nobody starts the domain then. It is given up, then it goes on; the second time after a loss of power."""
    Guest(lab, NAME).virsh("autostart")
    writer = Writer(lab)
    writer.goes_on(lab)
    killed_when_saved(both, lab, peer)
    cannot_start(lab)
    assert "its guest goes on" in play(both, peer, "-e", "flexdisk_move_state=stays")
    writer.goes_on(lab)
    nothing_left(lab, peer)
    assert "there is no move" in play(both, peer, "-e", "flexdisk_move_state=stays")

    killed_when_saved(both, lab, peer)
    lab.run(["sync"])
    lab.lose_power()
    assert autostarts(lab)
    cannot_start(lab)
    assert "its guest goes on" in play(both, peer)
    writer.goes_on(peer)
    nothing_left(lab, peer)
    assert (state(lab), disks(lab)) == ("", {})


def test_there_and_back(lab: Lab, peer: Lab, both: Both) -> None:
    """The guest sees a pause, and nothing else. A second run is idle. If a program has a volume open, the guest stays:
    ZFS would let others write to that.
    """
    writer = Writer(lab)
    device = shlex.quote(disks(lab)["logs"]["path"])
    opener = lab.run(["sh", "-c", f"sleep 36000 < {device} > /dev/null 2>&1 & echo $!"]).stdout.strip()
    printed = play(both, peer, status=2)
    lab.run(["kill", opener])
    assert re.search(r"another program has zones/\S+ open, so read-only disks would not keep the VM", printed)
    writer.goes_on(lab)
    nothing_left(lab, peer)
    for home, target in ((lab, peer), (peer, lab)):
        assert "its guest goes on" in play(both, target, "--check")
        printed = play(both, target)
        print(*re.findall(r"it was down for [\d.]+ s", printed))
        writer.goes_on(target)
        nothing_left(lab, peer)
        assert (state(home), disks(home)) == ("", {})
        assert idle(play(both, target))
        writer.goes_on(target)
