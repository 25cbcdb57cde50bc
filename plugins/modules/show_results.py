#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the action show_results, which runs on the controller. There is nothing to run on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: show_results
short_description: Show what the tasks of a playbook have registered (internal)
version_added: 0.3.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Shows the results of other tasks as text, or writes them as HTML files. It fails where the playbook has to fail for
    what they say.
  - It is a part of the playbooks of this collection, whose variables it reads. Nobody else has to call it.
  - It runs on the controller and touches no host. Its options and results can change with each version.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.reads
attributes:
  diff_mode:
    details:
      - Pages are not shown as text.
options:
  about:
    description:
      - What is shown. V(findings) and V(quotas) are those of one host. The others need C(run_once).
    type: str
    required: true
    choices:
      - applied
      - failures
      - findings
      - plan
      - quotas
      - status
      - pages
  results:
    description:
      - The variables that tasks have registered, the first task first. O(about=failures) reads all of them,
        O(about=pages) the results of M(flexdisk.hypervisor.vm_info), M(flexdisk.hypervisor.host_info),
        M(flexdisk.hypervisor.disk_verify) and M(flexdisk.hypervisor.zfs_quota).
    type: list
    elements: str
    required: true
  path:
    description:
      - Where O(about=pages) writes the report.
    type: str
  page_hosts:
    description:
      - The number of hosts on a page. With more hosts the report is a summary, and the pages lie beside it.
    type: int
    default: 100
seealso:
  - plugin: flexdisk.hypervisor.report_page
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Say which hosts failed, and why
  flexdisk.hypervisor.show_results:
    about: failures
    results: [_flexdisk, flexible_disks_result]
  run_once: true
"""

RETURN = r"""
msg:
  description:
    - The lines, or in which files the pages are. If the task fails, the reason.
  returned: if there is something to show
  type: raw
  sample:
    - "3 hosts failed:"
    - "hv03, hv17: unreachable: Failed to connect to the host via ssh: connection timed out"
    - "hv21: disk data of web01: pool zones has 12 GiB left, 40 GiB are needed [InsufficientSpace]"
lines:
  description: The lines.
  returned: if the task fails
  type: list
  elements: str
"""
