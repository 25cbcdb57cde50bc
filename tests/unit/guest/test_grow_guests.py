# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook grow_guests as a user runs it. The guests are this machine, with loop devices as their disks."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import uuid
from pathlib import Path

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.doc_fragments._flexdisk import ModuleDocFragment
from ansible_collections.flexdisk.hypervisor.plugins.filter.guests import guest_disks
from ansible_collections.flexdisk.hypervisor.plugins.modules import guest_growth
from tests.unit.playbooks.nodes import Nodes

from .conftest import SEARCH_PATH, hashes

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "guests.md").read_text(encoding="utf-8")
BACKUPS = Path("/var/lib/flexdisk")
VOLUME = "tank/0dd5e7c4-0000-4000-8000-000000000001/disk"
# It shows the guest only disks of the test, with serial numbers as a VM has them.
LSBLK = """#!{python}
import json, subprocess, sys
done = subprocess.run(["lsblk", *sys.argv[1:]], capture_output=True, text=True, env={{"PATH": "{path}"}})
serials = {serials}
found = [disk for disk in json.loads(done.stdout)["blockdevices"] if disk["kname"] in serials]
for disk in found:
    disk.update(type="disk", serial=serials[disk["kname"]])
print(json.dumps({{"blockdevices": found}}))
"""


def identity(name):
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def reported(*names, **more):
    """flexdisk_vm of a domain of libvirt with disks of these names."""
    paths = {name: f"{VOLUME}{number}" for number, name in enumerate(names)}
    disks = [
        {"name": name, "uuid": identity(name), "volume": volume, "path": f"/dev/zvol/{volume}", "pci_slot": "0:4:0",
         "hidden": False}
        for name, volume in paths.items()
    ]  # fmt: skip
    return {"state": "running", "hypervisor": "hv01", "disks": disks, **more}


def programs(folder, disks):
    """A folder with lsblk. disks: loop devices by the names of the disks that they are."""
    folder.mkdir()
    serials = {disk.kname: identity(name).replace("-", "")[:20] for name, disk in disks.items()}
    program = folder / "lsblk"
    program.write_text(LSBLK.format(python=sys.executable, path=SEARCH_PATH, serials=json.dumps(serials)))
    program.chmod(0o755)
    return f"{folder}:{SEARCH_PATH}"


class Guests(Nodes):
    """hosts: the variables of each guest. hv01: those of their hypervisor. disks: as of programs."""

    def __init__(self, folder, hosts, disks, hv01=None):
        folder.mkdir()
        super().__init__(folder, {})
        self.hosts, self.hv01 = hosts, hv01 or {}
        self.path = programs(folder / "bin", disks)
        for host in hosts:
            (folder / host).mkdir()

    def inventory(self, unreachable):
        variables = {
            "ansible_connection": "mortal",
            "ansible_python_interpreter": sys.executable,
            "flexdisk_environment": {"PATH": self.path},
        }
        groups = {
            "hypervisor_hv01": {"hosts": self.hosts, "vars": variables},
            "hypervisors": {"hosts": {"hv01": self.hv01}},
        }
        path = self.folder / "inventory.yml"
        path.write_text(yaml.safe_dump(groups))
        return path

    def calls(self):
        return super().calls() if (self.folder / "calls").exists() else []

    def grow(self, *options, status=0):
        """What the playbook prints."""
        ended, printed = self.play("grow_guests", *options)
        assert ended == status, printed
        return printed


def section(heading):
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def commands(text):
    """The words behind the playbook in the console blocks of a text."""
    return [line.split()[3:] for line in re.findall(r"^\$ ansible-playbook .*grow_guests.*$", text, re.MULTILINE)]


def told(printed):
    """The lines of the messages, in their order."""
    return re.findall(r'^        "(.*?)",?$', printed, re.MULTILINE)


def fatal(printed):
    return dict(re.findall(r'^fatal: \[(\S+)\]: FAILED!.*?"msg": "(.*?)"', printed, re.MULTILINE | re.DOTALL))


def changed(printed):
    return re.findall(r"^(\S+) +: ok=\d+ +changed=[1-9]", printed, re.MULTILINE)


@pytest.fixture
def full(new_disk):
    """A disk on which nothing can grow by now."""
    disk = new_disk(30)
    disk.put("ext4", disk.device, files=False)
    return disk


@pytest.fixture
def grown(new_disk):
    """A disk whose partition and file system can grow."""
    disk = new_disk(400)
    disk.partition("label: gpt\nsize=350MiB\n")
    disk.put("xfs", disk.part(1))
    disk.to_size(600)
    name = re.search(r"^label-id: (\S+)$", disk.dump(), re.MULTILINE)[1].lower()
    yield disk
    for backup in BACKUPS.glob(f"{name}-*.sfdisk"):
        backup.unlink()
    with contextlib.suppress(OSError):
        BACKUPS.rmdir()


def test_four_steps(new_disk, grown, full, tmp_path):
    """As the page has it: a disk grows, one has nothing to grow, and one is left out."""
    root, target = grown, grown.mounts[0][1]
    text = section("All disks of all guests")
    (check, real), (playbook, _other) = commands(text), re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    hosts = {
        "db01": {"flexdisk_vm": reported("root", "logs", "raw"), **yaml.safe_load(playbook)},
        "db02": {"flexdisk_vm": reported("root", state="stopped")},
    }
    guests = Guests(tmp_path / "guests", hosts, {"root": root, "logs": full, "raw": new_disk(30)})
    before, table = hashes(target), root.dump()

    def lines(printed):
        for loop, name in (
            (f"{root.kname}p", "vda"),
            (root.kname, "vda"),
            (full.kname, "vdb"),
            (f"at {target}", "at /"),
        ):
            printed = printed.replace(loop, name)
        return told(printed)

    predicted = guests.grow(*check)
    assert root.dump() == table
    message = ["batch 1: db01", "left out: db02: it is stopped"]
    assert [line.split() for line in lines(predicted)] == [line.split() for line in [*message, *shown.splitlines()]]
    assert f"~ {root.kname}p1 350 MiB -> 598 MiB\n" in predicted, "the diff"
    done = guests.grow(*real)
    assert (lines(done), changed(done), changed(predicted)) == (lines(predicted), ["db01"], ["db01"])
    assert hashes(target) == before
    normalised = re.sub(r"^sector-size: .*\n", "", table, flags=re.MULTILINE)  # which sfdisk 2.35 does not read
    assert normalised in "".join(path.read_text() for path in BACKUPS.glob("*.sfdisk"))
    table = root.dump()
    again, last = guests.grow(*check), guests.grow(*real)
    assert lines(again) == lines(last)
    assert [line.split()[3:] for line in lines(last)[3:]] == [["MiB", "nothing", "to", "grow"]] * 2
    assert (changed(again), changed(last), root.dump()) == ([], [], table)
    assert set(guests.calls()) == {"db01"}


def test_a_group(new_disk, grown, full, tmp_path):
    """One member is away, one does not run, and one has a disk on which nothing can grow."""
    (command,) = commands(section("A group, batch by batch"))
    hosts = {
        name: {"flexdisk_vm": reported("full", alias=name)} for name in ("web-4", "web-3", "web-1", "web-0", "db01")
    }
    hosts["web-2"] = {"flexdisk_vm": reported("raw", "full", alias="web-2")}
    hosts["web-0"]["flexdisk_vm"]["state"] = "stopped"
    hosts["web-3"]["flexdisk_vm"] = reported("data", alias="web-3")
    hosts["web-3"]["guest_growth_disks"] = [{"disk": "data", "luks_passphrase": "very secret words"}]
    policy = {"max_batch_size": 1, "failure_budget": 1, "pause_time": 1}
    web = {"name": "web", "size": 5, "template": {}, "policy": policy}
    guests = Guests(
        tmp_path / "guests", hosts, {"data": grown, "full": full, "raw": new_disk(30)}, {"flexdisk_groups": [web]}
    )
    (guests.folder / "web-4" / "dead").touch()
    printed = guests.grow(*command, "-v", status=2)
    assert "very secret words" not in printed
    assert told(printed)[:6] == [
        *("batch 1: web-4", "batch 2: web-3", "batch 3: web-2", "batch 4: web-1"),
        *("left out: web-0: it is stopped", "cannot be reached: web-4"),
    ]
    assert [line.split()[0] for line in told(printed)[6:]] == ["DISK", "data", "~", "DISK", "raw", "full"]
    assert printed.count("Pausing for 1 seconds") == 1, "only where something has changed"
    failed = fatal(printed)
    assert "web-2, disk raw: /dev/loop" in failed["web-2"]
    assert "has nothing that is known on it [UnknownLayout]" in failed["web-2"]
    assert failed["web-4"] == "web-4 cannot be reached: Task failed: the host does not answer"
    assert failed["web-1"] == "web-1 was not tried, because of web-4, web-2"
    assert set(failed) == {"web-4", "web-2", "web-1"}
    assert set(guests.calls()) == {"web-3", "web-2", "web-1"}


@pytest.mark.parametrize(
    "variables",
    [
        {"db01": {"flexdisk_guests": "db01"}, "db02": {"flexdisk_guests": "db01"}},
        {"db01": {"flexdisk_group": "db"}, "db02": {}},
        {"db01": {"flexdisk_group": "db"}, "db02": {"flexdisk_group": "DB"}},
    ],
)
def test_guests_that_the_inventory_chooses_are_refused(tmp_path, variables):
    """The hosts of a play are known before the variables of hosts."""
    guests = Guests(
        tmp_path / "guests",
        {host: {"flexdisk_vm": reported("root"), **variables_of_host} for host, variables_of_host in variables.items()},
        {},
        {"flexdisk_groups": [{"name": "db", "size": 1, "template": {}}]},
    )
    assert "Set it on the command line with -e" in guests.grow(status=2)
    assert guests.calls() == []


def test_a_canary_that_has_changed_and_broken(grown, tmp_path):
    """Its table is written by then. The pause after it is kept."""
    hosts = {"web-0": {"flexdisk_vm": reported()}, "web-1": {"flexdisk_vm": reported("data")}}
    web = {"name": "web", "size": 2, "template": {}, "policy": {"canary": 1, "canary_pause": 1, "failure_budget": 1}}
    guests = Guests(tmp_path / "guests", hosts, {"data": grown}, {"flexdisk_groups": [web]})
    broken = guests.folder / "bin" / "xfs_growfs"
    broken.write_text(f'#!/bin/sh\n[ "$1" = -n ] || exit 1\nexec {shutil.which("xfs_growfs", path=SEARCH_PATH)} "$@"\n')
    broken.chmod(0o755)
    table = grown.dump()
    printed = guests.grow("-e", "flexdisk_group=web", status=2)
    assert grown.dump() != table
    assert [line.split()[-2:] for line in told(printed)[3:]] == [["FAILED", "GrowthFailed"]]
    assert printed.count("Pausing for 1 seconds") == 1
    assert set(fatal(printed)) == {"web-1"}


def test_members_that_are_not_in_the_inventory_count(tmp_path):
    """The inventory plugin leaves out VMs of a hypervisor that it cannot read, if it is told to warn only."""
    web = {"name": "web", "size": 3, "template": {}, "policy": {"failure_budget": 1}}
    hosts = {"web-0": {"flexdisk_vm": reported()}}
    guests = Guests(tmp_path / "guests", hosts, {})
    options = ("-e", json.dumps({"flexdisk_group": "web", "flexdisk_groups": [web]}))
    assert fatal(guests.grow(*options, status=2)) == {"web-0": "web-0 was not tried, because of web-1, web-2"}
    assert fatal(guests.grow(*options, "--limit", "web-0")) == {}, "nobody has asked for the others"


def test_a_group_of_hypervisors_that_are_not_in_the_inventory(tmp_path):
    guests = Guests(tmp_path / "guests", {"web-0": {"flexdisk_vm": reported(hypervisor="hv02")}}, {})
    printed = guests.grow("-e", "flexdisk_group=web", status=2)
    assert fatal(printed)["web-0"] == (
        "group web is not declared; flexdisk_groups has no group. "
        "these hypervisors of the VMs are not in this inventory: hv02"
    )
    assert guests.calls() == []


def test_a_hypervisor_is_no_guest(tmp_path):
    """hv9 is in a group that is called like those of the inventory plugin, but it has no flexdisk_vm."""
    guests = Guests(
        tmp_path / "guests", {"db01": {"flexdisk_vm": reported()}, "hv9": {"guest_growth_disks": [{"serial": "a"}]}}, {}
    )
    printed = guests.grow()
    assert told(printed)[:2] == ["batch 1: db01", "left out: hv9: it is no VM of the inventory plugin"]
    assert set(guests.calls()) == {"db01"}
    assert "hv9, disk a" in fatal(guests.grow("-e", "flexdisk_guests=hv9", status=2))["hv9"], "if it is asked for"


@pytest.mark.skipif(
    not os.environ.get("FLEXDISK_FULL"), reason="takes seconds; filter/test_guests.py has the same slots"
)
def test_a_vm_of_smartos_through_the_inventory_plugin(tools, tmp_path):
    """Its disks are known by their PCI slots. The guest shows none here, so both are refused."""
    if os.geteuid() != 0:
        pytest.skip("only root can grow file systems")
    nodes = Nodes(tmp_path, {"hv01": ""})
    nodes.create("hv01", "db01", 1024, 2, {}, more=[1])
    hostvars = {
        "ansible_connection": "'local'",
        "ansible_python_interpreter": repr(sys.executable),
        "flexdisk_environment": repr({"PATH": programs(tmp_path / "bin", {})}),
    }
    source = tmp_path / "flexdisk_vms.yml"
    plugin = {"plugin": "flexdisk.hypervisor.vms", "inventory": ["inventory.yml"], "compose": hostvars}
    source.write_text(yaml.safe_dump(plugin))
    status, printed = nodes.play("grow_guests", "--check", "-i", str(source))
    assert status == 2, printed
    for number in (0, 1):
        wanted = f"db01, disk {identity(f'db01-{number}')}: no disk at the PCI address 0000:00:04.{number}"
        assert wanted in fatal(printed)["db01"]


def test_the_disks_that_the_page_names():
    blocks = re.findall(r"```yaml\n(.*?)```", section("All disks of all guests"), re.DOTALL)
    asked = yaml.safe_load(blocks[1])["guest_growth_disks"]
    spec = yaml.safe_load((ROOT / "roles/guest_growth/meta/argument_specs.yml").read_text(encoding="utf-8"))
    options = spec["argument_specs"]["main"]["options"]["guest_growth_disks"]["options"]
    assert {key for disk in asked for key in disk} <= set(options)
    texts = (guest_growth.DOCUMENTATION, ModuleDocFragment.DISK_OF_GUEST)
    assert set(options) == {"disk", *(key for text in texts for key in yaml.safe_load(text)["options"])}
    targets = guest_disks(reported("root", "data", "logs"), asked)
    assert [disk["disk_uuid"] for disk in targets["disks"]] == [identity("root"), identity("data")]
