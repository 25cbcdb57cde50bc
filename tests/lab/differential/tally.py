# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Counts over a whole run, and the tables that are printed."""

from __future__ import annotations

from collections import Counter

from differential.compare import Verdict
from differential.profile import GENERAL, Profile

EACH_COMMAND = 100
EACH_ERROR = 20
SUCCEED = 0.60
UNJUDGED = 0.05


class Tally:
    """What a run has compared so far."""

    def __init__(self, profile: Profile = GENERAL) -> None:
        self.profile = profile
        self.verdicts: list[Verdict] = []
        self.kinds: Counter[str] = Counter()
        self.succeeded: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.phrases: Counter[str] = Counter()
        self.widest: dict[str, float] = {}
        self.unjudged = 0

    def add(self, verdict: Verdict) -> None:
        """Count a sequence."""
        self.verdicts.append(verdict)
        self.unjudged += len(verdict.unjudged)
        for step in verdict.judged:
            kind = step.command.kind
            self.kinds[kind] += 1
            self.succeeded[kind] += step.foretold.rc == 0
            if step.foretold.rc:
                self.errors[step.foretold.error] += 1
                self.phrases[
                    next((text for text in self.profile.phrases if text in step.foretold.stderr), "any other")
                ] += 1
        for prop, share in verdict.widest.items():
            self.widest[prop] = max(self.widest.get(prop, 0.0), share)

    @property
    def total(self) -> int:
        """Commands compared."""
        return sum(self.kinds.values())

    @property
    def failures(self) -> list[Verdict]:
        """Sequences that differ."""
        return [verdict for verdict in self.verdicts if verdict.differences]

    def shares(self) -> list[str]:
        """What is wrong with the share of successes or of commands not judged."""
        wrong = []
        if self.total and sum(self.succeeded.values()) < SUCCEED * self.total:
            wrong.append(f"less than {SUCCEED:.0%} of the commands succeed")
        if self.unjudged > UNJUDGED * (self.total + self.unjudged):
            wrong.append(f"more than {UNJUDGED:.0%} of the commands are not judged")
        return wrong

    def missing(self) -> list[str]:
        """Commands and errors that a full run has not seen often enough."""
        kinds, phrases = self.profile.makers, self.profile.phrases
        few = [f"{kind}: {self.kinds[kind]} of {EACH_COMMAND}" for kind in kinds if self.kinds[kind] < EACH_COMMAND]
        rare = [text for text in phrases if self.phrases[text] < EACH_ERROR]
        return few + [f"{text!r}: {self.phrases[text]} of {EACH_ERROR}" for text in rare]

    def report(self) -> str:
        """The tables."""
        good = sum(self.succeeded.values())
        lines = [
            f"{len(self.verdicts)} sequences, {self.total} commands compared, {good} succeed "
            f"({good / max(1, self.total):.1%}), {self.unjudged} not judged "
            f"({self.unjudged / max(1, self.total + self.unjudged):.1%}), "
            f"{sum(verdict.abandoned for verdict in self.verdicts)} sequences abandoned, {len(self.failures)} differ",
            "",
            f"{'command':<24}{'run':>6}{'failed':>8}",
            *(f"{kind:<24}{self.kinds[kind]:>6}{self.kinds[kind] - self.succeeded[kind]:>8}"
              for kind in (*self.profile.makers, *sorted(self.kinds.keys() - self.profile.makers))),
            "",
            f"{'kind of error':<54}{'seen':>6}",
            *(f"{code:<54}{count:>6}" for code, count in sorted(self.errors.items())),
            *(f"  {text:<52}{self.phrases[text]:>6}" for text in (*self.profile.phrases, "any other")),
            "",
            f"{'figure':<24}{'of its tolerance used, at most':>32}",
            *(f"{prop:<24}{share:>32.0%}" for prop, share in sorted(self.widest.items())),
        ]  # fmt: skip
        return "\n".join(lines)
