# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Actions that decide something on the controller."""

from __future__ import annotations

import contextlib
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

_Dict = t.Dict[str, t.Any]


class ControllerAction(ActionBase):
    """An action that touches no host. Errors of the collection and numbers that are too large fail it in words."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = False
    arguments: t.Mapping[str, t.Any]
    """The specification of its options."""
    rules: t.Mapping[str, t.Any] = {}
    """Further arguments of validate_argument_spec()."""
    wants = ""
    """What an internal action is given. It fails in words for anything else."""

    def run(self, tmp: t.Optional[str] = None, task_vars: t.Optional[_Dict] = None) -> _Dict:
        """Return the result of the task."""
        _core.check()
        start: _Dict = super().run(tmp, task_vars)
        given = self._checked()
        with self._in_words():
            return {**start, **self.decide(given, task_vars or {})}

    def decide(self, given: _Dict, variables: _Dict) -> _Dict:
        """Return what the task gets. given: the checked options."""
        raise NotImplementedError

    def _checked(self) -> _Dict:
        checked = self.validate_argument_spec(  # type: ignore[no-untyped-call]
            argument_spec=self.arguments, **self.rules
        )
        return t.cast("_Dict", checked[1])

    @contextlib.contextmanager
    def _in_words(self) -> t.Iterator[None]:
        name = type(self).__module__.rpartition(".")[2]
        try:
            yield
        except FlexdiskError as exc:
            raise AnsibleActionFail(f"{name}: {exc.message}") from exc
        except (AttributeError, LookupError, StopIteration, TypeError, ValueError) as exc:
            if not self.wants:
                raise
            raise AnsibleActionFail(f"{name} wants {self.wants} ({exc!r})") from exc
        except (MemoryError, OverflowError, RecursionError) as exc:
            raise AnsibleActionFail(f"{name}: a number is too large, or a value lies in too many others") from exc
