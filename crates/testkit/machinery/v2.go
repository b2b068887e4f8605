package main

import (
	"fmt"
	"strings"
	"time"

	v2 "github.com/RichardKnop/machinery/v2"
	backendamqp "github.com/RichardKnop/machinery/v2/backends/amqp"
	backend "github.com/RichardKnop/machinery/v2/backends/redis"
	brokeramqp "github.com/RichardKnop/machinery/v2/brokers/amqp"
	broker "github.com/RichardKnop/machinery/v2/brokers/redis"
	brokersqs "github.com/RichardKnop/machinery/v2/brokers/sqs"
	"github.com/RichardKnop/machinery/v2/config"
	lock "github.com/RichardKnop/machinery/v2/locks/eager"
	"github.com/RichardKnop/machinery/v2/tasks"
)

// sendExample2 sends a chain and a group with a callback, with the library's second version.
func sendExample2(url string) {
	broker, backend, client := places(url)
	settings := &config.Config{
		DefaultQueue:    "machinery_tasks",
		ResultsExpireIn: 3600,
		Broker:          broker,
		ResultBackend:   backend,
		SQS:             &config.SQSConfig{Client: client, WaitTimeSeconds: 1},
		AMQP:            &config.AMQPConfig{Exchange: "machinery_exchange", ExchangeType: "direct", BindingKey: "machinery_task", PrefetchCount: 3},
		Redis:           &config.RedisConfig{MaxIdle: 3, IdleTimeout: 240, ReadTimeout: 15, WriteTimeout: 15, ConnectTimeout: 15, NormalTasksPollPeriod: 100, DelayedTasksPollPeriod: 100},
	}
	server := newServer2(settings)
	task := func(name string, values ...int64) *tasks.Signature {
		signature := &tasks.Signature{Name: name}
		for _, value := range values {
			signature.Args = append(signature.Args, tasks.Arg{Type: "int64", Value: value})
		}
		return signature
	}
	chain, err := tasks.NewChain(task("add", 1, 1), task("add", 2, 2), task("multiply", 4))
	must(err)
	ofChain, err := server.SendChain(chain)
	must(err)
	values, err := ofChain.GetWithTimeout(patience, 5*time.Millisecond)
	must(err)
	fmt.Println("chain", tasks.HumanReadableResults(values))

	group, err := tasks.NewGroup(task("add", 1, 1), task("add", 2, 2), task("add", 5, 6))
	must(err)
	chord, err := tasks.NewChord(group, task("multiply"))
	must(err)
	ofChord, err := server.SendChord(chord, 10)
	must(err)
	values, err = ofChord.GetWithTimeout(patience, 5*time.Millisecond)
	must(err)
	fmt.Println("chord", tasks.HumanReadableResults(values))
}

func newServer2(settings *config.Config) *v2.Server {
	if strings.HasPrefix(settings.Broker, "amqp") {
		return v2.NewServer(settings, brokeramqp.New(settings), backendamqp.New(settings), lock.New())
	}
	// Without the number of the database.
	address, _, _ := strings.Cut(strings.TrimPrefix(settings.ResultBackend, "redis://"), "/")
	if settings.SQS.Client != nil {
		return v2.NewServer(settings, brokersqs.New(settings), backend.NewGR(settings, []string{address}, 0), lock.New())
	}
	return v2.NewServer(settings, broker.NewGR(settings, []string{address}, 0), backend.NewGR(settings, []string{address}, 0), lock.New())
}
