# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""New uuids: the same sequence for the same history, so that rehearsals are repeatable."""

from __future__ import annotations

from simnode.vmadm.host import VmadmHost


def new_uuid(host: VmadmHost) -> str:
    """Return a version 4 UUID, derived from a counter in the host's state and its seed."""
    count = host.state.get("uuids_given", 0) + 1
    host.state["uuids_given"] = count
    seed = host.state.setdefault("seed", "simulated node")
    import hashlib  # only who makes something pays for these
    import uuid

    digest = hashlib.sha256(("%s %d" % (seed, count)).encode()).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))
