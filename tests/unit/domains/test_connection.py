# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What libvirt's own library is asked for, with which flags, and what becomes of its errors."""

from __future__ import annotations

import sys
import types

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import (
    libvirt_connection,
    libvirt_memory,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs import devices

from .conftest import VM

URI = "qemu:///system"
# As in libvirt's headers.
FLAGS = {
    "VIR_DOMAIN_XML_SECURE": 1,
    "VIR_DOMAIN_XML_INACTIVE": 2,
    "VIR_DOMAIN_AFFECT_LIVE": 1,
    "VIR_DOMAIN_AFFECT_CONFIG": 2,
    "VIR_DOMAIN_BLOCK_RESIZE_BYTES": 1,
    "VIR_DOMAIN_UNDEFINE_MANAGED_SAVE": 1,
    "VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA": 2,
    "VIR_DOMAIN_UNDEFINE_NVRAM": 4,
    "VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA": 16,
    "VIR_NODE_MEMORY_STATS_ALL_CELLS": -1,
    "VIR_DOMAIN_SAVE_PAUSED": 4,
    "VIR_DOMAIN_SAVE_IMAGE_XML_SECURE": 1,
}
POOL = "<pool type='zfs'><name>web</name><target><path>/dev/zvol/tank/vm</path></target></pool>"


class Trouble(Exception):
    def __init__(self, code=1):
        super().__init__("trouble")
        self.code = code

    def get_error_code(self):
        return self.code

    def get_error_message(self):
        return "trouble"


class Recorder:
    """A connection, a domain or a storage pool: notes each call, and answers with itself, or with what is set."""

    def __init__(self, **answers):
        self.calls = []
        self._answers = answers

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, *arguments))
            answer = self._answers.get(name, self)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def library(monkeypatch, **more):
    made = types.SimpleNamespace(libvirtError=Trouble, registerErrorHandler=lambda *ignored: None, **FLAGS, **more)
    monkeypatch.setitem(sys.modules, "libvirt", made)


def connection(monkeypatch, recorder, volume_at=devices.at):
    library(monkeypatch, open=lambda uri: recorder)
    return libvirt_memory.MemoryConnection(URI, volume_at)


FOUND = ("lookupByUUIDString", VM)


@pytest.mark.parametrize(
    ("ask", "calls"),
    [
        (lambda c: c.xml(VM, True), [FOUND, ("XMLDesc", 1)]),
        (lambda c: c.xml(VM, False), [FOUND, ("XMLDesc", 3)]),
        (lambda c: c.define("<domain/>"), [("defineXML", "<domain/>")]),
        (lambda c: c.attach(VM, "<disk/>"), [FOUND, ("attachDeviceFlags", "<disk/>", 3)]),
        (lambda c: c.detach(VM, "<disk/>"), [FOUND, ("detachDeviceFlags", "<disk/>", 1)]),
        (lambda c: c.block_resize(VM, "vdb", 64 << 20), [FOUND, ("blockResize", "vdb", 67108864, 1)]),
        (lambda c: c.shutdown(VM), [FOUND, ("shutdown",)]),
        (lambda c: c.create(VM), [FOUND, ("create",)]),
        (lambda c: c.destroy(VM), [FOUND, ("destroy",)]),
        (lambda c: c.set_autostart(VM, True), [FOUND, ("setAutostart", 1)]),
        (lambda c: c.undefine(VM), [FOUND, ("undefineFlags", 1 | 2 | 4 | 16)]),
        (lambda c: c.save_memory(VM, "/a"), [FOUND, ("saveFlags", "/a", None, 0)]),
        (lambda c: c.memory_xml("/a"), [("saveImageGetXMLDesc", "/a", 1)]),
        (lambda c: c.restore_memory("/a", "<domain/>"), [("restoreFlags", "/a", "<domain/>", 4)]),
        (lambda c: c.resume(VM), [FOUND, ("resume",)]),
    ],
    ids=lambda value: value[-1][0] if isinstance(value, list) else "",
)
def test_calls(monkeypatch, ask, calls):
    recorder = Recorder()
    ask(connection(monkeypatch, recorder))
    assert recorder.calls == calls


@pytest.mark.parametrize(("image", "state"), [(0, "stopped"), (1, "saved"), (Trouble(3), "stopped")])
@pytest.mark.parametrize(("persistent", "autostart"), [(1, 1), (1, 0), (0, 1)])
def test_states(monkeypatch, persistent, autostart, image, state):
    recorder = Recorder(
        isPersistent=persistent,
        autostart=autostart,
        state=[5, 0],
        hasManagedSaveImage=image,
        UUIDString=VM,
        name="web01",
        listAllDomains=[],
    )
    made = connection(monkeypatch, recorder)
    expected = libvirt_connection.Status(VM, "web01", state, bool(persistent and autostart), bool(persistent))
    assert made.status(VM) == expected
    assert made.all() == []


@pytest.mark.parametrize(
    ("state", "saved"),
    [([5, 5], True), ([5, 5, 0], True), ([5, 1], False), ([5, 0], False), ([5, 4], False), ([3, 5], False)],
)
def test_how_a_run_has_ended(monkeypatch, state, saved):
    """By the reason that libvirt has for a domain that is shut off. The same number means other things elsewhere."""
    assert connection(monkeypatch, Recorder(state=state)).ended_with_save(VM) == saved


def test_a_snapshot_that_goes_while_they_are_listed(monkeypatch):
    taken = [Recorder(getXMLDesc=Trouble(72)), Recorder(getXMLDesc="<domainsnapshot/>")]
    assert connection(monkeypatch, Recorder(listAllSnapshots=taken)).snapshots(VM) == ["<domainsnapshot/>"]
    assert connection(monkeypatch, Recorder(listAllSnapshots=Trouble(3))).snapshots(VM) == []
    taken[0] = Recorder(getXMLDesc=Trouble(1))
    with pytest.raises(FlexdiskError, match=f"snapshots of {VM}: trouble"):
        connection(monkeypatch, Recorder(listAllSnapshots=taken)).snapshots(VM)


@pytest.mark.parametrize(("answer", "backup"), [("<domainbackup/>", "<domainbackup/>"), (Trouble(104), "")])
def test_the_backup_of_a_domain(monkeypatch, answer, backup):
    recorder = Recorder(backupGetXMLDesc=answer)
    assert connection(monkeypatch, recorder).backup(VM) == backup


def test_a_domain_that_ends_while_they_are_listed(monkeypatch):
    there = Recorder(isPersistent=1, autostart=0, state=[1, 1], UUIDString=VM, name="web01")
    domains = [Recorder(isPersistent=Trouble(42)), there]
    recorder = Recorder(listAllDomains=domains)
    assert [status.name for status in connection(monkeypatch, recorder).all()] == ["web01"]
    domains[0] = Recorder(isPersistent=Trouble(1))
    with pytest.raises(FlexdiskError, match=f"{URI}, list: trouble"):
        connection(monkeypatch, recorder).all()


@pytest.mark.parametrize("number", [3, 8])
def test_bhyve_forgets_a_domain_without_flags(monkeypatch, number):
    recorder = Recorder(undefineFlags=Trouble(number))
    connection(monkeypatch, recorder).undefine(VM)
    assert [call[0] for call in recorder.calls] == ["lookupByUUIDString", "undefineFlags", "undefine"]


def test_a_domain_that_is_not_forgotten(monkeypatch):
    recorder = Recorder(undefineFlags=Trouble(55))
    with pytest.raises(FlexdiskError, match=f"deletion of {VM}: trouble"):
        connection(monkeypatch, recorder).undefine(VM)
    assert recorder.calls[-1][0] == "undefineFlags"


# -- the host

INFO = ["x86_64", 64216, 16, 3600, 1, 1, 8, 2]
LINUX = {"total": 65757184, "free": 40000000, "buffers": 100, "cached": 24000}
FREEBSD = {"total": 65757184, "free": 40000000}


@pytest.mark.parametrize(("memory", "free"), [(LINUX, (40000000 + 100 + 24000) // 1024), (FREEBSD, 40000000 // 1024)])
def test_resources(monkeypatch, memory, free):
    recorder = Recorder(getMemoryStats=memory, getInfo=INFO)
    assert connection(monkeypatch, recorder).resources() == (64216, free, 16)
    assert recorder.calls == [("getMemoryStats", -1), ("getInfo",)]


@pytest.mark.parametrize(
    ("memory", "info", "text"),
    [
        ({"free": 1}, INFO, "a form that is not supported: KeyError('total')"),
        ({**LINUX, "free": None}, INFO, "a form that is not supported: TypeError"),
        ({**LINUX, "total": "many"}, INFO, "a form that is not supported: ValueError"),
        (None, INFO, "a form that is not supported: TypeError"),
        (LINUX, [], "a form that is not supported: IndexError"),
        (LINUX, [*INFO[:2], 0], "and 0 CPUs"),
        ({**LINUX, "free": 1 << 40}, INFO, "64216 MiB of memory, 1073"),
    ],
)
def test_resources_that_no_host_has(monkeypatch, memory, info, text):
    with pytest.raises(FlexdiskError) as caught:
        connection(monkeypatch, Recorder(getMemoryStats=memory, getInfo=info)).resources()
    assert caught.value.code == "UnexpectedOutput"
    assert caught.value.message.startswith("libvirt ")
    assert text in caught.value.message


def test_resources_that_libvirt_does_not_tell(monkeypatch):
    with pytest.raises(FlexdiskError, match=f"{URI}, memory and CPUs: trouble"):
        connection(monkeypatch, Recorder(getMemoryStats=Trouble())).resources()


# -- devices and storage pools


@pytest.mark.parametrize(
    ("path", "volume", "expected"),
    [
        ("/dev/zvol/tank/a/disk0", "tank/a/disk0", True),
        ("/dev/zvol/tank/a/disk0", "tank/flexdisk/b", False),
        ("/dev/zvol/tank/a/disk0", "", False),
        ("/dev/sda", "", False),
    ],
)
def test_a_device_counts_only_under_its_own_name(monkeypatch, path, volume, expected):
    result = connection(monkeypatch, None, {path: volume}.get)
    assert result.device(path) is expected
    assert result.volume(path) == volume


def test_a_volume_of_a_storage_pool(monkeypatch):
    recorder = Recorder(XMLDesc=POOL)
    made = connection(monkeypatch, recorder)
    assert [made.path("web", name) for name in ("a", "b")] == ["/dev/zvol/tank/vm/a", "/dev/zvol/tank/vm/b"]
    assert recorder.calls == [("storagePoolLookupByName", "web"), ("XMLDesc", 0)], "asked once"


@pytest.mark.parametrize("answer", [Trouble(49), Trouble(3), "<pool type='rbd'><name>web</name></pool>"])
def test_a_storage_pool_that_has_no_paths(monkeypatch, answer):
    """It has gone, libvirt has none, or its volumes are not on this host."""
    key = "XMLDesc" if isinstance(answer, str) else "storagePoolLookupByName"
    assert connection(monkeypatch, Recorder(**{key: answer})).path("web", "a") == ""


def test_a_storage_pool_that_nobody_answers_for(monkeypatch):
    """Its volume may be anybody's."""
    with pytest.raises(FlexdiskError, match=f"{URI}, storage pool web: trouble"):
        connection(monkeypatch, Recorder(storagePoolLookupByName=Trouble(38))).path("web", "a")


# -- errors


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "libvirt", None)
    with pytest.raises(FlexdiskError, match="python3-libvirt") as caught:
        libvirt_connection.Connection(URI, devices.at)
    assert caught.value.code == "CommandNotFound"


def test_without_the_daemon(monkeypatch):
    def refuse(uri):
        raise Trouble

    library(monkeypatch, open=refuse)
    with pytest.raises(FlexdiskError, match=URI) as caught:
        libvirt_connection.Connection(URI, devices.at)
    assert caught.value.code == "HypervisorUnreachable"


@pytest.mark.parametrize(("number", "code"), [(42, "ResourceNotFound"), (88, "NotPermitted"), (1, "LibvirtFailed")])
def test_errors_of_the_library(monkeypatch, number, code):
    with pytest.raises(FlexdiskError, match=f"^libvirt at {URI}, state of {VM}: trouble$") as caught:
        connection(monkeypatch, Recorder(lookupByUUIDString=Trouble(number))).status(VM)
    assert caught.value.code == code


def test_what_has_failed_is_a_name_that_is_taken_only_in_a_definition(monkeypatch):
    made = connection(monkeypatch, Recorder(defineXML=Trouble(9), saveFlags=Trouble(9)))
    for call, code in (
        (lambda: made.define("<domain/>"), "AlreadyExists"),
        (lambda: made.save_memory(VM, "/a"), "LibvirtFailed"),
    ):
        with pytest.raises(FlexdiskError) as caught:
            call()
        assert caught.value.code == code
