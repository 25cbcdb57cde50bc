# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/metrics.md and examples/prometheus: they know all metrics and no other, and Prometheus' own tool takes them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.inventory import Host
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.metrics import families

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "prometheus"
RULES = EXAMPLES / "flexdisk.rules.yml"
DASHBOARD = json.loads((EXAMPLES / "flexdisk.dashboard.json").read_text())
PAGE = ROOT / "docs" / "metrics.md"
METRICS = {family.name: family.meaning for family in families(Host((), {}, {}), "vmadm", [], [])}
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool of Debian's package prometheus is needed")


def table(heading):
    """The rows of the table of a section of the page, without its head."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return rows[2:]


def rules():
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return group["rules"]


def test_the_page_has_all_metrics():
    assert {row[0].strip("`"): row[2] for row in table("The metrics")} == METRICS


def test_the_page_has_all_alerts_and_each_is_tested():
    names = [rule["alert"] for rule in rules()]
    assert [row[0].strip("`") for row in table("Alerts")] == names
    tests = yaml.safe_load((EXAMPLES / "flexdisk.rules.test.yml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    for name in names:
        assert {bool(case["exp_alerts"]) for case in cases if case["alertname"] == name} == {True, False}, name


def test_alerts_and_dashboard_use_metrics_that_there_are():
    texts = [rule["expr"] + json.dumps(rule["annotations"]) for rule in rules()]
    texts += [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    used = {name for text in texts for name in re.findall(r"\bflexdisk_[a-z_]+", text)}
    assert used <= set(METRICS)
    assert len(used) > 10


def test_panels_of_the_dashboard_do_not_overlap():
    places = [tuple(panel["gridPos"][key] for key in "xy") for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)


@needs_promtool
@pytest.mark.parametrize("words", [("check", RULES.name), ("test", "flexdisk.rules.test.yml")], ids=" ".join)
def test_promtool_takes_the_rules(words):
    done = subprocess.run(
        [PROMTOOL, words[0], "rules", words[1]], cwd=EXAMPLES, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_takes_the_names_of_metrics():
    """What hosts really write is checked by test_typed_along.py."""
    text = "".join(f"# HELP {name} {meaning}\n# TYPE {name} gauge\n{name} 1\n" for name, meaning in METRICS.items())
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
