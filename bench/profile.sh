#!/bin/sh
# Where the server's time goes under a load: runs `windlass bench`, samples its server with perf and groups the
# samples by what they were for. Needs perf (Debian: linux-perf) and the right to use it.
#
#   cargo build --release && bench/profile.sh [WORKLOAD] [TASKS]
#
# A sample belongs to the innermost function on its stack that has a group: a copy of memory to whoever had it made.
# What allocates and frees is a group of its own; the kernel's share is told apart by what it was asked for.
set -eu
cd "$(dirname "$0")/.."

WORKLOAD=${1:-chain3}
TASKS=${2:-100000}
PROGRAM=${CARGO_TARGET_DIR:-target}/release/windlass
SECONDS_SAMPLED=4
STARTING=1.5 # until the load is there

data=$(mktemp)
trap 'rm -f "$data"' EXIT

"$PROGRAM" bench --workload "$WORKLOAD" --n "$TASKS" &
bench=$!
sleep "$STARTING"
server=$(pgrep -P "$bench" -f ' server ')
perf record --quiet --freq 997 --event cpu-clock --call-graph dwarf,8192 --pid "$server" --output "$data" \
    -- sleep "$SECONDS_SAMPLED"
wait "$bench"

perf script --no-inline --input "$data" --fields comm,ip,sym,dso 2>/dev/null | awk '
    function kernel(stack) {
        if (stack ~ /tcp_|sock_|inet_|__sys_send|__sys_recv|net_rx|skb/) return "kernel: sockets"
        if (stack ~ /fsync|fdatasync|ext4|jbd2|blk_|submit_bio|btrfs|xfs_|pwrite|pread|overlay|virtio_queue|iomap/)
            return "kernel: disk"
        if (stack ~ /futex|epoll|schedule|eventfd|wake_up/) return "kernel: waiting and waking"
        return "kernel: other"
    }
    function of_user(line) {
        if (line ~ /libc/ && line ~ /malloc|calloc|realloc|free|_int_|unlink_chunk|alloc_perturb/) return "allocation"
        if (line ~ / (sqlite3|wal[A-Z]|pager|pcache)/) return "SQLite"
        if (line ~ /postcard|windlass_engine::stored|erialize for windlass_core/) return "encoding of state and events"
        if (line ~ /serde_json|windlass_api/) return "JSON"
        if (line ~ /hyper|axum|tower|matchit|httparse|[ <]http::|http_body|windlass::http/) return "HTTP"
        if (line ~ /windlass_core/) return "core"
        if (line ~ /windlass_engine/) return "engine"
        if (line ~ /rusqlite|windlass_stores/) return "SQLite: binding and rows of ours"
        if (line ~ /tokio|[ <]mio/) return "runtime (tokio)"
        return ""
    }
    function finish() {
        if (thread == "") return
        if (is_kernel) group = kernel(stack)
        if (group == "") group = "other"
        samples++; groups[group]++; threads[thread]++
        if (name != "") functions[group ": " name]++
        thread = ""
    }
    /^[^ \t]/ { finish(); thread = $1; group = ""; name = ""; stack = ""; depth = 0; is_kernel = 0; next }
    NF {
        depth++
        if (depth == 1 && /\[kernel|\[guest|\[k\]/) is_kernel = 1
        if (/\[kernel/) stack = stack $0
        if (group == "" && !is_kernel && (group = of_user($0)) != "") {
            name = $0
            sub(/^[ \t]*[0-9a-f]+ /, "", name)
            sub(/ \([^()]*\)$/, "", name)
        }
    }
    END {
        finish()
        if (samples == 0) { print "perf took no samples"; exit 1 }
        printf "\n%d samples of the server\n\n", samples
        for (group in groups) printf "%5.1f %%  %s\n", 100 * groups[group] / samples, group | "sort -rn"
        close("sort -rn")
        print "\nby function, with what it calls that has no group:\n"
        for (f in functions) printf "%5.1f %%  %s\n", 100 * functions[f] / samples, f | "sort -rn | head -25"
        close("sort -rn | head -25")
        print "\nby thread:\n"
        for (thread in threads) printf "%5.1f %%  %s\n", 100 * threads[thread] / samples, thread | "sort -rn"
    }'
