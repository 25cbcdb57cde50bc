# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""HTML that escapes whatever is not HTML already. The result is well-formed XML, too."""

from __future__ import annotations

import html
import re
import typing as t

from ...model.sizes import render_bytes
from ...model.text import visible_lines
from .figures import Part, colour_classes, edges

LONGEST = 200
BAR = 1000
VOID = ("meta", "link", "input")

# What XML forbids, control characters, and surrogates, which UTF-8 does not have.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Html(str):
    """Text that is HTML."""

    __slots__ = ()


_Child = t.Union[str, int]


def clean(text: object) -> str:
    """Return any text in visible characters, cut if it is very long. It is not escaped yet."""
    shown = str(text)
    if len(shown) <= LONGEST and shown.isascii() and shown.isprintable():
        return shown
    if len(shown) > LONGEST:
        shown = f"{shown[:LONGEST]}… ({len(shown)} characters)"
    return visible_lines(_FORBIDDEN.sub("\ufffd", shown))


def escaped(text: object) -> Html:
    """Return the text as HTML, if it is not HTML already."""
    return text if isinstance(text, Html) else Html(html.escape(clean(text)))


def element(name: str, attributes: t.Optional[t.Mapping[str, object]] = None, *children: _Child) -> Html:
    """Return an element. An attribute that is None is left out."""
    given = [(key, value) for key, value in (attributes or {}).items() if value is not None]
    head = name + "".join(f' {key}="{escaped(value)}"' for key, value in given)
    if name in VOID:
        return Html(f"<{head}/>")
    return Html(f"<{head}>{joined(*children)}</{name}>")


def joined(*children: _Child) -> Html:
    """One after the other."""
    return Html("".join(map(escaped, children)))


def isolated(text: object) -> Html:
    """Isolate a name, so that right-to-left text does not affect what is beside it."""
    return element("bdi", None, str(text))


def stacked_bar(parts: t.Sequence[Part]) -> Html:
    """Return a stacked bar. Screen readers skip it, so all that it shows must also be text."""
    drawn = [
        element(
            "rect",
            {"class": kind, "x": begin, "width": width, "height": 20},
            element("title", None, f"{part.label} {render_bytes(part.size)}"),
        )
        for part, kind, (begin, width) in zip(parts, colour_classes(parts), edges(parts, BAR))
        if width
    ]
    size = {"viewBox": f"0 0 {BAR} 20", "preserveAspectRatio": "none", "aria-hidden": "true"}
    return element("svg", size, *drawn)
