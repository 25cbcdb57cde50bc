# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module guest_growth: its arguments, its results, and that they are as documented."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.guest import guest_growth as engine
from ansible_collections.flexdisk.hypervisor.plugins.modules import guest_growth

from .conftest import new_runner

UUID = "11c1a5a7-aaaa-4bbb-8ccc-000000000001"
DOCUMENTED = yaml.safe_load(guest_growth.RETURN)


@pytest.fixture
def module(answer_of):
    return partial(answer_of, guest_growth)


@pytest.fixture
def disk(new_disk, monkeypatch):
    """A grown disk that the module finds, whatever it is asked for."""
    asked = []
    made = new_disk(300)
    made.partition("label: gpt\nsize=250MiB\n")
    made.put("ext4", made.part(1))
    made.to_size(400)
    made.asked = asked
    monkeypatch.setattr(engine.Guest, "find", lambda _self, *label: asked.append(label) or made.kname)
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


def test_an_ansible_core_that_is_too_old_is_refused(answer_of, monkeypatch):
    monkeypatch.setattr(guest_growth, "__version__", "2.18.19")
    assert answer_of(guest_growth, serial="none")["error_code"] == "AnsibleTooOld"
