#!/bin/sh
# The servers of start.sh, which are consumers of the task list in Consul: CONSUL is HOST:PORT[,HOST:PORT…]. One of them leads.
# LEASE is how long a takeover may take; below 22.3s it needs `session_ttl_min` in the configuration of Consul.
set -eu
cd "$(dirname "$0")"
mkdir -p run
cat > run/windlass.toml << END
[[task_list]]
consul = "consul://$CONSUL"
prefix = "oracleTask/"
leader = "consumerLeader"
lease = "${LEASE:-30s}"
flows = { resize = "resize" }
END
exec ./start.sh run/windlass.toml
