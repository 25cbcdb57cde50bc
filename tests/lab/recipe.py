# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the lab image is made of, and how it is built. One image per recipe hash, kept in the cache folder."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import aptconfig

RELEASE = "bookworm"
COMPONENTS = ("main", "contrib")
PACKAGES = (
    "linux-image-cloud-amd64", "linux-headers-cloud-amd64", "zfs-dkms", "zfsutils-linux", "python3-pyzfs",
    "systemd-sysv", "udev", "kmod", "iproute2", "pciutils", "procps", "openssh-server", "python3", "rsync", "sudo",
    "libvirt-daemon-system", "qemu-system-x86", "python3-libvirt", "lvm2", "busybox-static", "dropbear-bin", "lz4",
)  # fmt: skip
EXCLUDED_PATHS = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*", "/usr/share/info/*")
ROOT_SIZE = "3G"
IMAGE = Path(__file__).parent / "image"

TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}
BUILD_TOOLS = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs"}
SEARCH_PATH = os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"
HEARTBEAT_SECONDS = 30.0


class LabError(Exception):
    """The lab cannot go on; the text says why."""


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print a line when long work begins and how long it took when it is done."""
    print(f"lab: {title} ...", flush=True)
    began = time.monotonic()
    yield
    print(f"lab: {title}: {time.monotonic() - began:.1f} s", flush=True)


@contextmanager
def locked(path: Path, refusal: str | None = None) -> Iterator[None]:
    """Hold an exclusive lock on a file; a second process waits and says so, or ends with LabError(refusal)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if refusal:
                raise LabError(refusal) from None
            print(f"lab: another process holds {path}, waiting", flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def cache_dir() -> Path:
    """The folder of images and of the run."""
    if given := os.environ.get("FLEXDISK_LAB_CACHE"):
        return Path(given).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base).absolute() / "flexdisk-lab"


def recipe_hash() -> str:
    """Changes when anything that decides the image's contents changes (mirrors do not)."""
    scripts = [IMAGE / "customize.sh", IMAGE / "guests.sh", *sorted((IMAGE / "guest").iterdir())]
    texts = (path.read_text(encoding="utf-8") for path in scripts)
    parts = (RELEASE, *COMPONENTS, *PACKAGES, *EXCLUDED_PATHS, ROOT_SIZE, *texts)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def image_dir() -> Path:
    """Where this recipe's image is, or will be: disk.img, vmlinuz, initrd.img, build.log."""
    return cache_dir() / f"image-{recipe_hash()}"


def missing_tools(*, build: bool) -> list[str]:
    """Debian packages of the programs that this machine lacks."""
    wanted = {**TOOLS, **(BUILD_TOOLS if build else {})}
    return sorted({package for tool, package in wanted.items() if not shutil.which(tool, path=SEARCH_PATH)})


def install_tools(*, build: bool) -> None:
    """Install what is missing with apt."""
    install(missing_tools(build=build))


def install(packages: Sequence[str]) -> None:
    """Install Debian packages, by apt's lists of today."""
    if not packages:
        return
    with locked(cache_dir() / "apt.lock"), step(f"installing {' '.join(packages)}"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "PATH": SEARCH_PATH}
        apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=600"]
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
            result = subprocess.run([*apt, *arguments], env=environment, capture_output=True, text=True, check=False)
            if result.returncode:
                raise LabError(f"apt-get {arguments[0]} failed:\n{result.stdout[-1000:]}{result.stderr[-2000:]}")


def ensure_image() -> Path:
    """Build the image unless it is there."""
    return ensure(image_dir() / "disk.img", _fill)


def ensure(wanted: Path, fill: Callable[[Path], None]) -> Path:
    """The folder of a file, filled unless the file is there; two builds never run at once.

    It is filled in a scratch folder that is moved into place in one step.
    """
    target = wanted.parent
    with locked(cache_dir() / "build.lock") if not wanted.exists() else nullcontext():
        if not wanted.exists():
            install_tools(build=True)
            scratch = target.with_name(target.name + ".partial")
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(parents=True)
            fill(scratch)
            shutil.rmtree(target, ignore_errors=True)
            scratch.rename(target)
    return target


def _fill(scratch: Path) -> None:
    """Make root file system and disk image."""
    root = scratch / "root"
    log = scratch / "build.log"
    hooks = [
        f'chroot "$1" sh -eu < "{IMAGE / "customize.sh"}"',
        f'chroot "$1" sh -eu < "{IMAGE / "guests.sh"}"',
        f'copy-in "{IMAGE / "guest"}" /var/lib',
        'chroot "$1" sh -eu /var/lib/guest/pack.sh',
    ]
    bootstrap(root, PACKAGES, hooks, log)
    with step("checking the ZFS module and packing the disk image"):
        _collect(root, scratch, log)
    shutil.rmtree(root)


def bootstrap(root: Path, packages: Sequence[str], hooks: Sequence[str], log: Path) -> None:
    """Make a root file system with these packages, and run mmdebstrap's hooks in the end."""
    with step(f"building the root file system (log: {log})"):
        run_logged(_mmdebstrap(root, packages, hooks), log)


def _mmdebstrap(root: Path, packages: Sequence[str], hooks: Sequence[str]) -> list[str]:
    # In namespaces of its own: an interrupted build leaves no process, and no mount in the folder to be removed.
    return [
        "unshare", "--mount", "--mount-proc", "--pid", "--fork", "--kill-child", "--",
        "mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory",
        f"--include={','.join(packages)}",
        *(f"--aptopt={option}" for option in aptconfig.acquire_options()),
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in EXCLUDED_PATHS),
        *(f"--customize-hook={hook}" for hook in hooks),
        RELEASE, str(root), *aptconfig.source_lines(RELEASE, COMPONENTS),
    ]  # fmt: skip


def _collect(root: Path, scratch: Path, log: Path) -> None:
    modules = list(root.glob("lib/modules/*/updates/zfs/zfs.ko*"))
    kernels = sorted(root.glob("boot/vmlinuz-*"))
    if len(modules) != 1 or len(kernels) != 1:
        raise LabError(f"expected one kernel and one zfs.ko for it, found {kernels} and {modules}; see {log}")
    version = kernels[0].name.removeprefix("vmlinuz-")
    shutil.move(kernels[0], scratch / "vmlinuz")
    shutil.move(root / "boot" / f"initrd.img-{version}", scratch / "initrd.img")
    unfinished = scratch / "disk.unfinished"
    mke2fs = ["mke2fs", "-q", "-t", "ext4", "-L", "lab", "-m", "0", "-d", str(root)]
    run_logged([*mke2fs, str(unfinished), ROOT_SIZE], log)
    unfinished.chmod(0o444)
    unfinished.rename(scratch / "disk.img")


def run_logged(argv: list[str], log: Path) -> None:
    """Run to the end with all output in the log; say now and then that it still goes on."""
    environment = {**os.environ, "PATH": SEARCH_PATH, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    began = time.monotonic()
    with log.open("ab") as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
        try:
            returncode = _wait(process, lambda: _progress(log, time.monotonic() - began))
        finally:
            process.kill()
            process.wait()
    if returncode:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-30:])
        raise LabError(f"{shlex.join(argv)} ended with status {returncode}:\n{tail}")


def _wait(process: subprocess.Popen[bytes], heartbeat: Callable[[], None]) -> int:
    while True:
        try:
            return process.wait(timeout=HEARTBEAT_SECONDS)
        except subprocess.TimeoutExpired:
            heartbeat()


def _progress(log: Path, seconds: float) -> None:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
    print(f"lab:   {seconds:.0f} s: {lines[-1][:100]}", flush=True)
