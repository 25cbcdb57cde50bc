# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find variables that a playbook does not have: misspelt ones, and options of modules. Nobody would read them."""

from __future__ import annotations

import difflib
import functools
import re
import typing as t

_ALIKE = 0.74  # of difflib, for one word of a name: a letter is wrong, missing or added, or two have changed places
_LONG = 7  # letters of a first word that is ours alone: flexdisk, flexible, virtual, instance
_MARKED = "flexdisk"  # only variables of playbooks begin so
# How names of this collection begin, nearly. All other names are not ours.
_PREFIX = re.compile(r"^(flexdisk|flexible_disks|virtual_machine|instance_group|disk_registry)_")
_OURS = re.compile(r"flex|virtual_?m|instance_?g|disks?_?r|rfd|vm_?[mr]|guests?_?g")
# Options of modules that are unlikely to be a user's own names, and that permit losses.
_OPTIONS = re.compile(r"allow_(restart|force_stop)$|dangerous_|destroy_")


class VariableNames(t.NamedTuple):
    """Names of variables."""

    of_playbook: t.Sequence[str]
    """Variables of the playbook that runs."""
    known: t.Collection[str]
    """All variables of the collection: of every playbook, of roles, and those that one play sets for the next."""
    choosing: t.Pattern[str]
    """A regular expression of the variables without which a playbook takes every VM."""

    def misses(self, name: str) -> bool:
        """Whether the playbook does not have a variable that chooses VMs, wherever it is set."""
        return name in self.known and name not in self.of_playbook and bool(self.choosing.match(name))


def problems(given: t.Iterable[str], names: VariableNames) -> t.List[str]:
    """Return what is wrong with the names of variables that are set."""
    known, given = frozenset(names.known), set(given)
    options = {option(name): name for name in names.of_playbook if _OPTIONS.match(option(name))}
    messages, unknown = [], []
    squeezed, words = squeezed_names(known), first_words(known)
    for name in sorted(given - known):
        if name.startswith(_MARKED):
            unknown.append(name)
        elif _squeezed(name) in squeezed:
            messages.append(f"{name} is unknown. Did you mean {squeezed[_squeezed(name)]}?")
        elif name in options and options[name] not in given:
            messages.append(f"{name} is an option of modules. This playbook has {options[name]}")
        elif _OURS.match(name) or _begins_almost(name, words):
            messages += [f"{name} is unknown. Did you mean {meant}?" for meant in _alike(name, known)]
    unknown += sorted(filter(names.misses, given))
    if unknown:
        meant = [word for name in unknown for word in _alike(name, names.of_playbook)]
        text = f" Did you mean {' and '.join(meant)}?" if meant else ""
        messages.append(f"{', '.join(unknown)} is unknown.{text} This playbook has {', '.join(names.of_playbook)}")
    return messages


def _squeezed(name: str) -> str:
    """Return a name without capitals and underscores, which are easily mistaken."""
    return name.replace("_", "").lower()


@functools.lru_cache(maxsize=None)
def squeezed_names(known: t.FrozenSet[str]) -> t.Mapping[str, str]:
    """Return the names by what is left of them without capitals and underscores."""
    return {_squeezed(name): name for name in known}


@functools.lru_cache(maxsize=None)
def first_words(known: t.FrozenSet[str]) -> t.FrozenSet[str]:
    """Return the first words of names, without short ones that other projects use, too."""
    return frozenset(word for word in (name.split("_")[0] for name in known) if len(word) >= _LONG)


def _begins_almost(name: str, words: t.FrozenSet[str]) -> bool:
    """Whether the first word is one of ours with a wrong, missing or additional letter, or two letters exchanged."""
    first, _line, rest = name.partition("_")
    return bool(rest) and _is_almost(first, words)


@functools.lru_cache(maxsize=None)
def _is_almost(word: str, words: t.FrozenSet[str]) -> bool:
    return any(_is_slip(word, meant) for meant in words if abs(len(word) - len(meant)) <= 1)


def _is_slip(word: str, meant: str) -> bool:
    """Whether the word is the meant one with a single typing error."""
    if len(word) != len(meant):
        short, long = sorted((word, meant), key=len)
        return any(long[:at] + long[at + 1 :] == short for at in range(len(long)))
    wrong = [at for at, (one, other) in enumerate(zip(word, meant)) if one != other]
    swapped = len(wrong) == 2 and wrong[1] == wrong[0] + 1
    turned = swapped and word[wrong[0]] == meant[wrong[1]] and word[wrong[1]] == meant[wrong[0]]
    return len(wrong) == 1 or turned


def option(name: str) -> str:
    """Return what a module calls the option of a variable: allow_restart for flexible_disks_allow_restart."""
    return _PREFIX.sub("", name)


def _alike(name: str, known: t.Collection[str]) -> t.List[str]:
    """Return the known name that was probably meant, if there is one. Names are compared word by word: a user's own
    names that contain ours have other words.
    """
    parts = name.split("_")
    scores = []
    for one in known:
        meant = one.split("_")
        if len(meant) == len(parts) and one != name:
            ratios = [difflib.SequenceMatcher(None, *pair).ratio() for pair in zip(parts, meant) if pair[0] != pair[1]]
            if min(ratios) > _ALIKE:
                scores.append((sum(ratios) / len(ratios) - len(ratios), one))
    return [max(scores)[1]] if scores else []
