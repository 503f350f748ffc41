#!/bin/sh
# Print the command of a Python that can make a virtual environment for BAT OS: 3.11 or newer, with venv and ensurepip.
#
#   find_python.sh [COMMAND]     with COMMAND, that one or none
#
# Each candidate is started, since a name on PATH may be a version manager's shim that runs nothing.
set -eu

fits='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'
new_enough='import sys; sys.exit(sys.version_info < (3, 11))'

if [ -n "${1:-}" ]; then
    "$1" -c "$fits" >/dev/null 2>&1 && { printf '%s\n' "$1"; exit 0; }
    candidates=$1
else
    candidates="python3 python3.14 python3.13 python3.12 python3.11 python"
    for python in $candidates; do
        "$python" -c "$fits" >/dev/null 2>&1 && { printf '%s\n' "$python"; exit 0; }
    done
fi

for python in $candidates; do
    if "$python" -c "$new_enough" >/dev/null 2>&1; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        printf 'install: %s is Python %s, but it cannot make virtual environments. On Debian: apt-get install python%s-venv\n' \
            "$python" "$version" "$version" >&2
        exit 1
    fi
done
found=$(for python in $candidates; do "$python" -c 'import sys; print("%s is %d.%d" % ((sys.argv[1],) + sys.version_info[:2]))' "$python" 2>/dev/null || true; done)
printf 'install: BAT OS needs Python 3.11 or newer; %s.\n' "$(printf '%s' "${found:-none of ($candidates) runs}" | tr '\n' ',')" >&2
printf 'install: name one with: make PYTHON=/path/to/python3.12 install\n' >&2
exit 1
