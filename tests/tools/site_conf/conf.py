# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sphinx's configuration of the site that make_docs.py builds."""

from __future__ import annotations

from pathlib import Path

import yaml
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[3]
GALAXY = yaml.safe_load((ROOT / "galaxy.yml").read_text())

project = f"{GALAXY['namespace']}.{GALAXY['name']}"
project_copyright = "flexdisk.hypervisor contributors"
release = version = GALAXY["version"]
html_title = f"{project} {version}"
html_short_title = project

extensions = ["myst_parser", "sphinx.ext.intersphinx", "sphinx_antsibull_ext"]
root_doc = "index"
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
myst_heading_anchors = 4
nitpicky = True
default_role = "any"
highlight_language = "text"
pygments_style = "ansible"

# The second is a file of make_docs.py: nothing is loaded
intersphinx_mapping = {
    "ansible": ("https://docs.ansible.com/projects/ansible/devel/", str(ROOT / "build" / "site" / "ansible.inv"))
}

html_theme = "sphinx_ansible_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "display_version": False,
    "show_extranav": False,  # an advertisement
    "show_rtd_ethical_ads": False,
    "topbar_links": {"Repository": GALAXY["repository"], "Issues": GALAXY["issues"]},
}


def setup(app: Sphinx) -> None:
    """Languages of blocks that Pygments does not know."""
    app.add_lexer("haproxy", TextLexer)
