#!/usr/bin/env python3
"""The module `resource` on a topic of Kafka."""

import json
import os
import signal
import sys

from confluent_kafka import Consumer, KafkaException, Producer

import stock

servers = {"bootstrap.servers": os.environ["BROKER"].removeprefix("kafka://").split("?")[0]}
producer = Producer({**servers, "enable.idempotence": True})
consumer = Consumer({
    **servers,
    "group.id": "windlass.resource",
    "partition.assignment.strategy": "cooperative-sticky",  # as all of this group have it
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "session.timeout.ms": 10_000,
    "max.poll.interval.ms": 3_600_000,  # longer than any step takes
    "topic.metadata.refresh.interval.ms": 1000,  # the topic is made with the first step
})


def told(error, _message):
    if error:
        raise KafkaException(error)


consumer.subscribe(["resource"])
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
try:
    while True:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            print(message.error().str(), file=sys.stderr)
            continue
        token = dict(message.headers())["windlass-token"].decode()
        for result in stock.results(json.loads(message.value()), token):
            producer.produce("windlass-results", json.dumps(result), result["TaskId"], on_delivery=told)
            producer.flush()
        consumer.commit(message)  # the result is with all copies; what is not committed comes again
finally:
    consumer.close()  # whoever leaves the group hands its partitions over at once
