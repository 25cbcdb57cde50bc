# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`zfs bookmark`, and `zfs destroy` of bookmarks."""

from __future__ import annotations

from typing import List

from simnode.zfs import kernel
from simnode.zfs.errors import UsageError
from simnode.zfs.session import Session, options


def bookmark(session: Session, argv: List[str]) -> int:
    """`zfs bookmark SNAPSHOT|BOOKMARK BOOKMARK`."""
    _given, names = options(argv, "")
    if len(names) != 2:
        raise UsageError("too many arguments" if len(names) > 2 else "missing bookmark argument")
    source = session.point(names[0])
    if source is None:
        raise UsageError(session.err.pop().rstrip("\n") if session.err else "invalid source name")
    above, separator, short = names[1].partition("#")
    if not separator or not short:
        raise UsageError(f"invalid bookmark name '{names[1]}' - must contain a '#'")
    failure = f"cannot create bookmark '{names[1]}'"
    if above not in ("", source.dataset.name):
        return session.fail(failure, "not in the same dataset as its source")
    if source.dataset.bookmark(short) is not None:
        return session.fail(failure, "bookmark exists")
    kernel.take_bookmark(session.storage, source, short)
    return 0


def destroy(session: Session, name: str) -> int:
    """`zfs destroy DATASET#BOOKMARK`."""
    above, _mark, short = name.partition("#")
    dataset = session.dataset(above)
    if dataset is None:
        return 1
    item = dataset.bookmark(short)
    if item is None:
        session.err.append(f"bookmark '{name}' does not exist.\n")
        return 1
    kernel.destroy_bookmark(session.storage, item)
    return 0
