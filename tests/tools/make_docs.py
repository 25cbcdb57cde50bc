# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Builds the documentation as a site in build/site/html, without network. Every warning is an error.

README is the first page. Its section "Read on" has the groups of all others, in their order. The reference of modules,
plugins and roles is made by antsibull-docs, only when their documentation has changed; Sphinx renders what has changed.

Usage: make_docs.py
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import time
import zlib
from pathlib import Path

import yaml
from tree import BIN, BUILD, ROOT, run

SITE = BUILD / "site"
SOURCE = SITE / "source"
HTML = SITE / "html"
DOCTREES = SITE / "doctrees"
STAMP = SITE / "reference.sha256"
INVENTORY = SITE / "ansible.inv"
CONFIGURATION = ROOT / "tests" / "tools" / "site_conf"
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)]*)?\)")
GROUP = re.compile(r"^- \*\*(.+?)\*\*: (.*\n(?:  .*\n)*)", re.MULTILINE)
CONTENTS = "Modules, plugins and roles"
REFERENCE = [(CONTENTS, "reference/index.rst"), ("Environment variables", "reference/environment_variables.rst")]
# What Ansible's own pages call what the reference refers to, with the pages
ANSIBLE = {
    "std:label": {
        "action_plugins": "plugins/action.html#action-plugins",
        "ansible_configuration_settings": "reference_appendices/config.html#$",
        "callback_plugins": "plugins/callback.html#callback-plugins",
        "common_return_values": "reference_appendices/common_return_values.html#common-return-values",
    },
    "std:envvar": {
        f"ANSIBLE_CACHE_PLUGIN{suffix}": "reference_appendices/config.html#envvar-$"
        for suffix in ("", "_CONNECTION", "_PREFIX", "_TIMEOUT")
    },
}


def names() -> list[str]:
    """All pages but README, relative to ROOT."""
    loose = ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md")
    return [*loose, *(path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("docs/*.md")))]


def groups(readme: str, pages: list[str]) -> dict[str, list[tuple[str, str]]]:
    """The groups of README's "Read on" with titles and pages. Ends with words if a page is in none, or in several."""
    section = readme.split("\n## Read on\n", 1)[1].split("\n## ", 1)[0]
    found = {group: re.findall(r"\[(.*?)\]\((.*?)\)", items) for group, items in GROUP.findall(section)}
    listed = [page for several in found.values() for _title, page in several]
    if missing := sorted({*pages} - {*listed}):
        sys.exit(f'README.md: no group of "Read on" has {", ".join(missing)}')
    if odd := sorted({page for page in listed if listed.count(page) > 1 or page not in pages}):
        sys.exit(f'README.md: "Read on" has more than once, or without there being such a page: {", ".join(odd)}')
    return found


def rewritten(page: str, text: str, repository: str) -> str:
    """The text of a page with links that hold on the site: README is its index, the page of a role is in the reference,
    and what is no page is in the repository.
    """

    def link(match: re.Match[str]) -> str:
        path = os.path.normpath(os.path.join(os.path.dirname(page), match[1]))
        role = re.fullmatch(r"roles/(\w+)/README\.md", path)
        if path == "README.md":
            path = "index.md"
        elif role:
            path = f"reference/{role[1]}_role.rst"
        elif path not in names():
            return f"]({repository}/tree/main/{path})"
        return f"]({os.path.relpath(path, os.path.dirname(page) or '.')}{match[2] or ''})"

    return LINK.sub(link, text)


def index(readme: str) -> str:
    """README with the groups as the navigation of the site."""
    found = groups(readme, names()) | {"Reference": REFERENCE}
    trees = (
        f"\n```{{toctree}}\n:hidden:\n:caption: {group}\n\n"
        + "".join(f"{title} <{page}>\n" for title, page in pages)
        + "```\n"
        for group, pages in found.items()
    )
    return readme + "".join(trees)


def sources() -> dict[str, str]:
    """The pages that are written by hand, as they are rendered."""
    repository = str(yaml.safe_load((ROOT / "galaxy.yml").read_text())["repository"])
    texts = {page: (ROOT / page).read_text() for page in names()} | {
        "index.md": index((ROOT / "README.md").read_text())
    }
    return {page: rewritten(page, text, repository) for page, text in texts.items()}


def write_sources() -> None:
    """Bring SOURCE up to date. Files that stay the same keep their time, by which Sphinx knows them."""
    wanted = sources()
    there = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.md")}
    if there - {*wanted}:
        forget()
    for page, text in wanted.items():
        path = SOURCE / page
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def forget() -> None:
    """Let nothing remain of pages that are gone, and of a build that has failed: Sphinx warns of a page once."""
    for folder in (SOURCE, HTML, DOCTREES):
        shutil.rmtree(folder, ignore_errors=True)
    STAMP.unlink(missing_ok=True)


def fingerprint() -> str:
    """What the reference depends on."""
    paths = [*(ROOT / "plugins").rglob("*"), *ROOT.glob("roles/*/meta/*"), *ROOT.glob("meta/*"), ROOT / "galaxy.yml"]
    tools = [Path(__file__), ROOT / "requirements" / "constraints.txt"]
    digest = hashlib.sha256()
    for path in sorted(path for path in [*paths, *tools] if path.suffix in (".py", ".yml", ".txt")):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def write_reference() -> int:
    """The pages of modules, plugins and roles, if they would be others than those that are there."""
    want = fingerprint()
    if STAMP.exists() and STAMP.read_text() == want:
        return 0
    target = SOURCE / "reference"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    words = ["--use-current", "--squash-hierarchy", "--fail-on-error", "--dest-dir", str(target), "flexdisk.hypervisor"]
    code = run([BIN / "antsibull-docs", "collection", *words])
    if not code:
        contents = target / "index.rst"
        contents.write_text(short(contents.read_text()))
        STAMP.write_text(want)
    return code


def short(contents: str) -> str:
    """The first page of the reference with short names for the navigation."""
    contents = re.sub(r"^Flexdisk\.Hypervisor\n=+$", f"{CONTENTS}\n{'=' * len(CONTENTS)}", contents, flags=re.MULTILINE)
    return re.sub(r"^    ((\w+)_([a-z]+))$", r"    \2 (\3) <\1>", contents, flags=re.MULTILINE)


def write_inventory() -> None:
    """What Sphinx would else load from the site of Ansible."""
    lines = [f"{name} {role} 1 {uri} -\n" for role, known in ANSIBLE.items() for name, uri in known.items()]
    head = ["Sphinx inventory version 2", "Project: Ansible", "Version: ", "The remainder is compressed using zlib."]
    INVENTORY.write_bytes("".join(f"# {line}\n" for line in head).encode() + zlib.compress("".join(lines).encode()))


def main() -> None:
    """Exit 1 if anything is wrong with the pages."""
    start = time.monotonic()
    write_sources()
    code = write_reference()
    write_inventory()
    options = ["-W", "--keep-going", "--quiet", "--jobs", "auto", "-c", str(CONFIGURATION), "-d", str(DOCTREES)]
    code = code or run([BIN / "python", "-m", "sphinx", *options, SOURCE, HTML])
    if code:
        forget()
        sys.exit("the site has not been built")
    pages = len([*HTML.rglob("*.html")])
    print(f"{pages} pages in {time.monotonic() - start:.0f} s: {os.path.relpath(HTML / 'index.html')}")


if __name__ == "__main__":
    main()
