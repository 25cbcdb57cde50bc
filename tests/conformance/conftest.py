# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the conformance cases run: on the simulated node in process, or, those that ZFS decides, over a real zfs.

--conformance-machine is the command that starts `python3 -m simnode.real serve` on a machine with a pool named zones of
at least 23 GiB, such as "ssh -p 2222 root@localhost env PYTHONPATH=/opt/simnode python3 -m simnode.real serve".
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import pytest

from tests.conformance.support import IMAGES, POOL, Backend, NodeBackend, ServedBackend


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--conformance-machine", default="", help="command of a server on a machine with a real zfs")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "zfs_decides: the outcome is ZFS's, so the case is also for a real ZFS")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--conformance-machine"):
        return
    skip = pytest.mark.skip(reason="ZFS does not decide this case")
    for item in items:
        if "conformance" in str(item.path) and item.get_closest_marker("zfs_decides") is None:
            item.add_marker(skip)


def _empty(backend: Backend) -> None:
    """No VMs, nothing in the pool but images, whatever a failed case has left."""
    for vm in json.loads(backend.run(["vmadm", "lookup", "-j", "-o", "uuid"]).out):
        backend.run(["vmadm", "update", vm["uuid"]], '{"indestructible_zoneroot": false}')
    held = backend.run(["zfs", "list", "-H", "-t", "snapshot", "-o", "name,userrefs", "-r", POOL]).out
    for name, references in (line.split("\t") for line in held.splitlines()):
        if references != "0":
            for line in backend.run(["zfs", "holds", "-H", name]).out.splitlines():
                backend.run(["zfs", "release", line.split("\t")[1], name])
    for vm in json.loads(backend.run(["vmadm", "lookup", "-j", "-o", "uuid"]).out):
        backend.run(["vmadm", "delete", vm["uuid"]])
    images = {f"{POOL}/{image[0]}" for image in IMAGES} | {POOL}
    for name in backend.run(["zfs", "list", "-H", "-o", "name", "-d", "1", POOL]).out.split():
        if name not in images:
            backend.run(["zfs", "destroy", "-r", name])


def add_images(backend: Backend) -> None:
    for image in IMAGES:
        if backend.run(["imgadm", "get", str(image[0])]).rc != 0:
            result = backend.admin("image-import", *(str(word) for word in image))
            assert result.rc == 0, result


@pytest.fixture(scope="session")
def machine(request: pytest.FixtureRequest) -> Iterator[ServedBackend | None]:
    """The real machine with its images, None when there is none."""
    command = shlex.split(request.config.getoption("--conformance-machine"))
    if not command:
        yield None
        return
    found = ServedBackend(command)
    add_images(found)
    yield found
    _empty(found)
    found.close()


@pytest.fixture
def backend(machine: ServedBackend | None) -> Backend:
    """A machine with the images, without VMs."""
    if machine is not None:
        _empty(machine)
        # Every five minutes vminfod reads everything again: now, and so not in the middle of the test.
        machine.advance(300)
        return machine
    from simnode import Node, PoolSpec

    node = NodeBackend(Node.create(None, [PoolSpec(name=POOL, size=256 << 30)]))
    add_images(node)
    return node
