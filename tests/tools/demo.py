# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The demonstration: a simulated node whose VMs are in disorder is planned, converged, and converged again.

Everything is in build/demo, made anew at the start and left there. Exits 1 as soon as anything is not as promised.
The argument `proxmox` makes the node one of Proxmox VE, in build/demo-proxmox.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tree import BUILD, DEV, ROOT, environment

DEMO = BUILD / "-".join(["demo", *sys.argv[1:]])
NODE = DEMO / "node"
PAGE = DEMO / "report.html"
SIMULATED_NODE = ROOT / "extensions" / "simulated_node"

INVENTORY = """\
hypervisors:
  hosts:
    {host}:
      ansible_connection: local
      ansible_python_interpreter: "{{{{ ansible_playbook_python }}}}"
      flexdisk_environment: # {programs} of the simulated node instead of this machine's
        PATH: "{{{{ inventory_dir }}}}/node/bin:{{{{ lookup('ansible.builtin.env', 'PATH') }}}}"
"""
DECLARATION = """\
flexible_disks_allow_restart: true # db01 runs, and a disk leaves it
flexible_disks_vms:
  - vm: web01
    flexible_disk_size: 100GiB
    disks:
      - {name: root, boot: true, size: 20GiB}
      - {name: data, uuid: ad8da6a8-d12f-4bd1-9c09-ddebfd20a7e5, size: 50GiB, preserve: true} # it has no name yet
      - {name: scratch, size: remaining}
  - vm: db01 # its quota has drifted since a disk was removed by hand
    unlisted: detach
    disks:
      - {name: root, boot: true}
      - {name: pgdata, pci_slot: "0:4:2", preserve: true}
  - vm: legacy01 # has no flexible disk space: its disks get names, nothing else
    disks:
      - {name: root, boot: true}
      - {name: data, pci_slot: "0:4:1", preserve: true}
"""
ON_PROXMOX = """\
flexible_disks_vms:
  - vm: web # it runs, and goes on running
    flexible_disk_size: 100GiB
    disks:
      - {name: root, boot: true, size: 30GiB}
      - {name: data, pci_slot: scsi1, preserve: true} # it has no name yet
      - {name: scratch, size: remaining}
  - vm: db # has no flexible disk space: its disks get names, and one is new
    disks:
      - {name: root, boot: true}
      - {name: pgdata, pci_slot: scsi1, preserve: true}
      - {name: wal, pci_slot: scsi2, preserve: true}
      - {name: logs, size: 10GiB}
"""
CONFIGURATION = f"""\
[defaults]
inventory = inventory.yml
collections_path = {os.path.relpath(DEV, DEMO)}
display_skipped_hosts = false
"""


@dataclass(frozen=True)
class Host:
    """The hypervisor of the demonstration."""

    name: str
    kind: str  # in the first heading
    scenario: str
    vms: int
    programs: str
    look: str  # commands of it for a look around
    declaration: str


HOSTS = {
    "vmadm": Host("hv01", "hypervisor with three", "demo", 3, "vmadm and zfs", "vmadm get UUID", DECLARATION),
    "proxmox": Host("pve1", "Proxmox VE with two", "proxmox", 2, "qm, pvesm and zfs", "qm config 100", ON_PROXMOX),
}


def main(driver: str = "vmadm") -> None:
    """Show everything in order; the promises are checked on the way."""
    if driver not in HOSTS:
        sys.exit(f"DRIVER is {driver}, but must be {' or '.join(HOSTS)}")
    host = HOSTS[driver]
    prepare(host)
    with monitors(host):
        show(host)


def show(host: Host) -> None:
    """Tell the story of one host."""
    start = time.monotonic()
    heading(f"A simulated {host.kind} VMs, and what its inventory says they should be")
    print(host.declaration)
    heading("What is there")
    before = play("report")
    heading("The plan: --check --diff says what would be done, and changes nothing")
    plan = play("converge", "--check", "--diff")
    promise(changed(host, plan) > 0, "the plan finds something to do")
    promise(table(play("report", quiet=True)) == table(before), "planning has changed nothing")
    heading("Converge: exactly that is done")
    done = play("converge", "--diff")
    promise(steps(done) == steps(plan), "what was done is what the plan said, line by line")
    heading("What is there now")
    after = play("report")
    promise(table(after) != table(before), "the report shows the change")
    heading("Converge again: nothing is left to do")
    again = play("converge", "--diff")
    promise(changed(host, again) == 0 and not steps(again), "the second run changes nothing")
    heading("The report as a page")
    written = play("report", "-e", f"flexdisk_report_html={PAGE}")
    promise(table(written) == table(after), "the second run has changed nothing that the report shows")
    promise(PAGE.read_text().count('<tr id="vm-') == host.vms, "the page has all VMs")
    heading(f"Done in {time.monotonic() - start:.0f} s. The node is still there to play with:")
    print(f"The report as a page: {shown(PAGE)}")
    program = host.look.split()[0]
    print(f"PATH={shown(NODE / 'bin')}:$PATH {program} list    # or zfs list, zpool list, {host.look} ...")
    ansible = os.path.relpath(Path(sys.executable).with_name("ansible-playbook"), DEMO)
    print(f"Change a size in {shown(DEMO / 'host_vars' / f'{host.name}.yml')}, and see what would be done:")
    print(f"cd {shown(DEMO)} && {ansible} flexdisk.hypervisor.converge --check --diff")


def prepare(host: Host) -> None:
    """A new node, its inventory, and a configuration that lets no other one in."""
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir(parents=True)
    command = [sys.executable, "-m", "simnode", "--dir", str(NODE), "init", "--scenario", host.scenario]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(SIMULATED_NODE)}, check=True)
    (DEMO / "inventory.yml").write_text(INVENTORY.format(host=host.name, programs=host.programs))
    (DEMO / "host_vars").mkdir()
    (DEMO / "host_vars" / f"{host.name}.yml").write_text(host.declaration)
    (DEMO / "ansible.cfg").write_text(CONFIGURATION)


@contextlib.contextmanager
def monitors(host: Host) -> Iterator[None]:
    """Let the running QEMUs of Proxmox VE answer, as real ones do."""
    if host.scenario != "proxmox":
        yield
        return
    command = [sys.executable, "-m", "simnode", "--dir", str(NODE), "pve-qmp"]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(SIMULATED_NODE)}) as server:
        try:
            yield
        finally:
            server.kill()


def play(name: str, *options: str, quiet: bool = False) -> str:
    """Run a playbook of the collection; shows and returns its output (without colours)."""
    command = [str(Path(sys.executable).with_name("ansible-playbook")), f"flexdisk.hypervisor.{name}", *options]
    if not quiet:
        print("$ " + " ".join(["ansible-playbook", *command[1:]]), flush=True)
    env = environment(ANSIBLE_CONFIG=str(DEMO / "ansible.cfg"), ANSIBLE_HOME=str(DEMO / "ansible"))
    env["ANSIBLE_FORCE_COLOR"] = str(sys.stdout.isatty())
    output = ""
    with subprocess.Popen(
        command, cwd=DEMO, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as ansible:
        for line in ansible.stdout or ():
            output += line
            if not quiet:
                print(line, end="", flush=True)
    promise(ansible.returncode == 0, f"{name} ends well")
    return re.sub(r"\x1b\[[0-9;]*m", "", output)


def changed(host: Host, output: str) -> int:
    """The number of changed tasks in the recap; ends the demonstration if the host is not in it."""
    recap = re.search(rf"^{host.name} +: ok=[1-9].* changed=(\d+) .*unreachable=0 .*failed=0 ", output, re.MULTILINE)
    promise(recap is not None, f"{host.name} was reached")
    return int(recap[1]) if recap else -1


def steps(output: str) -> list[str]:
    """The plan in words, as --diff prints it: a line for the VM, indented lines for its steps."""
    return re.findall(r"^(?:[\w.-]+ \([0-9a-f-]{36}\):|  \S.*)$", output, re.MULTILINE)


def table(output: str) -> list[str]:
    """The lines of the report's table."""
    return re.findall(r'^        "(.*)",?$', output, re.MULTILINE)


def promise(kept: bool, what: str) -> None:
    """End loudly when something is not as promised."""
    if not kept:
        sys.exit(f"\nTHE DEMONSTRATION FAILED. Not true: {what}.")


def heading(text: str) -> None:
    """Set the sections apart."""
    print(f"\n=== {text} {'=' * (100 - len(text))}\n", flush=True)


def shown(path: Path) -> str:
    """The path as the reader would type it."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
