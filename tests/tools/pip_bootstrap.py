# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lets ansible-test make its virtual environments where only the package index can be reached.

ansible-test fetches get-pip.py from its own server for every environment. It looks into its cache first: this puts a
stand-in there that installs the same version of pip from its wheel.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import ansible_test

CACHE = Path.home() / ".ansible" / "test" / "cache"

STAND_IN = '''"""Stand-in for get-pip.py: install the pip wheel that lies next to this file."""
import os
import sys

wheel = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pip-{version}-py3-none-any.whl")
sys.path.insert(0, wheel)
args = [wheel if a == "pip=={version}" else a for a in sys.argv[1:] if a not in ("--no-setuptools", "--no-wheel")]

from pip._internal.cli.main import main

sys.exit(main(["install", "--no-index", "--upgrade", "--force-reinstall"] + args))
'''


def pip_version() -> str:
    """The version of pip that the installed ansible-test asks for."""
    source = Path(ansible_test.__path__[0]) / "_internal" / "python_requirements.py"
    match = re.search(r"pip='([0-9.]+)'", source.read_text(encoding="utf-8"))
    if match is None:
        raise SystemExit(f"{source} no longer says which pip it wants; pip_bootstrap.py must learn where it stands now")
    return match[1]


def bootstrap() -> None:
    """Put the stand-in and its wheel into ansible-test's cache, unless something is there already."""
    version = pip_version()
    stand_in = CACHE / f"get_pip_{version.replace('.', '_')}.py"
    if stand_in.exists():
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(CACHE)]
    subprocess.run([*download, f"pip=={version}"], check=True)
    stand_in.write_text(STAND_IN.format(version=version), encoding="utf-8")
