#!/bin/sh
# Makes the secrets of `compose.yaml` in the folder `secrets`, once.
set -eu

cd "$(dirname "$0")"
[ ! -e secrets ] || { echo "secrets: the folder is there already" >&2; exit 1; }
# Each file is mounted by itself, for a user of the container that is not this one.
mkdir -m 0700 secrets
random() { od -An -N"$1" -tx1 /dev/urandom | tr -d ' \n'; }
password=$(random 32)
printf '%s' "$password" >secrets/postgres-password
printf 'postgres://windlass:%s@postgres/windlass' "$password" >secrets/store
printf 'wl_%s_%s' "$(random 8)" "$(random 32)" >secrets/admin-token
chmod 0644 secrets/*
