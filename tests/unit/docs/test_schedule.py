# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""examples/schedule: what systemd and SMF are given is well formed, and the loop runs a command once at a time."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "schedule"
PLAYBOOK = "flexdisk.hypervisor.replicate"


def unit(name):
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read_string((EXAMPLES / name).read_text())
    return parser


def test_units():
    service, timer = unit("flexdisk-replicate.service"), unit("flexdisk-replicate.timer")
    assert service["Service"]["ExecStart"].split()[-1] == PLAYBOOK
    assert service["Service"]["ExecStart"].startswith("/")  # systemd looks for no program in an environment of Python
    assert service["Service"]["WorkingDirectory"] in service["Service"]["ExecStart"]  # ansible.cfg beside the inventory
    assert service["Service"]["Type"] == "oneshot"  # so that none is started while one is at work
    assert timer["Install"]["WantedBy"] == "timers.target"


def test_one_rule_for_all_timers():
    """Five minutes everywhere, and the same sentence about how often it must run."""
    (start,) = [one.get("exec") for one in manifest().iter("exec_method") if one.get("name") == "start"]
    assert (unit("flexdisk-replicate.timer")["Timer"]["OnCalendar"], start.split()[1]) == ("*:0/5", "300")
    schedules = yaml.safe_load((ROOT / "extensions" / "awx" / "objects" / "schedules.yml").read_text())
    (awx,) = (one for one in schedules["controller_schedules"] if one["unified_job_template"] == "flexdisk replicate")
    assert awx["rrule"].endswith("FREQ=MINUTELY;INTERVAL=5")
    texts = [path.read_text() for path in sorted(EXAMPLES.glob("*.timer")) + sorted(EXAMPLES.glob("*.xml"))]
    for text in [*texts, awx["description"], (ROOT / "docs" / "replicas.md").read_text()]:
        words = " ".join(text.replace("#", " ").replace('"', "").replace("`", "").split())
        assert "at least twice as often as the shortest every" in words


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="without systemd")
def test_systemd_takes_them(tmp_path):
    for path in EXAMPLES.glob("flexdisk-replicate.[st][ei][rm]*"):
        text = path.read_text().replace("/usr/bin/ansible-playbook", shutil.which("true"))
        (tmp_path / path.name).write_text(text.replace("User=ansible", "User=root"))
    units = sorted(map(str, tmp_path.iterdir()))
    assert len(units) == 2
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "flexdisk" in line]
    assert (done.returncode, ours) == (0, [])
    calendar = unit("flexdisk-replicate.timer")["Timer"]["OnCalendar"]
    subprocess.run(["systemd-analyze", "calendar", calendar], check=True, stdout=subprocess.DEVNULL)


def manifest():
    return ElementTree.parse(EXAMPLES / "flexdisk-replicate.xml").getroot()


def test_manifest():
    root = manifest()
    (service,) = root
    methods = {one.get("name"): one.get("exec") for one in service.iter("exec_method")}
    assert methods["start"].split()[0].endswith("/every.py")
    assert methods["start"].split()[-1] == PLAYBOOK
    assert methods["stop"] == ":kill"
    order = ["create_default_instance", "single_instance", "dependency", "method_context", "exec_method", "exec_method"]
    assert [one.tag for one in service] == [*order, "property_group", "stability", "template"]  # as the DTD has it


def test_the_loop(tmp_path):
    """The command takes longer than the interval, and fails."""
    log = tmp_path / "log"
    script = f"import time; f = open({str(log)!r}, 'a'); f.write('<'); f.flush(); time.sleep(0.2); f.write('>')"
    script += "; raise SystemExit(3)"
    command = [sys.executable, str(EXAMPLES / "every.py"), "0.1", sys.executable, "-c", script]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as loop:
        until = time.monotonic() + 30
        while time.monotonic() < until and (not log.exists() or log.read_text().count(">") < 3):
            time.sleep(0.05)
        loop.terminate()
        said = loop.stderr.read()
    assert log.read_text().startswith("<><><>")
    assert f"{sys.executable} ended with 3" in said
