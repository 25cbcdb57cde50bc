# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A disk property that does not exist yet: one line in the table gives the modules all of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COLLECTION = Path("ansible_collections", "flexdisk", "hypervisor")
ROOT = Path(__file__).resolve().parents[3]
LINE = '    "tags": STRINGS,\n'
CALLS = """
import contextlib, io, json, sys
from importlib import import_module
from ansible.module_utils.testing import patch_module_args

for line in sys.stdin:
    module, arguments = json.loads(line)
    said = io.StringIO()
    with patch_module_args(arguments), contextlib.suppress(SystemExit), contextlib.redirect_stdout(said):
        import_module("ansible_collections.flexdisk.hypervisor.plugins.modules." + module).main()
    print(said.getvalue().strip(), flush=True)
"""
VALUE = "room 12, ünder 4"


@pytest.fixture
def call(host, tmp_path):
    """Runs a module of a collection whose disks have one more property, label."""
    tree = tmp_path / "tree"
    shutil.copytree(ROOT / "plugins", tree / COLLECTION / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    table = tree / COLLECTION / "plugins/module_utils/_flexdisk/rules/disk_properties.py"
    text = table.read_text()
    assert text.count(LINE) == 1
    table.write_text(text.replace(LINE, f'{LINE}    "label": TEXT,\n'))

    command = [sys.executable, "-c", CALLS]
    with subprocess.Popen(command, cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as modules:

        def call(module, check=False, **arguments):
            print(json.dumps([module, {**arguments, "_ansible_check_mode": check}]), file=modules.stdin, flush=True)
            return json.loads(modules.stdout.readline())

        yield call
        modules.stdin.close()


def changed(call, module, **arguments):
    """What the task says, which check mode predicts and a second run does not do again."""
    predicted = call(module, check=True, **arguments)
    done = call(module, **arguments)
    assert (predicted["changed"], done["changed"]) == (True, True), done
    assert not call(module, check=True, **arguments)["changed"]
    assert not call(module, **arguments)["changed"]
    return predicted, done


def of_data(result):
    """What a task returns of the disk."""
    return next(disk["label"] for disk in result["vms"][0]["disks"] if disk["name"] == "data")


def declared(**more):
    disks = [{"name": "root", "boot": True}, {"name": "data", "size": 64, **more}]
    return {"vms": [{"vm": "web01", "adopt": True, "disks": disks}]}


def test_one_line_is_enough(call):
    for result in changed(call, "vm_disks", **declared()):
        assert of_data(result) == ""
    for result in changed(call, "vm_disks", **declared(label=VALUE)):
        assert of_data(result) == VALUE
    assert "label" in call("vm_disks", check=True, **declared(label=""))["vms"][0]["steps"][0]["text"]
    assert not call("vm_disks", **declared())["changed"]

    kept = call("disk_adopt", state="released")["released"]
    assert [disk.get("label") for disk in kept[0]["disks"]][1] == VALUE
    for result in changed(call, "disk_adopt", vms=kept):
        assert of_data(result) == VALUE


def test_a_disk_outside_a_vm_has_it(call):
    changed(call, "disk", name="archive", size=64, label=VALUE)
    changed(call, "disk", name="archive", vm="web01", state="attached")
    info = call("disk_info", name="archive")["disks"]
    assert [disk["label"] for disk in info] == [VALUE]
    changed(call, "disk", name="archive", label="")
    assert [disk["label"] for disk in call("disk_info", name="archive")["disks"]] == [""]
