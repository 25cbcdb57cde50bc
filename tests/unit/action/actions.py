# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tests of actions share: options without their texts, and plays on a host that does not exist."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]


def plain(options, told=False):
    """Names, types, defaults, choices and what is required, of options as documented or as checked."""
    return {
        name: {
            "type": option["type"],
            "elements": option.get("elements"),
            "required": option.get("required", False),
            "default": option.get("default"),
            "choices": list(option.get("choices") or ()),
            "options": plain(option.get("suboptions" if told else "options") or {}, told),
        }
        for name, option in options.items()
    }


def playbook(tmp_path, *tasks):
    """The command and the environment that run the tasks on a host that does not exist."""
    link = tmp_path / "collections" / "ansible_collections" / "flexdisk" / "hypervisor"
    link.parent.mkdir(parents=True)
    link.symlink_to(ROOT)
    book = tmp_path / "book.yml"
    book.write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": list(tasks)}]))
    command = [Path(sys.executable).parent / "ansible-playbook", "-i", "nowhere.invalid,", book]
    collections = str(tmp_path / "collections")
    return command, {**os.environ, "ANSIBLE_COLLECTIONS_PATH": collections, "ANSIBLE_NOCOLOR": "1"}
