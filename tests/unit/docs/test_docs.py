# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What README and docs say is so: links, make targets, codes, examples, figures, commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.arguments import DISK, POWER
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.sizes import MIB
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.disk import parse_disk
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.disk_adopt import parse_adoption
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.packages import parse_packages
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.vm import parse_vm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.vm_disks import parse_vm_disks
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import (
    findings,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.reservation import (
    PoolGeometry,
    Vdev,
    automatic_reservation,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.space import quota_law
from ansible_collections.flexdisk.hypervisor.plugins.modules import disk as disk_module
from ansible_collections.flexdisk.hypervisor.plugins.modules import disk_adopt, disk_verify, vm_disks
from ansible_collections.flexdisk.hypervisor.plugins.modules import vm as vm_module

ROOT = Path(__file__).resolve().parents[3]
BESIDE = ("roles/*", "extensions/iallocator", "tests/streams", "tests/lab", "tests/integration")
PAGES = sorted(page for part in (".", "docs") for page in (ROOT / part).glob("*.md"))
PAGES += sorted(page for part in BESIDE for page in ROOT.glob(f"{part}/README.md"))
OURS = "flexdisk.hypervisor."


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#]+)#?([^)]*)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
            assert not anchor or anchor in anchors(page.parent / target), (target, anchor)


def anchors(page: Path) -> list[str]:
    """The names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_make_targets_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"(?:`|^    |\$ )make ([a-z-]+)", page.read_text(), re.MULTILINE)
    assert set(named) <= targets


def declared(node, module="vm_disks"):
    """All arguments of a module of ours below a piece of YAML."""
    if isinstance(node, list):
        for item in node:
            yield from declared(item, module)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key == OURS + module:
                yield value
            else:
                yield from declared(value, module)


def told(vm):
    """An entry whose figures are no templates of what another task has found."""
    disks = [
        {key: 1024 if str(value).startswith("{{") else value for key, value in disk.items()}
        for disk in vm.get("disks", [])
    ]
    return {**vm, "disks": disks} if disks else vm


EXAMPLES = [
    (f"{page.relative_to(ROOT)}-{n}", block) for page in PAGES for n, block in enumerate(blocks(page, "yaml"))
] + [
    ("vm_disks-EXAMPLES", yaml.safe_load((ROOT / "plugins/modules/vm_disks.yml").read_text())["EXAMPLES"]),
    ("vm-EXAMPLES", vm_module.EXAMPLES),
    ("disk-EXAMPLES", disk_module.EXAMPLES),
    ("disk_adopt-EXAMPLES", disk_adopt.EXAMPLES),
]


@pytest.mark.parametrize("block", [b for _name, b in EXAMPLES], ids=[name for name, _b in EXAMPLES])
def test_examples_are_valid_declarations(block):
    for arguments in declared(yaml.safe_load(block)):
        for vm in arguments["vms"]:
            assert set(vm) <= set(vm_disks.VM)
            assert all(set(disk) <= set(DISK) for disk in vm.get("disks", []))
            assert parse_vm_disks(told(vm))[1] == []


@pytest.mark.parametrize("block", [b for _name, b in EXAMPLES], ids=[name for name, _b in EXAMPLES])
def test_examples_of_vms_are_valid(block):
    node = yaml.safe_load(block)
    given = node if isinstance(node, dict) and "flexdisk_packages" in node else {}
    known, problems = parse_packages(given.get("flexdisk_packages", []))
    wanted = [(vm, known) for vm in given.get("virtual_machine_vms", [])]
    for arguments in declared(node, "vm"):
        listed = arguments.get("packages", [])
        named = [{"name": vm["package"], "disk": 1} for vm in arguments["vms"] if "package" in vm]
        known, more = parse_packages(named if isinstance(listed, str) else listed)
        problems += more
        wanted += [({"package": None, **vm}, known) for vm in arguments["vms"]]
    for vm, known in wanted:
        assert set(vm) <= {*vm_module.VM}
        assert {key for disk in vm.get("disks", []) for key in disk} <= {*DISK}
        problems += parse_vm({"state": "present", **vm}, known)[1]
    assert problems == []


@pytest.mark.parametrize("block", [b for _name, b in EXAMPLES], ids=[name for name, _b in EXAMPLES])
def test_examples_of_adoption_are_valid(block):
    for arguments in declared(yaml.safe_load(block), "disk_adopt"):
        given = (arguments or {}).get("vms", [])
        for vm in [] if isinstance(given, str) else given:  # a template of what was released
            assert parse_adoption(vm)[1] == []


@pytest.mark.parametrize("block", [b for _name, b in EXAMPLES], ids=[name for name, _b in EXAMPLES])
def test_examples_of_disks_are_valid(block):
    for arguments in declared(yaml.safe_load(block), "disk"):
        given = arguments.get("disks", [arguments])
        for number, entry in enumerate([] if isinstance(given, str) else given):  # a template of what was found
            assert set(entry) <= {*disk_module.ENTRY, *POWER}
            assert parse_disk(entry, number)[1] == []


def test_there_are_examples_of_disks():
    assert sum(len(list(declared(yaml.safe_load(block), "disk"))) for _name, block in EXAMPLES) >= 6


def test_there_are_examples_of_vms():
    assert sum(len(list(declared(yaml.safe_load(block), "vm"))) for _name, block in EXAMPLES) >= 5


def test_there_are_examples():
    assert sum(len(list(declared(yaml.safe_load(block)))) for _name, block in EXAMPLES) >= 4


def test_every_error_code_is_explained():
    """Codes are the first argument of the errors and problems, and the second words of the pattern tables."""
    house = ROOT / "plugins" / "module_utils" / "_flexdisk"
    used = set()
    for path in house.rglob("*.py"):
        text = path.read_text()
        used |= set(re.findall(r"(?:FlexdiskError|ZfsError|Problem|found\.add)\(\s*\"([A-Za-z]+)\"", text))
        used |= set(re.findall(r"^    \(r?\".*\", \"([A-Z][A-Za-z]+)\"\),$", text, re.MULTILINE))
    assert len(used) > 25
    explained = set(re.findall(r"`([A-Za-z]+)`", (ROOT / "docs" / "errors.md").read_text()))
    assert used - {"NAMES_PARTIAL", "NAME_CONFLICT"} <= explained


def test_every_kind_of_finding_is_explained_as_the_code_has_it():
    page = (ROOT / "docs" / "disks-verify.md").read_text()
    told = re.findall(r"^\| `([a-z_]+)` \| (\w+) \| (.*) \| (.*) \|$", page, re.MULTILINE)
    kinds = [(kind, k.severity, k.meaning, k.repair or "-") for kind, k in findings.KINDS.items()]
    assert told == kinds
    assert {k.severity for k in findings.KINDS.values()} == set(findings.SEVERITIES)
    choices = yaml.safe_load(disk_verify.DOCUMENTATION)["options"]["repair"]["choices"]
    assert list(choices) == list(findings.REPAIRABLE)


def test_the_figures_of_the_laws():
    """The worked example of laws.md is what the code computes, and its figures are in the text."""
    geometry = PoolGeometry((Vdev("plain", 12, 1, 0, 0),), "classic")
    volumes = [Dataset("v", "volume", volsize=size * MIB, volblocksize=8192) for size in (10240, 2048)]
    figures = [automatic_reservation(v.volsize, v.volblocksize, geometry) for v in volumes]
    figures += [figures[0] - volumes[0].volsize, figures[1] - volumes[1].volsize]
    figures.append(quota_law(1024 * MIB, 20480 * MIB, volumes, geometry))
    text = (ROOT / "docs" / "laws.md").read_text()
    for figure in figures:
        assert str(figure) in text


def test_causes_of_drift_are_explained():
    source = (ROOT / "plugins/module_utils/_flexdisk/rules/space.py").read_text()
    causes = {
        cause for tail in source.split("_cause(")[1:] for cause in re.findall(r'(?:return |else )"([a-z][^"]+)"', tail)
    }
    assert len(causes) >= 6
    told = (ROOT / "docs" / "laws.md").read_text()
    assert [cause for cause in sorted(causes) if f"`{cause}`" not in told] == []


def test_the_rehearsal_works_as_written(tmp_path):
    """Run the console blocks of rehearsal.md: on a demo node, then on a second one loaded from the first's export."""
    page = (ROOT / "docs" / "rehearsal.md").read_text()
    node, copy = tmp_path / "node", tmp_path / "copy"
    first, faults, export, load, proxmox = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    folder = ROOT / "extensions" / "simulated_node"

    def run(command: str, where: Path) -> str:
        command = (
            re.sub(r"^[$#] ", "", command).replace("python3 ", sys.executable + " ").replace("/tmp/node", str(where))
        )
        env = dict(os.environ, PYTHONPATH=str(folder), PATH=f"{node}/bin:{os.environ['PATH']}")
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout

    listed = [run(line, node) for line in first.splitlines()[1:]]
    assert "web01" in listed[-1]
    for line in (*faults.splitlines(), *export.splitlines()):
        run(line, node)
    for line in load.splitlines():
        run(line, copy)
    listed = [run(line, node) for line in proxmox.splitlines()]
    assert "web" in listed[-1]
    arguments = "lookup -j"
    assert run(f"$ {copy}/bin/vmadm {arguments}", copy).count('"web01"') >= 1


def test_what_is_shown_of_the_examples_is_in_them():
    """In blocks of yml and haproxy. Blocks of yaml are run."""
    page = ROOT / "docs" / "groups.md"
    texts = [path.read_text() for path in (ROOT / "examples").rglob("*") if path.is_file()]
    shown = blocks(page, "yml") + blocks(page, "haproxy")
    assert len(shown) == 2
    assert [block for block in shown if not any(block in text for text in texts)] == []


def test_the_tests_that_safety_names_exist():
    text = (ROOT / "docs" / "safety.md").read_text()
    named = set(re.findall(r"`([a-z_/]+\.py)::([a-z0-9_]+)`", text))
    assert len(named) > 15
    for path, test in named:
        assert re.search(rf"^def {test}\(", (ROOT / "tests" / "unit" / path).read_text(), re.MULTILINE), (path, test)


def test_safety_names_every_invariant_of_the_stateful_test():
    source = (ROOT / "tests" / "unit" / "stateful" / "invariants.py").read_text()
    invariants = set(re.findall(r'^    "([A-Z]+)": "', source, re.MULTILINE))
    told = re.findall(r"\(([A-Z, ]+)\)", (ROOT / "docs" / "safety.md").read_text())
    assert len(invariants) > 8
    assert invariants == {word for words in told for word in words.split(", ")}
