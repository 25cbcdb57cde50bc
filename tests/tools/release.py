# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes a release of the tree: its version, wherever it is named, and its changelog. Made again, it takes in what has
come since. All else is done by a person (CONTRIBUTING.md).

Usage: release.py VERSION   (such as 0.2.0)
"""

from __future__ import annotations

import re
import sys

import versions
from tree import BIN, ROOT, run

GALAXY = ROOT / "galaxy.yml"


def main() -> None:
    """Exit 1 if anything is wrong with the version, or does not agree with it afterwards."""
    if len(sys.argv) != 2:
        sys.exit("which one? make release VERSION=0.2.0")
    version = sys.argv[1]
    text = GALAXY.read_text(encoding="utf-8")
    found = re.search(r"^version: (.*)$", text, re.MULTILINE)
    if found is None or found[1] not in (version, f"{version}-dev"):
        sys.exit(f"galaxy.yml has version {found[1] if found else 'none'}: this tree is not what becomes {version}")
    GALAXY.write_text(text.replace(found[0], f"version: {version}"), encoding="utf-8")
    for path in versions.naming(ROOT):
        named = path.read_text(encoding="utf-8")
        path.write_text(versions.ARTIFACT.sub(rf"\g<1>{version}", named), encoding="utf-8")
    code = run([BIN / "antsibull-changelog", "release", "--update-existing", "--reload-plugins"])
    wrong = versions.problems(ROOT, releasing=True)
    sys.exit("\n".join(wrong) or code)


if __name__ == "__main__":
    main()
