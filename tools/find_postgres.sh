#!/bin/sh
# Provide PostgreSQL, of which the tests start servers of their own: Debian's, where it is not there. Nothing of the machine's own server
# is touched, and none is started. Where it cannot be had, those tests are skipped; in continuous integration (NEED_SERVERS is set) that
# is an error.
set -eu

say() { printf 'postgres: %s\n' "$*"; }
missing() {
    printf 'postgres: %s\n' "$*" >&2
    [ -z "${NEED_SERVERS:-}" ] || exit 1
    say "the tests of images on PostgreSQL will be skipped"
    exit 0
}

for found in /usr/lib/postgresql/*/bin/initdb; do
    [ ! -x "$found" ] || { say "found: ${found%/initdb}"; exit 0; }
done
if found=$(command -v initdb); then
    say "found on PATH: $found"; exit 0
fi
command -v apt-get >/dev/null 2>&1 || missing "needs initdb, pg_ctl and pg_basebackup on PATH"
[ "$(id -u)" = 0 ] || missing "run 'sudo apt-get install postgresql', then make postgres again"
say "installing postgresql, without a cluster of the machine's own"
mkdir -p /etc/postgresql-common/createcluster.d
printf 'create_main_cluster = false\n' >/etc/postgresql-common/createcluster.d/batos.conf
if ! { apt-get update -qq && env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql; } >/dev/null; then
    missing "could not install it; the lines above say why"
fi
say "installed"
