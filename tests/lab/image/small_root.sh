# shellcheck shell=sh
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Runs as root inside the root file system of booted guests. Prints an archive of what guest_growth needs of it, so that a
# guest within the lab can have that and little more.
programs="/usr/bin/python3 /usr/bin/lsblk /usr/bin/findmnt /usr/bin/partx /usr/sbin/sfdisk /usr/sbin/blkid
    /usr/sbin/blockdev /usr/sbin/swapon /usr/sbin/swapoff /usr/sbin/mkswap /usr/sbin/resize2fs /usr/sbin/dumpe2fs"
python=/usr/lib/python3.11
# shellcheck disable=SC2086
libraries=$(ldd $programs $python/lib-dynload/*.so | sed -n 's/^\t\(.* => \)\{0,1\}\(\/[^ ]*\) .*/\2/p' | sort -u)
# shellcheck disable=SC2086
tar -chf - --exclude="$python/config-*" --exclude="$python/test" --exclude="$python/idlelib" --exclude="$python/lib2to3" \
    --exclude="$python/ensurepip" $programs $python $libraries
