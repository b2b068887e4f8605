// The module mysql on a queue of RabbitMQ.
package main

import (
	"errors"
	"log"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"classic-modules/mysql"
)

func main() {
	for {
		log.Print("connecting again: ", serve())
		time.Sleep(time.Second)
	}
}

// Serves until the connection is lost.
func serve() error {
	connection, err := amqp.Dial(os.Getenv("BROKER"))
	if err != nil {
		return err
	}
	defer connection.Close()
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	for _, queue := range []string{"mysql", "windlass-results"} {
		_, err := channel.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
		if err != nil {
			return err
		}
	}
	if err := channel.Confirm(false); err != nil {
		return err
	}
	if err := channel.Qos(1, 0, false); err != nil {
		return err
	}
	messages, err := channel.Consume("mysql", "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for message := range messages {
		token, _ := message.Headers["windlass-token"].(string)
		step, err := mysql.Read(message.Body, token)
		if err != nil {
			log.Print("dropping a message that cannot be read: ", err)
			if err := message.Reject(false); err != nil {
				return err
			}
			continue
		}
		err = step.Run(func(result []byte) error {
			lasting := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: result}
			confirmation, err := channel.PublishWithDeferredConfirm("", "windlass-results", false, false, lasting)
			if err == nil && !confirmation.Wait() {
				err = errors.New("RabbitMQ did not take a result")
			}
			return err
		})
		if err != nil {
			return err
		}
		if err := message.Ack(false); err != nil { // the result is with the broker
			return err
		}
	}
	return errors.New("the connection was lost")
}
