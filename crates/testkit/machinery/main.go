// Clients and workers of the Go library machinery, versions 1 and 2, for tests: `machinery COMMAND URL ARGUMENTS`. The URL is
// that of Redis or RabbitMQ, for the broker and the result backend. For SQS it is `URL_OF_SQS,URL_OF_REDIS`, for example
// http://127.0.0.1:9324/000000000000,redis://127.0.0.1:6379.
//
//	send1, send2        sends the tasks of the library's example and prints their results, one per line
//	many N              sends N tasks with the library's first version, and prints how many results are right
//	fail                sends a group with a callback of which one task fails, and prints the callback's error
//	work SECONDS        runs a worker of the library's first version
package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "github.com/RichardKnop/machinery/v1"
	"github.com/RichardKnop/machinery/v1/config"
	"github.com/RichardKnop/machinery/v1/log"
	"github.com/RichardKnop/machinery/v1/tasks"
	"github.com/aws/aws-sdk-go/aws"
	"github.com/aws/aws-sdk-go/aws/credentials"
	"github.com/aws/aws-sdk-go/aws/session"
	"github.com/aws/aws-sdk-go/service/sqs"
)

const patience = 60 * time.Second

func main() {
	if len(os.Args) < 3 {
		fail(errors.New("expected a command and a URL"))
	}
	server := newServer(os.Args[2])
	switch os.Args[1] {
	case "send1":
		sendExample(server)
	case "send2":
		sendExample2(os.Args[2])
	case "many":
		sendMany(server, number(3))
	case "fail":
		sendFailing(server)
	case "work":
		work(server, number(3))
	default:
		fail(fmt.Errorf("unknown command %q", os.Args[1]))
	}
}

// places returns the URLs of the broker and of the result backend, and a client of SQS if the broker is SQS.
func places(urls string) (string, string, *sqs.SQS) {
	broker, backend, isSqs := strings.Cut(urls, ",")
	if !isSqs {
		return urls, urls, nil
	}
	server, err := url.Parse(broker)
	must(err)
	server.Path = ""
	// Otherwise the library takes no URL but those of Amazon.
	must(os.Setenv("DISABLE_STRICT_SQS_CHECK", "true"))
	made, err := session.NewSession(&aws.Config{
		Region:      aws.String("us-east-1"),
		Endpoint:    aws.String(server.String()),
		Credentials: credentials.NewStaticCredentials("key", "secret", ""),
	})
	must(err)
	return broker, backend, sqs.New(made)
}

func newServer(url string) *v1.Server {
	broker, backend, client := places(url)
	server, err := v1.NewServer(&config.Config{
		DefaultQueue:    "machinery_tasks",
		ResultsExpireIn: 3600,
		Broker:          broker,
		ResultBackend:   backend,
		SQS:             &config.SQSConfig{Client: client, WaitTimeSeconds: 1},
		AMQP:            &config.AMQPConfig{Exchange: "machinery_exchange", ExchangeType: "direct", BindingKey: "machinery_task", PrefetchCount: 3},
		Redis:           &config.RedisConfig{MaxIdle: 3, IdleTimeout: 240, ReadTimeout: 15, WriteTimeout: 15, ConnectTimeout: 15, NormalTasksPollPeriod: 100, DelayedTasksPollPeriod: 100},
	})
	must(err)
	return server
}

func add(values ...int64) []tasks.Arg {
	var args []tasks.Arg
	for _, value := range values {
		args = append(args, tasks.Arg{Type: "int64", Value: value})
	}
	return args
}

func signature(name string, args []tasks.Arg) *tasks.Signature {
	return &tasks.Signature{Name: name, Args: args}
}

func sendExample(server *v1.Server) {
	single, err := server.SendTask(signature("add", add(1, 1)))
	must(err)
	values, err := single.GetWithTimeout(patience, 5*time.Millisecond)
	must(err)
	fmt.Println("single", tasks.HumanReadableResults(values))

	split, err := server.SendTask(signature("split", []tasks.Arg{{Type: "string", Value: "a<b"}}))
	must(err)
	values, err = split.GetWithTimeout(patience, 5*time.Millisecond)
	must(err)
	fmt.Println("split", tasks.HumanReadableResults(values))

	chain, err := tasks.NewChain(signature("add", add(1, 1)), signature("add", add(2, 2)), signature("multiply", add(4)))
	must(err)
	ofChain, err := server.SendChain(chain)
	must(err)
	values, err = ofChain.GetWithTimeout(patience, 5*time.Millisecond)
	must(err)
	fmt.Println("chain", tasks.HumanReadableResults(values))

	group, err := tasks.NewGroup(signature("add", add(1, 1)), signature("add", add(2, 2)), signature("add", add(5, 6)))
	must(err)
	ofGroup, err := server.SendGroup(group, 10)
	must(err)
	for _, result := range ofGroup {
		values, err = result.GetWithTimeout(patience, 5*time.Millisecond)
		must(err)
		fmt.Println("group", tasks.HumanReadableResults(values))
	}

	group, err = tasks.NewGroup(signature("add", add(1, 1)), signature("add", add(2, 2)), signature("add", add(5, 6)))
	must(err)
	chord, err := tasks.NewChord(group, signature("multiply", nil))
	must(err)
	ofChord, err := server.SendChord(chord, 10)
	must(err)
	values, err = ofChord.GetWithTimeout(patience, 5*time.Millisecond)
	must(err)
	fmt.Println("chord", tasks.HumanReadableResults(values))

	eta := time.Now().UTC().Add(2 * time.Second)
	delayed := signature("add", add(7, 7))
	delayed.ETA = &eta
	ofDelayed, err := server.SendTask(delayed)
	must(err)
	values, err = ofDelayed.GetWithTimeout(patience, 5*time.Millisecond)
	must(err)
	if time.Now().Before(eta) {
		fail(errors.New("the delayed task ran too early"))
	}
	fmt.Println("delayed", tasks.HumanReadableResults(values))

	failing, err := server.SendTask(signature("panic_task", nil))
	must(err)
	_, err = failing.GetWithTimeout(patience, 5*time.Millisecond)
	fmt.Println("error", err)
}

func sendMany(server *v1.Server, count int64) {
	right := 0
	var sent []func() bool
	for n := int64(0); n < count; n++ {
		result, err := server.SendTask(signature("add", add(n, n)))
		must(err)
		n := n
		sent = append(sent, func() bool {
			values, err := result.GetWithTimeout(patience, 20*time.Millisecond)
			return err == nil && len(values) == 1 && values[0].Int() == 2*n
		})
	}
	for _, isRight := range sent {
		if isRight() {
			right++
		}
	}
	fmt.Println("right", right)
}

func sendFailing(server *v1.Server) {
	group, err := tasks.NewGroup(signature("add", add(1, 1)), signature("panic_task", nil))
	must(err)
	chord, err := tasks.NewChord(group, signature("multiply", nil))
	must(err)
	_, err = server.SendChord(chord, 10)
	must(err)
	// `ChordAsyncResult.Get` of the library returns nothing at all once a task has failed.
	for ends := time.Now().Add(patience); time.Now().Before(ends); time.Sleep(20 * time.Millisecond) {
		state, err := server.GetBackend().GetState(chord.Callback.UUID)
		if err == nil && state.IsCompleted() {
			fmt.Println("callback", state.State, state.Error)
			return
		}
	}
	fail(errors.New("the callback has no state"))
}

func work(server *v1.Server, seconds int64) {
	log.Set(quiet{})
	must(server.RegisterTasks(map[string]interface{}{
		"add": func(args ...int64) (int64, error) {
			sum := int64(0)
			for _, arg := range args {
				sum += arg
			}
			return sum, nil
		},
		"multiply": func(args ...int64) (int64, error) {
			product := int64(1)
			for _, arg := range args {
				product *= arg
			}
			return product, nil
		},
		"panic_task": func() (string, error) { return "", errors.New("oops") },
	}))
	worker := server.NewWorker("tests", 4)
	ended := make(chan error, 1)
	worker.LaunchAsync(ended)
	select {
	case err := <-ended:
		must(err)
	case <-time.After(time.Duration(seconds) * time.Second):
	}
}

// quiet writes no log.
type quiet struct{}

func (quiet) Print(...interface{})          {}
func (quiet) Printf(string, ...interface{}) {}
func (quiet) Println(...interface{})        {}
func (quiet) Fatal(...interface{})          {}
func (quiet) Fatalf(string, ...interface{}) {}
func (quiet) Fatalln(...interface{})        {}
func (quiet) Panic(...interface{})          {}
func (quiet) Panicf(string, ...interface{}) {}
func (quiet) Panicln(...interface{})        {}

func number(place int) int64 {
	if len(os.Args) <= place {
		fail(fmt.Errorf("argument %d is missing", place))
	}
	value, err := strconv.ParseInt(os.Args[place], 10, 64)
	must(err)
	return value
}

func must(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "machinery:", err)
	os.Exit(1)
}
