#!/bin/sh
# Provide `docker-registry`, from which the tests pull models: the one on PATH, else Debian's package.
set -eu

say()  { printf 'registry: %s\n' "$*"; }
fail() { printf 'registry: %s\n' "$*" >&2; exit 1; }

if found=$(command -v docker-registry); then
    say "found on PATH: $found"; exit 0
fi
command -v apt-get >/dev/null 2>&1 ||
    fail "needs docker-registry (Debian's name for the registry of the distribution project, 2.x); put it on PATH, then run make registry again"
[ "$(id -u)" = 0 ] || fail "needs docker-registry: run 'sudo apt-get install docker-registry', then make registry again"
say "installing docker-registry"
policy=/usr/sbin/policy-rc.d        # Debian's way to keep a package from starting its service: only the tests run it, on ports of their own
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
if ! { apt-get update -qq && env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends docker-registry; } >/dev/null; then
    fail "could not install docker-registry; the lines above say why"
fi
say "installed: $(command -v docker-registry)"
