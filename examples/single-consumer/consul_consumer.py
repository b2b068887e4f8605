"""A consumer of the first design: it locks the leader key with a session, and then takes entries by their taskTime."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request


def ask(method, path, body=None):
    """The answer of whichever server of Consul answers first. None if there is no such thing."""
    for address in os.environ["CONSUL"].split(","):
        request = urllib.request.Request(f"http://{address}/v1/{path}", body and json.dumps(body).encode(), method=method)
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise
        except OSError as error:
            print(f"{address}: {error}", file=sys.stderr)
    sys.exit("no server of Consul answers")


def renew(session):
    if ask("PUT", f"session/renew/{session}") is None:
        sys.exit("the session has ended: another consumer may lead")


def waiting():
    """Entries that nobody has taken, by their time. Consul returns them by their keys, which decides within a second."""
    entries = ask("GET", "kv/oracleTask/?recurse") or []
    tasks = [(entry, json.loads(base64.b64decode(entry["Value"]))) for entry in entries]
    tasks = [(entry, task) for entry, task in tasks if task["taskTaken"] in ("false", False)]
    return sorted(tasks, key=lambda pair: int(pair[1]["taskTime"]))


def run(entry, task):
    """Takes an entry, unless somebody was faster, runs its task and deletes the entry."""
    task["taskTaken"] = "true"
    if ask("PUT", f"kv/{entry['Key']}?cas={entry['ModifyIndex']}", task):
        print("took", task["taskPara"]["shard"], flush=True)
        subprocess.run("./resize", cwd="modules/db", input=json.dumps(task["taskPara"]).encode(), check=True)
        ask("DELETE", f"kv/{entry['Key']}")


signal.signal(signal.SIGTERM, lambda *_: sys.exit())
session = ask("PUT", "session/create", {"TTL": "10s", "LockDelay": "1s", "Behavior": "release"})["ID"]
try:
    while not ask("PUT", f"kv/consumerLeader?acquire={session}"):
        renew(session)
        time.sleep(0.5)
    while True:
        for entry, task in waiting():
            run(entry, task)
            renew(session)
        renew(session)
        time.sleep(0.5)
finally:
    ask("PUT", f"kv/consumerLeader?release={session}")
    ask("PUT", f"session/destroy/{session}")
