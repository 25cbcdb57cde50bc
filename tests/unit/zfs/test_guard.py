# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guard of a disk that is taken out of a VM: which backend, what it withstands, that nothing stays behind."""

from __future__ import annotations

import builtins
import os
import sys
import types

import pytest
from simnode import Node
from simnode.node import PoolSpec

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs import guard
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.errors import ZfsError

VOLUME = "zones/u/disk1"
MOVED = "zones/parked"


class Bench:
    def __init__(self) -> None:
        self.node = Node.create(None, [PoolSpec("zones", 8 << 30)])
        self.calls: list[list[str]] = []
        self.refused = ""
        self.run("create", "zones/u")
        self.run("create", "-V", "64M", VOLUME)
        self.zfs = Zfs(self.runner, lambda _seconds: None)

    def runner(self, argv, stdin="", timeout=300):
        self.calls.append(list(argv))
        if self.refused and argv[1] == self.refused:
            return Answer(1, "", f"cannot {argv[1]}: injected")
        return Answer(*self.node.run(list(argv), stdin))

    def run(self, *argv: str) -> str:
        status, out, err = self.node.run(("zfs", *argv))
        assert status == 0, err
        return out

    def snapshots(self) -> list[str]:
        return self.run("list", "-Hr", "-t", "snapshot", "-o", "name", "zones").split()

    def vmadm_destroys(self, volume: str) -> int:
        """What remove_disks does to a volume that is where the configuration says."""
        return self.node.run(("zfs", "destroy", "-rF", volume))[0]


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("newest", ["", "mine"])
def test_nothing_destroys_a_guarded_disk(bench, newest):
    if newest:
        bench.run("snapshot", f"{VOLUME}@{newest}")
    with guard.Guard(bench.zfs, None) as guarded:
        guarded.protect(VOLUME, newest)
        assert guarded.backend == "cli"
        assert bench.vmadm_destroys(VOLUME) != 0
        guarded.moving(MOVED)
        bench.run("rename", VOLUME, MOVED)
        assert bench.vmadm_destroys(MOVED) != 0
    assert bench.snapshots() == ([f"{MOVED}@{newest}"] if newest else [])
    assert bench.vmadm_destroys(MOVED) == 0


def test_without_room_the_newest_snapshot_is_held(bench):
    bench.run("set", "quota=70M", "zones/u")
    bench.node.run(("guest", "write", VOLUME, "0", "1", "1"))
    bench.run("snapshot", VOLUME + "@mine")
    bench.node.run(("guest", "write", VOLUME, "10", "50", "2"))
    with guard.Guard(bench.zfs, None) as guarded:
        guarded.protect(VOLUME, "mine")
        assert guarded.backend == "cli"
        assert bench.snapshots() == [VOLUME + "@mine"]
        assert bench.vmadm_destroys(VOLUME) != 0
    assert bench.snapshots() == [VOLUME + "@mine"]
    assert bench.run("holds", "-H", VOLUME + "@mine") == ""


def test_without_room_and_without_a_snapshot_it_says_none(bench):
    bench.run("set", "quota=70M", "zones/u")
    bench.node.run(("guest", "write", VOLUME, "0", "60", "1"))
    with guard.Guard(bench.zfs, None) as guarded:
        guarded.protect(VOLUME)
        assert guarded.backend == "none"
    assert [call[1] for call in bench.calls] == ["snapshot"]


def test_a_left_over_guard_is_used_and_taken_away(bench):
    bench.run("snapshot", VOLUME + "@flexdisk-guard")
    bench.run("hold", "flexdisk-guard", VOLUME + "@flexdisk-guard")
    with guard.Guard(bench.zfs, None) as guarded:
        guarded.protect(VOLUME)
        assert guarded.backend == "cli"
    assert bench.snapshots() == []
    guard.lift(bench.zfs, VOLUME)


def fail_inside(bench):
    with guard.Guard(bench.zfs, None) as guarded:
        guarded.protect(VOLUME)
        guarded.moving(MOVED)
        raise ValueError("inside")


def test_an_error_inside_is_the_one_that_is_told(bench):
    bench.refused = "release"
    with pytest.raises(ValueError, match="inside"):
        fail_inside(bench)


def test_an_error_at_the_end_is_told_if_there_is_no_other(bench):
    bench.refused = "release"
    with pytest.raises(ZfsError, match="injected"), guard.Guard(bench.zfs, None) as guarded:
        guarded.protect(VOLUME)


def test_a_rename_that_did_not_come_about(bench):
    with pytest.raises(ValueError, match="inside"):
        fail_inside(bench)
    assert bench.snapshots() == []


# -- libzfs_core


class Library:
    """What counts of libzfs_core; holds are those of the simulated pool, dropped with the file descriptor."""

    def __init__(self, bench: Bench, refuse: bool = False) -> None:
        self.bench, self.refuse = bench, refuse
        self.held: dict[bytes, bytes] = {}
        self.fd = -1

    def lzc_hold(self, holds, fd):
        if self.refuse:
            raise RuntimeError("HoldFailure")
        self.held, self.fd = holds, fd
        os.fstat(fd)
        for snapshot, tag in holds.items():
            self.bench.run("hold", tag.decode(), snapshot.decode())

    def kernel_drops(self) -> None:
        """At the end of the descriptor."""
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(self.fd)
        self.bench.node.run(("zfs", "release", "flexdisk-guard", MOVED + "@flexdisk-guard"))


@pytest.fixture
def dev_zfs(monkeypatch):
    """/dev/zfs where there is none."""
    real = os.open
    opened = []

    def fake(path, flags, *rest):
        if path == "/dev/zfs":
            opened.append(flags)
            return real(os.devnull, os.O_RDWR)
        return real(path, flags, *rest)

    monkeypatch.setattr(os, "open", fake)
    return opened


def test_a_hold_bound_to_the_process(bench, dev_zfs):
    library = Library(bench)
    real = bench.runner

    def runner(argv, stdin="", timeout=300):
        if list(argv[:2]) == ["zfs", "destroy"]:
            library.kernel_drops()
        return real(argv, stdin, timeout)

    bench.zfs = Zfs(runner)
    with guard.Guard(bench.zfs, library) as guarded:
        guarded.protect(VOLUME)
        assert guarded.backend == "libzfs_core"
        assert library.held == {(VOLUME + "@flexdisk-guard").encode(): b"flexdisk-guard"}
        assert bench.vmadm_destroys(VOLUME) != 0
        guarded.moving(MOVED)
        bench.run("rename", VOLUME, MOVED)
    assert dev_zfs == [os.O_EXCL | os.O_RDWR]
    assert bench.snapshots() == []
    assert "hold" not in [call[1] for call in bench.calls]


@pytest.mark.usefixtures("dev_zfs")
def test_a_library_that_fails_is_not_relied_on(bench):
    with guard.Guard(bench.zfs, Library(bench, refuse=True)) as guarded:
        guarded.protect(VOLUME)
        assert guarded.backend == "cli"
        assert bench.vmadm_destroys(VOLUME) != 0
    assert bench.snapshots() == []


def test_without_dev_zfs_the_command_line_holds(bench, monkeypatch):
    def refuse(*_args):
        raise OSError("no /dev/zfs")

    monkeypatch.setattr(os, "open", refuse)
    with guard.Guard(bench.zfs, Library(bench)) as guarded:
        guarded.protect(VOLUME)
        assert guarded.backend == "cli"


def fake_module(monkeypatch, **functions):
    module = types.ModuleType("libzfs_core")
    for name, function in functions.items():
        setattr(module, name, function)
    monkeypatch.setitem(sys.modules, "libzfs_core", module)
    return module


def test_a_library_that_works(monkeypatch):
    asked = []
    module = fake_module(monkeypatch, lzc_exists=asked.append, lzc_channel_program=None)
    assert guard.load_libzfs_core() == (module, "")
    assert asked == [b"flexdisk-probe"]


def test_the_release_of_pypi_is_refused_before_a_call(monkeypatch):
    """Its first call would crash the interpreter."""
    fake_module(monkeypatch, lzc_exists=lambda _name: os._exit(139))
    library, why = guard.load_libzfs_core()
    assert library is None
    assert "0.2.3" in why


@pytest.mark.parametrize("error", [OSError("no libzfs_core.so"), RuntimeError("ZFSInitializationFailed")])
def test_a_library_without_its_other_half(monkeypatch, error):
    def fail(_name):
        raise error

    fake_module(monkeypatch, lzc_exists=fail, lzc_channel_program=None)
    library, why = guard.load_libzfs_core()
    assert library is None
    assert str(error) in why


@pytest.mark.parametrize("error", [ImportError("none"), OSError("broken"), SyntaxError("print 1")])
def test_no_library(monkeypatch, error):
    """Not there, or there and of no use to this Python."""
    real = builtins.__import__

    def refuse(name, *rest):
        if name == "libzfs_core":
            raise error
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    library, why = guard.load_libzfs_core()
    assert library is None
    assert "cannot be imported" in why
