// The module mysql on a topic of Kafka.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"classic-modules/mysql"
)

func main() {
	running, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	servers, _, _ := strings.Cut(strings.TrimPrefix(os.Getenv("BROKER"), "kafka://"), "?")
	kafka, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(servers, ",")...),
		kgo.ConsumerGroup("windlass.mysql"), // which is divided cooperatively, by default here
		kgo.ConsumeTopics("mysql"),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(10*time.Second),
		kgo.MetadataMinAge(time.Second), // the topic is made with the first step
		kgo.MetadataMaxAge(time.Second),
	)
	check(err)
	defer kafka.Close() // whoever leaves the group hands its partitions over at once
	for running.Err() == nil {
		fetched := kafka.PollRecords(running, 1)
		fetched.EachError(func(_ string, _ int32, err error) { log.Print(err) })
		fetched.EachRecord(func(record *kgo.Record) {
			step, err := mysql.Read(record.Value, token(record))
			check(err)
			check(step.Run(func(result []byte) error {
				told := &kgo.Record{Topic: "windlass-results", Key: []byte(step.TaskId), Value: result}
				return kafka.ProduceSync(context.Background(), told).FirstErr()
			}))
			// The result is with all copies. What is not committed comes again.
			if err := kafka.CommitRecords(context.Background(), record); err != nil {
				log.Print(err)
			}
		})
	}
}

func token(record *kgo.Record) string {
	for _, header := range record.Headers {
		if header.Key == "windlass-token" {
			return string(header.Value)
		}
	}
	return ""
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
