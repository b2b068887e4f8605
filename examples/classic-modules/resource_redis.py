#!/usr/bin/env python3
"""The module `resource` on a stream of Redis."""

import json
import os

import redis

import stock

broker = redis.Redis.from_url(os.environ["BROKER"], decode_responses=True)
try:
    broker.xgroup_create("resource", "windlass", id="0", mkstream=True)
except redis.ResponseError:
    pass  # the group is there already
while True:
    # What a module that died had taken comes first, then what is new.
    entries = broker.xautoclaim("resource", "windlass", "python", min_idle_time=60_000, count=1)[1]
    for _, new in broker.xreadgroup("windlass", "python", {"resource": ">"}, count=1, block=1000):
        entries += new
    for entry, fields in entries:
        for result in stock.results(json.loads(fields["body"]), fields["windlass-token"]):
            broker.xadd("windlass-results", {"body": json.dumps(result)})
        broker.pipeline().xack("resource", "windlass", entry).xdel("resource", entry).execute()
