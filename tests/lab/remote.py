# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inside of the running lab: commands over one persistent ssh connection, the pool, the vmadm program."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

import boot
import progress
from progress import Patience
from recipe import LabError

ROOT = Path(__file__).resolve().parents[2]
NODE_SOURCE = ROOT / "extensions" / "simulated_node"
NODE_TARGET = "/opt/simnode"
ZIPCACHE = Path(__file__).with_name("zipcache.py")
INSTALL_ZIPCACHE = """
cd "$(python3 -c 'import site; print(site.getsitepackages()[0])')"
cat > flexdisk_zipcache.py
echo import flexdisk_zipcache > flexdisk_zipcache.pth
"""
POOL = "zones"
POOL_DEVICE = "/dev/disk/by-id/virtio-pool"
CONNECT_SECONDS = 300.0
COMMAND_SECONDS = 300.0
Completed = subprocess.CompletedProcess[str]
SOCKET_PATH_LIMIT = 90  # ssh appends 17 characters to a control path, a socket address holds 107

# The properties of a node's pool: its file systems below /POOL, no access times (as SmartOS sets it up).
# udev takes the links of the disk away and makes them again while zpool labels it, so zpool may find none.
CREATE_POOL = f"""for attempt in 1 2 3 4 5; do
    udevadm settle
    encrypted=${{PASSPHRASE:+-O encryption=on -O keyformat=passphrase}}
    echo "$PASSPHRASE" | zpool create -f -o ashift=12 $encrypted -m /{POOL} {POOL} {POOL_DEVICE} && break
done
zfs set atime=off {POOL}
"""
INSTALL_NODE = f"PYTHONPATH={NODE_TARGET} python3 -m simnode.real install /usr/local/bin --pool {POOL}"
SERVE = f"env PYTHONPATH={NODE_TARGET} python3 -m simnode.real serve"
RESET = f"""
if systemctl -q is-active libvirtd; then
    for domain in $(virsh list --name); do virsh -q destroy $domain; done
    for domain in $(virsh list --all --name); do virsh -q undefine $domain; done
    rm -f /var/log/libvirt/qemu/*
fi
rm -rf /var/lib/simnode
udevadm settle
for pool in $(zpool list -H -o name); do zpool destroy -f $pool; done
{CREATE_POOL}
if [ -e {NODE_TARGET}/simnode/real.py ]; then {INSTALL_NODE}; fi
"""


def ssh_options() -> list[str]:
    """Options that both ssh and Ansible use, so that they share one connection."""
    run = boot.run_dir()
    control = str(run / "ssh.sock")
    if len(os.fsencode(control)) > SOCKET_PATH_LIMIT:
        raise LabError(f"{control} is too long for a socket; set FLEXDISK_LAB_CACHE to a shorter folder")
    settings = {
        "ControlMaster": "auto",
        "ControlPersist": "600",
        "ControlPath": control,
        "StrictHostKeyChecking": "no",
        "UserKnownHostsFile": "/dev/null",
        "LogLevel": "ERROR",
        "BatchMode": "yes",
    }
    return ["-F", "none", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]


def ssh_argv(command: str | None = None) -> list[str]:
    """The ssh command line into the lab; without a command an interactive shell."""
    key = str(boot.run_dir() / "key")
    argv = ["ssh", *ssh_options(), "-i", key, "-p", str(boot.port()), "root@127.0.0.1"]
    return argv if command is None else [*argv, "--", command]


def run(argv: Sequence[str], stdin: str | bytes = "", seconds: float = COMMAND_SECONDS) -> Completed:
    """Run a command in the lab and return its status, stdout and stderr; `seconds` as those of `Patience`."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    result = progress.run(ssh_argv(shlex.join(argv)), seconds, data)
    return subprocess.CompletedProcess(
        list(argv), result.returncode, result.stdout.decode(errors="replace"), result.stderr.decode(errors="replace")
    )


def script(text: str, stdin: bytes = b"") -> str:
    """Run a shell script in the lab; LabError with its output when it fails."""
    result = run(["sh", "-euc", text], stdin=stdin)
    if result.returncode:
        raise LabError(f"in the lab, {text!r} ended with status {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout


def boot_id() -> str:
    """What the kernel calls this boot; '' if the machine does not answer at once."""
    try:
        return run(["cat", "/proc/sys/kernel/random/boot_id"], seconds=15).stdout
    except subprocess.TimeoutExpired:
        return ""


def wait_for_ssh(before: str = "") -> None:
    """Return when the lab answers, in another boot than `before`; LabError with the console's end when it does not in
    time.
    """
    patience = Patience(CONNECT_SECONDS)
    while not (why := patience.over()):
        if boot.pid() is None:
            raise LabError(f"the machine stopped while booting:\n{boot.console_tail()}")
        if boot_id() not in ("", before):
            return
        time.sleep(1)
    raise LabError(f"no answer ({why}):\n{boot.console_tail()}")


def join_network() -> None:
    """Give the machine its name, and its address in the network of the machines; a reboot forgets both."""
    address = boot.peer_address(boot.current())
    script(f"hostname {boot.current()}; ip address replace {address}/24 dev eth1; ip link set eth1 up")


def create_pool() -> None:
    """Make the pool `zones` on the second disk."""
    script("PASSPHRASE=\n" + CREATE_POOL)


def reset(passphrase: str = "") -> None:
    """Destroy the pool and the hypervisor's state and begin anew, without a reboot. passphrase: to encrypt it with."""
    script(f"PASSPHRASE={shlex.quote(passphrase)}\n{RESET}")


def has_node() -> bool:
    """Whether the simulated node's package has its program for the real zfs."""
    return (NODE_SOURCE / "simnode" / "real.py").is_file()


def push_node() -> None:
    """Copy the simulated node's package into the lab and install its vmadm over the real zfs."""
    replace = f"rm -rf {NODE_TARGET}; mkdir -p {NODE_TARGET}; tar -xC {NODE_TARGET}"
    script(f"{replace}; {INSTALL_NODE}", stdin=archive(NODE_SOURCE))


def push_zipcache() -> None:
    """Let the lab's Python remember what it compiled of Ansible's archives."""
    script(INSTALL_ZIPCACHE, stdin=ZIPCACHE.read_bytes())


def archive(folder: Path) -> bytes:
    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        return None if "__pycache__" in entry.name else entry

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(folder, arcname=".", filter=plain)
    return buffer.getvalue()


def write_inventory() -> Path:
    """Write the Ansible inventory of the machine, which is in the group hypervisors."""
    run_dir = boot.run_dir()
    path = run_dir / "inventory.ini"
    lines = [
        "[hypervisors]",
        f"{boot.current()} ansible_host=127.0.0.1 ansible_port={boot.port()}",
        "",
        "[hypervisors:vars]",
        "ansible_user=root",
        f"ansible_ssh_private_key_file={run_dir / 'key'}",
        f"ansible_ssh_args={shlex.join(ssh_options())}",
        "ansible_pipelining=true",
        "ansible_python_interpreter=/usr/bin/python3",
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
