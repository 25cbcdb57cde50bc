# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real guests of the lab's libvirt: a kernel and busybox that say on their console which disks they see."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

import boot
import remote
from harness import Lab
from progress import Patience

FOLDER = "/var/lib/guest"  # image/guest/pack.sh
INITRD = f"{FOLDER}/initrd.img"
LOGS = "/var/log/libvirt/qemu"
SOCKETS = "/var/lib/libvirt/qemu"
NETWORK = "192.168.76"  # the bridge of image/customize.sh
MEMORY_MIB = 128
ROOT_PORTS = 8
BOOT_SECONDS = 600.0  # emulation within emulation
CHANGE_SECONDS = 250.0
# What a kernel probes and protects is time that no test needs.
KERNEL_ARGUMENTS = (
    "console=ttyS0 loglevel=1 mitigations=off nokaslr audit=0 lsm= cryptomgr.notests=1 random.trust_cpu=on "
    "no_timer_check tsc=reliable lpj=5000000"
)
# Writes a line to a guest's console and prints what comes back, up to the end that the guest marks.
ASK = """
import socket, sys
path, line, end = sys.argv[1:]
with socket.socket(socket.AF_UNIX) as console:
    console.connect(path)
    console.sendall(line.encode() + b"\\n")
    answer = b""
    while b"\\n" + end.encode() not in answer or not answer.endswith(b"\\n"):
        received = console.recv(65536)
        if not received:
            break
        answer += received
    print(answer.decode(errors="replace"))
"""
# The guest looks for a line once a second. Of one that comes just then, it loses the beginning.
BLANKS = " " * 48


class Seen(NamedTuple):
    """A disk as the guest sees it."""

    address: str  # PCI, with /HOST:CHANNEL:TARGET:LUN after it on a SCSI controller
    size: int  # bytes
    serial: str
    device: str


class Disk(NamedTuple):
    """A volume as a virtio-blk disk: on a q35 machine `slot` is the number of its root port."""

    dataset: str
    slot: int
    serial: str

    def xml(self, machine: str) -> str:
        """The element of the domain."""
        bus, slot = (self.slot, 0) if machine == "q35" else (0, self.slot)
        return f"""
    <disk type='block' device='disk'>
      <driver name='qemu' type='raw' cache='none' io='native' discard='unmap'/>
      <source dev='/dev/zvol/{escape(self.dataset)}'/>
      <target dev='{self.target}' bus='virtio'/>
      <serial>{escape(self.serial)}</serial>
      <address type='pci' domain='0x0000' bus='{bus:#04x}' slot='{slot:#04x}' function='0x0'/>
    </disk>"""

    @property
    def target(self) -> str:
        """The name that libvirt has for it."""
        return f"vd{chr(ord('a') + self.slot)}"

    def seen(self, size: int, device: str, machine: str) -> Seen:
        """How the guest should see it."""
        place = f"{self.slot:02x}:00" if machine == "q35" else f"00:{self.slot:02x}"
        return Seen(f"0000:{place}.0", size, self.serial, device)


def domain_xml(
    name: str, machine: str, disks: Sequence[Disk], number: int, memory: int = MEMORY_MIB, initrd: str = INITRD
) -> str:
    """A domain for `virsh define`.

    Args:
        machine: `q35` (with root ports 1 to 8, a disk behind each) or `pc` (slots 3 to 15 are free for disks).
        number: 1 to 9, decides its UUID and its addresses on the bridge.
        memory: MiB.
    """
    command_line = f"{KERNEL_ARGUMENTS} flexdisk.address={address(number)}/24 flexdisk.key={_public_key()}"
    ports = "".join(
        f"\n    <controller type='pci' index='{index}' model='pcie-root-port'/>" for index in range(1, ROOT_PORTS + 1)
    )
    return f"""<domain type='qemu'>
  <name>{escape(name)}</name>
  <uuid>{uuid(number)}</uuid>
  <memory unit='MiB'>{memory}</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='{machine}'>hvm</type>
    <kernel>{FOLDER}/vmlinux</kernel>
    <initrd>{initrd}</initrd>
    <cmdline>{escape(command_line)}</cmdline>
  </os>
  <features><acpi/></features>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>{ports if machine == "q35" else ""}
    <controller type='usb' model='none'/>{"".join(disk.xml(machine) for disk in disks)}
    <interface type='bridge'>
      <mac address='52:54:00:00:76:{number:02x}'/>
      <source bridge='guests'/>
      <model type='virtio'/>
      <rom enabled='no'/>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x10' function='0x0'/>
    </interface>
    <serial type='unix'>
      <source mode='bind' path='{SOCKETS}/{escape(name)}.console'/>
      <log file='{LOGS}/{escape(name)}.console' append='on'/>
    </serial>
    <memballoon model='none'/>
  </devices>
</domain>
"""


def address(number: int) -> str:
    """The guest's IPv4 address."""
    return f"{NETWORK}.{10 + number}"


def uuid(number: int) -> str:
    """The domain's UUID."""
    return f"00000000-0000-4000-8000-{number:012}"


def listings(transcript: str) -> list[list[Seen]]:
    """Every complete list of disks that a guest printed."""
    lines = transcript.split("\n")[:-1]  # the last one may be cut
    result = []
    for at, line in enumerate(lines):
        word, _space, count = line.partition(" ")
        if word == "DISKS" and len(block := lines[at + 1 : at + 1 + int(count)]) == int(count):
            fields = [entry.split(" ")[1:] for entry in block]
            result.append([Seen(where, int(size), serial, device) for where, size, serial, device in fields])
    return result


def ssh_variables() -> dict[str, str | int]:
    """Ansible's connection variables for a guest, whose `ansible_host` is its address on the bridge."""
    jump = shlex.join([*remote.ssh_argv()[:-1], "-W", "%h:%p", remote.ssh_argv()[-1]])
    options = {"StrictHostKeyChecking": "no", "UserKnownHostsFile": "/dev/null", "ProxyCommand": jump}
    return {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(boot.run_dir() / "key"),
        "ansible_ssh_args": shlex.join(word for pair in options.items() for word in ("-o", "=".join(pair))),
        "ansible_timeout": 120,
    }


def _public_key() -> str:
    return (boot.run_dir() / "key.pub").read_text(encoding="utf-8").split()[1]


class Guest:
    """One domain of the lab and the guest in it; arguments as those of `domain_xml`."""

    def __init__(self, lab: Lab, name: str, machine: str = "q35", number: int = 1) -> None:
        self._lab = lab
        self.name = name
        self.machine = machine
        self.number = number
        self._asked = 0

    def virsh(self, command: str, *arguments: str, stdin: str = "") -> str:
        """Run `virsh COMMAND NAME ARGUMENTS`."""
        return self._lab.run(["virsh", "-q", command, self.name, *arguments], stdin=stdin).stdout

    def define(self, disks: Sequence[Disk], memory: int = MEMORY_MIB, initrd: str = INITRD) -> None:
        """Make the domain known to libvirt."""
        xml = domain_xml(self.name, self.machine, disks, self.number, memory, initrd)
        self._lab.run(["virsh", "-q", "define", "/dev/stdin"], stdin=xml)

    def remove(self) -> None:
        """Power off by force, forget domain and transcript; nothing happens where there is none."""
        for argv in (["virsh", "-q", "destroy", self.name], ["virsh", "-q", "undefine", self.name]):
            self._lab.run(argv, check=False)
        self._lab.run(["rm", "-f", f"{LOGS}/{self.name}.console"])

    def transcript(self) -> str:
        """All that the guest said, over all its boots."""
        console = self._lab.run(["sh", "-c", f"cat {shlex.quote(f'{LOGS}/{self.name}.console')} || true"]).stdout
        return console.replace("\r", "")

    def start(self) -> list[Seen]:
        """Power on and wait for the first list of disks."""
        since = len(listings(self.transcript()))
        self.virsh("start")
        return self._listing(lambda seen: len(seen) > since, BOOT_SECONDS)

    def wait_for(self, expected: Sequence[Seen], seconds: float = CHANGE_SECONDS) -> None:
        """Return when the guest's latest list is this one."""
        self.wait_until(lambda now: sorted(now) == sorted(expected), seconds)

    def wait_until(self, good: Callable[[list[Seen]], bool], seconds: float = CHANGE_SECONDS) -> None:
        """Return when the guest's latest list is as wanted."""
        self._listing(lambda seen: bool(seen) and good(seen[-1]), seconds)

    def device_of(self, serial: str) -> str:
        """Where the guest has the disk with this serial number."""
        return next(f"/dev/{one.device}" for one in listings(self.transcript())[-1] if one.serial == serial)

    def ask(self, command: str, seconds: float = CHANGE_SECONDS) -> str:
        """Run a shell command in the guest through its console; AssertionError when it fails."""
        self._asked += 1
        word = f"q{self._asked}"
        argv = [
            "python3",
            "-c",
            ASK,
            f"{SOCKETS}/{self.name}.console",
            f"{BLANKS}{word} {command}",
            f"END {word}",
        ]
        answer = self._lab.run(argv, seconds=seconds).stdout.replace("\r", "")
        _before, _begin, rest = answer.partition(f"BEGIN {word}\n")
        output, _end, status = rest.partition(f"\nEND {word} ")
        assert status.split()[:1] == ["0"], f"{command!r} in the guest: {answer}"
        return output

    def shut_down(self, seconds: float = CHANGE_SECONDS) -> None:
        """Press the power button and wait until the guest has switched itself off."""
        self.virsh("shutdown")
        self._until(lambda: self.virsh("domstate").strip() == "shut off", seconds, "it to switch off")

    def host_variables(self) -> str:
        """An Ansible inventory (JSON) with this guest alone."""
        variables = {"ansible_host": address(self.number), **ssh_variables()}
        return json.dumps({"all": {"hosts": {self.name: variables}}})

    def _listing(self, good: Callable[[list[list[Seen]]], bool], seconds: float) -> list[Seen]:
        self._until(lambda: good(listings(self.transcript())), seconds, "its disks")
        return listings(self.transcript())[-1]

    def _until(self, done: Callable[[], bool], seconds: float, condition: str) -> None:
        patience = Patience(seconds)
        while not done():
            if why := patience.over():
                raise AssertionError(f"{self.name}: waited for {condition} ({why}); it said:\n{self.transcript()}")
            time.sleep(0.5)
