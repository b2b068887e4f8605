#!/bin/sh
# Ends what start.sh has started: workers first, so that they can report.
set -eu
cd "$(dirname "$0")"
for name in worker-1 worker-2 worker-3 server-1 server-2 server-3 haproxy; do
    # One that was killed is gone already.
    kill "$(cat "run/$name.pid")" 2> run/stopped || true
done
