#!/bin/sh
# Three servers on the database DATABASE, HAProxy in front of them at WINDLASS_SERVER, and three workers.
# `start.sh FILE` gives the servers a configuration file. stop.sh ends all of it.
set -eu
cd "$(dirname "$0")"
PATH=$PATH:/usr/sbin
mkdir -p run

# Starts a process that stop.sh ends: its name and its command. Its log is run/NAME.log.
start() {
    name=$1
    shift
    "$@" > "run/$name.out" 2> "run/$name.log" &
    echo $! > "run/$name.pid"
}

for n in 1 2 3; do
    start "server-$n" windlass server --store "$DATABASE" --listen 127.0.0.1:0 ${1:+--config "$1"}
done
for n in 1 2 3; do
    until grep -qs '^listening on' "run/server-$n.out"; do sleep 0.1; done
done

{
    cat balancer.cfg
    echo "  bind ${WINDLASS_SERVER#http://}"
    for n in 1 2 3; do
        echo "  server windlass$n $(sed -n 's|^listening on http://||p' "run/server-$n.out")"
    done
} > run/haproxy.cfg
start haproxy haproxy -db -f run/haproxy.cfg
until windlass flow apply flow.yaml; do sleep 0.2; done 2> run/waiting
for n in 1 2 3; do
    start "worker-$n" windlass worker --modules modules --name "worker-$n"
done
