"""The instance a task is about, and the programs of PostgreSQL."""

import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path

from common import folder, params, read, refuse, say, task

name = params.get("name") or f"instance-{task}"
if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", str(name)):
    refuse(f'the parameter name is "{name}": use letters, digits and _ . - only')

# It is made in a folder that only this task uses, and moved to its place when it is complete.
place = folder / "instances" / name
making = folder / "instances" / f".making-{name}-{task}"

# Who owns an instance: the task that made it. Another task may remove it when it is told who that was.
owner = params.get("owner") or task


def is_ours(path):
    return read(path / "task") == owner


def programs():
    """The folder with the programs of the newest version."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[4]))
    found = str(versions[-1]) if versions else shutil.which("initdb")
    if not found:
        refuse("PostgreSQL is not installed here: apt-get install postgresql")
    return Path(found).parent


def account():
    """PostgreSQL refuses to run as root: then it runs as its own user."""
    if os.geteuid() != 0:
        return None
    for user in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(user)
        except KeyError:
            pass
    return refuse("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody")


def own(path):
    """Gives a file to the user the instance runs as."""
    user = account()
    if user:
        os.chown(path, user.pw_uid, user.pw_gid)


def run(program, *arguments):
    """Runs a program of PostgreSQL as that user. Its exit code; what it says are log lines."""
    user = account()
    other = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
    ended = subprocess.run(
        [programs() / program, *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/", **other,
    )
    for line in ended.stdout.splitlines():
        say(line)
    return ended.returncode


def is_running(path):
    return (path / "data").exists() and run("pg_ctl", "status", "-D", path / "data") == 0


def stop(path):
    """Stops the instance there, in good order; one that does not run is stopped already."""
    if is_running(path) and run("pg_ctl", "stop", "-D", path / "data", "-m", "fast", "-w", "-t", "60") != 0:
        raise SystemExit("it does not stop")


def port(path):
    return int(read(path / "port") or 0)
