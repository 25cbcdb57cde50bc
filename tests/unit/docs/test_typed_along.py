# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pages with a part to type along, on simulated hosts: each command, and what it prints."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import lock
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication.replica_info import HOLD
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import pve_vm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.whole_files import NEW
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import layout
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import FILES, GUARD_SNAPSHOT
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.replicas import SYNC

from ..playbooks.nodes import Nodes

ROOT = Path(__file__).resolve().parents[3]
HINT = "tests/tools/renew_excerpts.py writes it into the page"
PAGES = ("metrics", "proxmox", "replicas", "restore", "status")  # and uninstall


def typed(monkeypatch, page, home):
    """Type a page along in this home folder, and check what it shows."""
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "tools"))
    import excerpts
    import renew_excerpts
    import walk
    from tree import in_forks

    path = ROOT / "docs" / f"{page}.md"
    assert path in renew_excerpts.TYPED
    for step in walk.walk(home, path.read_text(), more=in_forks()):
        assert step.status == 0, step
        if step.shown:
            assert excerpts.same(step.shown, step.printed), (HINT, step)


@pytest.fixture
def short_home():
    """A folder whose path is as short as that of a home: the path of a QEMU's socket must be."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_goes_as_it_is_written(monkeypatch, page, short_home):
    typed(monkeypatch, page, short_home)
    promtool = shutil.which("promtool")
    for path in short_home.glob("metrics/hv0?/flexdisk.prom"):
        assert "flexdisk_host_info" in path.read_text()
        if promtool is not None:
            told = subprocess.run(
                [promtool, "check", "metrics"], input=path.read_text(), capture_output=True, text=True, check=False
            )
            assert (told.returncode, told.stdout + told.stderr) == (0, "")


def run(home, host, *words):
    """What a program of a host prints."""
    command = [str(home / "uninstall" / host / "bin" / words[0]), *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_nothing_is_left(monkeypatch, tmp_path):
    """Of what the page takes away; the VMs are as they were, on hosts that have never seen the collection."""
    typed(monkeypatch, "uninstall", tmp_path)
    for host in ("hv01", "hv02"):
        found = run(tmp_path, host, "zfs", "get", "-r", "-Ho", "name,property,source", "all", "zones")
        assert [line for line in found.splitlines() if "flexdisk" in line] == []
        assert not (tmp_path / "uninstall" / host / "bin" / "flexdisk-locks").exists()
        keys = tmp_path / "uninstall" / host / "ssh" / "authorized_keys"
        assert not keys.exists() or keys.read_text() == ""
    (vm,) = json.loads(run(tmp_path, "hv01", "vmadm", "lookup", "-j", "alias=web01"))
    assert sorted(disk["size"] for disk in vm["disks"]) == [10240, 20480]
    assert json.loads(run(tmp_path, "hv02", "vmadm", "lookup", "-j")) == []


NOT_ON_HOSTS = {
    "flexdisk-": "a folder on the controller, while an inventory is read",
    "/var/lib/flexdisk/memory": "no module reaches the code that makes it",
    "flexdisk-root": "leads to the files of a simulated node of Proxmox VE, which are only read",
    lock.NODE_FOLDER: "stands for the folders of locks and records on a simulated node",
}


def written_names():
    """The texts in the code that begin as our names on hosts do: snapshots, holds, marks of keys, files, folders."""
    begins = ("flexdisk-", ".flexdisk", "/var/lib/flexdisk", "/var/run/flexdisk")
    for path in sorted((ROOT / "plugins").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            text = node.value if isinstance(node, ast.Constant) else ""
            if isinstance(text, str) and text.startswith(begins) and not re.search(r"\s", text):
                yield text


def test_the_page_names_each_place():
    """Where the collection has a new place on hosts, the page must say how it goes."""
    text = (ROOT / "docs" / "uninstall.md").read_text()
    containers = [function for name, function in vars(layout).items() if re.fullmatch(r"(?!_)(\w+_)?container", name)]
    assert len(containers) >= 5
    for part in containers:
        assert f"`{part('POOL')}`" in text
    for kind in (records.MOVES, records.FAILOVER):
        assert f"`{records._FOLDER}/{kind}`" in text
    assert f"`{pve_vm.CLUSTER}/{pve_vm.RECORDS}`" in text
    names = set(written_names())
    assert {SYNC, HOLD, GUARD_SNAPSHOT, NEW, lock.ROOT_FOLDER, FILES} < names
    for name in names - set(NOT_ON_HOSTS):
        assert name in text, name


def test_disks_that_are_files_are_not_deleted_with_the_records():
    """They are mounted below the same folder."""
    text = (ROOT / "docs" / "uninstall.md").read_text()
    removed = [word for line in text.splitlines() if line.lstrip(" $").startswith("rm -r") for word in line.split()]
    assert f"{records._FOLDER}/{records.MOVES}" in removed
    assert not {word for word in removed if FILES.startswith(word.rstrip("/"))}


def test_what_has_a_disk_in_it_is_not_destroyed(tmp_path):
    """The command of the page, on a host with a detached disk."""
    nodes = Nodes(tmp_path, {"hv01": ""})
    nodes.run("hv01", "zfs", "create", "-p", "zones/flexdisk")
    nodes.run("hv01", "zfs", "create", "-V", "64M", "zones/flexdisk/disk")
    with pytest.raises(subprocess.CalledProcessError):
        nodes.run("hv01", "zfs", "destroy", "zones/flexdisk")
    assert "zones/flexdisk/disk" in nodes.run("hv01", "zfs", "list", "-Ho", "name", "-r", "zones")


def last_commands(monkeypatch):
    """Those of the page that look what is left, and remove the rest of the properties."""
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "tools"))
    import excerpts

    blocks = excerpts.BLOCK.findall((ROOT / "docs" / "uninstall.md").read_text())
    return [command for block in blocks for command, _shown in excerpts.commands(block)][-4:-1]


IDENTITY = ("-o", "flexdisk:uuid=0f0e0d0c-0000-4000-8000-00000000000a")


@pytest.mark.parametrize(
    "left",
    [
        ("create", "-V", "64M", *IDENTITY, "tank/flexdisk/disk"),
        ("create", "tank/flexdisk/replica"),
        ("create", "-V", "64M", *IDENTITY, "tank/vm/disk0"),
    ],
)
def test_no_property_is_removed_while_something_has_its_identity(left, tmp_path, monkeypatch):
    """The commands of the page, with something left on one host in another pool than zones."""
    nodes = Nodes(tmp_path, {"hv01": "", "hv02": ""}, pools=("zones", "tank"))
    nodes.run("hv01", "zfs", "create", "-p", "-o", "flexdisk:home=yes", "tank/vm")
    nodes.run("hv02", "zfs", "create", "-p", left[-1].rpartition("/")[0])
    nodes.run("hv02", "zfs", *left)
    defined, looks, removes = last_commands(monkeypatch)
    assert (looks.split()[0], removes.split()[0]) == ("left", "set")

    def typed_in(command):
        done = subprocess.run(
            ["bash", "-c", f"{defined}\n{command}"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    assert f"hv02/bin/zfs: {left[-1]}" in typed_in(looks)
    assert typed_in(removes) == ["go back to step 7"]
    assert "flexdisk:home" in nodes.run("hv01", "zfs", "get", "-Ho", "property", "all", "tank/vm")
    nodes.run("hv02", "zfs", "destroy", "-r", "tank/flexdisk" if "flexdisk" in left[-1] else "tank/vm")
    assert typed_in(looks) == []
    assert typed_in(removes) == ["flexdisk:home of tank/vm"]


def test_a_host_that_does_not_answer_is_not_empty(tmp_path, monkeypatch):
    """The look of the page must not take a program that fails for a host with nothing left."""
    defined, _looks, removes = last_commands(monkeypatch)
    done = subprocess.run(
        ["bash", "-c", f"{defined}\n{removes}"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "go back to step 7\n"
