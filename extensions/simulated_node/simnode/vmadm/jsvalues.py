# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The few rules of JavaScript values that decide how vmadm reads a payload."""

from __future__ import annotations

import functools
import json
import math
import re
from typing import Any, Dict, List, Union


class Undefined:
    """The value of a key that is present but unset (JavaScript's undefined)."""

    def __repr__(self) -> str:
        return "undefined"

    def __bool__(self) -> bool:
        return False

    def __deepcopy__(self, _memo: Any) -> Undefined:
        return self


UNDEFINED = Undefined()
Number = Union[int, float]


def integral(value: float) -> Number:
    """Return a float without a fraction as an int, so that it prints as in JavaScript."""
    return int(value) if math.isfinite(value) and value == int(value) else value


def loads(text: str) -> Any:
    """JSON.parse: 1.0 is the number 1."""
    return json.loads(text, parse_float=lambda digits: integral(float(digits)))


def dumps(value: Any) -> str:
    """JSON.stringify(value, null, 2). A long test prints most VMs again and again as they were."""
    if isinstance(value, list) and value:
        entries = ",\n".join(_indented(compact(entry)) for entry in value)
        return "[\n  %s\n]" % entries.replace("\n", "\n  ")
    return _indented(compact(value))


@functools.lru_cache(maxsize=4096)
def _indented(text: str) -> str:
    return json.dumps(json.loads(text), indent=2, ensure_ascii=False)


def compact(value: Any) -> str:
    """JSON.stringify(value)."""
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_object(value: Any) -> bool:
    """typeof value === 'object': arrays and null too."""
    return value is None or isinstance(value, (dict, list))


def to_string(value: Any) -> str:
    if value is UNDEFINED:
        return "undefined"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(integral(value))
    if isinstance(value, list):
        return ",".join("" if item is None or item is UNDEFINED else to_string(item) for item in value)
    if isinstance(value, dict):
        return "[object Object]"
    return str(value)


_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?)\Z")


def to_number(value: Any) -> Number:
    """Number(value)."""
    if value is UNDEFINED or isinstance(value, dict):
        return math.nan
    if value is None:
        return 0
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (int, float)):
        return value
    text = to_string(value).strip()
    if text == "":
        return 0
    if re.fullmatch(r"0[xX][0-9a-fA-F]+", text):
        return int(text, 16)
    return integral(float(text)) if _DECIMAL.match(text) else math.nan


def same(left: Any, right: Any) -> bool:
    """left === right. Distinct objects are never the same."""
    if is_number(left) and is_number(right):
        return bool(left == right)
    if isinstance(left, (dict, list)) or isinstance(right, (dict, list)):
        return left is right
    return type(left) is type(right) and bool(left == right)


def blank(value: Any) -> bool:
    """undefined, null or a string of white space: the ways to say that a property shall be unset."""
    return value is UNDEFINED or value is None or to_string(value).strip() == ""


def fix_boolean(value: Any) -> Any:
    if value == "true":
        return True
    if value == "false":
        return False
    return value


def fix_boolean_loose(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if value in ("true", "1", 1):
        return True
    if value in ("false", "0", 0):
        return False
    return value


def entries(value: Union[Dict[str, Any], List[Any]]) -> List[Any]:
    """Pairs of key and value as `for (key in value)` meets them."""
    if isinstance(value, dict):
        return list(value.items())
    return [(str(index), item) for index, item in enumerate(value)]


_UUID = re.compile(r"[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}\Z")


def is_uuid(value: Any) -> bool:
    return isinstance(value, str) and bool(_UUID.match(value))
