#!/usr/bin/python
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Report where tasks are that change a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: progress_info
short_description: Report where tasks are that change a hypervisor
version_added: 0.2.0
author:
  - flexdisk.hypervisor contributors (!UNKNOWN)
description:
  - Reports the step, the VM and the disk of each task that is changing the host, and how far its copy or transfer has
    come. It reads small files, asks neither the hypervisor nor ZFS, and waits for nobody. So it answers while they do
    not.
  - Run it as root, as the tasks that change a host. Others see no task.
  - A task that was killed leaves what it has reported last, until the next task takes its lock.
    RV(progress[].state) says so.
extends_documentation_fragment:
  - flexdisk.hypervisor._flexdisk
  - flexdisk.hypervisor._flexdisk.attributes
  - flexdisk.hypervisor._flexdisk.reads
options:
  pool:
    description:
      - Report only tasks that a task for this ZFS pool would wait for, and transfers. Without this option, all tasks
        are reported.
    type: str
seealso:
  - module: flexdisk.hypervisor.vm_info
"""

EXAMPLES = r"""
- name: Ask where the tasks of the host are
  flexdisk.hypervisor.progress_info:
  register: tasks

- name: Show it
  ansible.builtin.debug:
    msg: "{{ tasks.progress | map(attribute='line') | list }}"
"""

RETURN = r"""
progress:
  description: The tasks, in the order of their locks. A task that has not begun its first step is not there.
  returned: success
  type: list
  elements: dict
  contains:
    lock:
      description: The lock that the task holds, V(host), V(pool-POOL), or V(transfer-UUID) for a transfer of a VM.
      type: str
      returned: always
    state:
      description: >-
        V(running); V(outlived) if the task was killed, and a program that it has started still runs; V(dead) if the
        task was killed.
      type: str
      returned: always
    silent:
      description: >-
        Seconds since the task reported something new. A step that copies nothing reports only its beginning. So
        this can be long.
      type: int
      returned: always
    pid:
      description: Process ID of the task.
      type: int
      returned: always
    host:
      description: What the host calls itself.
      type: str
      returned: always
    since:
      description: When the task got its lock, by the clock of the host.
      type: str
      returned: always
    task:
      description: The task in words.
      type: str
      returned: always
    vm:
      description: The VM by its alias, or by its UUID if it has none. Empty for a step that concerns no VM.
      type: str
      returned: always
    disk:
      description: The disk. Empty for a step that concerns none.
      type: str
      returned: always
    text:
      description: What is done, in the words of the plan.
      type: str
      returned: always
    at_step:
      description: The number of the step. Silent steps, which no plan shows, count. 0 without a plan.
      type: int
      returned: always
    steps:
      description: The number of all steps, 0 without a plan.
      type: int
      returned: always
    done_bytes:
      description: Bytes that are copied or sent so far.
      type: int
      returned: always
    total_bytes:
      description: Bytes that are to be copied or sent, by estimate. 0 if that is not known.
      type: int
      returned: always
    rate_bytes:
      description: Bytes a second.
      type: int
      returned: always
    line:
      description: The same in one line.
      type: str
      returned: always
  sample:
    - lock: host
      state: running
      silent: 1
      pid: 4711
      host: hv01
      since: "2026-01-01T00:00:00Z"
      task: vm_disks of web01
      vm: web01
      disk: data
      text: "~ data thick -> file: 50 GiB to copy"
      at_step: 7
      steps: 31
      done_bytes: 21474836480
      total_bytes: 53687091200
      rate_bytes: 104857600
      line: >-
        at step 7 of 31, VM web01: ~ data thick -> file: 50 GiB to copy, 20 GiB of 50 GiB (40 %), 100 MiB/s, 307 s left
up:
  description: Seconds since the host was started. Tasks that began before have not survived.
  returned: success
  type: int
  sample: 86400
"""

import time
import typing as t

from ansible.module_utils.ansible_release import __version__
from ansible.module_utils.basic import AnsibleModule

from ..module_utils._flexdisk.engine.host.lock import busy, under_way
from ..module_utils._flexdisk.engine.run.arguments import HOST
from ..module_utils._flexdisk.engine.run.module import check_core, error
from ..module_utils._flexdisk.model.errors import FlexdiskError


def main() -> None:
    """Read the arguments, and do what progress_info does."""
    module = AnsibleModule(argument_spec={**HOST}, supports_check_mode=True)
    pool: t.Optional[str] = module.params["pool"]
    try:
        check_core(__version__)
        others, runs = busy(pool), under_way(pool)
    except FlexdiskError as exc:
        module.fail_json(**error(exc))
    for warning in others:
        module.warn(warning)
    module.exit_json(changed=False, progress=runs, up=int(time.monotonic()))  # its zero is the boot of the host


if __name__ == "__main__":
    main()
