# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every operation in four steps, on the hosts of both drivers: check, real, check again, real again.

A host has a fingerprint() of everything that a task can change. go(check) is a run of the task; it returns an Outcome,
or a result that has one as its outcome.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.integration.targets.four_steps.filter_plugins.steps import unlike


def outcome_of(result: Any) -> Any:
    """The Outcome of a run."""
    return getattr(result, "outcome", result)


def vms(result: Any) -> dict[str, Any]:
    """What a run says of VMs."""
    return {"vms": outcome_of(result).vms}


def differences(done: Any, predicted: Any, told: Callable[[Any], dict[str, Any]] = vms) -> list[str]:
    """Where a real run is not what check mode said."""
    return unlike(*(json.loads(json.dumps(told(result))) for result in (done, predicted)))


def four_steps(
    host: Any,
    go: Callable[[bool], Any],
    told: Callable[[Any], dict[str, Any]] = vms,
    holds: Callable[[], None] = lambda: None,
    planned: bool = True,
) -> Any:
    """The result of the real run. told is what check mode must predict of a result; holds asserts what is then true;
    planned: whether the task tells a plan, as all do but disk_verify.
    """
    before = host.fingerprint()
    predicted = go(True)
    assert outcome_of(predicted).problems == []
    assert host.fingerprint() == before, "check mode changed something"
    done = go(False)
    said, foretold = outcome_of(done), outcome_of(predicted)
    assert (said.problems, said.failure) == ([], None)
    assert (said.changed, said.diff, said.warnings) == (foretold.changed, foretold.diff, foretold.warnings)
    assert (said.plan, said.plan_digest) == (foretold.plan, foretold.plan_digest)
    assert (bool(said.plan), bool(said.plan_digest)) == (planned, planned)
    assert differences(done, predicted, told) == []
    holds()
    settled = host.fingerprint()
    for check in (True, False):
        again = outcome_of(go(check))
        assert (again.problems, again.changed, again.diff) == ([], False, "")
        assert again.plan == ([again.msg] if planned else [])
        assert host.fingerprint() == settled, "a second run changed something"
    return done


def refused(host: Any, go: Callable[[bool], Any]) -> list[Any]:
    """The problems of a refusal: check mode tells the same, and nothing has changed."""
    before = host.fingerprint()
    predicted, real = (outcome_of(go(check)).problems for check in (True, False))
    assert host.fingerprint() == before
    assert predicted == real
    assert real != []
    return list(real)
