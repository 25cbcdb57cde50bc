# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Actions that start a long task in the background, and show how far it has come."""

from __future__ import annotations

import os
import time
import typing as t

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.arguments import HOST
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.transfers import (
    read_transfers,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.sizes import MIB, parse_size
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._display import show_now
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._standing import for_user

LOOK_INTERVAL = 8.0  # seconds between two lines, each of which takes a second or two
MIN_WATCHED_BYTES = 256 * MIB  # of data, or as much as takes
MIN_WATCHED_SECONDS = 15  # with the limit
MAX_TASK_SECONDS = 30 * 86400
MAX_MISSED_LOOKS = 10  # looks in a row without an answer, with PAUSE between them
CLOCK_TOLERANCE = 5  # seconds by which the clocks of two hosts may differ in the course of a task
VARIABLE = "flexdisk_progress"

_Dict = t.Dict[str, t.Any]


class Watched(ActionBase):
    """An action whose module may take long."""

    _supports_check_mode = True
    _supports_diff = True
    _supports_async = True
    _shown: t.Sequence[str] = ()
    reads: t.AbstractSet[str] = frozenset()  # variables that messages name, beside those of the playbook and the role

    def is_watched(self, task_vars: _Dict) -> bool:
        """Return whether the task, which is neither asynchronous nor in check mode, is watched."""
        raise NotImplementedError

    def shows(self, lock: str) -> bool:
        """Return whether the holder of this lock is shown."""
        raise NotImplementedError

    def pause(self, took: float) -> float:
        """Return seconds between two looks, more if a look takes long: looks take time from the work."""
        return max(LOOK_INTERVAL, 4 * took)

    def run(self, tmp: t.Optional[str] = None, task_vars: t.Optional[_Dict] = None) -> _Dict:
        answer: _Dict = super().run(tmp, task_vars)
        del tmp
        asynchronous = bool(self._task.async_val)
        unwatched = asynchronous or self._task.check_mode or self._task.no_log
        if unwatched or not self.is_watched(task_vars or {}):
            result = self._execute_module(task_vars=task_vars, wrap_async=asynchronous)
        else:
            result = self._watched(task_vars)
        return {**answer, **for_user(result, self._task, task_vars or {}, self.reads)}

    def _watched(self, task_vars: t.Optional[_Dict]) -> _Dict:
        """Run the module in the background, and tell how far it has come until it ends."""
        self._task.async_val = MAX_TASK_SECONDS
        start = time.monotonic()
        try:
            started: _Dict = self._execute_module(task_vars=task_vars, wrap_async=True)
        finally:
            self._task.async_val = 0
        job = started.get("ansible_job_id")
        if not job:
            return started
        arguments = {"jid": job, "_async_dir": os.path.dirname(started.get("results_file", ""))}
        missed, shown_at, took = 0, time.monotonic(), 0.0
        while missed < MAX_MISSED_LOOKS:
            time.sleep(LOOK_INTERVAL if missed else self.pause(took))
            began = time.monotonic()
            state = self._module("ansible.legacy.async_status", arguments, task_vars)
            if state.get("finished"):
                self._module("ansible.legacy.async_status", {**arguments, "mode": "cleanup"}, task_vars)
                return state
            missed = missed + 1 if state.get("failed") or state.get("unreachable") else 0
            took = 0.0 if missed else time.monotonic() - began
            if time.monotonic() - shown_at >= LOOK_INTERVAL:
                shown_at = time.monotonic()
                if (
                    self._show_progress(task_vars) < shown_at - start - CLOCK_TOLERANCE
                ):  # its job would look unfinished for ever
                    return {"failed": True, "msg": f"the host was started again while the task (job {job}) ran"}
                shown_at = time.monotonic()
        lost = f"the host does not tell any more how far the task (job {job}) has come; it may still run there"
        return {"failed": True, "msg": lost}

    def _show_progress(self, task_vars: t.Optional[_Dict]) -> float:
        """Show where it is, if that is new. For how many seconds the host has been up, as far as it tells."""
        arguments = {key: self._task.args[key] for key in HOST if key in self._task.args}
        answer = self._module("flexdisk.hypervisor.progress_info", arguments, task_vars)
        shown = [one for one in answer.get("progress", ()) if one["state"] != "dead" and self.shows(one["lock"])]
        lines = [f"{one['task']}, {one['line']}" for one in shown]
        for line in lines:
            if line not in self._shown:
                show_now(self._display, f"{(task_vars or {}).get('inventory_hostname', '')}: {line}")
        self._shown = lines
        return float(answer.get("up", "inf"))

    def _module(self, name: str, given: _Dict, task_vars: t.Optional[_Dict]) -> _Dict:
        """Return the result of a module, failed if it could not be run."""
        try:
            return dict(self._execute_module(module_name=name, module_args=given, task_vars=task_vars))
        except Exception as exc:  # pylint: disable=broad-exception-caught  # whatever it is, the transfer goes on
            return {"failed": True, "msg": str(exc)}


class WatchedStep(Watched):
    """The action of host_step, two of whose steps may transfer for long."""

    def is_watched(self, task_vars: _Dict) -> bool:
        """If it transfers, and that is long."""
        return (self._leaves or self._is("send", "send")) and is_long({**self._given, "transfers": self._transfers})

    def shows(self, lock: str) -> bool:
        """Return the transfer itself."""
        return lock in {f"transfer-{vm.get('uuid')}" for vm in self._transfers}

    def pause(self, took: float) -> float:
        """Less if the VM is down meanwhile."""
        return max(1.0, took) if self._leaves else super().pause(took)

    def _is(self, run: str, step: str) -> bool:
        return bool((self._task.args.get("run"), self._task.args.get("step")) == (run, step))

    @property
    def _leaves(self) -> bool:
        return self._is("move", "leave")

    @property
    def _given(self) -> _Dict:
        given = self._task.args.get("arguments")
        return given if isinstance(given, dict) else {}

    @property
    def _transfers(self) -> t.Any:
        """The transfers that the step is given, as they are."""
        return [self._given.get("transfer")] if self._leaves else self._given.get("transfers")


class WatchedPlan(Watched):
    """An action whose module carries out plans."""

    def run(self, tmp: t.Optional[str] = None, task_vars: t.Optional[_Dict] = None) -> _Dict:
        """Return the result of the module. A digest that is missing where one was looked up approves nothing."""
        if self._task.args.get("expect_plan", "") is None:
            self._task.args["expect_plan"] = ""
        return super().run(tmp, task_vars)

    def is_watched(self, task_vars: _Dict) -> bool:
        """If that is asked for."""
        wanted = task_vars.get(VARIABLE, False)
        return bool(boolean(self._templar.template(wanted), strict=False))

    def shows(self, lock: str) -> bool:
        """Whoever has the lock of the pools: the module, or the one that it waits for."""
        return not lock.startswith("transfer-")

    def pause(self, took: float) -> float:
        """A plan is carried out faster than a transfer."""
        return max(1.0, 4 * took)


def is_long(given: t.Mapping[str, t.Any]) -> bool:
    """Return whether a transfer is worth to be watched. What is wrong with it, the module says."""
    try:
        total = sum(vm.sends for vm in read_transfers(given["transfers"]))
        limit = given.get("bandwidth_limit")
        rate = parse_size(limit, name="bandwidth_limit") * MIB if limit else 0
    except (KeyError, TypeError, FlexdiskError):
        return False
    return total >= MIN_WATCHED_BYTES or (rate > 0 and total / rate >= MIN_WATCHED_SECONDS)
