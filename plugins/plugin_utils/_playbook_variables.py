# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables of a playbook: what they mean, and what is wrong with them."""

from __future__ import annotations

import functools
import json
import re
import typing as t
from pathlib import Path

import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators import slices
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.text import cut
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse import unknown, unread
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.answers import Wanted, meant
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core, _extra

_ROOT = Path(__file__).resolve().parents[2]
_FAST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(yaml.SafeLoader):
    """YAML whose plain scalars are text but for those that mean the same in JSON: 4:1, 0123, no and dates are text."""

    yaml_implicit_resolvers: t.Dict[str, t.Any] = {}  # noqa: RUF012 - the base class has it so


for _tag, _pattern, _first in (
    ("null", r"(?:null|~|)\Z", ["n", "~", ""]),
    ("bool", r"(?:true|false)\Z", ["t", "f"]),
    ("int", r"-?(?:0|[1-9][0-9]*)\Z", list("-0123456789")),
    ("float", r"-?(?:0|[1-9][0-9]*)\.[0-9]+\Z", list("-0123456789")),
):
    _Loader.add_implicit_resolver("tag:yaml.org,2002:" + _tag, re.compile(_pattern), _first)


def read(text: str) -> object:
    """JSON or YAML as text. Raises ValueError."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as exc:
        raise ValueError(" ".join(str(exc).split())) from exc


def answers(given: t.Mapping[str, object], specification: t.Mapping[str, Wanted]) -> t.Dict[str, t.Any]:
    """given: the variables as Ansible hands them over. specification: the argument specification of a playbook."""
    specified = {name: _with_keys(name, wanted) if name in given else wanted for name, wanted in specification.items()}
    variables, unclear = meant(specified, given, read)
    known = {name: dict(wanted) for name, wanted in specification.items() if name not in unclear}
    checked = ArgumentSpecValidator(known).validate(plain(variables))
    return {"variables": variables, "problems": cut([*unclear.values(), *checked.error_messages])}


def _with_keys(name: str, wanted: Wanted) -> Wanted:
    """Return the specification of a variable, with what its role says of the keys of entries."""
    if "role" not in wanted:
        return wanted
    more: t.Dict[str, Wanted] = {key: {} for key in wanted.get("also", ())}
    return {**wanted, "keys": {**options_of(wanted["role"])[name]["options"], **more}}


@functools.lru_cache(maxsize=None)
def options_of(role: str) -> t.Mapping[str, t.Any]:
    """Return the argument specification of a role of this collection."""
    text = (_ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
    return t.cast("t.Mapping[str, t.Any]", yaml.load(text, Loader=_FAST)["argument_specs"]["main"]["options"])


def plain(value: t.Any) -> t.Any:
    """As Python's own containers and text: the validator copies what it gets, and Ansible's own are costly to copy."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (dict, t.Mapping)):  # the first is quickly told
        return {plain(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


@functools.lru_cache(maxsize=None)
def specifications() -> unread.Readers:
    """Return what playbooks/vars/arguments.yml says. The roles that it names are read, too."""
    text = (_ROOT / "playbooks" / "vars" / "arguments.yml").read_text(encoding="utf-8")
    readers = unread.Readers(yaml.load(text, Loader=_FAST))
    for arguments in readers.arguments.values():
        for wanted in arguments.values():
            if "role" in wanted:
                options_of(wanted["role"])
    return readers


# Any: a templar of ansible-core, which has no types.
def templated(templar: t.Any, names: t.Iterable[str], variables: t.Mapping[str, t.Any]) -> t.Dict[str, t.Any]:
    """Return those of the variables that are set, without templates. Other variables may hold what fails or is slow."""
    result: t.Dict[str, t.Any] = {}
    for name in names:
        if name not in variables:
            continue
        try:
            result[name] = templar.template(variables[name])
        except _core.OMITTED:
            continue
        except AnsibleError as exc:
            if not specifications().secret.match(name):
                raise AnsibleError(f"The variable {name} cannot be read.") from exc
            why = f"ansible HOST -m ansible.builtin.debug -a var={name} shows why: it may hold secrets"
            raise AnsibleError(f"The variable {name} cannot be read; {why}.") from None
    return result


def unknown_variables(given: t.Iterable[str], playbook: str, readers: unread.Readers) -> t.List[str]:
    """Return what is wrong with the names of all variables that are set, and with variables of -e."""
    names = unknown.VariableNames(list(readers.arguments[playbook]), readers.known, readers.choosing)
    return cut([*unknown.problems(given, names), *_unread_variables(names, readers)])


def _unread_variables(names: unknown.VariableNames, readers: unread.Readers) -> t.List[str]:
    """Return what is wrong with variables of -e, as far as all playbooks of the run are known."""
    given = {slices.base_name(name): value for name, value in _extra.variables().items()}
    extra = {name: value for name, value in given.items() if not names.misses(name)}
    playbooks = _extra.playbooks() if extra else None
    if not playbooks or not playbooks <= set(readers.arguments):
        return []
    return unread.problems(extra, sorted(playbooks), readers)
