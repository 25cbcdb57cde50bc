# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VMs that have no dataset where their disks lie: one refusal says what ends that."""

from __future__ import annotations

import yaml

from ansible_collections.flexdisk.hypervisor.plugins.filter.disk_table import disk_table
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_adopt import run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_info import (
    Filters,
    disks_info,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_verify import (
    result,
    verify,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.moves.vm_departure import MoveSource
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.registered import (
    show_findings,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication import calls, relocation
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.knobs import for_playbooks
from tests.unit.operators.plays import registered

from .conftest import OTHER, VM, domain
from .test_disk_adopt import refusal, settle
from .test_left_out import pooled
from .test_vm_disks import spec, strays

WISH = spec({"name": "a", "size": 32}, adopt=True, flexible_disk_size="1GiB")


def test_disk_adopt_names_what_makes_the_dataset(linux):
    strays(linux, 64, 32)
    problem = refusal(linux, "ResourceNotFound", vms=[{"vm": "web01"}])
    entry = "{vm: web01, adopt: true}"
    assert problem == f": not adopted: it has no dataset tank/{VM}; vm_disks makes it with the entry - {entry}"
    text = f"the playbook converge makes it, with the line - {entry} in flexible_disks_vms"
    assert for_playbooks(f"VM web01{problem} [ResourceNotFound]").endswith(f"; {text} [ResourceNotFound]")
    linux.four_steps(yaml.safe_load(entry))
    settle(linux)


def test_the_entry_is_yaml_for_every_name(linux):
    strays(linux, 64)
    linux.domains.add(domain(["tank/vms/web01-0"], name="web 1, {x}: y"))
    problem = refusal(linux, "ResourceNotFound", vms=[{"vm": VM}])
    [entry] = yaml.safe_load(problem[problem.index("- {") :])
    linux.four_steps(entry)


def test_a_running_vm_is_to_be_stopped_for_it(linux):
    strays(linux, 64)
    linux.domains.boot(VM)
    assert refusal(linux, "ResourceNotFound", vms=[{"vm": "web01"}]).endswith("; stop the VM before")


def test_a_volume_that_is_not_there(linux):
    """Adoption could not move it, so nothing says that it will."""
    strays(linux, 64)
    linux.domains.add(domain(["tank/vms/web01-0", "tank/vms/gone"]))
    text = f"no dataset tank/{VM}, and adopt: true makes none: its configuration names tank/vms/gone, and there is no"
    assert text in refusal(linux, "ResourceNotFound", vms=[{"vm": "web01"}])
    reported = verify(linux.zfs(), linux.driver(), None, [], None, 30, True, 0)
    assert reported.findings == []
    host = {"_flexdisk": {}, "disk_verify": result(reported)}
    [one] = show_findings(registered({"lab01": host}, "disk_verify")).lines[1:]
    assert one.startswith("web01 was not looked at: not adopted: it has no dataset")
    assert text in one
    [shown] = disk_table(result_of_disks(linux))[1:]
    assert text in shown


def test_an_adoption_of_all_names_those_that_are_left_out(linux):
    strays(linux, 64)
    done = run(linux.zfs(), linux.driver(), None, "adopted", False, None, False)
    [warning] = done.outcome.warnings
    assert warning.startswith(f"web01 is left out: not adopted: it has no dataset tank/{VM}; vm_disks makes it")


def test_a_move_says_that_the_vm_is_there(linux):
    strays(linux, 64)
    departure = MoveSource(linux.zfs(), linux.driver(), linux.runner, Policy())
    looks = {"lab01": departure.look("web01", "lab01"), "lab02": departure.look("other", "lab02")}
    answers = {host: calls.Answer(look, 0, 0) for host, look in looks.items()}
    wanted = relocation.Relocation("web01", list(looks), "lab02")
    turn = calls.next_turn(relocation.relocate(wanted, calls.Run(False, False, lambda _host: {})), [answers])
    text = f"web01 is on lab01, but not adopted: it has no dataset tank/{VM}; the playbook converge makes it"
    assert str(turn.failure).startswith(text)


def result_of_disks(linux):
    reported = disks_info(linux.zfs(), linux.driver(), Filters(), None, False, False)
    return {"disks": reported.disks, "skipped_vms": reported.skipped}


def test_nothing_can_be_adopted(linux):
    linux.domains.add(domain(["x"]).replace("/dev/zvol/x", "/dev/sdx"))
    problem = refusal(linux, "ResourceNotFound", vms=[{"vm": "web01"}])
    assert "adopt: true makes none: which pool it belongs to is not clear" in problem
    assert "disk vda (/dev/sdx) is left alone" in problem


def test_the_dataset_has_gone_with_the_volumes(linux):
    linux.domains.add(domain([f"tank/{VM}/disk0", f"tank/{VM}/disk1"]))
    text = f"adopt: true makes none: its configuration names tank/{VM}/disk0, tank/{VM}/disk1, and there is no such"
    assert text in refusal(linux, "ResourceNotFound", vms=[{"vm": "web01"}])
    [problem] = linux.converge(WISH).problems
    assert text in problem.message


def test_all_disks_lie_in_another_pool_than_the_dataset():
    linux = pooled()
    linux.create((16,), uuid=OTHER, name="other")
    linux.adopted(32)
    text = linux.domains.xml(VM, False)
    for number in (0, 1):
        linux.run("zfs", "create", "-V", f"{(64, 32)[number]}M", f"data/web01-{number}")
        linux.run("zfs", "destroy", "-r", f"tank/{VM}/disk{number}")
        text = text.replace(f"/dev/zvol/tank/{VM}/disk{number}", f"/dev/zvol/data/web01-{number}")
    linux.domains.add(text)
    message = (
        f"its disks lie in pool data, and its dataset is tank/{VM}; bring the disks back below that, or zfs rename"
    )
    assert message in refusal(linux, "ResourceNotFound", vms=[{"vm": "web01"}])
    [problem] = linux.converge(WISH).problems
    assert message in problem.message
    linux.run("zfs", "rename", f"tank/{VM}", f"tank/{VM}-old")
    linux.four_steps(WISH)
    settle(linux)


def test_the_only_disk_without_a_name_is_shown_with_its_size_and_path(linux):
    strays(linux, 64, 32)
    declaration = spec({"name": "data", "size": 48}, adopt=True, flexible_disk_size="1GiB")
    [problem] = linux.converge(declaration).problems
    assert (problem.code, problem.disk) == ("Ambiguous", "data")
    assert "/dev/zvol/tank/vms/web01-1: it has no name, and is 32 MiB, not 48 MiB. If it is meant" in problem.message
    [entry] = yaml.safe_load(problem.message[problem.message.index("- {") : problem.message.index("}.") + 1])
    assert (entry["name"], entry["size"]) == ("data", "32MiB")
    linux.four_steps(spec({**entry, "size": 32}, adopt=True, flexible_disk_size="1GiB"))
    linux.four_steps(declaration)


def test_paths_of_now_where_a_choice_is_left(linux):
    strays(linux, 64, 32, 32)
    declaration = spec({"name": "a", "size": 32}, {"name": "b", "size": 32}, adopt=True, flexible_disk_size="1GiB")
    [problem] = linux.converge(declaration).problems
    assert "# 32 MiB, /dev/zvol/tank/vms/web01-1" in problem.message
