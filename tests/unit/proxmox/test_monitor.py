# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the monitor of a running QEMU says of its disks, over a socket."""

from __future__ import annotations

import contextlib
import json
import socket
import threading

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import pve_monitor
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

GREETING: dict[str, object] = {"QMP": {"version": {}, "capabilities": []}}
DISK = {"qdev": "/machine/peripheral/virtio0/virtio-backend", "inserted": {"image": {"virtual-size": 1 << 30}}}
BLOCKS = {"return": [DISK, {"qdev": "scsi1", "inserted": {"image": {"virtual-size": 2 << 30}}}, {"qdev": "ide2"}]}


@contextlib.contextmanager
def monitor(tmp_path, monkeypatch, *lines):
    """A monitor that answers with these lines, and then hangs up."""
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("100.qmp")
        server.listen()
        thread = threading.Thread(target=_answer, args=(server, lines))
        thread.start()
        yield "100.qmp"
        thread.join()


def _answer(server, lines):
    client, _address = server.accept()
    with client, client.makefile("rwb") as stream:
        for number, line in enumerate(lines):
            if number in (1, len(lines) - 1):
                stream.readline()
            stream.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
            stream.flush()


def test_sizes_by_key(tmp_path, monkeypatch):
    event = {"event": "RESUME", "data": {}}
    with monitor(tmp_path, monkeypatch, GREETING, {"return": {}}, BLOCKS) as path:
        sizes = pve_monitor.sizes(pve_monitor.blocks(path))
    assert (sizes["virtio0"], sizes["scsi1"], "ide2" in sizes) == (1 << 30, 2 << 30, False)
    (tmp_path / "100.qmp").unlink()
    with monitor(tmp_path, monkeypatch, GREETING, event, {"return": {}}, BLOCKS) as path:
        assert pve_monitor.sizes(pve_monitor.blocks(path))["scsi1"] == 2 << 30


@pytest.mark.parametrize("last", [b"", b"{", b"[1, 2]\n", b'{"error": {"class": "GenericError"}}\n'])
def test_no_answer_is_no_size(tmp_path, monkeypatch, last):
    with monitor(tmp_path, monkeypatch, GREETING, {"return": {}}, last) as path, pytest.raises(FlexdiskError) as raised:
        pve_monitor.sizes(pve_monitor.blocks(path))
    assert raised.value.code in ("HypervisorUnreachable", "UnexpectedOutput")


def test_nobody_listens(tmp_path):
    with pytest.raises(FlexdiskError, match="so nobody knows what it has"):
        pve_monitor.blocks(str(tmp_path / "none"))
