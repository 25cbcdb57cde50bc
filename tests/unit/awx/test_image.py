# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The execution environment as ansible-builder prepares it, and the inventory update that runs in it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
import yaml

from ..playbooks.nodes import Nodes
from .test_objects import AWX, OBJECTS, ROOT

BUILT = AWX / "execution-environment" / "execution-environment.yml"
SSH = '#!/bin/sh\necho "$*" >> {log}\nfor last; do :; done\nexec sh -c "$last"\n'


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    """What ansible-builder makes of the file, beside a tarball."""
    folder = tmp_path_factory.mktemp("image")
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]
    (folder / "execution-environment.yml").write_text(BUILT.read_text())
    (folder / f"flexdisk-hypervisor-{version}.tar.gz").write_text("the collection")
    command = [
        sys.executable,
        "-m",
        "ansible_builder",
        "create",
        "--context",
        "context",
        "--output-filename",
        "Containerfile",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "context"


def test_the_image_has_what_was_tried(context):
    said = (context / "Containerfile").read_text()
    pins = "".join((ROOT / "requirements" / name).read_text() for name in ("core-2.19.txt", "dev.txt"))
    core, runner = (re.search(rf"^{name}==\S+", pins, re.MULTILINE)[0] for name in ("ansible-core", "ansible-runner"))
    assert f'ARG ANSIBLE_INSTALL_REFS="{core} {runner}"' in said
    assert 'ARG PYCMD="/usr/bin/python3.11"' in said
    collections = yaml.safe_load((context / "_build" / "requirements.yml").read_text())["collections"]
    (tarball,) = (context / "_build" / "galaxy").iterdir()
    assert collections == [{"name": tarball.name, "type": "file"}]
    assert tarball.read_text() == "the collection"


def test_the_image_gets_what_the_collection_needs(context, tmp_path):
    place = tmp_path / "ansible_collections" / "flexdisk" / "hypervisor"
    place.parent.mkdir(parents=True)
    place.symlink_to(ROOT)
    command = [sys.executable, str(context / "_build" / "scripts" / "introspect.py"), "introspect", str(tmp_path)]
    found = yaml.safe_load(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert found["python"] == []
    assert [line.split("  #")[0] for line in found["system"]] == [
        "openssh-clients [platform:rpm]",
        "openssh-client [platform:dpkg]",
    ]


@pytest.mark.parametrize("key", ["key", ""])
def test_an_inventory_update_reaches_the_hypervisors_with_its_key(tmp_path, key):
    """As AWX runs it: ansible-inventory, with the variable that the credential type sets."""
    nodes = Nodes(tmp_path, {"hv01": ""})
    uuid = nodes.create("hv01", "web01", 1024, 5, {})
    (tmp_path / "ssh").write_text(SSH.format(log=tmp_path / "said"))
    (tmp_path / "ssh").chmod(0o700)
    (tmp_path / "key").touch(mode=0o600)
    project = tmp_path / "project" / "inventory"
    project.mkdir(parents=True)
    for path in (AWX / "project" / "inventory").glob("*.yml"):
        (project / path.name).write_text(re.sub(r"hv02.example.com:\n", "", path.read_text()))
    own = nodes.inventory("").read_text()
    mine = {**yaml.safe_load(own)["hypervisors"]["hosts"]["hv01"], "ansible_connection": "ssh"}
    (project / "host_vars").mkdir()
    mine.update(ansible_ssh_executable=str(tmp_path / "ssh"), ansible_pipelining=True)
    (project / "host_vars" / "hv01.example.com.yml").write_text(yaml.safe_dump(mine))
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_") or "CALLBACK" in name}
    env.update(ANSIBLE_COLLECTIONS_PATH=str(tmp_path / "collections"), ANSIBLE_INVENTORY_UNPARSED_FAILED="True")
    (source,) = (one for one in OBJECTS["controller_inventory_sources"] if "credential" in one)
    (kind,) = OBJECTS["controller_credential_types"]
    env.update({name: str(tmp_path / key) if key else "" for name in kind["injectors"]["env"]})
    path = tmp_path / "project" / source["source_path"]
    command = [sys.executable, "-m", "ansible.cli.inventory", "--list", "--export", "-i", str(path)]
    command += ["--output", str(tmp_path / "output.json"), "--playbook-dir", str(path.parent)]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "output.json").read_text())["_meta"]["hostvars"]
    assert list(found) == ["web01"]
    assert found["web01"]["flexdisk_vm"]["uuid"] == uuid
    variable, field = source["enabled_var"].split(".")
    assert found["web01"][variable][field] == source["enabled_value"]
    said = (tmp_path / "said").read_text()
    assert (f'IdentityFile="{tmp_path / "key"}"' in said) == bool(key)
    assert ("IdentityFile" in said) == bool(key)
