"""What the commands of this example share: the document on stdin, the folder, and how a command ends."""

import fcntl
import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path

EX_DATAERR = 65  # the task fails: trying again cannot help

document = json.load(sys.stdin)
params = document["params"]
task = document["task"]


def say(line):
    """A log line of the attempt; the last one of a command that fails is its error message."""
    print(line, file=sys.stderr, flush=True)


def refuse(line):
    say(line)
    sys.exit(EX_DATAERR)


def finish(**result):
    print(json.dumps(result))
    sys.exit(0)


def number(name):
    """A parameter that is a whole number."""
    value = params.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 10**9:
        refuse(f"the parameter {name} is {json.dumps(value)}: it must be a whole number below 1000000000")
    return value


def read(file):
    """What is in a file; nothing if it is not there."""
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""


def replace(file, text):
    """Writes a file at once: whoever looks, or is killed, finds the old text or the new one."""
    new = file.with_name(file.name + ".new")
    new.write_text(text)
    new.replace(file)


@contextmanager
def alone():
    """One command at a time works in the folder."""
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# Where everything is: the parameter "dir", or the variable INSTANCES_DIR of the worker.
folder = Path(params.get("dir") or os.environ.get("INSTANCES_DIR", ""))
if not folder.is_absolute():
    refuse(f'the instances are in "{folder}": give the parameter "dir", or INSTANCES_DIR to the worker, an absolute path')
(folder / "instances").mkdir(parents=True, exist_ok=True)
