#!/bin/sh
# The servers of start.sh, one of which reads the queue `fleet` of RabbitMQ at BROKER: the one that ZooKeeper at COORDINATOR elects.
set -eu
cd "$(dirname "$0")"
mkdir -p run
cat > run/windlass.toml << END
[[intake]]
broker = "$BROKER"
queue = "fleet"
kind = "single-active"
flow = "resize"
key = "/id"
leader = { coordinator = "$COORDINATOR", name = "fleet-7/intake", lease = "10s" }
END
exec ./start.sh run/windlass.toml
