# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What moves and replicas cost on both machines of the lab, each beside its floor: the same without us."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterable
from pathlib import Path

import boot
from harness import Lab
from pair import Both

SHIM = "/root/bench-pair"
LOG = f"{SHIM}/commands.log"
KEY = f"{SHIM}/key"
MARK = "bench-pair"
PROGRAMS = ("zfs", "zpool", "vmadm", "zdb", "ssh", "ssh-keygen")
REAL_PATH = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
VM = "cccccccc-0000-4000-8000-000000000001"
MOST = {"switch": 1.2, "throughput": 1 / 0.95, "idle": 0.1}  # ours over the floor
SSH = "ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
Span = tuple[float, float]


def install(labs: Iterable[Lab]) -> None:
    """Programs that note when they began and ended, if we start them, and not vmadm."""
    for lab in labs:
        lab.run(["mkdir", "-p", SHIM])
        for program in PROGRAMS:
            real = lab.run(["sh", "-c", f"command -v {program}"]).stdout.strip()
            lines = (
                "#!/bin/sh",
                "began=$(date +%s.%N)",
                f'PATH={REAL_PATH} {real} "$@"',
                "status=$?",
                f'echo "$began $(date +%s.%N) {program} $1" >> {LOG}',
                "exit $status",
            )
            lab.run(["sh", "-c", f"cat > {SHIM}/{program}; chmod 755 {SHIM}/{program}"], stdin="\n".join(lines) + "\n")


def noted(labs: Iterable[Lab]) -> list[tuple[float, float, str]]:
    """Begin and end of each command, and its first two words. Both machines have the clock of the host."""
    lines = [line for lab in labs for line in lab.run(["cat", LOG], check=False).stdout.splitlines()]
    return sorted((float(began), float(ended), words) for began, ended, words in (x.split(" ", 2) for x in lines))


def forget(labs: Iterable[Lab]) -> None:
    for lab in labs:
        lab.run(["sh", "-c", f": > {LOG}"])


def covered(spans: Iterable[Span]) -> float:
    """Seconds in which at least one of the spans lasts."""
    total, until = 0.0, 0.0
    for began, ended in sorted(spans):
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total


def starts(spans: Iterable[Span]) -> int:
    """How many of the spans begin when no other lasts: the programs of a pipe begin at once."""
    count, until = 0, 0.0
    for began, ended in sorted(spans):
        count += began >= until
        until = max(until, ended)
    return count


def created(lab: Lab, uuid: str, alias: str, disks: int, size: int) -> None:
    """A VM with so many disks of so many MiB, and as much room for their snapshots."""
    payload = {
        "uuid": uuid,
        "alias": alias,
        "brand": "bhyve",
        "ram": 128,
        "quota": 1,
        "autoboot": False,
        "flexible_disk_size": 2 * disks * size,
        "disks": [{"size": size, "model": "virtio", "boot": number == 0} for number in range(disks)],
    }
    lab.run(["vmadm", "create"], stdin=json.dumps(payload))
    lab.run(["vmadm", "stop", uuid, "-F"], check=False)


def filled(lab: Lab, uuid: str, disks: int, mib: int) -> list[str]:
    """Random data on each disk of a VM. The datasets of the disks."""
    names = [f"zones/{uuid}/disk{number}" for number in range(disks)]
    for name in names:
        lab.run(["dd", "if=/dev/urandom", f"of=/dev/zvol/{name}", "bs=1M", f"count={mib}", "conv=fsync,notrunc"])
    return names


def played(both: Both, playbook: str, *words: str) -> str:
    done = both.play(playbook, *words)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout


def paths() -> dict[str, dict[str, str]]:
    return {"flexdisk_environment": {"PATH": f"{SHIM}:{REAL_PATH}"}}


def pause(lab: Lab) -> float:
    """Seconds between two commands of a shell script, which the noting takes, too."""
    forget((lab,))
    lab.run(["sh", "-euc", f"for number in $(seq 30); do {SHIM}/zpool version; done"])
    spans = [(began, ended) for began, ended, _words in noted((lab,))]
    return (spans[-1][1] - spans[0][0] - covered(spans)) / (len(spans) - 1)


def switch(lab: Lab, peer: Lab) -> float:
    """A move of a running VM with two disks. Its floor: the commands between stop and start, in a shell script."""
    created(lab, VM, "bench", 2, 128)
    filled(lab, VM, 2, 64)
    lab.run(["vmadm", "start", VM])
    between = pause(lab)
    forget((lab, peer))
    both = Both(lab, peer, **paths())
    printed = played(both, "move_vm", "-e", "flexdisk_vm=bench", "-e", f"flexdisk_target={peer.name}")
    (told,) = re.findall(r"it was down for ([\d.]+) s", printed)
    commands = noted((lab, peer))
    (stop,) = (began for began, _ended, words in commands if words == "vmadm stop")
    start = max(ended for _began, ended, words in commands if words == "vmadm start")
    spans = [(began, ended) for began, ended, _words in commands if began >= stop and ended <= start]
    down, floor = start - stop, covered(spans) + starts(spans) * between
    print(
        f"switch: down for {down:.1f} s (the playbook says {told} s), {len(spans)} commands take {covered(spans):.1f} s"
    )
    print(f"        {between:.3f} s between two commands of a shell script: {floor:.1f} s")
    return down / floor


def throughput(lab: Lab, peer: Lab) -> float:
    """A first sync of 1 disk and of 4 beside zfs send | ssh | zfs receive of the same snapshots. The worse ratio."""
    target = shlex.quote(f"root@{boot.peer_address(peer.name)}")
    lab.run(["sh", "-euc", f"rm -f {KEY} {KEY}.pub; ssh-keygen -q -t ed25519 -N '' -C {MARK} -f {KEY}"])
    public = lab.run(["cat", f"{KEY}.pub"]).stdout
    peer.run(["sh", "-euc", "umask 077; mkdir -p /root/.ssh; cat >> /root/.ssh/authorized_keys"], stdin=public)
    worst = 0.0
    for disks in (1, 4):
        uuid, name = VM[:-1] + str(disks), f"bench{disks}"
        created(lab, uuid, name, disks, 256)
        datasets = filled(lab, uuid, disks, 224)
        both = Both(lab, peer, flexdisk_replicas=[{"vm": name, "host": peer.name}])
        printed = played(both, "replicate", "-v")
        took = [float(text) for text in re.findall(r'"seconds": ([\d.]+)', printed)]
        ours = max(took)
        peer.zfs("create", "-p", f"zones/plain{disks}")
        began = time.monotonic()
        script = [
            f"zfs send -c $(zfs list -Ho name -t snapshot -d 1 {dataset} | tail -n 1)"
            f" | {SSH} -i {KEY} {target} zfs receive -s -u zones/plain{disks}/disk{number}"
            for number, dataset in enumerate(datasets)
        ]
        lab.run(["sh", "-euc", "; ".join(script)], seconds=1200)
        plain = time.monotonic() - began
        print(
            f"throughput, {disks} disks: ours {ours:.1f} s, plain {plain:.1f} s: {plain / ours:.2f} of the plain rate"
        )
        worst = max(worst, ours / plain)
    peer.run(["sed", "-i", f"/ {MARK}$/d", "/root/.ssh/authorized_keys"])
    return worst


def idle(lab: Lab, peer: Lab) -> float:
    """A sync of 100 small disks that has nothing to do, beside one zfs list for each disk on each side."""
    names = []
    for number in range(25):
        names.append(f"bench{number}")
        created(lab, f"{VM[:-4]}{number:04}", names[-1], 4, 16)
    wanted = [{"vm": name, "host": peer.name} for name in names]
    both = Both(lab, peer, flexdisk_replicas=wanted, **paths())
    played(both, "replicate")
    forget((lab, peer))
    began = time.monotonic()
    played(both, "replicate")
    took, processes = time.monotonic() - began, len(noted((lab, peer)))
    plain = 0
    began = time.monotonic()
    for one, above in ((lab, "zones"), (peer, "zones/flexdisk/replica")):
        each = "zfs list -Hpd 1 -t snapshot $disk >/dev/null; echo"
        loop = f"for disk in $(zfs list -rHo name -t volume {above}); do {each}; done"
        plain += len(one.run(["sh", "-euc", loop], seconds=1200).stdout)
    seconds = time.monotonic() - began
    print(f"idle, {4 * len(names)} disks: {processes} processes, {took:.1f} s; one by one {plain}, {seconds:.1f} s")
    return processes / plain


PARTS = {"switch": switch, "throughput": throughput, "idle": idle}


def run(part: str, scratch: Path) -> int:
    """0 if the part keeps its target. Both machines are emptied."""
    labs = lab, peer = Lab(scratch / "lab"), Lab(scratch / "peer", boot.MACHINES[1])
    for one in labs:
        one.reset()
    install(labs)
    try:
        ratio = PARTS[part](lab, peer)
    finally:
        for one in labs:
            one.reset()
            one.run(["rm", "-rf", SHIM])
    print(f"{part}: {ratio:.2f} of the floor, at most {MOST[part]:.2f}: {'met' if ratio <= MOST[part] else 'missed'}")
    return int(ratio > MOST[part])
