#!/usr/bin/env bash
# Removes what install.sh put in place. Configuration and state stay, unless --purge is given.
#   sudo deploy/systemd/uninstall.sh [--dry-run] [--purge] [--root DIR]
set -euo pipefail
dry=no purge=no root=''
usage() { sed -n '2,3s/^# //p' "${BASH_SOURCE[0]}"; }
while [ $# -gt 0 ]; do
    case $1 in
        --dry-run) dry=yes ;;
        --purge) purge=yes ;;
        --root) root=${2:?--root needs a folder}; shift ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done
do_() {
    printf '+ %s\n' "$*"
    [ "$dry" = yes ] || "$@"
}
gone() { # a path, if it is there
    if [ -e "$1" ] || [ -L "$1" ]; then do_ rm -rf -- "$1"; else echo "= $1 (not there)"; fi
}
[ "$dry" = yes ] || [ -n "$root" ] || [ "$(id -u)" = 0 ] || { echo "uninstall.sh: needs root, or --dry-run to see what it would do" >&2; exit 1; }

if [ -z "$root" ] && [ -d /run/systemd/system ]; then
    mapfile -t units < <(systemctl list-units --plain --no-legend --all 'sglang-watchdog.service' 'sglang-watchdog@*.service' | cut -d' ' -f1)
    for unit in "${units[@]}"; do do_ systemctl disable --now "$unit"; done
fi
gone "$root/etc/systemd/system/sglang-watchdog.service"
gone "$root/etc/systemd/system/sglang-watchdog@.service"
gone "$root/etc/systemd/system/sglang-watchdog.service.d"
gone "$root/usr/local/bin/sglang-watchdog"
gone "$root/opt/sglang-watchdog"
if [ "$purge" = yes ]; then
    gone "$root/etc/sglang-watchdog"
    gone "$root/var/lib/private/sglang-watchdog"
    gone "$root/var/lib/sglang-watchdog"
else
    echo "kept: $root/etc/sglang-watchdog, $root/var/lib/sglang-watchdog (remove them with --purge)"
fi
[ -n "$root" ] || [ ! -d /run/systemd/system ] || do_ systemctl daemon-reload
