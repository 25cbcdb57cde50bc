# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Text for readers: hidden characters, numbers with their nouns, long lists."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import Problem, failure_text
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.text import (
    count,
    cut,
    hidden_characters,
    verb,
    visible,
    visible_lines,
)

PLUGINS = Path(__file__).resolve().parents[3] / "plugins"
CONTROLS = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cs", "Zl", "Zp")]
TURNING = [chr(code) for code in range(0x110000) if unicodedata.bidirectional(chr(code)) in {
    "LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI", "BN",
}]  # fmt: skip
UNSEEN = ["\u00ad", "\u034f", "\u115f", "\u1160", "\u200b", "\u200e", "\u200f", "\u2800", "\u3164", "\ufeff", "\uffa0"]


@pytest.mark.parametrize("character", [*TURNING, *UNSEEN], ids=lambda c: f"{ord(c):04X}")
def test_what_is_not_seen_is_shown_as_its_number(character):
    assert visible(f"a{character}b") == f"a[U+{ord(character):04X}]b"


def test_every_control_character_is_shown():
    assert [c for c in CONTROLS if visible(c) == c] == []


@pytest.mark.parametrize("name", ["web-01", "büro ë", "日本 語", "עברית", "عربى", "a\u00a0b", "[U+202E]", "", "🦊"])
def test_what_is_seen_stays(name):
    assert visible(name) == name
    assert hidden_characters(name) == []


def test_what_is_visible_is_so_for_good():
    assert visible(visible("a\u202e\nb")) == visible("a\u202e\nb") == "a[U+202E][U+000A]b"
    assert visible_lines("a\u202e\nb") == "a[U+202E]\nb"
    assert hidden_characters("a\u202e\nb\u202e") == ["[U+202E]", "[U+000A]"]


@pytest.mark.parametrize(
    ("number", "message"),
    [(0, "0 changes"), (1, "1 change"), (2, "2 changes"), (-1, "-1 change"), (1000, "1000 changes")],
)
def test_numbers_and_nouns(number, message):
    assert count(number, "change") == message


def test_words_of_other_forms():
    assert count(2, "copy", "copies") == "2 copies"
    assert (verb(1, "restart"), verb(2, "restart"), verb(0, "restart")) == ("restarts", "restart", "restart")


def test_long_lists_are_cut():
    assert cut(["a"] * 20) == ["a"] * 20
    assert cut(["a"] * 21) == ["a"] * 20 + ["and 1 more problem"]
    assert cut(["a"] * 10_000, "VM")[20:] == ["and 9980 more VMs"]


def test_a_message_of_ten_thousand_problems_is_short():
    text = failure_text([Problem("InvalidArgument", "size is wrong", f"web\u202e{n}", "data") for n in range(10_000)])
    lines = text.splitlines()
    assert lines[0] == "VM web[U+202E]0: disk data: size is wrong [InvalidArgument]"
    assert len(lines) == 21
    assert lines[-1] == "and 9980 more problems"


def test_a_list_that_is_cut_says_how_many_more():
    """Wherever the words are put together: the limit is that of the list, and what is whole has no 0 more."""
    lines = [line for path in PLUGINS.rglob("*.py") for line in path.read_text().splitlines() if '} more" if ' in line]
    counted = (
        r"(?:and|;) \{len\((?P<names>[\w.]+)\) - (?P<most>\w+)\} more\" if len\((?P=names)\) > (?P=most) else \"\""
    )
    rest = r"and \{more\} more\" if more > 0 else \"\""
    assert len(lines) > 5
    assert [line.strip() for line in lines if not re.search(f"{counted}|{rest}", line)] == []
