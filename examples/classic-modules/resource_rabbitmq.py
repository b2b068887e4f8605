#!/usr/bin/env python3
"""The module `resource` on a queue of RabbitMQ."""

import json
import os
import sys
import time

import pika
import pika.exceptions

import stock


def serve(channel):
    for queue in ("resource", "windlass-results"):
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
    channel.confirm_delivery()  # a result is with the broker before its message is acknowledged
    channel.basic_qos(prefetch_count=1)
    for method, properties, body in channel.consume("resource"):
        for result in stock.results(json.loads(body), properties.headers["windlass-token"]):
            lasting = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", "windlass-results", json.dumps(result), lasting, mandatory=True)
        channel.basic_ack(method.delivery_tag)


while True:
    try:
        with pika.BlockingConnection(pika.URLParameters(os.environ["BROKER"])) as connection:
            serve(connection.channel())
    except (pika.exceptions.AMQPError, OSError) as error:
        print("connecting again:", repr(error), file=sys.stderr, flush=True)
        time.sleep(1)
