#!/bin/sh
# Installs the programs of Debian that the tests use. Run it as root; a second run does nothing.
set -eu

packages="docker.io docker-compose debootstrap iproute2 iptables prometheus redis-server chromium gcc libc6-dev nginx-light"
missing=""
for package in $packages; do
    state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086  # the list is meant to be split
apt-get install -y -qq --no-install-recommends $missing >/dev/null
