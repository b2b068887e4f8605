// The module mysql on a queue of SQS.
package main

import (
	"context"
	"log"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"classic-modules/mysql"
)

func main() {
	always := context.Background()
	settings, err := config.LoadDefaultConfig(always)
	check(err)
	client := sqs.NewFromConfig(settings)
	queue := func(name string) *string {
		made, err := client.CreateQueue(always, &sqs.CreateQueueInput{QueueName: &name}) // or is there
		check(err)
		return made.QueueUrl
	}
	steps, results := queue("mysql"), queue("windlass-results")
	for {
		received, err := client.ReceiveMessage(always, &sqs.ReceiveMessageInput{
			QueueUrl: steps, WaitTimeSeconds: 20, MessageAttributeNames: []string{"windlass-token"},
			VisibilityTimeout: 5, // what is handed out while this module dies comes again soon
		})
		check(err)
		for _, message := range received.Messages {
			token := message.MessageAttributes["windlass-token"].StringValue
			step, err := mysql.Read([]byte(*message.Body), aws.ToString(token))
			check(err)
			// Once it is read, nobody else gets it while it may run.
			_, err = client.ChangeMessageVisibility(always, &sqs.ChangeMessageVisibilityInput{
				QueueUrl: steps, ReceiptHandle: message.ReceiptHandle, VisibilityTimeout: step.Timeout,
			})
			check(err)
			check(step.Run(func(result []byte) error {
				told := &sqs.SendMessageInput{QueueUrl: results, MessageBody: aws.String(string(result))}
				_, err := client.SendMessage(always, told)
				return err
			}))
			// The result is with the broker.
			_, err = client.DeleteMessage(always, &sqs.DeleteMessageInput{
				QueueUrl: steps, ReceiptHandle: message.ReceiptHandle,
			})
			check(err)
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
