#!/usr/bin/env python3
"""A job worker that knows Kafka alone: it reads events of jobs, and reports on another topic."""

import json
import os
import signal
import sys

from confluent_kafka import Consumer, KafkaException, Producer

servers = {"bootstrap.servers": os.environ["BROKER"].removeprefix("kafka://").split("?")[0]}
producer = Producer({**servers, "enable.idempotence": True})
consumer = Consumer({
    **servers,
    "group.id": "windlass.jobs",
    "partition.assignment.strategy": "cooperative-sticky",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "session.timeout.ms": 10_000,
    "max.poll.interval.ms": 3_600_000,  # longer than any job takes
    "topic.metadata.refresh.interval.ms": 1000,  # the topic is created with the first job
})


def confirmed(error, _message):
    if error:
        raise KafkaException(error)


def report(event, token, **fields):
    """Reports what happened, and returns when all replicas have it."""
    document = {"Event": event, "Token": token, **fields}
    producer.produce("windlass-results", json.dumps(document), token, on_delivery=confirmed)
    producer.flush()


def run(name, value):
    """The work itself."""
    if name == "broken":
        raise ValueError("broken jobs fail")
    return {"name": name, "doubled": value * 2}


consumer.subscribe(["jobs"])
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
try:
    while True:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            print(message.error().str(), file=sys.stderr)
            continue
        try:
            job = json.loads(message.value())
            token = dict(message.headers() or [])["windlass-token"].decode()
        except (ValueError, KeyError) as error:
            print(f"skipped an event that is not one of a job: {error}", file=sys.stderr)
            consumer.commit(message)
            continue
        report("started", token)
        try:
            report("succeeded", token, Parameters={"result": run(job["name"], job["value"])})
        except ValueError as error:
            report("failed", token, Code=65, Message=str(error))  # 65: another attempt cannot help
        consumer.commit(message)  # after the report: the event of a worker that dies is delivered again
finally:
    consumer.close()
