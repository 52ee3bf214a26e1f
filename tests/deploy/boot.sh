#!/usr/bin/env bash
# A real systemd as PID 1 of namespaces of its own, over a copy-on-write view of this machine that vanishes with it.
#   unshare --pid --mount --uts --ipc --net --cgroup --fork boot.sh FOLDER REPOSITORY
# Needs root with CAP_SYS_ADMIN. Nothing below / is changed: what is written goes to a tmpfs. The network is a loopback.
set -euo pipefail
folder=$1 repository=$2
mount --make-rprivate /
mount -t tmpfs -o size=2G tmpfs "$folder"
mkdir -p "$folder"/{upper,work,root}
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
root=$folder/root
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null zero full random urandom tty; do touch "$root/dev/$node"; mount --bind "/dev/$node" "$root/dev/$node"; done
mkdir -p "$root"/dev/{pts,shm}
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for place in run tmp var/log dev/shm; do mkdir -p "$root/$place"; mount -t tmpfs -o mode=1777 tmpfs "$root/$place"; done
chmod 755 "$root/run" "$root/var/log"
if [ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ]; then
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
else
    mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
    mkdir "$root"/sys/fs/cgroup/{systemd,unified}
    mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup/unified"
    for controller in memory pids devices cpu; do
        mkdir "$root/sys/fs/cgroup/$controller"
        mount -t cgroup -o "$controller" cgroup "$root/sys/fs/cgroup/$controller" || rmdir "$root/sys/fs/cgroup/$controller"
    done
fi
mkdir -p "$root/src"
mount --bind "$repository" "$root/src"
# Services of the machine below are not what is tried here.
rm -rf "$root"/etc/systemd/system/*.wants "$root"/etc/rc?.d "$root/etc/init.d" "$root/etc/systemd/system/default.target"
: > "$root/etc/fstab"
ip link set lo up
cd "$root"
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" /lib/systemd/systemd --system --unit=multi-user.target --show-status=no
