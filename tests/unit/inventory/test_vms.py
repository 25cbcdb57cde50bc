# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventory plugin on told replies of hypervisors, and what it starts to get them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import yaml
from ansible import context
from ansible.errors import AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.module_utils.common.collections import ImmutableDict
from ansible.parsing.dataloader import DataLoader
from ansible.template import is_trusted_as_template, trust_as_template

from ansible_collections.flexdisk.hypervisor.plugins.inventory import vms
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _vm_info

U1, U2, U3 = ("%d1111111-0000-4000-8000-000000000001" % n for n in (1, 2, 3))
TEMPLATE = "{{ lookup('ansible.builtin.pipe', 'id') }}"
CONSTRUCTED = {"compose": {}, "groups": {}, "keyed_groups": [], "strict": False, "cache": False}
DEFAULTS = {name: option.get("default") for name, option in yaml.safe_load(vms.DOCUMENTATION)["options"].items()}


def vm(uuid, alias, state="running", **tags):
    return {"uuid": uuid, "alias": alias, "state": state, "tags": tags, "disks": [{"size": 1024}]}


def ok(*found):
    return {"status": "ok", "result": {"vms": list(found)}}


TWO = {"hv02": ok(vm(U3, "db01")), "hv01": ok(vm(U1, "web01", role="web"), vm(U2, "web02", "stopped"))}


class Plugin(vms.InventoryModule):
    """With options that are told instead of read, a cache that is a dictionary, and warnings kept."""

    def __init__(self, **options):
        super().__init__()
        self.told = {**DEFAULTS, **CONSTRUCTED, "inventory": ["hosts.yml"], **options}
        self._cache = {}
        self.warnings = []
        self.display = self

    def _read_config_data(self, path):
        return self.told

    def get_option(self, option, hostvars=None):
        return self.told.get(option)

    def warning(self, text):
        self.warnings.append(text)


@pytest.fixture
def hypervisors(monkeypatch):
    """Replies, and the calls that asked for them."""
    replies, calls = dict(TWO), []

    def read(*asked):
        calls.append(asked)
        return replies

    monkeypatch.setattr(_vm_info, "read", read)
    monkeypatch.delenv(_vm_info.INSIDE, raising=False)
    return replies, calls


def parse(plugin, inventory=None, cache=True):
    inventory = inventory or InventoryData()
    plugin.parse(inventory, DataLoader(), "/etc/inventory/flexdisk_vms.yml", cache=cache)
    inventory.reconcile_inventory()
    return inventory


def members(inventory):
    return {name: sorted(hosts) for name, hosts in inventory.get_groups_dict().items() if hosts and name != "all"}


def test_hosts_and_groups(hypervisors):
    inventory = parse(Plugin())
    assert members(inventory) == {
        "hypervisor_hv01": ["web01", "web02"],
        "hypervisor_hv02": ["db01"],
        "state_running": ["db01", "web01"],
        "state_stopped": ["web02"],
        "tag_role_web": ["web01"],
    }
    assert inventory.hosts["web01"].vars["flexdisk_vm"] == dict(vm(U1, "web01", role="web"), hypervisor="hv01")
    assert hypervisors[1] == [(["/etc/inventory/hosts.yml"], "hypervisors", 60)]


def test_sources_start_at_the_folder_of_the_configuration(hypervisors, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    parse(Plugin(inventory=["../a", "/b/c", "hv01,", "~/d"], hypervisors="hv0[12]", timeout=5))
    assert hypervisors[1] == [(["/etc/a", "/b/c", "hv01,", "/home/me/d"], "hv0[12]", 5)]


def test_constructed(hypervisors):
    told = {
        "compose": {"ansible_host": trust_as_template("inventory_hostname ~ '.example.com'")},
        "groups": {"small": trust_as_template("flexdisk_vm.disks[0].size < 2000 and ansible_host is search('web')")},
        "keyed_groups": [{"prefix": "is", "key": trust_as_template("flexdisk_vm.state")}],
    }
    inventory = parse(Plugin(**told, strict=True))
    address = inventory.hosts["web01"].vars["ansible_host"]
    assert address == "web01.example.com"
    assert is_trusted_as_template(address)
    assert members(inventory)["small"] == ["web01", "web02"]
    assert members(inventory)["is_stopped"] == ["web02"]


def test_strict(hypervisors):
    wrong = {"compose": {"x": trust_as_template("nonsense.x")}, "hostnames": ["nonsense.y"]}
    assert sorted(parse(Plugin(**wrong)).hosts) == sorted([U1, U2, U3])
    with pytest.raises(AnsibleParserError, match=rf"No name for VM {U1} from 'nonsense.y'"):
        parse(Plugin(**wrong, strict=True))


def test_names_by_expression(hypervisors):
    inventory = parse(Plugin(hostnames=["flexdisk_vm.alias ~ '.' ~ flexdisk_vm.hypervisor"]))
    assert sorted(inventory.hosts) == ["db01.hv02", "web01.hv01", "web02.hv01"]


def test_only_some_states(hypervisors):
    assert sorted(parse(Plugin(states=["stopped", "failed"])).hosts) == ["web02"]


def test_what_vm_info_skips_is_a_host_on_demand(hypervisors):
    replies, calls = hypervisors
    lost = {"uuid": U3.replace("3", "4", 1), "alias": "old01", "reason": "not in the layout"}
    replies["hv02"]["result"] = {**replies["hv02"]["result"], "skipped_vms": [lost]}
    plugin = Plugin(cache=True)
    assert sorted(parse(plugin).hosts) == ["db01", "web01", "web02"]
    plugin.told["skipped"] = True
    inventory = parse(plugin)
    assert members(inventory)["skipped_vms"] == ["old01"]
    assert members(inventory)["hypervisor_hv02"] == ["db01", "old01"]
    assert inventory.hosts["old01"].vars["flexdisk_vm"] == dict(lost, hypervisor="hv02")
    plugin.told["states"] = ["running"]
    assert sorted(parse(plugin).hosts) == ["db01", "web01"]
    assert len(calls) == 2, "what was cached without them is not taken for all"


def test_a_template_stays_data(hypervisors):
    replies, _calls = hypervisors
    replies["hv02"] = ok(vm(U3, TEMPLATE, role=TEMPLATE))
    inventory = parse(
        Plugin(
            compose={"copy": trust_as_template("flexdisk_vm.alias")},
            keyed_groups=[{"key": trust_as_template("flexdisk_vm.alias")}],
        )
    )
    found = inventory.hosts[U3].vars
    assert found["copy"] == found["flexdisk_vm"]["alias"] == TEMPLATE
    assert not is_trusted_as_template(found["copy"])
    assert not is_trusted_as_template(found["flexdisk_vm"]["alias"])
    assert not is_trusted_as_template(found["flexdisk_vm"]["tags"]["role"])


@pytest.mark.parametrize("alias", ["hv01", "hv02", "storage", "localhost", "mine", "all", "state_running"])
def test_a_vm_cannot_pass_for_what_others_named(hypervisors, alias):
    """A variable set for such a host would be set for the other one, or for a whole group."""
    replies, _calls = hypervisors
    replies["hv02"] = ok(vm(U3, alias))
    inventory = InventoryData()
    inventory.add_host("hv01")
    inventory.add_group("storage")
    plugin = Plugin(compose={"ansible_host": "'evil'"}, groups={"mine": trust_as_template("true")})
    parse(plugin, inventory)
    assert sorted(inventory.hosts) == sorted(["hv01", "web01", "web02", U3])
    assert "ansible_host" not in inventory.hosts["hv01"].vars
    assert all(
        "flexdisk_vm" not in group.vars and "ansible_host" not in group.vars for group in inventory.groups.values()
    )
    assert members(inventory)["mine"] == sorted(["web01", "web02", U3])
    assert len(plugin.warnings) == 1


# -- failures


UNREACHABLE = {"status": "unreachable", "result": {"msg": "no route"}}
FAILED = {"status": "failed", "result": {"msg": "vmadm was not found"}}


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (UNREACHABLE, "hv02: unreachable: no route"),
        (FAILED, "hv02: failed: vmadm was not found"),
        ({"status": "skipped", "result": {}}, "hv02: skipped: None"),
        ({"status": "ok", "result": {"vms": "x"}}, "hv02: not a result of vm_info"),
    ],
)
def test_a_hypervisor_that_fails(hypervisors, reply, said):
    replies, _calls = hypervisors
    replies["hv02"] = reply
    inventory = InventoryData()
    with pytest.raises(AnsibleParserError, match=said):
        parse(Plugin(), inventory)
    assert not inventory.hosts
    plugin = Plugin(on_failure="warn")
    assert sorted(parse(plugin).hosts) == ["web01", "web02"]
    assert plugin.warnings == ["VMs are missing from the inventory. " + said]
    replies["hv01"] = ok(vm(U1, "hv02"))
    assert sorted(parse(plugin).hosts) == [U1], "its name is still its own"


def test_no_hypervisor_is_an_error(hypervisors):
    hypervisors[0].clear()
    with pytest.raises(AnsibleParserError, match=r"'hypervisors' matches no host of /etc/inventory/hosts\.yml"):
        parse(Plugin())


def test_the_same_vm_from_other_sources(hypervisors):
    inventory = parse(Plugin(states=["stopped"]))
    parse(Plugin(states=["stopped"]), inventory)
    parse(Plugin(states=["stopped"]), inventory)
    assert sorted(inventory.hosts) == [U2, f"{U2}.hv01", "web02"]
    with pytest.raises(AnsibleParserError, match="is already in the inventory"):
        parse(Plugin(), inventory)


# -- the cache


def test_the_second_time_nobody_is_asked(hypervisors):
    replies, calls = hypervisors
    plugin = Plugin(cache=True)
    first = members(parse(plugin))
    replies.clear()
    assert members(parse(plugin)) == first
    assert len(calls) == 1
    plugin.told["states"] = ["stopped"]
    assert sorted(parse(plugin).hosts) == ["web02"]
    assert len(calls) == 1


def test_a_refresh_asks_and_renews_the_cache(hypervisors):
    replies, calls = hypervisors
    plugin = Plugin(cache=True)
    parse(plugin)
    replies["hv01"] = ok()
    assert sorted(parse(plugin, cache=False).hosts) == ["db01"]
    assert sorted(parse(plugin).hosts) == ["db01"]
    assert len(calls) == 2


@pytest.mark.parametrize("changed", [{"hypervisors": "all"}, {"inventory": ["other.yml"]}])
def test_the_cache_answers_only_what_was_asked(hypervisors, changed):
    plugin = Plugin(cache=True)
    parse(plugin)
    plugin.told.update(changed)
    parse(plugin)
    assert len(hypervisors[1]) == 2


def test_what_is_not_whole_is_not_cached(hypervisors):
    replies, calls = hypervisors
    replies["hv02"] = UNREACHABLE
    plugin = Plugin(cache=True, on_failure="warn")
    parse(plugin)
    replies["hv02"] = TWO["hv02"]
    assert "db01" in parse(plugin).hosts
    assert len(calls) == 2


def test_without_the_option_nothing_is_cached(hypervisors):
    plugin = Plugin()
    parse(plugin)
    assert plugin._cache == {}


# -- the Ansible that it starts


def test_inside_that_ansible_it_has_no_hosts(hypervisors, monkeypatch):
    monkeypatch.setenv(_vm_info.INSIDE, "true")
    assert not parse(Plugin()).hosts
    assert hypervisors[1] == []


@pytest.fixture
def started(monkeypatch):
    """What was started; the process writes the results that are put here, if any."""
    seen = {"rc": 0, "write": {"hv01": ok()}}

    def run(command, env, stdout, **more):
        seen.update(command=command, env=env, play=json.loads(Path(command[3]).read_text())[0], more=more)
        stdout.write(b"a line\nERROR! no such \xff file\n")
        if seen["write"] is not None:
            Path(env["FLEXDISK_RESULTS_PATH"]).write_text(json.dumps(seen["write"]))
        return type("Done", (), {"returncode": seen["rc"]})

    monkeypatch.setattr(_vm_info.subprocess, "run", run)
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict())
    return seen


def test_what_is_started(started, monkeypatch):
    monkeypatch.setenv("ANSIBLE_STDOUT_CALLBACK", "of_the_user")
    monkeypatch.setenv("ANSIBLE_CALLBACKS_ENABLED", "mail")
    monkeypatch.setenv("SOMETHING", "else")
    assert _vm_info.read(["/a/hosts.yml", "hv09,"], "all:!hv02", 30) == {"hv01": ok()}
    assert started["command"][:3] == [sys.executable, "-m", "ansible.cli.playbook"]
    assert started["command"][4:] == ["--inventory", "/a/hosts.yml", "--inventory", "hv09,"]
    assert (started["play"]["hosts"], started["play"]["tasks"][0]["timeout"]) == ("all:!hv02", 30)
    env = started["env"]
    assert env["ANSIBLE_STDOUT_CALLBACK"] == env["ANSIBLE_CALLBACKS_ENABLED"] == "flexdisk.hypervisor.results"
    assert (env["SOMETHING"], env[_vm_info.INSIDE]) == ("else", "true")
    assert env["ANSIBLE_HOST_PATTERN_MISMATCH"] == "ignore"
    assert not Path(env["FLEXDISK_RESULTS_PATH"]).parent.exists()
    assert started["more"]["stdin"] == _vm_info.subprocess.DEVNULL
    assert _vm_info.INSIDE not in os.environ


def test_vault_passwords_come_along_but_for_prompts(started, monkeypatch):
    told = {"vault_password_files": ("/p",), "vault_ids": ("dev@/q", "prod@prompt"), "become": True, "subset": "web01"}
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(told))
    _vm_info.read(["h,"], "all", 30)
    assert started["command"][6:] == ["--vault-password-file", "/p", "--vault-id", "dev@/q"]


@pytest.mark.parametrize("rc", [2, 4])
def test_hosts_that_failed_are_results(started, rc):
    started["rc"] = rc
    assert _vm_info.read(["h,"], "all", 30) == {"hv01": ok()}


@pytest.mark.parametrize(("rc", "write"), [(0, None), (1, {"hv01": ok()}), (250, {}), (-9, None)])
def test_a_run_that_did_not_come_to_its_end(started, rc, write):
    started.update(rc=rc, write=write)
    with pytest.raises(AnsibleParserError, match=rf"(?s)rc {rc}.*a line.*ERROR! no such . file"):
        _vm_info.read(["h,"], "all", 30)
