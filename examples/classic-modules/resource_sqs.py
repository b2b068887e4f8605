#!/usr/bin/env python3
"""The module `resource` on a queue of SQS."""

import json
import os

import boto3

import stock

sqs = boto3.resource("sqs", endpoint_url=os.environ.get("AWS_ENDPOINT_URL"))
steps, results = (sqs.create_queue(QueueName=name) for name in ("resource", "windlass-results"))  # or are there
while True:
    # What is handed out while this module dies comes again soon; once it is read, nobody else gets it while it may run.
    for message in steps.receive_messages(
        WaitTimeSeconds=20, VisibilityTimeout=5, MessageAttributeNames=["windlass-token"]
    ):
        step = json.loads(message.body)
        message.change_visibility(VisibilityTimeout=step["Timeout"])
        for result in stock.results(step, message.message_attributes["windlass-token"]["StringValue"]):
            results.send_message(MessageBody=json.dumps(result))
        message.delete()  # the result is with the broker
