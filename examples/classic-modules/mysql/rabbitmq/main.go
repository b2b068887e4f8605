// The module mysql on a queue of RabbitMQ.
package main

import (
	"errors"
	"log"
	"os"

	amqp "github.com/rabbitmq/amqp091-go"

	"classic-modules/mysql"
)

func main() {
	connection, err := amqp.Dial(os.Getenv("BROKER"))
	check(err)
	channel, err := connection.Channel()
	check(err)
	for _, queue := range []string{"mysql", "windlass-results"} {
		_, err := channel.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
		check(err)
	}
	check(channel.Confirm(false))
	check(channel.Qos(1, 0, false))
	messages, err := channel.Consume("mysql", "", false, false, false, false, nil)
	check(err)
	for message := range messages {
		token, _ := message.Headers["windlass-token"].(string)
		step, err := mysql.Read(message.Body, token)
		check(err)
		check(step.Run(func(result []byte) error {
			lasting := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: result}
			confirmation, err := channel.PublishWithDeferredConfirm("", "windlass-results", false, false, lasting)
			if err == nil && !confirmation.Wait() {
				err = errors.New("RabbitMQ did not take a result")
			}
			return err
		}))
		check(message.Ack(false)) // the result is with the broker
	}
	log.Fatal("the connection was lost")
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
