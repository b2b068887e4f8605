#!/bin/sh
# A server at WINDLASS_SERVER with the MQTT broker on port MQTT_PORT of this machine, and three devices. stop.sh ends all of it.
set -eu
cd "$(dirname "$0")"
mkdir -p run

# Starts a process that stop.sh ends: its name and its command. Its log is run/NAME.log.
start() {
    name=$1
    shift
    "$@" > "run/$name.out" 2> "run/$name.log" &
    echo $! > "run/$name.pid"
}

printf '[devices]\nbroker = "mqtt://127.0.0.1:%s"\n' "$MQTT_PORT" > run/windlass.toml
start server windlass server --store sqlite:run/fleet.db --listen "${WINDLASS_SERVER#http://}" --config run/windlass.toml
until windlass device apply devices.yaml; do sleep 0.2; done 2> run/waiting
windlass flow apply flow.yaml
for name in pump-1 pump-2 valve-1; do
    start "$name" ./device.sh "$name"
done
# The server hears of each device from the broker.
until windlass device list --offline | grep -q '^no devices'; do sleep 0.2; done
