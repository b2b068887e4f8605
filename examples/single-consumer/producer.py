"""Publishes a task for each shard of the command line, and waits until each is confirmed."""

import json
import os
import sys
import time

import pika


def channel():
    """A channel to whichever server HAProxy chooses, once one is there."""
    while True:
        try:
            channel = pika.BlockingConnection(pika.URLParameters(os.environ["BROKER"])).channel()
            channel.queue_declare("fleet", durable=True, arguments={
                "x-queue-type": "quorum", "x-single-active-consumer": True})
            channel.confirm_delivery()
            return channel
        except pika.exceptions.AMQPError:
            time.sleep(0.2)


persistent = pika.BasicProperties(delivery_mode=2)
to = channel()
for shard in sys.argv[1:]:
    # The id stays the same however often the message is published: it starts one task.
    message = json.dumps({"id": f"resize-{shard}", "shard": shard})
    while True:
        try:
            to.basic_publish("", "fleet", message, persistent, mandatory=True)
            break
        except (pika.exceptions.AMQPError, pika.exceptions.UnroutableError, pika.exceptions.NackError):
            to = channel()
