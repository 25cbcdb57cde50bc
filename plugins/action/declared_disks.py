# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action declared_disks: what the variables of the role flexible_disks ask of a host, done by one module there."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.asked_disks import (
    PREFIX,
    arguments,
    contradicted,
    refusal,
)
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core, _extra
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._playbook_variables import (
    options_of,
    plain,
    templated,
)
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._standing import checked_variables
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._watched import WatchedPlan

ROLE = "flexible_disks"
ENVIRONMENT = "flexdisk_environment"
COLLECTION = "flexdisk.hypervisor."
VERBOSE = 3  # from here Ansible shows the arguments of modules, two fifths of the result of a host without changes
ARGUMENTS: t.Dict[str, t.Any] = {
    "step": {"type": "str", "choices": ["plan", "compare", "change"]},
    "variables": {"type": "dict", "default": {}},
    "pools": {"type": "bool", "default": False},
}

_Dict = t.Dict[str, t.Any]

options_of(ROLE)  # Ansible loads this file before it forks, so the process of each host has them
_core.load_encoders()


class ActionModule(WatchedPlan):
    """The action. It becomes the task of vm_disks, with the arguments that the variables mean."""

    def run(self, tmp: t.Optional[str] = None, task_vars: t.Optional[_Dict] = None) -> _Dict:
        """Return the result of vm_disks; skipped if nothing is asked of this host."""
        _core.check()
        checked = self.validate_argument_spec(argument_spec=ARGUMENTS)  # type: ignore[no-untyped-call]
        given: _Dict = checked[1]
        variables = self._variables(given["variables"], task_vars or {})
        plans_only = _true(variables["plan_only"])
        step = given["step"] or ("plan" if plans_only else "change")
        why_not = contradicted(given["variables"], _extra.variables())
        why_not = why_not or refusal(variables, plans_only, _true(variables["recalculate_quota"]))
        if why_not:
            raise AnsibleActionFail(why_not)
        if not variables["vms"]:
            return _nothing(step)
        if step == "compare" and (plans_only or "expect_plan" not in variables):
            return {"skipped": True, "changed": False}
        if ENVIRONMENT in checked_variables(task_vars or {}):
            environment = templated(self._templar, [ENVIRONMENT], task_vars or {})[ENVIRONMENT]
            self._task.environment = [*(self._task.environment or ()), environment]
        asks = step != "change"
        result = self._module_of_host("vm_disks", arguments(variables), tmp, task_vars, asks)
        if asks:
            result = {key: value for key, value in {**result, "changed": False}.items() if key != "diff"}
        if not given["pools"] or result.get("failed") or result.get("unreachable"):
            return result
        host: _Dict = {key: variables[key] for key in ("hypervisor", "libvirt_uri", "pool") if key in variables}
        read = self._module_of_host("host_info", host, tmp, task_vars, asks)
        return {**result, "pools": read["host"]["pools"]} if "host" in read else read

    def _variables(self, given: _Dict, task_vars: _Dict) -> _Dict:
        """The variables of the role as they are set here, without its name in front. Those that are given win."""
        options = options_of(ROLE)
        known = {**checked_variables(task_vars), **given}  # of a playbook, without templates
        others = templated(self._templar, [name for name in options if name not in known], task_vars)
        values = {**others, **{name: known[name] for name in options if name in known}}
        if self._task._role is None:  # else the role has checked them
            errors = ArgumentSpecValidator(dict(options)).validate(plain(values)).error_messages
            if errors:
                raise AnsibleActionFail("Validation of arguments failed:\n" + "\n".join(errors))
        defaults = {name: option["default"] for name, option in options.items() if "default" in option}
        return {name[len(PREFIX) :]: value for name, value in {**defaults, **values}.items()}

    def _module_of_host(
        self, name: str, options: _Dict, tmp: t.Optional[str], task_vars: t.Optional[_Dict], asks: bool
    ) -> _Dict:
        """Return the result of a module, as if this were its task."""
        task = self._task
        task.action = COLLECTION + name
        task.args = _core.with_defaults(task.action, task, options, self._templar)
        if asks:
            task.check_mode, task.diff = True, False
        self.reads = set(options_of(ROLE))
        result = super().run(tmp, task_vars)
        if self._display.verbosity < VERBOSE:
            result.pop("invocation", None)
        return result


def _true(value: object) -> bool:
    """Return a boolean that an inventory may write as text."""
    return bool(boolean(value, strict=False))


def _nothing(step: str) -> _Dict:
    """Return the result for a host without declarations. The comparison shows nothing: another step follows."""
    result: _Dict = {"skipped": True, "changed": False}
    if step == "compare":
        return result
    text = "flexible_disks_vms is empty on this host, so no disk is touched"
    return {**result, "msg": text, "_ansible_verbose_always": True}
