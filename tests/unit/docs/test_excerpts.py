# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""README and the walks show what the demo and the walks really print. tests/tools/renew_excerpts.py renews them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ROOT / "tests" / "tools"
HINT = "tests/tools/renew_excerpts.py writes it into the page"


@pytest.fixture
def tools(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    import excerpts
    import walk

    return excerpts, walk


def shown(excerpts, page):
    return [
        (command, lines)
        for block in excerpts.BLOCK.findall(page)
        for command, lines in excerpts.commands(block)
        if lines
    ]


def test_the_demo_prints_what_readme_shows(tools):
    excerpts, _walk = tools
    done = subprocess.run([sys.executable, str(TOOLS / "demo.py")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = excerpts.runs(done.stdout)
    pairs = shown(excerpts, (ROOT / "README.md").read_text())
    assert [command.split()[1] for command, _lines in pairs] == [
        "flexdisk.hypervisor.converge",
        "flexdisk.hypervisor.report",
    ]
    for command, lines in pairs:
        assert excerpts.same(lines, runs[command]), (HINT, runs[command])
    make_the_first_change()


def test_the_demo_of_proxmox_keeps_its_promises(tools):
    """It ends as soon as one is broken. Its modules run in forks, as those of pages that are typed along."""
    from tree import in_forks

    command, env = [sys.executable, str(TOOLS / "demo.py"), "proxmox"], {**os.environ, **in_forks()}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"web  root     virtio0  30 GiB' in done.stdout


def make_the_first_change():
    """What README says after the demo, on the node that the demo has left."""
    text = (ROOT / "README.md").read_text().split("\n### Your first change\n")[1].split("\n### ")[0]
    (line,) = re.findall(r"^ {6}(- \{name: pgdata, .*\})$", text, re.MULTILINE)
    declared = ROOT / re.findall(r"`([\w/]+/host_vars/hv01\.yml)`", text)[0]
    declared.write_text(re.sub(r"- \{name: pgdata, .*\}", line, declared.read_text()))
    commands = "\n".join(re.findall(r"^ {4}((?:cd|export|ansible-playbook) .*)$", text, re.MULTILINE))
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    done = subprocess.run(["bash", "-ec", commands], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (begins,) = re.findall(r"The plan begins with `(.*)`\.", text)
    for told in (begins, "  ~ pgdata 16 GiB -> 20 GiB"):
        assert done.stdout.count(f"{told}\n") == 2, "planned and done"
    assert re.search(r'"  +pgdata +0:4:2 +20 GiB ', done.stdout), "reported"


def test_the_walk_goes_as_it_is_written(tools, tmp_path):
    """From a tarball that is built and installed, to the deletion of one of two VMs of a name."""
    excerpts, walk = tools
    seen = []
    states = []
    for step in walk.walk(tmp_path, walk.PAGE.read_text()):
        assert (step.status != 0) == any(line.startswith("[ERROR]") for line in step.shown), step
        if step.shown:
            assert excerpts.same(step.shown, step.printed), (HINT, step)
        if step.command.startswith("ansible-playbook"):
            seen.append(step.command.split("flexdisk.hypervisor.")[1].split()[0])
            states.append(volumes(tmp_path / "walk" / "hv02"))
    assert {"report", "adopt", "converge", "delete_vm"} <= set(seen)
    assert seen[-2:] == ["delete_vm", "report"]
    assert len(set(states)) == 1, "hv02 is whole"
    assert not (tmp_path / "walk").exists()


def test_the_walk_with_moves_goes_as_it_is_written(tools, tmp_path):
    """Two hosts by one command, a move, a failover, and the ways back; in forks, unlike the other walk."""
    from tree import in_forks

    excerpts, walk = tools
    where = []
    for step in walk.walk(tmp_path, walk.MOVES.read_text(), more=in_forks()):
        assert step.status == 0, step
        if step.shown:
            assert excerpts.same(step.shown, step.printed), (HINT, step)
        if "flexdisk.hypervisor.move_vm" in step.command or "failover_vm" in step.command:
            where.append([names(tmp_path / "moves" / host) for host in ("hv01", "hv02")])
    assert where[1] == [["db01", "legacy01"], ["web01"]]
    assert where[2] == where[3] == [["db01", "legacy01", "web01"], []]
    assert where[5] == [["db01", "legacy01", "web01"], ["db01"]], "the old copy is still there"
    assert where[6] == where[7] == [["legacy01", "web01"], ["db01"]]
    assert where[8] == [["db01", "legacy01", "web01"], []]


def names(node):
    """The VMs of a node, those that only come left out."""
    done = subprocess.run(
        [str(node / "bin" / "vmadm"), "list", "-Ho", "alias"], capture_output=True, text=True, check=True
    )
    return sorted(done.stdout.split())


def test_requirements_install_the_tarball(tools, tmp_path):
    """The first requirements.yml of install.md."""
    _excerpts, walk = tools
    galaxy = [str(Path(sys.executable).with_name("ansible-galaxy")), "collection"]
    subprocess.run([*galaxy, "build", "--output-path", str(tmp_path), str(ROOT)], check=True, capture_output=True)
    (tarball,) = tmp_path.glob("*.tar.gz")
    version = tarball.name[len("flexdisk-hypervisor-") : -len(".tar.gz")]
    block = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE | re.DOTALL)[0]
    (tmp_path / "requirements.yml").write_text(block.replace("VERSION", version))
    install = [*galaxy, "install", "-r", "requirements.yml", "-p", "collections"]
    subprocess.run(install, cwd=tmp_path, env=walk.newcomer(tmp_path), check=True, capture_output=True)
    assert (tmp_path / "collections/ansible_collections/flexdisk/hypervisor/MANIFEST.json").exists()


def volumes(node):
    """Everything that the node has, and what its disks hold."""
    command = [str(node / "bin" / "zfs"), "get", "-Hp", "-o", "name,property,value", "guid,volsize,used,referenced"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_telling_lines(tools):
    excerpts, _walk = tools
    output = """
PLAY [Converge] ****

TASK [Do it] ****
ok: [hv02]
[ERROR]: Task failed: no such VM
Origin: /somewhere/converge.yml:1:1

1 - name: Do it
    ^ column 5

fatal: [hv01]: FAILED! => {"changed": false}
ok: [hv02] => {
    "msg": "x"
}

PLAY RECAP ****
hv01  : ok=1
"""
    assert excerpts.telling(output) == ["[ERROR]: Task failed: no such VM", "ok: [hv02] => {", '    "msg": "x"', "}"]


def test_an_excerpt_that_has_drifted_is_noticed(tools):
    excerpts, _walk = tools
    lines = ["ok: [hv01] => a", "ok: [hv02] => 11111111-0000-4000-8000-000000000001"]
    assert excerpts.same(lines, [lines[1].replace("-4000-", "-5000-"), lines[0]])
    assert not excerpts.same(lines, [*lines, "more"])
    assert not excerpts.same(lines, lines[:1])
    assert not excerpts.same(lines, ["ok: [hv01] => b", lines[1]])


def test_renewing_touches_only_what_is_shown(tools):
    excerpts, _walk = tools
    page = "text\n```console\n$ quiet\n$ loud \\\n    -e x\nold\n```\n```text\nold\n```\n"
    renewed = excerpts.renewed(page, lambda command: [command.split()[0], "new"])
    assert renewed == page.replace("    -e x\nold\n", "    -e x\nloud\nnew\n")
