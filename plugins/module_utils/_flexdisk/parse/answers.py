# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables of a playbook as Ansible hands them over, and what they mean. Ansible 2.19 and later read the text of a
survey's answer as YAML: 4:1 arrives as 241, 0123 as 83, no as false, and an empty answer as None.
"""

from __future__ import annotations

import datetime
import json
import math
import re
import typing as t

from ..model.durations import parse_seconds
from ..model.errors import FlexdiskError
from ..model.sizes import parse_size
from ..model.text import cut
from ..rules.naming import why_not_seen
from . import entry_keys

# An option of an argument specification. Beside what Ansible knows, it can say: least and most, of a number; matches,
# a regular expression for the whole text, and like, what such text is; free, if text may be anything, also what no
# reader sees; filled, if the list or the dictionary must not be empty; size, if it is one in MiB; duration, of a
# number of seconds that may be written in ISO 8601; as_is; by_host, of a dictionary by host that only one host keeps
# whole; keys, the options of entries whose values somebody else checks.
Wanted = t.Mapping[str, t.Any]
Read = t.Callable[[str], object]  # JSON or YAML as text; raises ValueError

LEAVE_OUT = ". Leave it out instead"
_MOST = 10**12  # no number that a playbook takes can be more, whatever it counts
_TRUE = ("true", "yes", "on", "y", "t", "1")
_FALSE = ("false", "no", "off", "n", "f", "0")
_QUOTED = re.compile(r"""(["'])((?:(?!\1).)+)\1\Z""", re.DOTALL)
_DIGITS = re.compile(r"[+-]?[0-9]+\Z")
_PADDED = re.compile(r"[+-]?0[0-9]")
_FLOAT = re.compile(r"[+-]?[0-9]+\.[0-9]+\Z")
_NOT_SIMPLE = re.compile(r"""[\s"'\\]""")


class Unclear(ValueError):
    """A value whose meaning is lost, or that cannot be read; the message says how to write it."""


def meant(
    specification: t.Mapping[str, Wanted], given: t.Mapping[str, object], read: Read
) -> t.Tuple[t.Dict[str, object], t.Dict[str, str]]:
    """Return the values that are meant, without those that are not set, and problems with others, both by name.

    Whether the values match the specification is checked later.
    """
    values: t.Dict[str, object] = {}
    problems: t.Dict[str, str] = {}
    for name, wanted in specification.items():
        if name not in given:
            continue
        value = given[name]
        try:
            refuse_empty(name, wanted, value)
            if wanted.get("as_is"):
                values[name] = _checked(name, wanted, _as_is(name, wanted, value, read))
            elif value is not None and not _unanswered(wanted, value):
                values[name] = _checked(name, wanted, _value(name, wanted, value, read))
        except Unclear as exc:
            problems[name] = str(exc)
    return values, problems


def _checked(name: str, wanted: Wanted, value: object) -> object:
    """Return a value that was understood, unless it chooses nothing or has unknown keys."""
    refuse_empty(name, wanted, value)
    options = wanted.get("keys") or wanted.get("options")
    unknown = cut(list(entry_keys.problems(name, options, value))) if options else []
    if unknown:
        raise Unclear(". ".join(unknown))
    return value


def refuse_empty(path: str, wanted: Wanted, value: object) -> None:
    """Refuse empty text, which may come from an unset shell variable, and an empty list, which a template may not have
    filled. Neither may mean all, or the default. Raises Unclear.
    """
    instead = ", but is needed" if wanted.get("required") else LEAVE_OUT
    if isinstance(value, str) and not value.strip():
        raise Unclear(f"{path} is empty{instead}")
    if wanted.get("filled") and isinstance(value, (list, tuple, dict)) and not value:
        raise Unclear(f"{path} is an empty {'dictionary' if isinstance(value, dict) else 'list'}{instead}")
    if wanted.get("filled") and value == 0 and not isinstance(value, bool):
        raise Unclear(f"{path} is {value}, which chooses nothing{instead}")


def _unanswered(wanted: Wanted, value: object) -> bool:
    """Whether this is what AWX sends for a list of choices if nobody has chosen one."""
    return bool(wanted.get("choices")) and isinstance(value, (list, tuple)) and not value


def _as_is(name: str, wanted: Wanted, value: object, read: Read) -> object:
    """Return a variable that roles read themselves, unchanged. Only modules read commas and numbers in text."""
    if value is None:
        raise Unclear(f"{name} is empty{LEAVE_OUT}")
    understood = _value(name, wanted, value, read)
    clear = isinstance(understood, (bool, int, float)) or understood == value
    if isinstance(value, str) and not clear and understood not in (_commas(value), _pairs(value)):
        raise Unclear(
            f"{name} is read by roles, which do not read such text. Set it in the inventory, or with -e @FILE"
        )
    return understood


def _blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _value(path: str, wanted: Wanted, value: object, read: Read, exact: bool = False) -> object:
    """Return the value as its type. exact: it was read from text here, so that a number has only one spelling."""
    if wanted.get("no_log") and not isinstance(value, str):
        raise Unclear(f"{path} must be text. Write it in quotes")
    kind = wanted.get("type", "str")
    if isinstance(value, datetime.date):
        raise Unclear(_lost(path, "date", value.isoformat(), [value.isoformat()]))
    if kind in ("str", "path"):
        return _matching(path, wanted, _text(path, value, exact))
    if wanted.get("duration"):
        return _within(path, wanted, _duration(path, value))
    if kind in ("bool", "int", "float"):
        return _within(path, wanted, _simple(path, kind, value))
    if kind == "list":
        return _list(path, wanted, value, read, exact)
    if kind == "dict":
        return _dict(path, wanted, value, read, exact)
    if isinstance(value, bool):
        raise Unclear(_lost_truth(path, value))
    _refuse_dates(path, value)
    return _size(path, value) if wanted.get("size") else value


def _duration(path: str, value: object) -> object:
    """Return the seconds of a duration in ISO 8601, or a number of seconds like any other number."""
    number = _simple(path, "int", value)
    if not isinstance(number, str):
        return number
    try:
        return parse_seconds(number.strip())
    except FlexdiskError as exc:
        raise Unclear(f"{path}: {exc.message}") from exc


def _size(path: str, value: object) -> object:
    """Return a size unchanged, if modules accept it."""
    try:
        parse_size(value, name=path)
    except FlexdiskError as exc:
        raise Unclear(exc.message) from exc
    return value


def _matching(path: str, wanted: Wanted, value: object) -> object:
    """Return text of the required form: a name, a path or an address, unless the specification says free."""
    wrong = "" if wanted.get("free") or wanted.get("no_log") else why_not_seen(path, str(value))
    if wrong:
        raise Unclear(wrong)
    pattern = wanted.get("matches")
    if pattern and isinstance(value, str) and not re.fullmatch(pattern, value):
        raise Unclear(f"{path} is {value!r:.100}, but must be {wanted['like']}")
    return value


def _within(path: str, wanted: Wanted, value: object) -> object:
    """Return a number if it is within its limits. Other values are left to the check against the specification."""
    minimum, maximum = wanted.get("least", -_MOST), wanted.get("most", _MOST)
    if isinstance(value, (int, float)) and not minimum <= value <= maximum:
        limits = (
            f"{minimum} to {maximum}"
            if "most" in wanted
            else f"at least {minimum}"
            if value < minimum
            else f"at most {maximum}"
        )
        raise Unclear(f"{path} is {value if isinstance(value, float) else _digits(value)}, but must be {limits}")
    return value


def _digits(value: int) -> str:
    """Return a number for people, who do not want to read hundreds of digits."""
    return str(value) if abs(value) < 10**30 else "a number of more than 30 digits"


def _text(path: str, value: object, exact: bool) -> object:
    if isinstance(value, str):
        quoted = _QUOTED.match(value)
        return quoted[2] if quoted else value
    if isinstance(value, bool):
        raise Unclear(_lost_truth(path, value))
    if isinstance(value, int):
        if exact:
            return str(value)
        raise Unclear(_lost(path, "number", str(value), _spellings(value)))
    if isinstance(value, float):
        raise Unclear(_lost(path, "number", str(value), [str(value), f"{value}0"]))
    raise Unclear(f"{path} must be text, but is {_described(value)}")


def _spellings(number: int) -> t.List[str]:
    """Return some ways to write a number that YAML 1.1 knows: with base 60 and base 8."""
    sign, size = ("-", -number) if number < 0 else ("", number)
    sexagesimal = [f"{sign}{size // 60}:{size % 60}"] if 60 <= size < 3600 else []
    return [str(number), *sexagesimal, f"{sign}0{size:o}"]


def _lost_truth(path: str, value: bool) -> str:
    return _lost(path, "truth value", str(value).lower(), (_TRUE if value else _FALSE)[:3])


def _lost(path: str, kind: str, value: str, spellings: t.Sequence[str]) -> str:
    example = next((text for text in spellings if ":" in text and path.endswith("slot")), spellings[0])
    others = f" It may have been written {', '.join(spellings[:-1])} or {spellings[-1]}, or in yet another way."
    command = "" if "[" in path or "." in path else ", or -e " + repr(json.dumps({path: example}))
    return (
        f"{path} must be text, but has arrived as the {kind} {value}.{others if spellings[1:] else ''} "
        f'Write it in quotes: "{example}", with the quotes also as the answer of a survey{command}'
    )


def _simple(path: str, kind: str, value: object) -> object:
    """Return a truth value or a number. Other values are left to the check against the specification."""
    if isinstance(value, bool) and kind != "bool":
        raise Unclear(f"{path} must be a number, but has arrived as the truth value {str(value).lower()}")
    word = value.strip().lower() if isinstance(value, str) else value
    if kind == "bool":
        known = {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}
        return known.get(word, value) if isinstance(word, str) else bool(value) if value in (0, 1) else value
    if isinstance(word, float) and not math.isfinite(word):
        raise Unclear(f"{path} is {word}, which is no number")
    if not isinstance(word, str):
        return value
    if _PADDED.match(word) and _DIGITS.match(word):
        raise Unclear(f"{path} is {word}, which some read with base 8. Write the number without zeros in front")
    if _DIGITS.match(word):
        return int(word)
    if kind == "float" and _FLOAT.match(word):
        return float(word)
    if _taken_for_number(word):
        raise Unclear(f"{path} is {word}, which not everything reads as the same number. Write it with digits only")
    return value


def _taken_for_number(word: str) -> bool:
    """Whether Python accepts text as a number that is not written with digits alone: 1e3, 1_000, nan."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def _list(path: str, wanted: Wanted, value: object, read: Read, exact: bool) -> object:
    if isinstance(value, str):
        exact = True
        value = _listed(path, value, read)
    elif isinstance(value, (bool, int, float)):
        value = [value]
    if not isinstance(value, (list, tuple)):
        return value
    element = {**wanted, "type": wanted.get("elements", "raw")}
    for index, item in enumerate(value):
        if _blank(item) and element["type"] in ("str", "path"):
            raise Unclear(f"{path}[{index}] is empty")
    return [_value(f"{path}[{index}]", element, item, read, exact) for index, item in enumerate(value)]


def _listed(path: str, text: str, read: Read) -> object:
    """Return a list that is given as text: JSON or YAML, else lines, else with commas."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if text.lstrip().startswith(("[", "{")) or lines[0].startswith("- "):
        data = _read(path, "list", text, read)
        return [data] if isinstance(data, dict) else data
    return lines if len(lines) > 1 else _commas(text)


def _commas(text: str) -> t.List[str]:
    return [item.strip() for item in text.split(",")]


def _dict(path: str, wanted: Wanted, value: object, read: Read, exact: bool) -> object:
    if isinstance(value, str):
        exact = True
        paired = "=" in value and not value.lstrip().startswith("{") and ":" not in value.partition("=")[0]
        value = _pairs(value) if paired else _read(path, "dict", value, read)
        if paired and isinstance(value, str):
            return value
    _refuse_dates(path, value)
    options = wanted.get("options")
    if not options:
        return value
    if not isinstance(value, dict):
        raise Unclear(f"{path} must be a dictionary, but is {_described(value)}")
    for key, item in value.items():
        refuse_empty(f"{path}.{key}", options.get(key, {}), item)
    items = {key: item for key, item in value.items() if not (key in options and item is None)}
    return {
        key: _value(f"{path}.{key}", options[key], item, read, exact) if key in options else item
        for key, item in items.items()
    }


def _pairs(text: str) -> object:
    """Return a dictionary from a=1,b=2. Text with quotes or spaces is left to the check against the specification."""
    pairs = [item.partition("=") for item in text.strip().split(",")]
    simple = not _NOT_SIMPLE.search(text.strip()) and all(key and sign for key, sign, _value in pairs)
    return {key: value for key, _sign, value in pairs} if simple else text


def _read(path: str, kind: str, text: str, read: Read) -> object:
    try:
        return read(text)
    except ValueError as exc:
        raise Unclear(f"{path} must be a {kind}, but its text is neither JSON nor YAML: {exc}") from exc


def _refuse_dates(path: str, value: object) -> None:
    if isinstance(value, datetime.date):
        raise Unclear(_lost(path, "date", value.isoformat(), [value.isoformat()]))
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_dates(f"{path}.{key}", item)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _refuse_dates(f"{path}[{index}]", item)


def _described(value: object) -> str:
    return "a list" if isinstance(value, (list, tuple)) else "a dictionary" if isinstance(value, dict) else repr(value)
