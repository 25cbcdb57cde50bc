# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What both modules for guests refuse, and that the page names their options."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.doc_fragments._flexdisk import ModuleDocFragment
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer

COLLECTION = "ansible_collections.flexdisk.hypervisor.plugins"
UUID = "11c1a5a7-aaaa-4bbb-8ccc-000000000001"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "guests.md"
DISK = yaml.safe_load(ModuleDocFragment.DISK_OF_GUEST)["options"]


@pytest.fixture(params=["guest_growth", "guest_growth_info"])
def names(request):
    """(module, its engine)."""
    name = request.param
    return (
        import_module(f"{COLLECTION}.modules.{name}"),
        import_module(f"{COLLECTION}.module_utils._flexdisk.engine.guest.{name}"),
    )


def lists_no_disk(argv, stdin="", timeout=0):
    assert argv[0] == "lsblk"
    return Answer(0, '{"blockdevices": []}', "")


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        ({}, "one of the following is required", None),
        ({"serial": "a", "disk_uuid": UUID}, "mutually exclusive", None),
        ({"disk_uuid": "a"}, "disk_uuid a is not a UUID", "InvalidArgument"),
        ({"pci_address": "vda"}, "pci_address vda is not like", "InvalidArgument"),
        ({"serial": "no such disk"}, "no disk with the serial number no such disk", "ResourceNotFound"),
    ],
)
def test_refused_arguments(answer_of, names, monkeypatch, arguments, message, code):
    module, engine = names
    monkeypatch.setattr(engine.os, "geteuid", lambda: 0)
    monkeypatch.setattr(engine, "SubprocessRunner", lambda: lists_no_disk)
    failed = answer_of(module, **arguments)
    assert message in failed["msg"]
    assert failed.get("error_code") == code
    failure = {key for key, value in yaml.safe_load(module.RETURN).items() if value["returned"] == "failure"}
    assert code is None or failure <= set(failed)


def test_only_root(answer_of, names, monkeypatch):
    module, engine = names
    monkeypatch.setattr(engine.os, "geteuid", lambda: 1)
    assert answer_of(module, serial="a")["error_code"] == "NotPermitted"


def test_the_page_names_all_options(names):
    options = {**DISK, **yaml.safe_load(names[0].DOCUMENTATION).get("options", {})}
    assert set(re.findall(r"`(\w+)[`:]", PAGE.read_text())) >= {"min_size_mib", "relocate", *options}


def test_all_options_are_documented(answer_of, names):
    """The error of an unknown argument lists those that there are."""
    options = {**DISK, **yaml.safe_load(names[0].DOCUMENTATION).get("options", {})}
    listed = answer_of(names[0], serial="a", no_such=1)["msg"].partition("Supported parameters include: ")[2]
    assert set(listed.rstrip(".").split(", ")) == set(options)
