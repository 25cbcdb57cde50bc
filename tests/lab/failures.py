# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plugin of pytest that prints a failure when it happens: a suite that is ended has no summary."""

from __future__ import annotations

import pytest


class Failures:
    """Registered with the configuration of a run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print the text of what failed in setup, call or teardown, with what was captured."""
        screen = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and screen is not None:
            sections = "".join(f"\n-- {title}\n{text}" for title, text in report.sections)
            screen.write_line(f"\n{report.nodeid} ({report.when}) failed:\n{report.longreprtext}{sections}")
