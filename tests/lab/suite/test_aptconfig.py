# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the image's packages come from is read from apt's own files."""

from __future__ import annotations

from pathlib import Path

import aptconfig

DEB822 = """\
# a comment
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
  bookworm-backports
Components: main
Signed-By: /usr/share/keyrings/archive.gpg

Types: deb
URIs: http://other.example/tools
Suites: bookworm
Components: stable

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
"""
ONE_LINE = """\
# deb http://off.example/debian bookworm main
deb [arch=amd64 signed-by=/k.gpg] http://sec.example/debian-security bookworm-security main non-free # why
deb-src http://mirror.example/debian bookworm main
deb http://mirror.example/debian trixie main
"""


def test_sources_of_both_formats_with_our_components(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text(ONE_LINE, encoding="utf-8")
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text(DEB822, encoding="utf-8")
    assert aptconfig.source_lines("bookworm", ("main", "contrib"), tmp_path) == [
        "deb [signed-by=/k.gpg] http://sec.example/debian-security bookworm-security main contrib",
        "deb [signed-by=/usr/share/keyrings/archive.gpg] http://mirror.example/debian bookworm main contrib",
        "deb [signed-by=/usr/share/keyrings/archive.gpg] http://mirror.example/debian bookworm-updates main contrib",
    ]


def test_no_source_of_the_release(tmp_path: Path) -> None:
    assert aptconfig.source_lines("bookworm", ("main",), tmp_path) == []
