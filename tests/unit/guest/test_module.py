# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module guest_growth: its arguments, its results, and that they are as documented."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine import guest_growth as engine
from ansible_collections.flexdisk.hypervisor.plugins.modules import guest_growth

from .conftest import new_runner

UUID = "11c1a5a7-aaaa-4bbb-8ccc-000000000001"
DOCUMENTED = yaml.safe_load(guest_growth.RETURN)
PAGE = Path(__file__).resolve().parents[3] / "docs" / "guests.md"


@pytest.fixture
def module(capsys):
    def run(check_mode=False, **arguments):
        capsys.readouterr()
        with (
            patch_module_args({**arguments, "_ansible_check_mode": check_mode}),
            pytest.raises(SystemExit),
        ):
            guest_growth.main()
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def disk(new_disk, monkeypatch):
    """A grown disk that the module finds, whatever it is asked for."""
    asked = []
    made = new_disk(300)
    made.partition("label: gpt\nsize=250MiB\n")
    made.put("ext4", made.part(1))
    made.to_size(400)
    made.asked = asked
    monkeypatch.setattr(engine.Guest, "find", lambda _self, *what: asked.append(what) or made.kname)
    monkeypatch.setattr(engine, "SubprocessRunner", new_runner)
    return made


def test_results_are_as_documented(module, disk):
    folder = str(disk.folder / "backups")
    predicted = module(True, disk_uuid=UUID.upper(), backup_dir=folder)
    assert not os.path.exists(folder)
    done = module(disk_uuid=UUID, backup_dir=folder)
    assert disk.asked == [("11c1a5a7aaaa4bbb8ccc", None)] * 2
    for result in (predicted, done):
        del result["invocation"]
    assert done == predicted
    success = {key for key, value in DOCUMENTED.items() if value["returned"] != "failure"}
    assert set(done) - {"changed", "diff"} == success
    assert done["diff"]["prepared"].splitlines() == done["steps"]
    assert Path(done["backup"]).stat().st_size
    again = module(pci_address="00:04.0", backup_dir=folder)
    assert (again["changed"], again["steps"], again["backup"]) == (False, [], "")
    assert disk.asked[-1] == (None, "00:04.0")


def test_a_passphrase_is_not_shown(module, disk):
    done = module(True, serial="a", luks_passphrase="very secret words")
    assert "very secret words" not in json.dumps(done)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "one of the following is required"),
        ({"serial": "a", "disk_uuid": UUID}, "mutually exclusive"),
        ({"disk_uuid": "a"}, "disk_uuid a is not a UUID"),
        ({"pci_address": "vda"}, "pci_address vda is not like"),
        ({"serial": "no such disk"}, "no disk with the serial number no such disk"),
    ],
)
def test_refused_arguments(module, arguments, words):
    if os.geteuid() != 0 and words.startswith(("disk_uuid", "pci_address", "no disk")):
        words = "only root can grow"
    failed = module(**arguments)
    assert words in failed["msg"]
    failure = {key for key, value in DOCUMENTED.items() if value["returned"] == "failure"}
    assert not failed.get("error_code") or failure <= set(failed)


def test_only_root_can_grow(module, monkeypatch):
    monkeypatch.setattr(engine.os, "geteuid", lambda: 1)
    assert module(serial="a")["error_code"] == "NotPermitted"


def test_the_page_names_every_option():
    options = yaml.safe_load(guest_growth.DOCUMENTATION)["options"]
    assert set(re.findall(r"`(\w+)[`:]", PAGE.read_text())) >= set(options)
