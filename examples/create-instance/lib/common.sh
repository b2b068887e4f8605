#!/bin/sh
# What the commands of this example share. A command runs in its own folder and begins with
#     . ../../lib/common.sh
# after which the document on its stdin is read, and $dir, $task, $step and $key are set.
# shellcheck disable=SC2034 # what is set here is used there

set -eu

EX_DATAERR=65 # the task fails: trying again cannot help
EX_TEMPFAIL=75 # not now: try again later, without spending a retry

# A log line of the attempt; the last one of a command that fails is its error message.
say() {
    printf '%s\n' "$*" >&2
}

refuse() {
    say "$*"
    exit "$EX_DATAERR"
}

# field PATH: a value of the document; nothing if it is not there.
field() {
    printf '%s\n' "$document" | LC_ALL=C awk -v wanted="$1" -f ../../lib/json.awk || {
        test $? -eq 1 || refuse "cannot read $1: an escaped character in it is beyond this example"
    }
}

# number NAME [DEFAULT]: a parameter that is a whole number.
number() {
    value=$(field "params.$1")
    value=${value:-${2-}}
    case $value in
    '') refuse "the parameter $1 is missing: give it as a whole number" ;;
    *[!0-9]* | ??????????*) refuse "the parameter $1 is \"$value\": it must be a whole number below 1000000000" ;;
    esac
    # Without leading zeros, which would make the shell read it as octal.
    printf '%s\n' "$value" | sed 's/^0*\(.\)/\1/'
}

# A JSON string of its argument.
quote() {
    printf '"%s"' "$(printf '%s' "$1" | sed 's/[\\"]/\\&/g')"
}

# From here to unlock, one command at a time works in $dir. The lock ends with its holder, however that ends.
lock() {
    if command -v flock >/dev/null 2>&1; then
        exec 9>"$dir/lock"
        flock 9
    else
        # A link is made at once or not at all, and says from the start who holds the lock.
        printf '%s\n' $$ >"$dir/lock.$$"
        trap 'rm -f "$dir/lock.$$"' EXIT
        until ln "$dir/lock.$$" "$dir/lock.held" 2>/dev/null; do
            break_stale_lock
            sleep 0.2
        done
        trap 'rm -f "$dir/lock.$$" "$dir/lock.held"' EXIT
    fi
}

unlock() {
    if command -v flock >/dev/null 2>&1; then
        exec 9>&-
    else
        rm -f "$dir/lock.held" "$dir/lock.$$"
        trap - EXIT
    fi
}

# Without flock(1) nobody takes a dead holder's lock away but the next one who wants it. One at a time does so, and it
# looks again once the holder is known to be dead: what still names it then can only be what it left behind.
break_stale_lock() {
    mkdir "$dir/lock.breaking" 2>/dev/null || return 0
    holder=$(cat "$dir/lock.held" 2>/dev/null) || holder=
    if test -n "$holder" && ! kill -0 "$holder" 2>/dev/null; then
        test "$(cat "$dir/lock.held" 2>/dev/null)" != "$holder" || rm -f "$dir/lock.held" "$dir/lock.$holder"
    fi
    rmdir "$dir/lock.breaking"
}

# The ledger is a file of lines:
#     capacity CPU MEMORY STORAGE
#     deduct  TASK STEP CPU MEMORY STORAGE KEY
#     restore TASK STEP CPU MEMORY STORAGE KEY
# What is left is the capacity less all that was deducted and not restored.

# ledger_sum capacity|left: three numbers, CPU MEMORY STORAGE.
ledger_sum() {
    test -f "$dir/ledger" || refuse "there is no ledger at $dir/ledger:" \
        "write one with a line such as \"capacity 16 4096 1000\" (CPU, memory in MB, storage in MB)"
    awk -v what="$1" '
        $1 == "capacity" { cpu += $2; memory += $3; storage += $4 }
        $1 == "deduct" && what == "left" { cpu -= $4; memory -= $5; storage -= $6 }
        $1 == "restore" && what == "left" { cpu += $4; memory += $5; storage += $6 }
        END { print cpu + 0, memory + 0, storage + 0 }' "$dir/ledger"
}

# ledger_find deduct|restore: the numbers of this task's entry of that kind for this step; nothing if there is none.
ledger_find() {
    awk -v kind="$1" -v task="$task" -v step="$step" \
        '$1 == kind && $2 == task && $3 == step { print $4, $5, $6; exit }' "$dir/ledger"
}

# ledger_add KIND NUMBERS: the whole file is replaced at once, so a kill leaves the old or the new one.
ledger_add() {
    cp "$dir/ledger" "$dir/ledger.new"
    printf '%s %s %s %s %s\n' "$1" "$task" "$step" "$2" "$key" >>"$dir/ledger.new"
    mv "$dir/ledger.new" "$dir/ledger"
}

task=${WINDLASS_TASK:?is set by the worker}
step=${WINDLASS_STEP:?is set by the worker}
key=${WINDLASS_IDEMPOTENCY_KEY:?is set by the worker}
document=$(cat)

# Where everything is: the parameter "dir", or the variable INSTANCES_DIR of the worker.
dir=$(field params.dir)
dir=${dir:-${INSTANCES_DIR-}}
case $dir in
/*) mkdir -p "$dir/instances" ;;
'') refuse "where? give the parameter \"dir\", or set INSTANCES_DIR for the worker" ;;
*) refuse "the parameter dir is \"$dir\": it must be an absolute path" ;;
esac
