# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""XML text with a tree of its elements. A change replaces the bytes of single elements, and nothing else."""

from __future__ import annotations

import re
import typing as t
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from ..model.errors import FlexdiskError

# The start of a tag up to an attribute, and the attribute's value with its quotes.
_ATTRIBUTE = r"""<[^\s/>]+(?:\s+[^\s=]+\s*=\s*(?:"[^"]*"|'[^']*'))*?\s+%s\s*=\s*("[^"]*"|'[^']*')"""


class Element:
    """An element with its bytes in the text, C(start) to C(end). inner_end: where its end tag begins, or -1."""

    def __init__(self, name: str, attributes: t.Mapping[str, str], start: int) -> None:
        self.name = name
        self.attributes = attributes
        self.children: t.List[Element] = []
        self.text = ""
        self.start, self.inner_end, self.end = start, -1, -1

    def all(self, name: str) -> t.List[Element]:
        """Return the children with this name."""
        return [child for child in self.children if child.name == name]

    def get(self, path: str, attribute: str = "") -> str:
        """Return the attribute, or else the text, of the first element at a path of names; "" if there is none."""
        here: t.Optional[Element] = self
        for name in path.split("/"):
            here = next(iter(here.all(name)), None) if here is not None else None
        if here is None:
            return ""
        return here.attributes.get(attribute, "") if attribute else here.text.strip()

    def walk(self) -> t.Iterator[Element]:
        """Yield the element and all elements below it, in document order."""
        yield self
        for child in self.children:
            yield from child.walk()


class Text:
    """A parsed document and the changes to make in it."""

    def __init__(self, text: str) -> None:
        """Parse a document. Raises FlexdiskError UnexpectedOutput if it is not XML, or has a document type, which may
        define entities that grow without limit.
        """
        self._data = text.encode()
        self._edits: t.List[t.Tuple[int, int, bytes]] = []
        self.root = _parse(self._data)

    def of(self, element: Element) -> str:
        """Return the original text of an element."""
        return self._data[element.start : element.end].decode()

    def replace(self, element: Element, text: str) -> None:
        """Replace an element by text."""
        self._edits.append((element.start, element.end, text.encode()))

    def set(self, element: Element, attribute: str, value: str) -> None:
        """Change the value of an existing attribute."""
        match = re.compile((_ATTRIBUTE % re.escape(attribute)).encode()).match(self._data, element.start)
        if match is not None:
            self._edits.append((*match.span(1), quoteattr(value).encode()))

    def remove(self, element: Element) -> None:
        """Remove an element and the white space before it."""
        start = len(self._data[: element.start].rstrip())
        self._edits.append((start, element.end, b""))

    def append(self, parent: Element, text: str, after: t.Optional[Element] = None) -> None:
        """Insert text as the last child, or after a given child, on a line of its own.

        An element without an end tag accepts one child.
        """
        line = self._data[: parent.start].rsplit(b"\n", 1)[-1]
        outer = b"\n" + b" " * (len(line) - len(line.lstrip()))
        child = outer + b"  " + text.encode().replace(b"\n", outer + b"  ")
        if parent.inner_end < 0:
            self._edits.append((parent.end - 2, parent.end, b">%s%s</%s>" % (child, outer, parent.name.encode())))
            return
        place = after.end if after is not None else len(self._data[: parent.inner_end].rstrip())
        self._edits.append((place, place, child))

    def __str__(self) -> str:
        data = self._data
        for start, end, text in sorted(self._edits, key=lambda edit: edit[:2], reverse=True):
            data = data[:start] + text + data[end:]
        return data.decode()


def render(name: str, **attributes: str) -> str:
    """Return the text of an empty element with these attributes."""
    return f"<{name}{''.join(f' {key}={quoteattr(value)}' for key, value in attributes.items())}/>"


def dump(element: Element, attributes: t.Optional[t.Mapping[str, str]] = None) -> str:
    """Return the text of an element and all below it. attributes: replace its own.

    Comments and white space are left out, and attributes are sorted by name, so that texts can be compared.
    """
    given = element.attributes if attributes is None else attributes
    start = element.name + "".join(f" {key}={quoteattr(given[key])}" for key in sorted(given))
    inner = escape(element.text.strip()) + "".join(map(dump, element.children))
    return f"<{start}>{inner}</{element.name}>" if inner else f"<{start}/>"


def _parse(data: bytes) -> Element:
    root = Element("", {}, 0)
    stack = [root]
    parser = expat.ParserCreate("utf-8")

    def start(name: str, attributes: t.Dict[str, str]) -> None:
        stack.append(Element(name, attributes, parser.CurrentByteIndex))

    def end(name: str) -> None:
        element, place = stack.pop(), parser.CurrentByteIndex
        empty = not element.children and not element.text and data[place - 2 : place] == b"/>"
        element.inner_end = -1 if empty else place
        element.end = place if empty else data.index(b">", place) + 1
        stack[-1].children.append(element)

    def text(more: str) -> None:
        stack[-1].text += more

    def doctype(*ignored: t.Any) -> None:
        raise FlexdiskError("UnexpectedOutput", "the XML has a document type, which libvirt never writes")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = text, doctype
    try:
        parser.Parse(data, True)
    except expat.ExpatError as exc:
        raise FlexdiskError("UnexpectedOutput", f"no XML: {exc}") from exc
    return root.children[0]
