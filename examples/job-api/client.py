#!/usr/bin/env python3
"""Starts a job, polls its state, and prints its result: `client.py NAME VALUE`. It needs nothing but Python."""

import json
import os
import sys
import time
import urllib.error
import urllib.request
import uuid

JOBS = os.environ.get("JOBS", "http://127.0.0.1:7701")
TRIES = 10


def call(path, document=None, headers=None):
    body = json.dumps(document).encode() if document is not None else None
    request = urllib.request.Request(JOBS + path, body, {"Content-Type": "application/json", **(headers or {})})
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def start(document):
    """Starts a job. Repeats the request after a 503: all requests with the same key start one job."""
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    for left in reversed(range(TRIES)):
        try:
            return call("/api/asyncwork", document, headers)
        except urllib.error.HTTPError as error:
            if error.code != 503 or left == 0:
                raise
            time.sleep(1)


job = start({"name": sys.argv[1], "value": json.loads(sys.argv[2])})
while True:
    state = call(job["stateEndpoint"])
    if state["state"] not in ("NEW", "RUNNING", "PAUSE"):
        break
    time.sleep(job["retryAfter"] / 1000)
print(state["state"])
if state["state"] == "FINISH":
    print(json.dumps(call(state["resultEndpoint"])["result"]))
