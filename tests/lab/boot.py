# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's virtual machines, started over copy-on-write overlays, so that the cached image stays as it was built."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path

from recipe import LabError, cache_dir, locked

MACHINES = ("lab01", "lab02")
GUEST = "guest"  # booted beside them, by booted.py

MEMORY_MIB = 2048
CPUS = 2
POOL_DISK_BYTES = 48 << 30
KERNEL_ARGUMENTS = (
    "console=ttyS0 net.ifnames=0 mitigations=off audit=0 quiet systemd.show_status=false "
    "no_timer_check "  # on a busy host the kernel would find its timer broken and panic
    "tsc=reliable preempt=none clearcpuid=rep_good"  # what is cheap in emulation: no HPET, no interruption, no rep stos
)
STOP_SECONDS = 20.0
_machine = ContextVar("machine", default=MACHINES[0])


@contextmanager
def machine(name: str) -> Iterator[None]:
    """Everything inside is about this one of the MACHINES; elsewhere it is about the first."""
    token = _machine.set(name)
    try:
        yield
    finally:
        _machine.reset(token)


def current() -> str:
    """The machine that this is about."""
    return _machine.get()


def run_dir() -> Path:
    """The folder of a machine that runs: key, port, pid, console log, overlay, pool disk, inventory."""
    return cache_dir() / ("run" if current() == MACHINES[0] else f"run-{current()}")


def peer_address(name: str) -> str:
    """The address of a machine in the network that the machines share."""
    return f"192.168.77.{1 + MACHINES.index(name)}"


def alone() -> AbstractContextManager[None]:
    """While a suite runs, or the pool is emptied: no other does the same. Raises LabError if one does."""
    return locked(cache_dir() / "suite.lock", "another suite runs on this lab, and would lose its pool")


def pid() -> int | None:
    """Process id of the running machine; None when it is down. A stale pid file of another process does not count."""
    path = run_dir() / "qemu.pid"
    try:
        number = int(path.read_text(encoding="utf-8"))
        command = Path(f"/proc/{number}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    return number if os.fsencode(path) in command.split(b"\0") else None


def pids() -> list[int]:
    """Those of all machines that run and of the guest; of the guest alone where it is about that one."""
    numbers = []
    for name in (GUEST,) if current() == GUEST else (*MACHINES, GUEST):
        with machine(name):
            numbers += [number] if (number := pid()) is not None else []
    return numbers


def port() -> int:
    """The loopback port that leads to the machine's sshd."""
    return int((run_dir() / "port").read_text(encoding="utf-8"))


def start(image: Path) -> None:
    """Start the machine in the background with a fresh root overlay, an empty pool disk and a new ssh key."""
    run = run_dir()
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True, mode=0o700)
    call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(run / "key")])
    overlay = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(image / "disk.img")]
    call([*overlay, str(run / "root.qcow2")])
    with (run / "pool.img").open("wb") as disk:
        disk.truncate(POOL_DISK_BYTES)
    number = free_port()
    (run / "port").write_text(f"{number}\n", encoding="utf-8")
    call([*_qemu(image, run, number), *_network()])


def stop() -> bool:
    """End the machine and remove the run folder. Returns whether it was running."""
    number = pid()
    if number is not None:
        os.kill(number, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while pid() is not None and time.monotonic() < deadline:
            time.sleep(0.1)
        if pid() is not None:
            os.kill(number, signal.SIGKILL)
    shutil.rmtree(run_dir(), ignore_errors=True)
    return number is not None


def reset() -> None:
    """What a power failure does to the machine. It boots again with the disks as they are."""
    control("system_reset")


def control(command: str, **arguments: object) -> None:
    """A command of QEMU's monitor."""
    with socket.socket(socket.AF_UNIX) as monitor:
        monitor.connect(str(run_dir() / "qmp.sock"))
        with monitor.makefile("rw", encoding="utf-8") as lines:
            for message in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                lines.write(json.dumps(message) + "\n")
                lines.flush()
                while "return" not in (answer := json.loads(lines.readline())):
                    if "error" in answer:
                        raise LabError(f"QEMU refused {message}: {answer['error']}")


def console_tail(lines: int = 20) -> str:
    """The end of the console log, for error messages."""
    try:
        text = (run_dir() / "console.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "(no console log)"
    return "\n".join(text.splitlines()[-lines:])


def _qemu(image: Path, run: Path, number: int) -> list[str]:
    public_key = (run / "key.pub").read_text(encoding="utf-8").split()[1]
    options = [
        "-kernel", str(image / "vmlinuz"), "-initrd", str(image / "initrd.img"),
        "-append", f"root=/dev/vda rw {KERNEL_ARGUMENTS} flexdisk.key={public_key}",
        "-drive", f"if=none,id=root,file={run / 'root.qcow2'},format=qcow2,cache=unsafe",
        "-device", "virtio-blk-pci,drive=root",
        "-drive", f"if=none,id=pool,file={run / 'pool.img'},format=raw,cache=unsafe,discard=unmap",
        "-device", "virtio-blk-pci,drive=pool,serial=pool",
    ]  # fmt: skip
    return hardware(CPUS, MEMORY_MIB, number, options)


def hardware(cpus: int, memory: int, number: int, options: list[str]) -> list[str]:
    """QEMU's command line. number is the port that leads to its sshd, own its kernel and disks."""
    run = run_dir()
    return [
        "qemu-system-x86_64", "-name", current(), "-nodefaults", "-no-user-config", "-display", "none",
        "-machine", "pc", "-accel", "tcg,thread=multi", "-cpu", "qemu64", "-smp", str(cpus), "-m", str(memory),
        *options,
        "-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{number}-:22",
        "-device", "virtio-net-pci,netdev=net,romfile=",
        "-device", "virtio-rng-pci",
        "-qmp", f"unix:{run / 'qmp.sock'},server=on,wait=off",
        "-serial", f"file:{run / 'console.log'}",
        "-daemonize", "-pidfile", str(run / "qemu.pid"),
    ]  # fmt: skip


def _network() -> list[str]:
    """The card in the network of all machines of this cache folder: a multicast group on the loopback interface."""
    number = 20000 + zlib.crc32(os.fsencode(cache_dir())) % 20000
    return [
        "-netdev", f"socket,id=peers,mcast=230.0.0.1:{number},localaddr=127.0.0.1",
        "-device", f"virtio-net-pci,netdev=peers,romfile=,mac=52:54:00:77:00:0{1 + MACHINES.index(current())}",
    ]  # fmt: skip


def free_port() -> int:
    """A port of the loopback address that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def call(argv: list[str]) -> None:
    """Run a program; LabError with what it said when it fails."""
    result = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode:
        raise LabError(f"{argv[0]} ended with status {result.returncode}: {result.stderr.strip()}")
