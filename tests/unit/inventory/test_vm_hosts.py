# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VMs as hosts: names, groups, trust. Nothing here runs anything."""

from __future__ import annotations

import pytest
from ansible.template import is_trusted_as_template
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _vm_hosts

U1, U2, U3 = ("%d1111111-0000-4000-8000-000000000001" % n for n in (1, 2, 3))
TEMPLATE = "{{ lookup('ansible.builtin.pipe', 'id') }}"
HOSTILE = (
    TEMPLATE,
    "a\nb",
    "web\n",
    "a,b",
    "web[1:3]",
    "!web",
    "~web",
    "-oProxyCommand=id",
    ".hidden",
    "a b",
    "a:22",
    "ä",
    "x" * 254,
    "state_running",
    "tag_role_web",
    ["web"],
    {"a": "b"},
    7,
    True,
)


def vm(uuid, alias="", hypervisor="hv01", **more):
    return {"uuid": uuid, "alias": alias, "state": "running", "hypervisor": hypervisor, **more}


def named(*vms, taken=()):
    return _vm_hosts.named(vms, [[v["alias"]] for v in vms], set(taken))


def test_the_alias_is_the_name():
    assert named(vm(U1, "web01"), vm(U2, "db-1.example.com"), vm(U3)) == (["web01", "db-1.example.com", U3], [])


def test_nothing_has_no_names():
    assert _vm_hosts.named([], [], set()) == ([], [])


def test_an_alias_that_two_vms_have_is_the_name_of_neither():
    found = named(vm(U1, "web01", "hv01"), vm(U2, "web01", "hv02"), vm(U3, "db01"))
    assert found.names == [U1, U2, "db01"]
    assert found.warnings == [
        f"A VM of hv01 is named {U1}, not 'web01': more than one VM would have this name.",
        f"A VM of hv02 is named {U2}, not 'web01': more than one VM would have this name.",
    ]


def test_a_vm_that_two_hypervisors_have_is_there_twice():
    found = named(vm(U1, "web01", "hv01"), vm(U1, "web01", "root@hv02"))
    assert found.names == [f"{U1}.hv01", f"{U1}.root_hv02"]
    assert len(found.warnings) == 2


@pytest.mark.parametrize("alias", HOSTILE, ids=repr)
def test_a_name_that_is_none(alias):
    found = named(vm(U1, alias))
    assert found.names == [U1]
    assert "this is not a valid host name" in found.warnings[0]
    assert "\n" not in found.warnings[0]


@pytest.mark.parametrize("alias", ["hv02", "localhost", "all", "webservers", U2, U2 + ".hv01"])
def test_a_name_of_somebody_else(alias):
    found = named(vm(U1, alias), vm(U2), taken={"hv02", "localhost", "all", "webservers"})
    assert found.names == [U1, U2]
    assert "this name is already taken" in found.warnings[0]


def test_its_own_uuid_as_alias():
    assert named(vm(U1, U1)) == ([U1], [])


def test_the_first_wish_that_can_be_had():
    vms = [vm(U1, "web01"), vm(U2, "web01"), vm(U3)]
    wishes = [["web01", "web01.a"], ["web01", "web01.b"], ["", None]]
    assert _vm_hosts.named(vms, wishes, set()).names == ["web01.a", "web01.b", U3]


def test_a_vm_that_another_source_has_named():
    assert named(vm(U1), taken={U1}).names == [f"{U1}.hv01"]
    with pytest.raises(ValueError, match=f"VM {U1} of hv01 is already in the inventory"):
        named(vm(U1), taken={U1, f"{U1}.hv01"})


@given(st.lists(st.text() | st.sampled_from([U1, U2, "web", "hv01", "localhost", "state_x", *HOSTILE]), max_size=8))
def test_every_vm_has_a_name_of_its_own(aliases):
    vms = [vm("%08d-0000-4000-8000-000000000001" % n, alias) for n, alias in enumerate(aliases)]
    names = named(*vms, taken={"hv01", "localhost"}).names
    assert len(set(names)) == len(vms)
    assert all(_vm_hosts.safe(name) for name in names)
    assert not {"hv01", "localhost"} & set(names)


def test_groups():
    tags = {"role": "web", "only": "", "a b": "c-d\n"}
    found = _vm_hosts.groups(vm(U1, hypervisor="hv-01", tags=tags, package="g4 small"))
    assert found == [
        "hypervisor_hv_01",
        "state_running",
        "package_g4_small",
        "tag_a_b_c_d_",
        "tag_only",
        "tag_role_web",
    ]


def test_groups_of_a_vm_of_which_little_is_known():
    assert _vm_hosts.groups({"uuid": U1, "hypervisor": "hv01"}) == ["hypervisor_hv01"]


def test_a_tag_too_long_for_a_group():
    tags = {"a": "x" * 194, "b": "x" * 195, TEMPLATE: TEMPLATE}
    found = _vm_hosts.groups(vm(U1, tags=tags))
    assert [len(name) for name in found if name.startswith("tag_a_")] == [200]
    assert not [name for name in found if name.startswith("tag_b_")]
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") for name in found)


@pytest.mark.parametrize("plain", ["web01", "10.0.0.1", "0:4:1", "/dev/zvol/rdsk/zones/x", "", "a-b_c"])
def test_what_can_be_no_template_is_trusted(plain):
    assert is_trusted_as_template(_vm_hosts.marked([{"alias": plain}])[0]["alias"])


@pytest.mark.parametrize("value", [TEMPLATE, "{%", "#jinja2:x", "a b", "a or b", "f(x)", "a\n", "'x'", "[x]", "a|b"])
def test_what_could_be_one_is_not(value):
    found = _vm_hosts.marked({"tags": [value], "size": 1, "intent": None})
    assert found == {"tags": [value], "size": 1, "intent": None}
    assert not is_trusted_as_template(found["tags"][0])


@pytest.mark.parametrize("result", [{}, {"vms": None}, {"vms": ["x"]}, {"vms": [{}]}, {"vms": [{"uuid": "a\n"}]}])
def test_what_is_no_result_of_vm_info(result):
    with pytest.raises(ValueError, match="not a result of vm_info"):
        _vm_hosts.vms("hv01", result)
