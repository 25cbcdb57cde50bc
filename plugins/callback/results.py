# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write the results of a play to a file."""

from __future__ import annotations

DOCUMENTATION = r"""
name: results
type: stdout
short_description: Write the last result of every host to a file
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Prints nothing. At the end of the run it writes one JSON object with, for each host, the C(status) (V(ok),
    V(failed), V(unreachable) or V(skipped)) and the C(result) of the last task.
  - Made for the inventory plugin P(flexdisk.hypervisor.vms#inventory), which reads hypervisors with it.
options:
  path:
    description: The file. It is written only if the run comes to its end.
    type: path
    required: true
    env:
      - name: FLEXDISK_RESULTS_PATH
"""

import json
import typing as t
from pathlib import Path

from ansible.executor.stats import AggregateStats
from ansible.plugins.callback import CallbackBase

from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

if t.TYPE_CHECKING:
    from ansible.executor.task_result import CallbackTaskResult  # since ansible-core 2.19


class CallbackModule(CallbackBase):
    """Collects results, one for each host."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "flexdisk.hypervisor.results"

    def __init__(self) -> None:
        _core.check()
        super().__init__()
        self._results: t.Dict[str, t.Dict[str, t.Any]] = {}

    def _note(self, status: str, result: CallbackTaskResult) -> None:
        plain = json.loads(self._dump_results(result.result))
        self._results[result.host.get_name()] = {"status": status, "result": plain}

    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        self._note("ok", result)

    def v2_runner_on_failed(self, result: CallbackTaskResult, ignore_errors: bool = False) -> None:
        self._note("failed", result)

    def v2_runner_on_unreachable(self, result: CallbackTaskResult) -> None:
        self._note("unreachable", result)

    def v2_runner_on_skipped(self, result: CallbackTaskResult) -> None:
        self._note("skipped", result)

    def v2_playbook_on_stats(self, stats: AggregateStats) -> None:
        Path(self.get_option("path")).write_text(json.dumps(self._results), encoding="utf-8")
