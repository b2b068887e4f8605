#!/bin/sh
# Runs the commands of this example by hand, as a worker would, and looks at what they leave on the disk.
# shellcheck disable=SC2030,SC2031 # what a subshell sets is for that subshell
set -eu
cd "$(dirname "$0")/modules"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
dir="$scratch/in \"quotes\""

fail() {
    printf 'FAILED: %s\n' "$*" >&2
    test ! -f "$scratch/log" || cat "$scratch/log" >&2
    exit 1
}

# run TASK COMMAND PARAMS [FURTHER FIELDS]: its result is in $scratch/result, its log lines in $scratch/log.
run() {
    case $2 in
    check_resource) folder=resource step=check direction=forward ;;
    report_event) folder=monitor step=check direction=rollback ;;
    init_instance) folder=mysql step=init direction=forward ;;
    clean_instance) folder=mysql step=init direction=rollback ;;
    deduct_resource) folder=resource step=deduct direction=forward ;;
    restore_resource) folder=resource step=deduct direction=rollback ;;
    esac
    quoted=$(printf '%s' "$dir" | sed 's/"/\\"/g')
    printf '{"note":["Cpu",{"params":1}],"params":{"Labels":{"Cpu":99},"dir":"%s",%s}%s}\n' "$quoted" "$3" "${4-}" |
        (
            cd "$folder"
            export WINDLASS_TASK="$1" WINDLASS_STEP="$step" WINDLASS_IDEMPOTENCY_KEY="$1/$step/-/$direction"
            exec "./$2"
        ) >"$scratch/result" 2>"$scratch/log"
}

# refused TEXT: the last command ended with 65 and said this.
refused() {
    test "$code" -eq 65 || fail "expected exit 65, got $code"
    tail -n 1 "$scratch/log" | grep -qF "$1" || fail "expected as last line: $1"
}

entries() {
    grep -c "^$1 " "$dir/ledger" || true
}

fresh() {
    rm -rf "$dir"
    mkdir -p "$dir"
    echo 'capacity 16 4096 1000' >"$dir/ledger"
}

small='"Cpu":4,"Memory":8,"Storage":500'

a_task_that_succeeds() {
    fresh
    for again in 1 2; do
        run t1 check_resource "$small" || fail "check $again"
        run t1 init_instance "$small" || fail "init $again"
        grep -qF '"Instance":"instance-t1","Port":13306,"Path":"' "$scratch/result" || fail "result of init $again"
        run t1 deduct_resource "$small" || fail "deduct $again"
        grep -qxF '{"Left":{"Cpu":12,"Memory":4088,"Storage":500}}' "$scratch/result" || fail "result of deduct $again"
    done
    test "$(entries deduct)" -eq 1 || fail "deducted more than once"
    grep -qxF 'innodb_buffer_pool_size = 8M' "$dir/instances/instance-t1/my.cnf" || fail "no configuration"
    test "$(find "$dir/instances/instance-t1/data" -type f | wc -l)" -eq 10 || fail "no data"
    run t2 init_instance "$small" || fail "second instance"
    grep -qF '"Port":13307' "$scratch/result" || fail "the second instance has the port of the first"
}

a_task_that_is_undone() {
    fresh
    run t1 deduct_resource "$small"
    large='"Cpu":1,"Memory":8,"Storage":800'
    run t2 check_resource "$large" || fail "check"
    run t2 init_instance "$large" || fail "init"
    code=0 && run t2 deduct_resource "$large" || code=$?
    refused '800 MB of storage are wanted, and the ledger has 500 MB left'
    for again in 1 2; do
        run t2 restore_resource "$large" || fail "restore $again"
        run t2 clean_instance "$large" || fail "clean $again"
        run t2 report_event "$large" ',"error":"too \"large\""' || fail "report $again"
    done
    test -z "$(ls -A "$dir/instances")" || fail "something is left behind"
    test "$(wc -l <"$dir/events")" -eq 1 || fail "reported more than once"
    grep -qF 't2/check/-/rollback too "large"' "$dir/events" || fail "not reported"
    code=0 && run t2 deduct_resource "$small" || code=$?
    refused 'given back already'

    run t1 restore_resource "$small" && run t1 restore_resource "$small"
    run t3 deduct_resource '"Cpu":16,"Memory":4096,"Storage":1000' || fail "not all was given back, or more than all"
    grep -qF '"Storage":0' "$scratch/result" || fail "what is left"
}

an_instance_that_is_half_made() {
    fresh
    run t1 init_instance "$small,\"slow\":5" 2>/dev/null &
    runner=$!
    tries=0
    until test -f "$dir/instances/.building-instance-t1-t1/data/tablespace.2"; do
        tries=$((tries + 1))
        test "$tries" -lt 100 || fail "init does not begin"
        sleep 0.1
    done
    # The command itself, not only the subshell that started it.
    pkill -KILL -P "$runner" || kill -KILL "$runner"
    wait "$runner" 2>/dev/null || true
    test ! -e "$dir/instances/instance-t1" || fail "half an instance is in place"
    run t1 init_instance "$small" || fail "init again"
    grep -qF 'data file 1 of 10: there already' "$scratch/log" || fail "the work done before is lost"
    grep -qF 'data file 10 of 10: written' "$scratch/log" || fail "the work is not completed"
    code=0 && run t2 init_instance "$small,\"name\":\"instance-t1\"" || code=$?
    refused 'an instance instance-t1 already, of another task'
    run t2 clean_instance "$small,\"name\":\"instance-t1\""
    test -d "$dir/instances/instance-t1" || fail "the instance of another task was removed"
}

bad_parameters() {
    fresh
    code=0 && run t1 check_resource '"Cpu":4,"Memory":8' || code=$?
    refused 'the parameter Storage is missing'
    code=0 && run t1 check_resource '"Cpu":"many","Memory":8,"Storage":1' || code=$?
    refused 'the parameter Cpu is "many"'
    code=0 && run t1 check_resource '"Cpu":17,"Memory":8,"Storage":1' || code=$?
    refused '17 CPUs are wanted, and the ledger is for 16'
    code=0 && run t1 init_instance "$small,\"name\":\"../up\"" || code=$?
    refused 'the parameter name is "../up"'
    rm "$dir/ledger"
    code=0 && run t1 deduct_resource "$small" || code=$?
    refused 'write one with a line such as'
}

# Eight at once, and the ledger has room for two.
many_at_once() {
    fresh
    for number in 1 2 3 4 5 6 7 8; do
        (
            scratch=$scratch/$number
            mkdir -p "$scratch"
            run "t$number" deduct_resource "$small" || true
        ) &
    done
    wait
    test "$(entries deduct)" -eq 2 || fail "$(entries deduct) deductions of 500 MB from 1000 MB"
}

a_lock_whose_holder_is_dead() {
    fresh
    echo 999999999 >"$dir/lock.held"
    run t1 deduct_resource "$small" || fail "deduct"
    test ! -e "$dir/lock.held" || fail "the lock is still there"
}

all() {
    a_task_that_succeeds
    a_task_that_is_undone
    an_instance_that_is_half_made
    bad_parameters
    many_at_once
}

all
# The same where there is no flock(1), which POSIX does not have.
mkdir "$scratch/bin"
for tool in awk cat cp date dd df find grep ln ls mkdir mv pkill rm rmdir sed sh sleep tail touch wc; do
    ln -s "$(command -v $tool)" "$scratch/bin/$tool"
done
PATH=$scratch/bin
all
a_lock_whose_holder_is_dead
echo "all commands do what they should"
