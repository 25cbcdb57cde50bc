# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests as processes: what runs is what the state says, after whatever happened to commands, guests and the node."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from simnode import Node, guests
from simnode.__main__ import main

from tests.unit.simnode.vmadm_support import IMAGE, UUID

LIBRARY = Path(__file__).resolve().parents[3] / "extensions" / "simulated_node"
OTHER = "cccccccc-0000-4000-8000-000000000002"
SLEEPER = ["sh", "-c", 'echo "$1 $SIMNODE_VM"; exec sleep 1000', "guest"]


class Site:
    """A node in a folder, and its programs."""

    def __init__(self, directory):
        self.directory = directory
        self.folder = directory / "guests"
        self.seen = {}
        assert main(["--dir", str(directory), "init"]) == 0
        self.admin("image-import", IMAGE, "64")

    def admin(self, *words):
        assert main(["--dir", str(self.directory), *words]) == 0

    def run(self, *argv, stdin="", check=True, **more):
        path = f"{self.directory / 'bin'}:/usr/bin:/bin"
        done = subprocess.run(
            argv, env={"PATH": path}, input=stdin, capture_output=True, text=True, check=False, timeout=60, **more
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def create(self, uuid=UUID, **more):
        disks = [{"image_uuid": IMAGE, "boot": True, "model": "virtio"}]
        vm = {
            "uuid": uuid,
            "brand": "bhyve",
            "alias": "web-0",
            "ram": 256,
            "vcpus": 1,
            "disks": disks,
            "autoboot": True,
        }
        self.run("vmadm", "create", stdin=json.dumps({**vm, **more}))

    def pid(self, uuid=UUID):
        """The process of a guest, whether it runs or not; None if the node has none for it."""
        path = self.folder / f"{uuid}.pid"
        if not path.exists():
            return None
        found = json.loads(path.read_text())
        self.seen[found["pid"]] = guests.Process(found["pid"], found["start"])
        return found["pid"]

    def lives(self, pid):
        return self.seen[pid].is_alive()

    def log(self):
        return (self.folder / f"{UUID}.log").read_text()


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path / "node")
    yield made
    for uuid in (UUID, OTHER):
        made.pid(uuid)
    if made.directory.exists():
        guests.switch_off(made.directory)
    assert [pid for pid in made.seen if made.lives(pid)] == []


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def keepers(directory):
    """Processes that were forked from programs of the node and still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(directory / "bin").encode() in words:
                found.append(int(entry.name))
    return found


def test_without_a_command_a_running_vm_is_a_state(site):
    site.create()
    assert site.pid() is None
    assert not site.folder.exists()


def test_a_guest_runs_from_start_to_stop(site):
    site.admin("guests", "on", *SLEEPER)
    site.create(autoboot=False)
    assert site.pid() is None
    site.run("vmadm", "start", UUID)
    pid = site.pid()
    assert site.lives(pid)
    assert os.getsid(pid) == os.getpgid(pid) == pid
    wait_for(lambda: site.log() == f"{UUID} {site.folder / UUID}.json\n")
    site.run("vmadm", "stop", UUID)
    assert not site.lives(pid)
    assert site.pid() is None
    wait_for(lambda: keepers(site.directory) == [])


def test_a_guest_is_told_of_its_vm(site):
    site.admin("guests", "on", *SLEEPER)
    site.create(customer_metadata={"port": 8080})
    told = json.loads((site.folder / f"{UUID}.json").read_text())
    assert told == json.loads(site.run("vmadm", "get", UUID).stdout)
    assert (told["alias"], told["state"], told["customer_metadata"]) == ("web-0", "running", {"port": 8080})
    assert told["disks"][0]["image_uuid"] == IMAGE


@pytest.mark.parametrize("how", [("reboot", UUID), ("reboot", UUID, "-F")])
def test_a_reboot_is_another_process(site, how):
    """Also right after the boot, in the same second of the node's clock."""
    site.admin("guests", "on", *SLEEPER)
    site.create()
    before = site.pid()
    site.run("vmadm", *how)
    assert not site.lives(before)
    assert site.pid() != before
    assert site.lives(site.pid())


def test_a_deleted_vm_has_no_guest(site):
    site.admin("guests", "on", *SLEEPER)
    site.create()
    before = site.pid()
    site.run("vmadm", "delete", UUID)
    assert (site.lives(before), site.pid()) == (False, None)
    site.create()
    assert site.lives(site.pid())


def test_what_changes_no_power_leaves_guests_alone(site):
    site.admin("guests", "on", *SLEEPER)
    site.create()
    site.create(OTHER)
    both = site.pid(), site.pid(OTHER)
    site.run("vmadm", "update", UUID, "alias=other")
    site.run("zfs", "create", "zones/x")
    site.run("vmadm", "stop", OTHER)
    assert site.pid() == both[0]
    assert [site.lives(pid) for pid in both] == [True, False]


def test_a_guest_that_ends_by_itself_comes_back_with_the_next_boot(site):
    site.admin("guests", "on", *SLEEPER)
    site.create()
    pid = site.pid()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not site.lives(pid))
    assert json.loads(site.run("vmadm", "get", UUID).stdout)["state"] == "running"
    assert site.pid() == pid
    assert not site.lives(pid)
    site.run("vmadm", "reboot", UUID)
    assert site.lives(site.pid())


def test_a_guest_takes_its_helpers_with_it(site, tmp_path):
    site.admin("guests", "on", "sh", "-c", f"sleep 1000 & echo $! > {tmp_path}/helper; wait")
    site.create()
    for end in (lambda: site.run("vmadm", "reboot", UUID), lambda: os.kill(site.pid(), signal.SIGKILL)):
        wait_for(lambda: (tmp_path / "helper").exists() and (tmp_path / "helper").read_text().endswith("\n"))
        helper = int((tmp_path / "helper").read_text())
        assert guests._stat(helper)[0] != "Z"
        (tmp_path / "helper").unlink()
        end()
        wait_for(lambda helper=helper: (guests._stat(helper) or "Z")[0] == "Z")


def test_on_and_off(site, tmp_path):
    site.create()
    site.admin("guests", "on", *SLEEPER)
    first = site.pid()
    site.admin("guests", "on", "sh", "-c", "exec sleep 2000")
    second = site.pid()
    assert [site.lives(pid) for pid in (first, second)] == [False, True]
    site.admin("guests", "off")
    assert (site.lives(second), site.pid()) == (False, None)
    site.run("vmadm", "reboot", UUID)
    assert site.pid() is None
    site.admin("guests", "off")


@pytest.mark.parametrize("words", [["on"], ["off", "sleep"]])
def test_words_that_are_refused(site, words):
    with pytest.raises(SystemExit, match="usage: guests on"):
        site.admin("guests", *words)


def test_a_guest_runs_where_it_was_switched_on(site, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    site.admin("guests", "on", "sh", "-c", "pwd; exec sleep 1000")
    monkeypatch.chdir("/")
    site.create()
    wait_for(lambda: site.log() == f"{tmp_path}/here\n")


def test_a_command_that_is_not_there_is_a_guest_that_crashed(site):
    site.admin("guests", "on", "/nowhere/guest")
    site.create()
    wait_for(lambda: not site.lives(site.pid()))
    assert site.log().startswith("simnode: the guest did not start: [Errno 2]")
    assert json.loads(site.run("vmadm", "get", UUID).stdout)["state"] == "running"


def test_what_a_killed_command_has_left_the_next_one_repairs(site, monkeypatch):
    """Killed after the state was saved, before any guest was begun or ended."""
    site.admin("guests", "on", *SLEEPER)
    site.create()
    before = site.pid()
    for command in (("vmadm", "stop", UUID), ("vmadm", "start", UUID)):
        with monkeypatch.context() as patch:
            patch.setattr(Node, "_reconcile_guests", lambda _node: None)
            with Node.open(site.directory) as node:
                assert node.run(command)[0] == 0
    assert site.lives(before)
    site.run("zfs", "list")
    assert not site.lives(before)
    assert site.lives(site.pid())


def test_a_command_killed_at_any_time_leaves_one_guest_at_most(site):
    """SIGKILL after ever more of a start. There is never a guest that the node does not know."""
    site.admin("guests", "on", "sh", "-c", 'echo "$$" >> "$SIMNODE_VM".pids; exec sleep 1000')
    site.create(autoboot=False)
    begun = time.monotonic()
    site.run("vmadm", "list")
    whole = (time.monotonic() - begun) * 2
    for part in range(20):
        command = [site.directory / "bin" / "vmadm", "start", UUID]
        started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(whole * part / 20)
        started.kill()
        started.wait()
        site.run("vmadm", "list")
        running = json.loads(site.run("vmadm", "get", UUID).stdout)["state"] == "running"
        assert running == (site.pid() is not None)
        assert not running or site.lives(site.pid())
        site.run("vmadm", "stop", UUID)
    every = (site.folder / f"{UUID}.json.pids").read_text().split()
    assert every
    assert {int(pid) for pid in every} <= set(site.seen)


def test_a_number_that_another_process_has_got_is_not_killed(site):
    site.admin("guests", "on", *SLEEPER)
    site.create()
    guest = site.pid()
    time.sleep(2 / os.sysconf("SC_CLK_TCK"))  # the start of a process is known by the tick
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as stranger:
        path = site.folder / f"{UUID}.pid"
        path.write_text(json.dumps({**json.loads(path.read_text()), "pid": stranger.pid}))
        site.run("vmadm", "stop", UUID)
        assert stranger.poll() is None
        os.killpg(guest, signal.SIGKILL)
        wait_for(lambda: not site.lives(guest))
        stranger.kill()
    assert site.pid() is None


def test_the_folder_of_a_node_takes_its_guests_with_it(site):
    site.admin("guests", "on", *SLEEPER)
    site.create()
    pid = site.pid()
    shutil.rmtree(site.directory)
    wait_for(lambda: not site.lives(pid))
    wait_for(lambda: keepers(site.directory) == [])


def test_a_guest_holds_nothing_of_who_started_it(site):
    """Neither its pipes, so that the caller is not waited for, nor a lock that programs inherit."""
    site.admin("guests", "on", *SLEEPER)
    inherited, kept = os.pipe()
    with os.fdopen(inherited) as stream:
        site.create(autoboot=False)
        site.run("vmadm", "start", UUID, pass_fds=(kept,))
        os.close(kept)
        assert stream.read() == ""
    descriptors = Path(f"/proc/{site.pid()}/fd")
    wait_for(lambda: Path(f"/proc/{site.pid()}/comm").read_text() == "sleep\n")
    wait_for(lambda: {path.name for path in descriptors.iterdir()} == {"0", "1", "2"})
    assert {os.readlink(path) for path in descriptors.iterdir()} == {"/dev/null", str(site.folder / f"{UUID}.log")}


# -- the guest of the tests


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def get(port):
    """Status and JSON, (0, {}) if nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
    except OSError:
        return 0, {}


def test_a_web_server_says_what_it_was_booted_from(site):
    port = free_port()
    site.admin("guests", "on", sys.executable, str(LIBRARY / "guest_http.py"))
    site.create(customer_metadata={"port": port, "boot_delay": 0, "broken": "x"})
    wait_for(lambda: get(port)[0])
    assert get(port) == (200, {"alias": "web-0", "image": IMAGE, "pid": site.pid()})
    site.run("vmadm", "stop", UUID)
    assert get(port)[0] == 0


def test_a_web_server_of_a_broken_image(site):
    port = free_port()
    site.admin("guests", "on", sys.executable, str(LIBRARY / "guest_http.py"))
    site.create(customer_metadata={"port": port, "broken": f"x,{IMAGE}"})
    wait_for(lambda: get(port)[0])
    assert get(port) == (503, {"alias": "web-0", "image": IMAGE, "pid": site.pid()})


def test_a_web_server_takes_its_time_to_boot(site):
    port = free_port()
    site.admin("guests", "on", sys.executable, str(LIBRARY / "guest_http.py"))
    site.create(customer_metadata={"port": port, "boot_delay": 3})
    begun = time.monotonic()
    assert get(port)[0] == 0
    wait_for(lambda: get(port)[0])
    assert time.monotonic() - begun > 2
