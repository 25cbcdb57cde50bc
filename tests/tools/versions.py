# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether all that names a version agrees: galaxy.yml, the changelog, every version_added, and who needs which
ansible-core. Between releases, galaxy.yml has the version of the next one with -dev behind it.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

CHANGELOG = "changelogs/changelog.yaml"
ARTIFACT = re.compile(r"(flexdisk-hypervisor[-:])([0-9]+\.[0-9]+\.[0-9]+(?:-dev)?)")  # a tarball or an image
VERSION = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)(-dev)?")
Added = Mapping[str, object]  # version_added, None without one, by "module vm" and "module vm: disks.size"


def problems(root: Path, releasing: bool = False) -> list[str]:
    """What does not agree in the tree, each as a sentence; none if all is well. Without the history of the last
    release, which a release needs, the versions of options are not compared, and that is said.
    """
    version = str(_yaml(root / "galaxy.yml")["version"])
    match = VERSION.fullmatch(version)
    if match is None:
        return [f"galaxy.yml: version is {version}, and has to be like 1.2.3 or 1.2.3-dev"]
    coming = ".".join(match.groups()[:3])
    releases = _yaml(root / CHANGELOG)["releases"]
    now = added(root)
    found = [
        *_changelog(root, coming, bool(match[4]), releases),
        *_core(root),
        *_named(root, version),
        *_listed(now, coming, bool(match[4]), releases),
    ]
    before = last_release_before(root, coming)
    if not isinstance(before, str):
        return [*found, *_options(now, before, coming, releases)]
    if releasing:
        return [*found, before]
    print(f"note: {before}")
    return found


def number(version: object) -> tuple[int, ...]:
    """A version for comparison, () for what is none."""
    match = VERSION.fullmatch(str(version))
    return tuple(map(int, match.groups()[:3])) if match else ()


def _changelog(root: Path, coming: str, developing: bool, releases: Mapping[str, Any]) -> Iterator[str]:
    newest = max(releases, key=number)
    shown = re.search(r"^## v(\S+)$", (root / "CHANGELOG.md").read_text(encoding="utf-8").replace("\\", ""), re.M)
    if shown is None or shown[1] != newest:
        yield f"CHANGELOG.md begins with {shown[1] if shown else 'no version'}, and {CHANGELOG} with {newest}"
    if developing:
        if number(coming) <= number(newest):
            yield f"galaxy.yml: version is {coming}-dev, but {newest} has been released"
        return
    if newest != coming:
        yield f"galaxy.yml: version is {coming}, but the newest release in {CHANGELOG} is {newest}"
    left = sorted(path.name for path in (root / "changelogs" / "fragments").glob("*.y*ml"))
    if left:
        yield f"galaxy.yml: version is {coming}, a release, but fragments wait for the next one: {', '.join(left)}"


def naming(root: Path) -> list[Path]:
    """The files that name the artifact of this version."""
    return [*sorted(root.glob("extensions/awx/**/*.yml")), *sorted(root.glob("docs/*.md"))]


def _named(root: Path, version: str) -> Iterator[str]:
    for path in naming(root):
        for other in {found for _name, found in ARTIFACT.findall(path.read_text(encoding="utf-8"))} - {version}:
            yield f"{path.relative_to(root)}: names version {other}, but galaxy.yml has {version}"


def _core(root: Path) -> Iterator[str]:
    """Whoever says which ansible-core is needed must say the same as meta/runtime.yml."""
    required = _yaml(root / "meta" / "runtime.yml")["requires_ansible"]
    match = re.fullmatch(r">=([0-9]+\.[0-9]+)\.0", required)
    if match is None:
        yield f"meta/runtime.yml: requires_ansible is {required}, and has to be like >=2.19.0"
        return
    for page in (root / "README.md", *sorted((root / "docs").glob("*.md"))):
        said = re.findall(r"ansible-core(?:>=| )([0-9]+\.[0-9]+)(?:'| or later)", page.read_text(encoding="utf-8"))
        if set(said) != {match[1]} and (said or page.name in ("README.md", "install.md")):
            versions = " and ".join(said) or "of no version"
            yield f"{page.relative_to(root)}: ansible-core {versions}, but meta/runtime.yml requires {match[1]}"
    for meta in sorted(root.glob("roles/*/meta/main.yml")):
        least = str(_yaml(meta)["galaxy_info"]["min_ansible_version"])
        if least != f"{match[1]}.0":
            name = meta.relative_to(root)
            yield f"{name}: min_ansible_version is {least}, but meta/runtime.yml requires {match[1]}.0"


def _listed(now: Added, coming: str, developing: bool, releases: Mapping[str, Any]) -> Iterator[str]:
    """A plugin or role says the release that lists it as new, and what none lists is new in the coming one."""
    release_of = {name: version for version, release in releases.items() for name in _new_in(release)}
    for name in (name for name in now if ":" not in name):
        where = release_of.get(name)
        if where is None and not developing:
            yield f"{name}: no release in {CHANGELOG} lists it as new"
        elif now[name] != (where or coming):
            yield f"{name}: version_added is {now[name] or 'missing'}, and has to be {where or coming}"


def _new_in(release: Mapping[str, Any]) -> Iterator[str]:
    kinds = {"module": release.get("modules", []), **release.get("plugins", {}), **release.get("objects", {})}
    for kind, entries in kinds.items():
        yield from (f"{kind} {entry['name']}" for entry in entries)


def _options(now: Added, before: Added, coming: str, releases: Mapping[str, Any]) -> Iterator[str]:
    """An option that a plugin has got since the last release says the coming one, and others say what they said."""
    for name in (name for name in now if ":" in name):
        plugin, _colon, path = name.partition(": ")
        above = f"{plugin}: {path.rpartition('.')[0]}" if "." in path else plugin
        if name in before and now[name] != before[name]:
            yield f"{name}: version_added is {now[name] or 'missing'}, and was {before[name] or 'missing'}"
        elif name not in before and above in before and now[name] != coming:
            yield f"{name}: version_added is {now[name] or 'missing'}, and has to be {coming}"
        elif now[name] not in (None, coming, *releases):
            yield f"{name}: version_added is {now[name]}, and has to be left out"


def last_release_before(root: Path, coming: str) -> Added | str:
    """What the last release before the coming one had, from the last commit that wrote its changelog; or why not."""
    if _git(root, "rev-parse", "--is-shallow-repository").strip() == b"true":
        return "this clone is shallow, so nothing can be compared with the last release: git fetch --unshallow"
    for commit in _git(root, "log", "--format=%H", "--", CHANGELOG).decode().split():
        if coming not in yaml.safe_load(_git(root, "show", f"{commit}:{CHANGELOG}"))["releases"]:
            with tempfile.TemporaryDirectory() as folder:
                archive = io.BytesIO(_git(root, "archive", commit))
                with tarfile.open(fileobj=archive) as opened:
                    opened.extractall(folder, filter="data")
                return added(Path(folder))
    return f"no commit has {CHANGELOG} as it was before {coming}, so nothing can be compared with it"


def _git(root: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True).stdout


def added(root: Path) -> Added:
    """The version_added of every plugin, role and option of a tree."""
    found: dict[str, object] = {}
    for path in sorted(root.glob("plugins/*/*")):
        for kind, document in _documents(path):
            name = document.get(kind) or document.get("name") or path.stem
            for option, entry in _fragments(root, document):
                _walk(f"{kind} {name}: {option}", entry, found)
            _walk(f"{kind} {name}", document, found)
    for path in sorted(root.glob("roles/*/meta/argument_specs.yml")):
        _walk(f"role {path.parts[-3]}", _yaml(path)["argument_specs"]["main"], found)
    return found


def _walk(name: str, node: Mapping[str, Any], found: dict[str, object]) -> None:
    """Put down what a plugin, role or option says, and all options below it."""
    found[name] = node.get("version_added") or found.get(name)
    for options in (node.get("options"), node.get("suboptions")):
        for option, entry in (options or {}).items():
            _walk(f"{name}.{option}" if ":" in name else f"{name}: {option}", entry, found)


def _documents(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The documentation in a file of plugins, with what the plugin is."""
    kind = path.parent.name.removesuffix("s")
    if path.suffix == ".yml":
        yield kind, _yaml(path)["DOCUMENTATION"]
    elif path.suffix == ".py" and kind != "doc_fragment":
        text = _constants(path).get("DOCUMENTATION")
        if text:
            yield kind, yaml.safe_load(text)


def _fragments(root: Path, document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The options that a plugin takes from fragments of this collection."""
    names = document.get("extends_documentation_fragment", [])
    for fragment in [names] if isinstance(names, str) else names:
        name, _dot, part = fragment.removeprefix("flexdisk.hypervisor.").partition(".")
        path = root / "plugins" / "doc_fragments" / f"{name}.py"
        if path.exists():
            yield from (yaml.safe_load(_constants(path)[part.upper() or "DOCUMENTATION"]).get("options") or {}).items()


def _constants(path: Path) -> dict[str, str]:
    """The strings that a file of Python gives names to, also in its classes."""
    return {
        node.targets[0].id: node.value.value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def _yaml(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded
