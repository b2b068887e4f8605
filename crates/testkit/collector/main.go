// A receiver of traces: the OTLP receiver of the OpenTelemetry Collector. It prints each request that it accepts as a line of
// OTLP in JSON. `program ADDRESS` listens for OTLP over HTTP there; it prints READY once it does.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

func main() {
	if len(os.Args) != 2 {
		fail("usage: program ADDRESS")
	}
	if err := run(os.Args[1]); err != nil {
		fail(err.Error())
	}
}

func run(address string) error {
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	given := confmap.NewFromStringMap(map[string]any{
		"protocols": map[string]any{"http": map[string]any{"endpoint": address}},
	})
	if err := given.Unmarshal(config); err != nil {
		return err
	}
	var lines sync.Mutex
	sink, err := consumer.NewTraces(func(_ context.Context, traces ptrace.Traces) error {
		text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
		if err != nil {
			return err
		}
		lines.Lock()
		defer lines.Unlock()
		_, err = fmt.Println(string(text))
		return err
	})
	if err != nil {
		return err
	}
	ctx := context.Background()
	receiver, err := factory.CreateTraces(ctx, receivertest.NewNopSettings(component.MustNewType("otlp")), config, sink)
	if err != nil {
		return err
	}
	if err := receiver.Start(ctx, componenttest.NewNopHost()); err != nil {
		return err
	}
	lines.Lock()
	fmt.Println("READY")
	lines.Unlock()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
	return receiver.Shutdown(ctx)
}

func fail(why string) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(1)
}
