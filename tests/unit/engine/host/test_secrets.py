# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which names say that their value is a secret."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.secrets import is_secret

SECRET = """root_pw root-pw rootPw ROOT_PW adminPassword db.password apiKey API_KEY api-key apikey privateKey DB_SECRET
    DB_SECRET_1 clientSecret authToken TOKEN access_key AWS_SECRET_ACCESS_KEY passphrase credentials
    api_tokens passphrases user-data cloud-init:user-data"""
OPEN = """root_authorized_keys hostname user-script sdc:uuid keyboard tokenizer monkey public_key ssh_keys resolvers
    passwordless secretary apikeyboard com.example.owner"""


@pytest.mark.parametrize("name", SECRET.split())
def test_a_secret(name):
    assert is_secret(name)


@pytest.mark.parametrize("name", OPEN.split())
def test_no_secret(name):
    assert not is_secret(name)
