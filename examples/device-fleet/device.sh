#!/bin/sh
# A device that knows nothing of Windlass: it does the jobs that are published on NAME/run, one after the other, and reports each on
# NAME/done. Its status is on NAME/status; the broker publishes `offline` there when the connection is lost.
set -eu
name=$1

publish() {
    mosquitto_pub -h 127.0.0.1 -p "$MQTT_PORT" -q 1 "$@"
}

# Its connection ends with this script, and it says so itself when it ends in order.
trap 'kill "$connection"; publish -r -t "$name/status" -m offline' EXIT
trap 'exit 0' TERM INT
[ -p "run/$name.jobs" ] || mkfifo "run/$name.jobs"
mosquitto_sub -h 127.0.0.1 -p "$MQTT_PORT" -q 1 -i "device-$name" -t "$name/run" \
    --will-topic "$name/status" --will-payload offline --will-retain > "run/$name.jobs" &
connection=$!
publish -r -t "$name/status" -m online
while read -r job; do
    echo "$job"
    # It takes a moment. The answer has the uuid and the attempt of the job.
    sleep 0.2
    uuid=$(printf '%s' "$job" | sed 's/.*"uuid":"\([^"]*\)".*/\1/')
    attempt=$(printf '%s' "$job" | sed 's/.*"attempt":\([0-9]*\).*/\1/')
    publish -t "$name/done" -m "{\"uuid\":\"$uuid\",\"device\":\"$name\",\"success\":true,\"attempt\":$attempt}"
done < "run/$name.jobs"
