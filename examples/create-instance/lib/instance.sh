#!/bin/sh
# Which instance a task is about: sourced after common.sh.
# shellcheck disable=SC2034,SC2154 # what is set here is used there, and the other way round

# The instance is called as the parameter "name" says, or after its task.
name=$(field params.name)
name=${name:-instance-$task}
case $name in
[!A-Za-z0-9]* | *[!A-Za-z0-9_.-]*) refuse "the parameter name is \"$name\": use letters, digits and _ . - only" ;;
esac

# It is built in a folder that only this task uses, and moved to its place when it is complete.
place=$dir/instances/$name
building=$dir/instances/.building-$name-$task

# owner FOLDER: the task that made it.
owner() {
    sed -n 's/^# task: //p' "$1/my.cnf" 2>/dev/null || true
}
