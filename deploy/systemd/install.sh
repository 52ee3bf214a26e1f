#!/usr/bin/env bash
# Installs SGLang Watchdog as a systemd service, in a virtual environment of its own. Running it again updates; nothing of yours is overwritten.
#   sudo deploy/systemd/install.sh [--dry-run] [--with journal,file-logs,…] [--no-start] [--python PYTHON] [--wheel FILE] [--root DIR]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source_tree=$(cd "$here/../.." && pwd)
prefix=/opt/sglang-watchdog
dry=no start=yes python='' root='' drop_ins='' wheel=''

usage() { sed -n '2,3s/^# //p' "${BASH_SOURCE[0]}"; }
fail() { echo "install.sh: $*" >&2; exit 1; }
while [ $# -gt 0 ]; do
    case $1 in
        --dry-run) dry=yes ;;
        --no-start) start=no ;;
        --with) drop_ins=${2:?--with needs names}; shift ;;
        --python) python=${2:?--python needs a command}; shift ;;
        --wheel) wheel=${2:?--wheel needs a file}; shift ;;
        --root) root=${2:?--root needs a folder}; start=no; shift ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done

do_() { # shows a step, and does it
    printf '+ %s\n' "$*"
    [ "$dry" = yes ] || "$@"
}
put() { # source, target, mode: only if it differs, so that a second run says what changed
    if [ -e "$2" ] && cmp -s "$1" "$2"; then echo "= $2"; else do_ install -D -m "$3" "$1" "$2"; fi
}
keep() { # source, target, mode: never over a file of the operator
    if [ -e "$2" ]; then echo "= $2 (yours, kept)"; else do_ install -D -m "$3" "$1" "$2"; fi
}

[ "$dry" = yes ] || [ -n "$root" ] || [ "$(id -u)" = 0 ] || fail "needs root: sudo $0, or --dry-run to see what it would do"
fits() { # 3.11 or newer, and not below a home directory (pyenv, uv, conda), which the unit cannot see (ProtectHome=yes)
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11) or sys.base_prefix.split("/")[1] in ("home", "root"))' 2>/dev/null
}
if [ -z "$python" ]; then
    for each in python3.13 python3.12 python3.11 python3.14 python3; do
        for found in "/usr/bin/$each" "/usr/local/bin/$each" "$(command -v "$each" || true)"; do
            if [ -x "$found" ] && fits "$found"; then python=$found; break 2; fi
        done
    done
fi
[ -n "$python" ] || fail "no system Python 3.11 or newer was found (Debian, Ubuntu: apt install python3 python3-venv; RHEL: dnf install python3.12)"
fits "$python" || fail "$python is older than 3.11 or lies in a home directory, where the service cannot see it"
"$python" -c 'import ensurepip, venv' 2>/dev/null || fail "$python has no venv: apt install python3-venv"
for name in ${drop_ins//,/ }; do
    [ -f "$here/sglang-watchdog.service.d/$name.conf" ] || fail "no drop-in $name; there are: $(cd "$here/sglang-watchdog.service.d" && ls | sed 's/\.conf$//' | tr '\n' ' ')"
done

echo "# own Python environment, apart from SGLang's"
[ -x "$root$prefix/bin/python" ] && echo "= $root$prefix" || do_ "$python" -m venv "$root$prefix"
if [ -n "$wheel" ]; then
    do_ "$root$prefix/bin/python" -m pip install -q --disable-pip-version-check --upgrade "$wheel"
else
    do_ "$root$prefix/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r "$source_tree/deploy/requirements.txt"
    do_ "$root$prefix/bin/python" -m pip install -q --disable-pip-version-check --no-deps --force-reinstall "$source_tree"
fi
[ -L "$root/usr/local/bin/sglang-watchdog" ] && echo "= $root/usr/local/bin/sglang-watchdog" || {
    do_ mkdir -p "$root/usr/local/bin"
    do_ ln -s "$prefix/bin/sglang-watchdog" "$root/usr/local/bin/sglang-watchdog"
}

echo "# units, configuration, runbooks"
put "$here/sglang-watchdog.service" "$root/etc/systemd/system/sglang-watchdog.service" 0644
put "$here/sglang-watchdog@.service" "$root/etc/systemd/system/sglang-watchdog@.service" 0644
for name in ${drop_ins//,/ }; do
    put "$here/sglang-watchdog.service.d/$name.conf" "$root/etc/systemd/system/sglang-watchdog.service.d/$name.conf" 0644
done
keep "$here/watchdog.yaml" "$root/etc/sglang-watchdog/watchdog.yaml" 0644
for page in "$source_tree"/deploy/runbooks/*.md; do
    put "$page" "$root$prefix/share/runbooks/$(basename "$page")" 0644
done

echo "# start"
if [ "$start" = yes ]; then
    command -v systemctl >/dev/null && [ -d /run/systemd/system ] || [ "$dry" = yes ] || fail "systemd does not run here; the files are in place, nothing was started"
    do_ systemctl daemon-reload
    do_ systemctl enable sglang-watchdog.service
    do_ systemctl restart sglang-watchdog.service
    echo "status page: http://127.0.0.1:17853/     what it can see: sglang-watchdog doctor"
else
    echo "not started: systemctl daemon-reload && systemctl enable --now sglang-watchdog"
fi
