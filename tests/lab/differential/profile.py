# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What sequences are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from differential import makers, provoke
from differential.makers import Maker
from differential.world import CROWD


class Profile(NamedTuple):
    """Makers of commands and of errors by name, how often each is wished for, where that is not 1, and the datasets and
    snapshots with which there are enough. `provoked` is the share of draws that are wishes for errors.
    """

    makers: Mapping[str, Maker]
    plenty: Mapping[str, float]
    wishes: Mapping[str, Maker]
    often: Mapping[str, float]
    crowd: tuple[int, int] = CROWD
    provoked: float = 0.3

    @property
    def phrases(self) -> list[str]:
        """The words of stderr that wishes are after."""
        return [name for name in self.wishes if not name.startswith("(")]


GENERAL = Profile(makers.MAKERS, makers.PLENTY, provoke.WISHES, provoke.OFTEN)
