# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

"""Runs programs: argv lists, no shell, LC_ALL=C, counted."""

from __future__ import annotations

import os
import subprocess
import typing as t

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

SYSTEM_PATH = "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin"


class SubprocessRunner:
    """The Runner of production. calls counts the processes it started."""

    def __init__(self) -> None:
        self.calls = 0
        path = os.environ.get("PATH", "")
        self._environment = dict(os.environ, LC_ALL="C", LANG="C", PATH="%s:%s" % (path, SYSTEM_PATH))

    def __call__(self, argv: t.Sequence[str], stdin: str = "", timeout: float = 300) -> Answer:
        self.calls += 1
        try:
            done = subprocess.run(
                list(argv),
                input=stdin.encode(),
                capture_output=True,
                timeout=timeout,
                env=self._environment,
                check=False,
            )
        except FileNotFoundError:
            raise FlexdiskError("CommandNotFound", "%s is not on this host's PATH" % argv[0]) from None
        except PermissionError as exc:
            raise FlexdiskError("NotPermitted", "%s cannot be run: %s" % (argv[0], exc)) from exc
        except subprocess.TimeoutExpired:
            raise FlexdiskError("CommandTimeout", "%s did not end within %d s" % (" ".join(argv), timeout)) from None
        return Answer(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))
