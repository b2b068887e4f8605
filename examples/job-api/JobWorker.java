import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** A job worker that knows Kafka alone: it reads events of jobs, and reports on another topic. */
public final class JobWorker {
    private final KafkaProducer<String, String> producer;
    private final KafkaConsumer<String, String> consumer;

    private JobWorker(String servers) {
        producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", servers, "enable.idempotence", "true"),
                new StringSerializer(), new StringSerializer());
        consumer = new KafkaConsumer<>(
                Map.of(
                        "bootstrap.servers", servers,
                        "group.id", "windlass.jobs",
                        "partition.assignment.strategy",
                        "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
                        "auto.offset.reset", "earliest",
                        "enable.auto.commit", "false",
                        "session.timeout.ms", "10000",
                        "max.poll.interval.ms", "3600000", // longer than any job takes
                        "max.poll.records", "1",
                        "metadata.max.age.ms", "1000"), // the topic is created with the first job
                new StringDeserializer(), new StringDeserializer());
    }

    public static void main(String[] arguments) throws ExecutionException, InterruptedException {
        JobWorker worker = new JobWorker(System.getenv("BROKER").replaceFirst("^kafka://", ""));
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            worker.consumer.wakeup();
            try {
                main.join(10_000);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }));
        try {
            worker.work();
        } catch (WakeupException stop) {
            // The process was asked to stop.
        } finally {
            worker.consumer.close();
            worker.producer.close();
        }
    }

    private void work() throws ExecutionException, InterruptedException {
        consumer.subscribe(List.of("jobs"));
        while (true) {
            for (ConsumerRecord<String, String> event : consumer.poll(Duration.ofSeconds(1))) {
                handle(event);
                // After the report: the event of a worker that dies is delivered again.
                consumer.commitSync(Map.of(
                        new TopicPartition(event.topic(), event.partition()),
                        new OffsetAndMetadata(event.offset() + 1)));
            }
        }
    }

    private void handle(ConsumerRecord<String, String> event) throws ExecutionException, InterruptedException {
        Header header = event.headers().lastHeader("windlass-token");
        if (header == null) {
            System.err.println("skipped an event without a token");
            return;
        }
        String token = new String(header.value(), StandardCharsets.UTF_8);
        report(token, "{\"Event\":\"started\",\"Token\":\"" + token + "\"}");
        // The work itself. A real worker parses the event with the JSON library of its choice.
        int bytes = event.value().getBytes(StandardCharsets.UTF_8).length;
        report(token, "{\"Event\":\"succeeded\",\"Token\":\"" + token + "\",\"Parameters\":{\"result\":{\"bytes\":" + bytes + "}}}");
    }

    /** Reports what happened, and returns when all replicas have it. */
    private void report(String token, String document) throws ExecutionException, InterruptedException {
        producer.send(new ProducerRecord<>("windlass-results", token, document)).get();
    }
}
