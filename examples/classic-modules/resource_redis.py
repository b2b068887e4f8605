#!/usr/bin/env python3
"""The module `resource` on a stream of Redis."""

import json
import os
import sys
import time

import redis

import stock

broker = redis.Redis.from_url(os.environ["BROKER"], decode_responses=True)


def join_group():
    try:
        broker.xgroup_create("resource", "windlass", id="0", mkstream=True)
    except redis.ResponseError as error:
        if not str(error).startswith("BUSYGROUP"):  # the group is there already
            raise


def run_next():
    # What a module that died had taken comes first, then what is new.
    entries = broker.xautoclaim("resource", "windlass", "python", min_idle_time=60_000, count=1)[1]
    for _, new in broker.xreadgroup("windlass", "python", {"resource": ">"}, count=1, block=1000):
        entries += new
    for entry, fields in entries:
        for result in stock.results(json.loads(fields["body"]), fields["windlass-token"]):
            broker.xadd("windlass-results", {"body": json.dumps(result)})
        broker.pipeline().xack("resource", "windlass", entry).xdel("resource", entry).execute()


while True:
    try:
        join_group()
        while True:
            run_next()
    except redis.RedisError as error:  # Redis is away, or all its data were deleted
        print(error, file=sys.stderr)
        time.sleep(0.5)
