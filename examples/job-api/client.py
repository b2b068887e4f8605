#!/usr/bin/env python3
"""Starts a job, polls its state, and prints its result: `client.py NAME VALUE`. It needs nothing but Python."""

import json
import os
import sys
import time
import urllib.request

JOBS = os.environ.get("JOBS", "http://127.0.0.1:7701")


def call(path, document=None):
    body = json.dumps(document).encode() if document is not None else None
    request = urllib.request.Request(JOBS + path, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)


job = call("/api/asyncwork", {"name": sys.argv[1], "value": json.loads(sys.argv[2])})
while True:
    state = call(job["stateEndpoint"])
    if state["state"] not in ("NEW", "RUNNING", "PAUSE"):
        break
    time.sleep(job["retryAfter"] / 1000)
print(state["state"])
if state["state"] == "FINISH":
    print(json.dumps(call(state["resultEndpoint"])["result"]))
