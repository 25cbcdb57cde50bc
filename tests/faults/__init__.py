# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fault injection: every scenario, interrupted at every command in every way, must end as if nothing had happened.

shim.py spoils commands, kinds.py says how, scenarios.py what is done, checks.py what must hold afterwards. driver.py
goes through all of it on a backend: the simulated node in process (node.py), the same through real processes
(processes.py), or the lab (tests/lab/suite/test_faults.py). campaign.py does so for all points on all cores.
"""
