#!/bin/sh
# Provide Chromium and its driver, in which the tests use the web console: those on PATH, else Debian's packages.
# Where they cannot be had, those tests are skipped; in continuous integration (NEED_BROWSER is set) that is an error.
set -eu

say() { printf 'chromium: %s\n' "$*"; }
missing() {
    printf 'chromium: %s\n' "$*" >&2
    [ -z "${NEED_BROWSER:-}" ] || exit 1
    say "the tests of the web console in a browser will be skipped"
    exit 0
}

if found=$(command -v chromium) && command -v chromedriver >/dev/null; then
    say "found on PATH: $found"; exit 0
fi
command -v apt-get >/dev/null 2>&1 || missing "needs chromium and chromedriver on PATH"
[ "$(id -u)" = 0 ] || missing "run 'sudo apt-get install chromium chromium-driver fonts-inter', then make chromium again"
say "installing chromium and chromium-driver"
if ! { apt-get update -qq && env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver fonts-inter; } >/dev/null; then
    missing "could not install them; the lines above say why"
fi
say "installed: $(command -v chromium)"
