# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VMs of hypervisors as an inventory."""

from __future__ import annotations

DOCUMENTATION = r"""
name: vms
short_description: VMs of hypervisors that another inventory names
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Runs M(flexdisk.hypervisor.vm_info) on the hypervisors of another inventory, and has every VM that it reports as a
    host. The name of the configuration file ends with C(flexdisk_vms.yml) or C(flexdisk_vms.yaml).
  - How a hypervisor is reached (connection, user, keys, C(ansible_become), Python) is said where it is named, by the
    variables of O(inventory), and by the configuration and the environment of Ansible. Options of the command line are
    for the VMs and do not apply, but for vault passwords (a vault password that is prompted for cannot be used).
  - The variables C(flexdisk_environment), C(flexible_disks_hypervisor) and C(flexible_disks_pool) of a hypervisor count
    as they do for the playbooks of this collection.
  - Each host has the variable C(flexdisk_vm), with the keys of RV(flexdisk.hypervisor.vm_info#module:vms) and
    C(hypervisor), the name of the VM's hypervisor. Whatever others wrote into it (an alias, a tag, a description) is
    never taken for a template.
  - Each host is in the groups C(hypervisor_NAME) and C(state_STATE), in C(package_NAME) where
    M(flexdisk.hypervisor.vm_info) reports a package, and for each tag of the VM in C(tag_KEY_VALUE), or C(tag_KEY) if
    the value is empty. Characters that no group may have become underscores; a tag that would make a name longer than
    200 characters makes no group.
  - The address of a VM is not known to its hypervisor. Where its name cannot be resolved, set C(ansible_host) with
    O(compose).
  - VMs that M(flexdisk.hypervisor.vm_info) skips are no hosts unless O(skipped=true).
extends_documentation_fragment:
  - ansible.builtin.constructed
  - ansible.builtin.inventory_cache
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices:
      - flexdisk.hypervisor.vms
  inventory:
    description:
      - Where the hypervisors are named, as for the option C(--inventory) of Ansible, a path or a list of hosts with a
        comma in it. A relative path starts at the folder of the configuration file.
      - It can be a folder that the configuration file itself is in; files of this plugin are ignored there.
      - A source that cannot be parsed is an error.
    type: list
    elements: str
    required: true
  hypervisors:
    description:
      - Pattern of the hypervisors in O(inventory). That no host matches is an error.
    type: str
    default: hypervisors
  on_failure:
    description:
      - What to do about a hypervisor that is unreachable, or whose VMs cannot be read.
    type: str
    default: error
    choices:
      error: No VM of any hypervisor is in the inventory, and the message names all that failed.
      warn: There is a warning, and the VMs of the others are in the inventory. Nothing is cached.
  timeout:
    description:
      - Seconds for reading one hypervisor, connecting included.
    type: int
    default: 60
  hostnames:
    description:
      - Jinja2 expressions with C(flexdisk_vm). A host gets the name that the first of them gives, unless that is empty
        or cannot be had.
      - It cannot be had, and a warning says so, if it has other characters than letters, digits, dot, dash and
        underscore or begins with one of the last three, if two VMs would have it, if it begins like one of the groups
        above, or if it is the UUID of another VM, a hypervisor, C(localhost), or a host or a group that other sources
        have named before.
      - Without a name from here a host is called by its UUID, and where two hypervisors have a VM of that UUID by
        C(UUID.HYPERVISOR).
    type: list
    elements: str
    default:
      - flexdisk_vm.alias
  states:
    description:
      - Only VMs that are in one of these states, for example V(running) and V(stopped). Without it all VMs.
    type: list
    elements: str
  skipped:
    description:
      - Whether the VMs in RV(flexdisk.hypervisor.vm_info#module:skipped_vms) are hosts, too, for example libvirt
        domains that have not been adopted.
      - They are in the group C(skipped_vms) and in C(hypervisor_NAME). Their C(flexdisk_vm) has only C(uuid), C(alias),
        C(reason) and C(hypervisor). No state of theirs is known, so O(states) leaves them out.
    type: bool
    default: false
seealso:
  - module: flexdisk.hypervisor.vm_info
notes:
  - Ansible takes a source that fails for a warning, and goes on with the others, unless the option
    C(any_unparsed_is_failed) of the section C(inventory) of C(ansible.cfg) is set.
"""

EXAMPLES = r"""
# flexdisk_vms.yml, beside the inventory that has the group hypervisors
plugin: flexdisk.hypervisor.vms
inventory:
  - hosts.yml

---
# Only running VMs of two hypervisors, reached by name, grouped by a tag
plugin: flexdisk.hypervisor.vms
inventory:
  - hosts.yml
hypervisors: hv01,hv02
states:
  - running
strict: true
compose:
  ansible_host: inventory_hostname ~ '.example.com'
groups:
  big: (flexdisk_vm.disks | sum(attribute='size')) > 102400
keyed_groups:
  - prefix: role
    key: flexdisk_vm.tags.role | default('none')

---
# Use results that are up to ten minutes old
plugin: flexdisk.hypervisor.vms
inventory:
  - hosts.yml
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: /var/cache/flexdisk_vms
cache_timeout: 600
"""

import os
import typing as t

from ansible import constants
from ansible.errors import AnsibleError, AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable, to_safe_group_name
from ansible.utils.path import unfrackpath

from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core, _vm_hosts, _vm_info

_Vm = t.Dict[str, t.Any]
_Found = t.Dict[str, t.List[_Vm]]


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    """Inventory plugin flexdisk.hypervisor.vms."""

    NAME = "flexdisk.hypervisor.vms"

    def verify_file(self, path: str) -> bool:
        return bool(super().verify_file(path)) and path.endswith(("flexdisk_vms.yml", "flexdisk_vms.yaml"))

    def parse(self, inventory: InventoryData, loader: DataLoader, path: str, cache: bool = True) -> None:
        _core.check()
        super().parse(inventory, loader, path, cache=cache)
        if _vm_info.INSIDE in os.environ:
            return
        self._read_config_data(path)
        found = self._found(path, cache)
        states = self.get_option("states")
        vms = [vm for vms in found.values() for vm in vms if not states or vm.get("state") in states]
        self._populate(inventory, vms, found)

    def _found(self, path: str, cache: bool) -> _Found:
        """The VMs of each hypervisor, from the cache if what was asked for then is what is asked for now."""
        asked = {
            "sources": self._sources(path),
            "pattern": self.get_option("hypervisors"),
            "skipped": self.get_option("skipped"),
        }
        key = self.get_cache_key(path)
        if cache and self.get_option("cache"):
            try:
                cached = self._cache[key]
            except KeyError:
                cached = {}
            if cached.get("asked") == asked:
                return t.cast(_Found, cached["found"])
        found, complete = self._ask(asked["sources"], asked["pattern"])
        if self.get_option("cache") and complete:
            self._cache[key] = {"asked": asked, "found": found}
        return found

    def _sources(self, path: str) -> t.List[str]:
        folder = os.path.dirname(path)
        return [
            source if "," in source else unfrackpath(source, follow=False, basedir=folder)
            for source in map(str, self.get_option("inventory"))
        ]

    def _ask(self, sources: t.List[str], pattern: str) -> t.Tuple[_Found, bool]:
        """The VMs of each hypervisor that told them, and whether all did."""
        replies = _vm_info.read(sources, pattern, self.get_option("timeout"))
        if not replies:
            raise AnsibleParserError("No hypervisor: %r matches no host of %s" % (pattern, ", ".join(sources)))
        found: _Found = {}
        failures = []
        for hypervisor, reply in sorted(replies.items()):
            try:
                if reply["status"] != "ok":
                    raise ValueError("%s: %s" % (reply["status"], reply["result"].get("msg")))
                found[hypervisor] = _vm_hosts.vms(hypervisor, reply["result"], self.get_option("skipped"))
            except ValueError as exc:
                failures.append("%s is %s" % (hypervisor, exc))
                found[hypervisor] = []
        if failures and self.get_option("on_failure") == "error":
            raise AnsibleParserError("VMs of hypervisors could not be read. %s" % "; ".join(failures))
        for failure in failures:
            self.display.warning("VMs are missing in the inventory: %s" % failure)
        return found, not failures

    def _populate(self, inventory: InventoryData, vms: t.List[_Vm], hypervisors: t.Iterable[str]) -> None:
        """Variables come before groups: set_variable and add_child take a host for a group of the same name."""
        strict = self.get_option("strict")
        taken = {*inventory.hosts, *inventory.groups, *hypervisors, *constants.LOCALHOST}
        names = self._names(vms, taken)
        hosts: t.Dict[str, t.Dict[str, t.Any]] = {
            name: {"inventory_hostname": name, _vm_hosts.VARIABLE: _vm_hosts.marked(vm)} for name, vm in zip(names, vms)
        }
        for name, variables in hosts.items():
            inventory.add_host(name)
            inventory.set_variable(name, _vm_hosts.VARIABLE, variables[_vm_hosts.VARIABLE])
            self._set_composite_vars(self.get_option("compose"), variables, name, strict=strict)
        for name, variables in hosts.items():
            self._add_host_to_composed_groups(self.get_option("groups"), variables, name, strict=strict)
        for name, variables in hosts.items():
            for group in _vm_hosts.groups(variables[_vm_hosts.VARIABLE]):
                inventory.add_group(group)
                inventory.add_host(name, group=group)
            self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, name, strict=strict)

    def _names(self, vms: t.List[_Vm], taken: t.Set[str]) -> t.List[str]:
        taken = taken | {to_safe_group_name(group) for group in self.get_option("groups")}
        try:
            names, warnings = _vm_hosts.named(vms, [self._wishes(vm) for vm in vms], taken)
        except ValueError as exc:
            raise AnsibleParserError(str(exc)) from exc
        for warning in warnings:
            self.display.warning(warning)
        return names

    def _compose(self, *args: t.Any, **kwargs: t.Any) -> t.Any:
        return _vm_hosts.marked(super()._compose(*args, **kwargs))

    def _wishes(self, vm: _Vm) -> t.List[object]:
        wishes: t.List[object] = []
        for expression in self.get_option("hostnames"):
            try:
                wishes.append(self._compose(_core.trust_as_template(expression), {_vm_hosts.VARIABLE: vm}))
            except AnsibleError as exc:
                if self.get_option("strict"):
                    raise AnsibleParserError("No name for VM %s from %r: %s" % (vm["uuid"], expression, exc)) from exc
                wishes.append("")
        return wishes
