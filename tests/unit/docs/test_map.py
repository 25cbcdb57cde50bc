# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/architecture.md names each file of the rooms, by what the file says of itself, and no file that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text()


@pytest.fixture
def house_map(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "tools"))
    import house_map

    return house_map


def test_the_map_is_that_of_the_tree(house_map):
    written = PAGE.split(house_map.BEGIN)[1].split(house_map.END)[0]
    assert written == house_map.render(), "tests/tools/house_map.py writes it into the page"


def test_every_room_is_on_the_map(house_map):
    files = house_map.HOUSE.rglob("*.py")
    assert {path.parent.relative_to(house_map.HOUSE).as_posix() for path in files} == set(house_map.ROOMS)


def test_every_file_says_what_it_is(house_map):
    assert not [path for path in house_map.HOUSE.rglob("*.py") if not house_map.sentence(path)]


def test_files_that_the_page_names_are_there(house_map):
    rooms = "|".join(house_map.ROOMS)
    named = set(re.findall(rf"`((?:{rooms})/\w+\.py)`", PAGE))
    assert len(named) > 80
    assert not [name for name in named if not (house_map.HOUSE / name).exists()]


def test_what_the_page_says_stands_in_a_file_does():
    """As in: `waiting` in `members.py`, or: `waiting` (`members.py`)."""
    said = re.findall(r"`(?:\w+\.)?(\w+)`(?: in | of | \()`([\w/]+\.py)`", PAGE)
    assert len(said) > 40
    places = [path for top in ("plugins", "tests", "extensions") for path in (ROOT / top).rglob("*.py")]
    texts = {path.as_posix(): path.read_text() for path in places}

    def stands(name: str, file: str) -> bool:
        there = [text for path, text in texts.items() if path.endswith(f"/{file}")]
        return any(re.search(rf"\b{name}\b", text) for text in there)

    assert [one for one in said if not stands(*one)] == []
