#!/bin/sh
# Ends what start.sh has started. The devices end with their connections.
set -eu
cd "$(dirname "$0")"
for name in pump-1 pump-2 valve-1 server; do
    # One that was killed is gone already.
    kill "$(cat "run/$name.pid")" 2> run/stopped || true
done
