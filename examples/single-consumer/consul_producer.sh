#!/bin/sh
# Writes an entry into the task list for each shard of the command line, as producers of the first design do. If a server of
# Consul does not answer, the entry goes to the next one, under the same key: it is one task however often it is written.
set -eu

# Writes an entry by any server: its key and its value.
put() {
    for address in $(echo "$CONSUL" | tr , ' '); do
        curl -fsS -o run/answer -X PUT "http://$address/v1/kv/oracleTask/$1" -d "$2" && return
    done 2> run/producer.log
    return 1
}

for shard in "$@"; do
    now=$(date +%s%N)
    until put "task_$now" "{\"taskId\": \"$now\", \"taskTime\": \"${now%?????????}\", \"taskTaken\": \"false\",
        \"taskType\": \"resize\", \"taskPara\": {\"shard\": \"$shard\"}}"; do
        sleep 0.2
    done
done
