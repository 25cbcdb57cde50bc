# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""examples/haproxy as it is: clients ask a real HAProxy without pause while the group behind it is rolled.

The members' guests are web servers that live and die with their VMs on two simulated nodes.
"""

from __future__ import annotations

import http.client
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
sys.path += [str(ROOT / "tests" / name) for name in ("lab", "tools")]

import recipe  # noqa: E402
from tree import in_forks  # noqa: E402

EXAMPLE = ROOT / "examples" / "haproxy"
SIMULATED_NODE = ROOT / "extensions" / "simulated_node"
OLD, BAD, NEW = (f"aaaaaaaa-0000-4000-8000-00000000000{number}" for number in (1, 2, 3))
NAMES = [f"web-{index}" for index in range(4)]
HOSTS = ("hv01", "hv02")


def install():
    """HAProxy and socat from Debian. What apt cannot do is a failure, not a skip."""
    missing = [tool for tool in ("haproxy", "socat") if not shutil.which(tool, path=recipe.SEARCH_PATH)]
    if missing and (os.geteuid() != 0 or not shutil.which("apt-get")):
        pytest.skip(f"no {' and no '.join(missing)}, and only root on a system with apt can install them")
    recipe.install(missing)


def play(directory, folder, *words):
    """The status of ansible-playbook, run in a folder, and what it prints."""
    link = directory / "collections" / "ansible_collections" / "flexdisk" / "hypervisor"
    if not link.exists():
        link.parent.mkdir(parents=True)
        link.symlink_to(ROOT)
    env = {
        **{key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")},
        "ANSIBLE_COLLECTIONS_PATH": str(directory / "collections"),
        "ANSIBLE_HOME": str(directory / "ansible"),
        "ANSIBLE_NOCOLOR": "1",
        **in_forks(),
    }
    command = [Path(sys.executable).with_name("ansible-playbook"), *words]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


class Clients:
    """Threads that ask the load balancer without pause: two over new connections, two over one that each keeps."""

    def __init__(self, address, port):
        self.where = (address, port)
        self.images = Counter()
        self.failures = []
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self.ask, args=(kept,)) for kept in (False, False, True, True)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_exception):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def ask(self, kept):
        connection = http.client.HTTPConnection(*self.where, timeout=60)
        while not self.ended.is_set():
            try:
                connection.request("GET", "/")
                with connection.getresponse() as answer:
                    said = answer.read()
                if answer.status == 200:
                    found = json.loads(said)
                    self.images[found["alias"], found["image"]] += 1
                else:
                    self.failures.append(f"status {answer.status}")
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.failures.append(repr(error))
                connection.close()
            if not kept:
                connection.close()
        connection.close()

    def asked(self):
        return sum(self.images.values()) + len(self.failures)


class Balancer:
    """A HAProxy with the configuration of the example, but for what cannot be the same here."""

    def __init__(self, directory):
        install()
        self.directory = directory
        self.network = f"127.{os.getpid() // 250 % 250 + 2}.{os.getpid() % 250}"
        self.socket = directory / "ha.sock"
        with socket.create_server((f"{self.network}.1", 0)) as listening:
            self.port = listening.getsockname()[1]
        config = (EXAMPLE / "haproxy.cfg").read_text()
        for old, new in {
            "/run/haproxy/admin.sock": str(self.socket),
            "bind :80\n": f"bind {self.network}.1:{self.port}\n",
            "    timeout client 30s\n": "    timeout client 600s\n",  # a busy machine is slow
            "    timeout server 30s\n": "    timeout server 600s\n",
            "192.0.2.": f"{self.network}.",
            ":8080": f":{self.port}",
            "    log /dev/log local0\n": "",
            "    chroot /var/lib/haproxy\n    user haproxy\n    group haproxy\n": "",
        }.items():
            assert old in config
            config = config.replace(old, new)
        (self.directory / "haproxy.cfg").write_text(config)

    def __enter__(self):
        haproxy = shutil.which("haproxy", path=recipe.SEARCH_PATH)
        with (self.directory / "haproxy.log").open("w") as log:
            self.haproxy = subprocess.Popen(
                [haproxy, "-db", "-f", str(self.directory / "haproxy.cfg")], stdout=log, stderr=log
            )
        end = time.monotonic() + 30
        while set(self.states().values()) != {"DOWN"}:  # before the first check, all count as up
            assert self.haproxy.poll() is None, self.log()
            assert time.monotonic() < end, self.log()
            time.sleep(0.05)
        return self

    def __exit__(self, *_exception):
        self.haproxy.terminate()
        self.haproxy.wait()

    def states(self):
        """What HAProxy says of each member."""
        with socket.socket(socket.AF_UNIX) as asking:
            try:
                asking.connect(str(self.socket))
            except OSError:
                return {}
            asking.sendall(b"show stat -1 4 -1\n")
            with asking.makefile() as answer:
                lines = [line.split(",") for line in answer if line.startswith("web,")]
        return {line[1]: line[17] for line in lines}

    def wait_for(self, name):
        """Until HAProxy sends requests to a member."""
        end = time.monotonic() + 60
        while self.states()[name] != "UP":
            assert time.monotonic() < end, self.log()
            time.sleep(0.05)

    def log(self):
        return (self.directory / "haproxy.log").read_text()


class Site:
    """Two simulated nodes, HAProxy, and the example with the addresses of this test."""

    def __init__(self, directory, balancer):
        self.directory = directory
        self.balancer = balancer
        self.network, self.port = balancer.network, balancer.port
        self.nodes = {host: directory / host for host in HOSTS}
        self.declared = directory / "declared.yml"
        shutil.copytree(EXAMPLE, directory / "example")
        self.make_nodes()
        self.configure()

    def make_nodes(self):
        for number, node in enumerate(self.nodes.values(), 1):
            self.simnode(node, "init", "--pool", "zones:256G", "--seed", str(number))
            for image in (OLD, BAD, NEW):
                self.simnode(node, "image-import", image, "64")
            self.simnode(node, "guests", "on", sys.executable, str(SIMULATED_NODE / "guest_http.py"))

    def simnode(self, node, *words):
        env = {**os.environ, "PYTHONPATH": str(SIMULATED_NODE)}
        subprocess.run([sys.executable, "-m", "simnode", "--dir", str(node), *words], env=env, check=True)

    def configure(self):
        """The variables of the example, with less patience."""
        text = (EXAMPLE / "group_vars" / "hypervisors.yml").read_text()
        said = yaml.safe_load(text.replace("192.0.2.", f"{self.network}.").replace(":8080", f":{self.port}"))
        said["haproxy_hosts"] = ["localhost"]
        said["haproxy_socket"] = str(self.balancer.socket)
        (group,) = said["flexdisk_groups"]
        group["gate"].update({"retries": 4, "delay": 1, "stable_for": 1})
        group["template"]["customer_metadata"] = {
            "address": group["template"]["address"],
            "port": self.port,
            "answer_delay": 0.05,  # so that there are always requests at work
            "broken": BAD,
        }
        group["template"]["options"]["nics"][0]["nic_tag"] = "admin"
        self.declared.write_text(yaml.safe_dump(said))
        (self.directory / "here.yml").write_text(
            yaml.safe_dump(
                {
                    "ansible_connection": "local",
                    "ansible_python_interpreter": sys.executable,
                    "flexdisk_environment": {
                        "PATH": f"{self.directory}/{{{{ inventory_hostname }}}}/bin:" + recipe.SEARCH_PATH
                    },
                }
            )
        )

    def roll(self, image, **policy):
        """The command of a user for a new release, and what it prints. policy: what is different from the example."""
        said = yaml.safe_load(self.declared.read_text())
        said["flexdisk_groups"][0]["template"]["image"] = image
        said["flexdisk_groups"][0]["policy"].update(policy)
        (self.directory / "example" / "group_vars" / "hypervisors.yml").write_text(yaml.safe_dump(said))
        words = [
            "-i",
            "hosts.yml",
            "flexdisk.hypervisor.update_group",
            "-e",
            "flexdisk_group=web",
            "-e",
            "@../here.yml",
        ]
        return play(self.directory, self.directory / "example", *words)

    def members(self):
        """The boot image of each member that answers, by its own word."""
        found = {}
        for index, name in enumerate(NAMES):
            connection = http.client.HTTPConnection(f"{self.network}.1{index}", self.port, timeout=30)
            connection.request("GET", "/")
            with connection.getresponse() as answer:
                said = json.loads(answer.read())
            connection.close()
            if answer.status == 200:
                assert said["alias"] == name
                found[name] = said["image"]
        return found

    def marked(self):
        """The members with the mark of a roll, by their nodes."""
        found = []
        for node in self.nodes.values():
            listed = subprocess.run(
                [node / "bin" / "vmadm", "lookup", "-j"], capture_output=True, text=True, check=True
            )
            for vm in json.loads(listed.stdout):
                command = [node / "bin" / "zfs", "get", "-Ho", "value", "flexdisk:drained", f"zones/{vm['uuid']}"]
                value = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
                found += [vm["alias"]] if value == "true" else []
        return found

    def reboot_at_once(self, name):
        """What a roll does to a member, without any hook."""
        for node in self.nodes.values():
            listed = subprocess.run(
                [node / "bin" / "vmadm", "lookup", "-j"], capture_output=True, text=True, check=True
            )
            for vm in json.loads(listed.stdout):
                if vm["alias"] == name:
                    subprocess.run([node / "bin" / "vmadm", "reboot", vm["uuid"]], capture_output=True, check=True)

    def end(self):
        for node in self.nodes.values():
            self.simnode(node, "guests", "off")


@pytest.fixture
def balancer(tmp_path):
    with Balancer(tmp_path) as running:
        yield running


@pytest.fixture
def site(tmp_path, balancer):
    """The group with the old image, behind HAProxy."""
    made = Site(tmp_path, balancer)
    try:
        status, printed = made.roll(OLD, min_in_service=0, max_batch_size=4, max_down_per_host=4)
        assert status == 0, printed + balancer.log()
        assert balancer.states() == dict.fromkeys(NAMES, "UP")
        yield made
    finally:
        made.end()


CASES = """
- hosts: hypervisors
  gather_facts: false
  vars:
    haproxy_hosts: [localhost]
    haproxy_socket: "{{ told.socket }}"
    haproxy_backend: web
    haproxy_seconds: 2
    instance_group_member: {name: web-1}
  tasks:
    - {ansible.builtin.include_tasks: case.yml, vars: {haproxy_hosts: [localhost, unreachable]}}
    - {ansible.builtin.include_tasks: case.yml, vars: {haproxy_socket: /nowhere}}
    - {ansible.builtin.include_tasks: case.yml, vars: {instance_group_member: {name: web-9}}}
    - {ansible.builtin.include_tasks: case.yml, vars: {instance_group_member: {name: web-0}}} # a request is at work
    - {ansible.builtin.include_tasks: case.yml}
    - {ansible.builtin.include_tasks: case.yml} # as after a kill
    - {ansible.builtin.include_tasks: case.yml, vars: {hook: ready}}
    - {ansible.builtin.include_tasks: case.yml, vars: {hook: ready}}
    - {ansible.builtin.include_tasks: case.yml, vars: {hook: ready, instance_group_member: {name: web-2}}} # is down
    - {ansible.builtin.debug: {msg: "{{ said | to_json }}"}}
"""
CASE = """
- block:
    - ansible.builtin.include_tasks: "{{ told.example }}/tasks/{{ hook | default('drain') }}.yml"
    - ansible.builtin.set_fact: {said: "{{ said | default([]) + ['done'] }}"}
  rescue:
    - ansible.builtin.set_fact: {said: "{{ said | default([]) + [ansible_failed_task.name] }}"}
"""
SAID = [
    "Fail if a load balancer could not be reached",
    "Send it no more requests",
    "Send it no more requests",
    "Wait until it has none left",
    *["done"] * 4,
    "Wait until it is up",
]


def test_hooks_fail_unless_they_know(tmp_path, balancer):
    """In CASES: the load balancer or its socket is not there, it knows no such member, a request does not end."""
    ended = threading.Event()

    class Member(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/slow":
                ended.wait(600)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args):
            pass

    @contextmanager
    def member(index):
        with http.server.ThreadingHTTPServer((f"{balancer.network}.1{index}", balancer.port), Member) as server:
            threading.Thread(target=server.serve_forever).start()
            try:
                while balancer.states()[f"web-{index}"] != "UP":
                    time.sleep(0.05)
                yield
            finally:
                ended.set()
                server.shutdown()

    (tmp_path / "cases.yml").write_text(CASES)
    (tmp_path / "case.yml").write_text(CASE)
    (tmp_path / "hosts.ini").write_text(
        "unreachable ansible_host=127.0.0.1 ansible_port=1\n"
        f"[hypervisors]\nhv01 ansible_connection=local ansible_python_interpreter={sys.executable}\n"
    )
    told = {"told": {"socket": str(balancer.socket), "example": str(EXAMPLE)}}
    with member(0):
        slow = http.client.HTTPConnection(f"{balancer.network}.1", balancer.port, timeout=600)
        slow.request("GET", "/slow")
        with member(1):
            status, printed = play(tmp_path, tmp_path, "-i", "hosts.ini", "cases.yml", "-e", json.dumps(told))
            ended.set()
        with slow.getresponse() as answer:
            assert answer.status == 200
        slow.close()
    assert status == 0, printed
    assert json.dumps(SAID)[1:-1].replace('"', '\\"') in printed, printed


def test_a_roll_costs_no_request(site):
    with Clients(f"{site.network}.1", site.port) as clients:
        status, printed = site.roll(NEW)
    assert status == 0, printed + site.balancer.log()
    assert clients.failures == [], site.balancer.log()
    assert set(clients.images) == {(name, image) for name in NAMES for image in (OLD, NEW)}
    assert site.members() == dict.fromkeys(NAMES, NEW)
    assert site.balancer.states() == dict.fromkeys(NAMES, "UP")
    assert site.marked() == []
    with Clients(f"{site.network}.1", site.port) as noticing:  # so that zero is worth something
        for _attempt in range(100):
            if not noticing.failures:
                site.balancer.wait_for("web-0")  # a member that is down is asked nothing that it could lose
                site.reboot_at_once("web-0")
    assert noticing.failures
    print(f"asked {clients.asked()}")


@pytest.mark.skipif(not os.environ.get("FLEXDISK_FULL"), reason="takes minutes; make verify has a roll that ends well")
def test_a_release_that_never_becomes_healthy_stops_and_costs_no_request(site):
    with Clients(f"{site.network}.1", site.port) as clients:
        status, printed = site.roll(BAD)
        assert status != 0
        assert "web-3: not as declared" in printed
        assert site.members() == dict.fromkeys(NAMES[:3], OLD)
        found = site.balancer.states()
        assert found.pop("web-3").split()[0] in ("DRAIN", "DOWN")
        assert found == dict.fromkeys(NAMES[:3], "UP")
        assert site.marked() == ["web-3"]
        assert {image for _name, image in clients.images} == {OLD}
        status, printed = site.roll(NEW)
    assert status == 0, printed + site.balancer.log()
    assert clients.failures == [], site.balancer.log()
    assert set(clients.images) == {(name, image) for name in NAMES for image in (OLD, NEW)}
    assert site.members() == dict.fromkeys(NAMES, NEW)
    assert site.balancer.states() == dict.fromkeys(NAMES, "UP")
    assert site.marked() == []
    print(f"asked {clients.asked()}")
