#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Report a host as metrics for Prometheus."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_metrics
short_description: Report a host as metrics for Prometheus
version_added: 0.3.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Reports space, findings, detached disks, replicas, unfinished runs, moves and leases of a host as metrics in the
    text format of Prometheus.
  - With O(path), it writes them to a file that the textfile collector of C(node_exporter) reads.
  - Times are those at which something was, in seconds since 1970. An alert computes the age from them.
  - Nothing but this file is changed.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  path:
    description:
      - The file that is written. It must be absolute and end with C(.prom), and its directory must exist. On Debian,
        the collector reads C(/var/lib/prometheus/node-exporter).
      - The file is replaced whole, and everybody may read it. It is written again if nothing has changed, so that
        C(node_textfile_mtime_seconds) tells when the host was last read.
    type: path
  replicas:
    description:
      - Which VMs are replicated where and how often, as the variable C(flexdisk_replicas) of the playbook C(replicate)
        says. The metric C(flexdisk_vm_replica_every_seconds) has it, so that an alert can compare the age of replicas
        with it.
    type: list
    elements: dict
    suboptions:
      vm:
        description: A VM, by its UUID or alias. One that is not on this host counts nothing.
        type: str
      group:
        description: A group of VMs, instead of O(replicas[].vm).
        type: str
      host:
        description: The host of the replicas.
        type: str
        required: true
      every:
        description: How old a replica may become, in seconds or as V(PT1H). Without it, the entry counts nothing.
        type: raw
      pool: &ignored
        description: It counts nothing, so that an entry of C(flexdisk_replicas) can be given as it is.
        type: raw
      keep: *ignored
      keep_home: *ignored
      bandwidth_limit: *ignored
      failover: *ignored
seealso:
  - module: flexdisk.hypervisor.disk_verify
  - module: flexdisk.hypervisor.host_info
"""

EXAMPLES = r"""
- name: Report the host as metrics
  flexdisk.hypervisor.host_metrics:
  register: metrics

- name: Write them for node_exporter
  flexdisk.hypervisor.host_metrics:
    path: /var/lib/prometheus/node-exporter/flexdisk.prom
"""

RETURN = r"""
text:
  description: The metrics.
  returned: success
  type: str
  sample: |
    # HELP flexdisk_pool_available_bytes Bytes that the pool can still give.
    # TYPE flexdisk_pool_available_bytes gauge
    flexdisk_pool_available_bytes{pool="zones"} 61203283968
"""

import typing as t

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine.modules.host_metrics import MetricsArguments, parse, run
from ..module_utils._flexdisk.engine.run.arguments import HOST
from ..module_utils._flexdisk.engine.run.module_run import Answer, Call, run_module
from ..module_utils._flexdisk.engine.run.reading import READING

REPLICA: t.Dict[str, t.Dict[str, t.Any]] = {
    "vm": {"type": "str"},
    "group": {"type": "str"},
    "host": {"type": "str", "required": True},
    **{key: {"type": "raw"} for key in ("every", "pool", "keep", "keep_home", "bandwidth_limit", "failover")},
}
OPTIONS = {"path": {"type": "path"}, "replicas": {"type": "list", "elements": "dict", "options": REPLICA}, **HOST}


def main() -> None:
    """Read the arguments, and do what host_metrics does."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    run_module(module, __version__, "", parse, body, reads=True, drivers=READING)


def body(call: Call, arguments: MetricsArguments) -> Answer:
    """The run of host_metrics."""
    result, warnings = run(call.zfs, call.hypervisor, call.pool, arguments, call.check_mode)
    return Answer(result, warnings=warnings)


if __name__ == "__main__":
    main()
