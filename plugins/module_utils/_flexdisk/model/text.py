# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Text for people: hidden characters made visible, numbers with nouns, long lists cut."""

from __future__ import annotations

import re
import typing as t

MOST = 20  # problems, names or lines that one message has in full

# Control characters, what changes the order of the characters around it, and what is not seen at all.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def visible(text: object) -> str:
    """Return the text in one line, each hidden character as its number: C(web[U+202E]10). The rest is unchanged."""
    shown = str(text)
    return shown if shown.isascii() and shown.isprintable() else _HIDDEN.sub(lambda match: _number(match[0]), shown)


def visible_lines(text: object) -> str:
    """Return the text with its line ends, and each line as visible() returns it."""
    return "\n".join(map(visible, str(text).split("\n")))


def hidden_characters(text: str) -> t.List[str]:
    """Return the different hidden characters of the text, each as its number."""
    return list(dict.fromkeys(_number(character) for character in _HIDDEN.findall(text)))


def _number(character: str) -> str:
    return f"[U+{ord(character):04X}]"


def count(number: int, noun: str, several: str = "") -> str:
    """Return a number with its noun: C(1 change), C(2 changes). several: the plural, if it is not the noun with s."""
    return f"{number} {noun if abs(number) == 1 else several or noun + 's'}"


def verb(number: int, word: str) -> str:
    """Return the form of a verb after so many subjects: C(1 changes), C(2 change)."""
    return word + "s" if number == 1 else word


def cut(lines: t.Sequence[str], noun: str = "problem", most: int = MOST) -> t.List[str]:
    """Return the first lines, and one with the number of the others."""
    more = len(lines) - most
    return list(lines) if more <= 0 else [*lines[:most], f"and {count(more, f'more {noun}')}"]
