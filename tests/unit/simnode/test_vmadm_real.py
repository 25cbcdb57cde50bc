# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of the vmadm over a real zfs can be seen without one: its events and its state."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest
from simnode import real, real_guest, vmadm

HISTORY = """History for 'zones':
2026-11-20.20:00:00 [txg:5] create pool version 5000; software version zfs-2.1.11; uts lab 6.1
2026-11-20.20:00:01 zpool create -f zones /dev/vdb
2026-11-20.20:00:10 [txg:12] create zones/u (267)
2026-11-20.20:00:10 [txg:12] set zones/u (267) quota=1073741824
2026-11-20.20:00:10 zfs create zones/u
2026-11-20.20:00:11 [txg:20] rename zones/u/disk1 (123) -> zones/flexdisk/x
2026-11-20.20:00:12 [txg:25] snapshot zones/u@vmsnap-s1 (150)
2026-11-20.20:00:13 [txg:30] clone zones/u/disk0/%rollback (160) origin=zones/u/disk0@vmsnap-s1 (150)
2026-11-20.20:00:13 [txg:30] clone swap zones/u/disk0/%rollback (160) parent=disk0
2026-11-20.20:00:13 [txg:30] destroy zones/u/disk0/%rollback (160)
2026-11-20.20:00:14 [txg:31] hold zones/u@vmsnap-s1 (150) tag=keep temp=0 refs=1
2026-11-20.20:00:15 [txg:32] inherit zones/u (267) flexdisk:x
2026-11-20.20:00:16 ioctl something
"""


def test_events_from_the_history() -> None:
    found = real.parse_history(HISTORY)
    assert [(sequence >> 20, kind, name) for sequence, kind, name in found] == [
        (12, "create", "zones/u"),
        (12, "set", "zones/u"),
        (20, "rename", "zones/u/disk1"),
        (25, "snapshot", "zones/u@vmsnap-s1"),
        (30, "rollback", "zones/u/disk0"),
        (31, "hold", "zones/u@vmsnap-s1"),
        (32, "inherit", "zones/u"),
    ]
    sequences = [sequence for sequence, _kind, _name in found]
    assert sequences == sorted(set(sequences))


def test_state_is_kept_and_waiting_takes_no_time(tmp_path: Path) -> None:
    with real.RealHost(tmp_path) as host:
        before = host.now()
        host.sleep(3600)
        assert 3600 <= host.now() - before < 3660
        seed = host.state["seed"]
    assert json.loads((tmp_path / "state.json").read_text())["clock_offset"] == 3600
    with real.RealHost(tmp_path) as host:
        assert host.state["seed"] == seed


def test_commands_of_the_real_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def command(argv: list[str]) -> tuple[int, str, str]:
        seen.append(argv)
        busy = argv[:2] == ["zfs", "destroy"] and len(seen) < 5
        return (1, "", "cannot destroy 'zones/u': dataset is busy\n") if busy else (0, "", "")

    monkeypatch.setattr(real, "run_command", command)
    with real.RealHost(tmp_path) as host:
        assert host.zfs(["clone", "-F", "zones/i@final", "zones/u"])[0] == 0
        assert host.zfs(["destroy", "-rF", "zones/u"])[0] == 0
    assert seen == [
        ["zfs", "clone", "zones/i@final", "zones/u"],
        ["zfs", "destroy", "-r", "zones/u"],
        ["udevadm", "settle"],
        ["zfs", "destroy", "-r", "zones/u"],
        ["udevadm", "settle"],
        ["zfs", "destroy", "-r", "zones/u"],
    ]


def test_served_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(real, "run_command", lambda argv, stdin="": (3, stdin, argv[0]))
    requests = [["zfs", "list"], ["admin", "advance", "60"], ["admin", "now"], ["vmadm", "get", "x"], ["guest"]]
    text = "".join(json.dumps({"argv": argv, "stdin": "in"}) + "\n" for argv in requests)
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert real.main(["--state", str(tmp_path), "serve"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert answers[0] == [3, "in", "zfs"]
    assert [answer[0] for answer in answers] == [3, 0, 0, 2, 2]
    assert float(answers[2][1]) >= time.time() + 59


def test_installed_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real, "run_command", lambda _argv: (0, "", ""))
    assert real.main(["--state", str(tmp_path / "state"), "install", str(tmp_path / "bin"), "--pool", "zones"]) == 0
    installed = sorted(path.name for path in (tmp_path / "bin").iterdir())
    assert installed == ["guest", "imgadm", "kstat", "sysinfo", "vmadm"]
    text = (tmp_path / "bin" / "vmadm").read_text()
    assert text.startswith("#!")
    assert str(tmp_path / "state") in text
    monkeypatch.setattr(real, "run_command", lambda _argv: (1, "", ""))
    assert real.main(["install", str(tmp_path / "bin"), "--pool", "nowhere"]) == 1


@pytest.mark.parametrize(
    ("argv", "reads"),
    [
        (["create"], True), (["create", "-f", "x"], False), (["create", "-f", "-"], True), (["update", "u"], True),
        (["update", "u", "a=b"], False), (["get", "u"], False), ([], False), (["validate", "update", "kvm"], True),
    ],
)  # fmt: skip
def test_who_reads_stdin(argv: list[str], reads: bool) -> None:
    assert vmadm.reads_stdin(argv) is reads


def test_guest_on_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = tmp_path / "volume"
    volume.write_bytes(bytes(4 << 20))
    monkeypatch.setattr(real_guest, "_path", lambda _dataset: str(volume))
    monkeypatch.setattr("simnode.real_guest.subprocess.run", lambda *_argv, **_more: None)
    empty = real_guest.main(["hash", "zones/u/disk0"])
    assert real_guest.main(["write", "zones/u/disk0", "1", "2", "seed"]) == (0, "", "")
    written = real_guest.main(["hash", "zones/u/disk0"])
    assert written != empty
    assert real_guest.main(["hash", "zones/u/disk0", "0", "1"]) == real_guest.main(["hash", "zones/u/disk0", "3", "1"])
    real_guest.main(["write", "zones/u/disk0", "1", "2", "another"])
    assert real_guest.main(["hash", "zones/u/disk0"]) != written
    real_guest.main(["write", "zones/u/disk0", "1", "2", "seed"])
    assert real_guest.main(["hash", "zones/u/disk0"]) == written
    assert real_guest.main(["write", "zones/u/disk0", "x", "1", "s"])[0] == 2
