# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VMs of hypervisors as an inventory."""

from __future__ import annotations

DOCUMENTATION = r"""
name: vms
short_description: VMs of hypervisors as inventory hosts
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Runs M(flexdisk.hypervisor.vm_info) on the hypervisors of another inventory. Every VM that it reports becomes a
    host. The name of the configuration file must end with C(flexdisk_vms.yml) or C(flexdisk_vms.yaml).
  - The connection to a hypervisor (connection, user, keys, C(ansible_become), Python) is configured by its variables
    in O(inventory), and by the configuration and the environment of Ansible. Command line options are for the VMs and
    do not apply to hypervisors. Vault passwords are an exception, but a vault password from a prompt cannot be used.
  - The variables C(flexdisk_environment), C(flexible_disks_hypervisor) and C(flexible_disks_pool) of a hypervisor
    have the same effect as in the playbooks of this collection.
  - Each host has the variable C(flexdisk_vm), with the keys of RV(flexdisk.hypervisor.vm_info#module:vms) and
    C(hypervisor), the name of the VM's hypervisor. Text from other people in it (an alias, a tag, a description) is
    never treated as a template.
  - Each host is in the groups C(hypervisor_NAME) and C(state_STATE), in C(package_NAME) where
    M(flexdisk.hypervisor.vm_info) reports a package, and for each tag of the VM in C(tag_KEY_VALUE), or C(tag_KEY) if
    the value is empty. Characters that are not allowed in group names become underscores. A tag that would make a
    name longer than 200 characters gets no group.
  - The hypervisor does not know the address of a VM. If the VM's name cannot be resolved, set C(ansible_host) with
    O(compose).
  - VMs that M(flexdisk.hypervisor.vm_info) skips become hosts only with O(skipped=true).
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
      - The inventory sources with the hypervisors, as for Ansible's option C(--inventory). Each is a path, or a list
        of hosts with a comma in it. A relative path starts at the folder of the configuration file.
      - It can be the folder that contains the configuration file itself. Files of this plugin are ignored there.
      - A source that cannot be parsed is an error.
    type: list
    elements: str
    required: true
  hypervisors:
    description:
      - Pattern that selects the hypervisors in O(inventory). It is an error if no host matches.
    type: str
    default: hypervisors
  on_failure:
    description:
      - What to do if a hypervisor is unreachable or its VMs cannot be read.
    type: str
    default: error
    choices:
      error: The inventory contains no VM of any hypervisor. The message names all hypervisors that failed.
      warn: A warning is given, and the inventory contains the VMs of the other hypervisors. Nothing is cached.
  timeout:
    description:
      - Seconds for reading one hypervisor, including the connection.
    type: int
    default: 60
  hostnames:
    description:
      - Jinja2 expressions that use C(flexdisk_vm). A host gets the first name that is not empty and can be used.
      - A warning names each name that cannot be used. A name must contain only letters, digits, dots, dashes and
        underscores, and must begin with a letter or digit. It cannot be used if two VMs would have it, or if it
        begins like one of the groups above. It also cannot be the UUID of another VM, a hypervisor, C(localhost), or
        a host or group that other sources have already defined.
      - If no expression gives a usable name, the host's name is the UUID of the VM. If two hypervisors have a VM with
        that UUID, the name is C(UUID.HYPERVISOR).
    type: list
    elements: str
    default:
      - flexdisk_vm.alias
  states:
    description:
      - Only VMs in one of these states, for example V(running) and V(stopped). Without this option, all VMs.
    type: list
    elements: str
  skipped:
    description:
      - Whether the VMs in RV(flexdisk.hypervisor.vm_info#module:skipped_vms) also become hosts, for example libvirt
        domains that have not been adopted.
      - They are in the group C(skipped_vms) and in C(hypervisor_NAME). Their C(flexdisk_vm) has only C(uuid),
        C(alias), C(reason) and C(hypervisor). Their state is not known, so O(states) excludes them.
    type: bool
    default: false
seealso:
  - module: flexdisk.hypervisor.vm_info
notes:
  - If an inventory source fails, Ansible by default only gives a warning and continues with the other sources. To
    make this an error, set the option C(any_unparsed_is_failed) in the section C(inventory) of C(ansible.cfg).
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
_VmsByHost = t.Dict[str, t.List[_Vm]]


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
        vms_by_host = self._vms_by_host(path, cache)
        states = self.get_option("states")
        vms = [vm for vms in vms_by_host.values() for vm in vms if not states or vm.get("state") in states]
        self._populate(inventory, vms, vms_by_host)

    def _vms_by_host(self, path: str, cache: bool) -> _VmsByHost:
        """Return the VMs of each hypervisor, from the cache if what was asked for then is what is asked for now."""
        query = {
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
            if cached.get("asked") == query:
                return t.cast(_VmsByHost, cached["found"])
        vms_by_host, complete = self._ask(query["sources"], query["pattern"])
        if self.get_option("cache") and complete:
            self._cache[key] = {"asked": query, "found": vms_by_host}
        return vms_by_host

    def _sources(self, path: str) -> t.List[str]:
        folder = os.path.dirname(path)
        return [
            source if "," in source else unfrackpath(source, follow=False, basedir=folder)
            for source in map(str, self.get_option("inventory"))
        ]

    def _ask(self, sources: t.List[str], pattern: str) -> t.Tuple[_VmsByHost, bool]:
        """Return the VMs of each hypervisor that told them, and whether all did."""
        replies = _vm_info.read(sources, pattern, self.get_option("timeout"))
        if not replies:
            raise AnsibleParserError(
                f"No hypervisor was found. The pattern {pattern!r} matches no host of {', '.join(sources)}"
            )
        vms_by_host: _VmsByHost = {}
        failures = []
        for hypervisor, reply in sorted(replies.items()):
            try:
                if reply["status"] != "ok":
                    raise ValueError(f"{reply['status']}: {reply['result'].get('msg')}")
                vms_by_host[hypervisor] = _vm_hosts.vms(hypervisor, reply["result"], self.get_option("skipped"))
            except ValueError as exc:
                failures.append(f"{hypervisor}: {exc}")
                vms_by_host[hypervisor] = []
        if failures and self.get_option("on_failure") == "error":
            raise AnsibleParserError(f"The VMs of some hypervisors could not be read. {'; '.join(failures)}")
        for failure in failures:
            self.display.warning(f"VMs are missing from the inventory. {failure}")
        return vms_by_host, not failures

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
            names, warnings = _vm_hosts.named(vms, [self._preferred_names(vm) for vm in vms], taken)
        except ValueError as exc:
            raise AnsibleParserError(str(exc)) from exc
        for warning in warnings:
            self.display.warning(warning)
        return names

    def _compose(self, *args: t.Any, **kwargs: t.Any) -> t.Any:
        return _vm_hosts.marked(super()._compose(*args, **kwargs))

    def _preferred_names(self, vm: _Vm) -> t.List[object]:
        names: t.List[object] = []
        for expression in self.get_option("hostnames"):
            try:
                names.append(self._compose(_core.trust_as_template(expression), {_vm_hosts.VARIABLE: vm}))
            except AnsibleError as exc:
                if self.get_option("strict"):
                    raise AnsibleParserError(f"No name for VM {vm['uuid']} from {expression!r}: {exc}") from exc
                names.append("")
        return names
