# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The template of a group: the desired state of each member, as entries of the module vm."""

from __future__ import annotations

import typing as t

from ...model.errors import Problems
from .members import RECREATE, index_of
from .placeholders import check, filled
from .roll import FINISH

_Raw = t.Mapping[str, t.Any]
REMOVAL = ("destroy_disks", "destroy_snapshots")  # what a template allows where a member is deleted
OWNED = (
    "vm",
    "name",
    "uuid",
    "state",
    "drained",
    "generation",
    "restart",
    "member",
)  # words of vm that the roll itself says
MERGED = ("options", "customer_metadata", "secret_metadata")  # a member's own keys come on top of the template's
PLACEHOLDERS = ("name", "index", "host", "address")
ADDRESS = "address"  # a member's own word that is none of vm: where its gate asks


def check_template(group: str, template: _Raw, member_values: t.Mapping[str, t.Any]) -> Problems:
    """Return all problems with a template and with the values of single members."""
    problems = Problems("")
    for name, values in [("template", template), *member_values.items()]:
        if name != "template" and index_of(name, group) < 0:
            problems.add("InvalidArgument", f"{name} is not a member of {group}, and has words of its own")
        if not isinstance(values, dict):
            problems.add("InvalidArgument", f"{name} is {values!r}, but must be a dictionary of the words of vm")
            continue
        reserved = [word for word in OWNED if word in values and not (word == "uuid" and name != "template")]
        if reserved:
            problems.add(
                "InvalidArgument", f"{name} has {', '.join(reserved)}, which the update of the group sets itself"
            )
        problems.attempt("", check, values, PLACEHOLDERS)
        disks = values.get("disks") or []
        if not isinstance(disks, list) or not all(isinstance(disk, dict) for disk in disks):
            problems.add("InvalidArgument", f"{name}: disks is {disks!r}, but must be a list of dictionaries")
        odd = [word for word in MERGED if not isinstance(values.get(word) or {}, dict)]
        if odd:
            problems.add("InvalidArgument", f"{name}: {', '.join(odd)} must be a dictionary")
    if isinstance(template, dict) and ADDRESS in template and "{instance." not in str(template[ADDRESS]):
        problems.add("InvalidArgument", f"address is {template[ADDRESS]!r} for all members; it needs a placeholder")
    return problems


def facts_of(member: _Raw, template: _Raw, member_values: t.Mapping[str, _Raw]) -> t.Dict[str, t.Union[str, int]]:
    """Return the values of placeholders. member has name, index and host. A missing address is the name."""
    facts: t.Dict[str, t.Union[str, int]] = {key: member[key] for key in ("name", "index", "host")}
    declared = member_values.get(member["name"], {}).get(ADDRESS, template.get(ADDRESS, member["name"]))
    return {**facts, ADDRESS: filled(declared, {**facts, ADDRESS: member["name"]})}


def entry(
    member: _Raw, template: _Raw, member_values: t.Mapping[str, _Raw], recreate: bool, word: str = ""
) -> t.Dict[str, t.Any]:
    """Return the desired state of a member, as an entry of O(flexdisk.hypervisor.vm#module:vms). recreate: its boot
    disk may be recreated for another image. word: it is recreated once for this word.
    """
    values = member_values.get(member["name"], {})
    merged = {key: {**(template.get(key) or {}), **(values[key] or {})} for key in MERGED if key in values}
    options = filled({**template, **values, **merged}, facts_of(member, template, member_values))
    options.pop(ADDRESS, None)
    if recreate and options.get("disks"):
        options["disks"] = _with_recreate(options["disks"], word)
    return {**options, "vm": member["name"], "state": "running", "member": member["name"]}


def entries(members: t.Sequence[_Raw], group: _Raw, recreate: bool, more: _Raw) -> t.List[t.Dict[str, t.Any]]:
    """Return the desired state of each member. Those above the size are absent. more: options for the others."""
    result = []
    for member in members:
        word = group["generation"] if member["name"] in group["replace"] else ""
        if member["there"] and member["index"] >= group["size"]:
            result.append(removal(member, group["template"]))
        else:
            result.append({**entry(member, group["template"], group["members"], recreate, word), **more})
        if member["there"] and member["name"] in (group.get("adopt") or ()):
            del result[-1]["member"]  # the run marks it before it asks
    return result


def removal(member: _Raw, template: _Raw) -> t.Dict[str, t.Any]:
    """Return the entry that deletes a member if it is still marked as one, of O(flexdisk.hypervisor.vm#module:vms)."""
    options = {word: template[word] for word in REMOVAL if word in template}
    return {**options, "vm": member["name"], "state": "absent", "member": member["name"]}


def restore_entry(member: _Raw, recreated: bool) -> t.Dict[str, t.Any]:
    """Return the former state of a member, as an entry of O(flexdisk.hypervisor.vm#module:vms): its memory and CPUs,
    and its former boot disk if it was recreated. Disks that have grown stay so.
    """
    boots = [{key: disk[key] for key in ("uuid", "name")} for disk in member["disks"] if disk["boot"] and recreated]
    disks = [{**disk, "boot": True, "recreate": True} for disk in boots]
    options = {"vm": member["name"], "state": "running", "restart": True, "unlisted": "keep", "disks": disks}
    return {**options, **{key: member[key] for key in ("memory", "vcpus") if member[key]}}


def restore_entries(members: t.Sequence[_Raw]) -> t.List[t.Dict[str, t.Any]]:
    """Return the former state of each member of a step. C(do) says what the step did."""
    return [restore_entry(member, member["do"] in (RECREATE, FINISH)) for member in members]


def _with_recreate(disks: t.Sequence[_Raw], word: str) -> t.List[t.Dict[str, t.Any]]:
    """Return the disks, of which the boot disk may be recreated: the entry with C(boot), else the first, as in vm."""
    boots = next((number for number, disk in enumerate(disks) if disk.get("boot")), 0)
    options = {"boot": True, "recreate": True, **({"recreate_for": word} if word else {})}
    return [{**disk, **options} if number == boots else dict(disk) for number, disk in enumerate(disks)]


def keeps_disks(template: _Raw) -> bool:
    """Return whether members have disks besides their boot disk. Without disks, their package decides."""
    disks = template.get("disks")
    return disks is None or len(disks) > 1
