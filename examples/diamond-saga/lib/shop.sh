# What the commands share: `params.dir` is where the shop keeps its books, a folder for each order.
# shellcheck shell=sh

input=$(cat)

# param NAME: a parameter of the task, or nothing.
param() {
    printf '%s' "$input" | python3 -c 'import json, sys; print(json.load(sys.stdin)["params"].get(sys.argv[1], ""))' "$1"
}

books=$(param dir)/$WINDLASS_TASK
mkdir -p "$books"

# enter NAME: makes an entry; a second run finds it there.
enter() {
    test -e "$books/$1" || echo "did $1" >>"$books/journal"
    touch "$books/$1"
}

# strike NAME: takes an entry back, if it is there.
strike() {
    test ! -e "$books/$1" || echo "undid $1" >>"$books/journal"
    rm -f "$books/$1"
}
