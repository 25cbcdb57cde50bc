# shellcheck shell=sh
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Runs as root inside the new root file system after customize.sh, in /var/lib/guest: replaces this folder's sources by
# the kernel and the initial RAM disk of the guests, made of the lab's own kernel and programs.
kernel=$(basename /lib/modules/*-cloud-amd64)
guest=/var/lib/guest
root=$(mktemp -d)
mkdir -p "$root/bin" "$root/dev" "$root/etc" "$root/proc" "$root/root/.ssh" "$root/sys"
chmod -R go= "$root/root"

cp /bin/busybox "$root/bin"
for applet in sh mount; do ln -s busybox "$root/bin/$applet"; done
install -m 755 $guest/init "$root/init"
install -m 755 $guest/disks "$root/bin/disks"
mknod "$root/dev/console" c 5 1

copy() {
    mkdir -p "$root$(dirname "$1")"
    cp -L "$1" "$root$1"
}

sed -n 's/^modprobe -a //p' $guest/init | tr ' ' '\n' | while read -r module; do
    modprobe -S "$kernel" --show-depends "$module"
done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | sort -u | while read -r path; do copy "$path"; done
depmod -b "$root" "$kernel"

# ssh: a program, the libraries that it names, a host key, a user.
copy /usr/sbin/dropbear
ldd /usr/sbin/dropbear | grep -o '/[^ ]*' | while read -r path; do copy "$path"; done
dropbearkey -t ed25519 -f "$root/etc/host_key"
echo 'root:x:0:0::/root:/bin/sh' > "$root/etc/passwd"

# Nothing is compressed: where a guest runs, unpacking takes longer than reading.
(cd "$root" && find . | cpio -o -H newc --quiet) > $guest/initrd.img
start=$(LC_ALL=C grep -abo -m 1 "$(printf '\002!L\030')" "/boot/vmlinuz-$kernel" | head -n 1 | cut -d : -f 1)
tail -c +$((start + 1)) "/boot/vmlinuz-$kernel" | lz4 -d -c > $guest/vmlinux || true  # what follows it is no error
test "$(head -c 4 $guest/vmlinux | tail -c 3)" = ELF
rm -r "$root" $guest/init $guest/disks $guest/pack.sh
ls -l $guest
