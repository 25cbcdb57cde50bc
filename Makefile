# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

PYTHON ?= python3
CORE ?= 2.19
PY := .venv/bin/python
MAKEFLAGS += --no-print-directory

.PHONY: help venv demo test verify lint sanity unit long conformance integration molecule lab-share lab-up lab-down lab-test lab-full faults bench bench-lab soak mutations docs release clean

help: ; @sed -n 's/^\([a-z-]*\):.* #[#] /\1\t/p' Makefile | expand -t 14

venv: ; @$(PYTHON) tests/tools/make_venv.py dev $(CORE) ## the environment of everything below, made anew when requirements change (CORE=2.21: with that ansible-core)
demo: ; @$(PYTHON) tests/tools/make_venv.py run $(CORE) && $(PY) tests/tools/demo.py $(DRIVER) ## a simulated node: plan, converge, report, converge again (DRIVER=proxmox: one of Proxmox VE)
test: venv ; @$(PY) tests/tools/stages.py test $(if $(filter verify,$(MAKECMDGOALS)),,changed) ## a quarter of an hour: what most changes can break, and the parts of verify that yours concerns
verify: venv ; @$(PY) tests/tools/stages.py verify ## the rest of what must pass before a change is merged: long tests, integration, the lab
lint: venv ; @$(PY) tests/tools/lint.py ## format, types, style, documentation, licenses, the built artifact
sanity: venv ; @$(PY) tests/tools/run_ansible_test.py sanity ## ansible-test sanity, with every Python found
unit: venv ; @$(PY) tests/tools/run_pytest.py -m "not long" tests/unit ## the rooms of the collection, each by itself
long: venv ; @$(PY) tests/tools/run_pytest.py -m long $(or $(TESTS),tests/unit) ## tests of tests/unit that take long: plays, kills, random sequences (TESTS: some folders)
conformance: venv ; @$(PY) tests/tools/run_pytest.py tests/conformance ## the simulated node against what real ones do
integration: venv ; @$(PY) tests/tools/run_ansible_test.py integration ## the modules on the simulated node
molecule: venv ; @$(PY) tests/tools/run_molecule.py ## role and playbooks on the simulated node
lab-share: venv ; @$(PY) tests/tools/run_lab.py ## lab-test where a lab can be had
lab-up: venv ; @$(PY) tests/lab/lab.py up ## boot the lab: a virtual machine with real OpenZFS
lab-down: venv ; @$(PY) tests/lab/lab.py down ## stop the lab
lab-test: venv ; @$(PY) tests/lab/lab.py test ## the suite on the lab, sampled
lab-full: venv ; @$(PY) tests/lab/lab.py full ## the suite on the lab, in full
faults: venv ; @$(PY) tests/tools/faults.py $(if $(DRIVER),--driver $(DRIVER)) ## every scenario, interrupted at every command in every way (DRIVER=proxmox: on a node of Proxmox VE)
bench: venv ; @$(PY) tests/bench/bench.py ## processes, time, memory and payload, for 10 to 1000 VMs
bench-lab: venv ; @$(PY) tests/bench/bench_lab.py ## the same on the running lab, for 25 VMs
soak: venv ; @$(PY) tests/tools/soak.py $(MINUTES) ## the stateful tests for MINUTES (30), with a new seed each round
mutations: venv ; @$(PY) tests/mutations/run.py $(WORDS) ## deliberate bugs, which the tests must find (WORDS of their names: only those)
docs: venv ; @$(PY) tests/tools/make_docs.py ## the documentation as a site, in build/site/html, without network
release: venv ; @$(PY) tests/tools/release.py $(VERSION) ## write VERSION into galaxy.yml, and the changelog; again after merging more
clean: ; @rm -rf .venv .dev build ## all that the targets above have made here
