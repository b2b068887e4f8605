//! What only Redis can do to its queues.

use std::time::{Duration, Instant};

use windlass_brokers::{Broker, BrokerError, Consumer, ConsumerSettings, Delivery, Redis};
use windlass_testkit::{Proxy, Redis as Server};

use super::{list, messages, settings, stream, take, until};

async fn publish(broker: &Redis, number: u32) -> Result<(), BrokerError> {
    broker.publish(&stream("faults"), &messages(number..number + 1)).await.remove(0)
}

/// Receives the next one, whatever happens meanwhile that passes.
async fn next(consumer: &mut dyn Consumer) -> Delivery {
    let until = Instant::now() + super::PATIENCE;
    loop {
        assert!(Instant::now() < until, "a message comes within {:?}", super::PATIENCE);
        match consumer.receive(1, Duration::from_secs(1)).await {
            Ok(mut came) if !came.is_empty() => return came.remove(0),
            Ok(_) => {}
            Err(error) => {
                assert!(error.is_passing(), "{error}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// All data are gone under consumers who wait, hold something, and hear of nothing: they go on by themselves.
#[tokio::test]
async fn all_data_are_gone() {
    let Some(server) = Server::start_with(&["appendfsync=no"]).unwrap() else { return };
    let broker = Redis::open(&server.url()).unwrap();
    for queue in [stream("gone"), list("gone-list")] {
        broker.publish(&queue, &messages(0..2)).await.remove(0).unwrap();
        let mut consumer = broker.consume(&queue, &settings()).await.unwrap();
        let held = take(&mut *consumer, 1).await;
        let before = broker.look(&queue).await.unwrap().identity;
        assert!(before.is_some());

        server.ask(&["FLUSHALL"]).unwrap();
        assert_eq!(broker.look(&queue).await, Err(BrokerError::NoQueue(queue.name.clone())));
        // What it held is unknown to the server now; settling it is not an error.
        let _ = consumer.keep(std::slice::from_ref(&held[0].receipt)).await;
        consumer.acknowledge(std::slice::from_ref(&held[0].receipt)).await.unwrap();

        let begun = Instant::now();
        broker.publish(&queue, &messages(2..3)).await.remove(0).unwrap();
        let after = broker.look(&queue).await.unwrap().identity;
        assert!(after.is_some() && after != before, "{after:?}");
        let mut came = next(&mut *consumer).await;
        // What was on its way to it when all was deleted may come first.
        if came.message.body != messages(2..3)[0].body {
            consumer.acknowledge(&[came.receipt]).await.unwrap();
            came = next(&mut *consumer).await;
        }
        assert_eq!(came.message.body, messages(2..3)[0].body);
        println!("{queue}: all data gone, consumed again after {:.2?}", begun.elapsed());
        assert_eq!(broker.look(&queue).await.unwrap().identity, after);
    }
}

/// While a consumer waits, so that no call of its own reports it.
#[tokio::test]
async fn all_data_are_gone_while_a_consumer_waits() {
    let Some(server) = Server::start_with(&["appendfsync=no"]).unwrap() else { return };
    let broker = Redis::open(&server.url()).unwrap();
    let mut consumer = broker.consume(&stream("faults"), &settings()).await.unwrap();
    consumer.receive(1, Duration::from_millis(1)).await.unwrap();
    let wiping = async {
        tokio::time::sleep(Duration::from_millis(600)).await;
        server.ask(&["FLUSHALL"]).unwrap();
        publish(&broker, 7).await.unwrap();
    };
    // It hears of no error either: it makes its group again and goes on.
    let (came, ()) = tokio::join!(take(&mut *consumer, 1), wiping);
    assert_eq!(came[0].message.id, "id-7");
}

/// The server has handed a message out, and the answer does not arrive: it comes with the next connection, long before
/// anybody is taken for silent.
#[tokio::test]
async fn an_answer_is_lost_on_its_way() {
    let Some(server) = Server::shared().unwrap() else { return };
    let (queue, proxy) = (stream("lost-on-its-way"), Proxy::start(server.port()).unwrap());
    let direct = Redis::open(&server.url()).unwrap();
    let mut consumer =
        Redis::open(&server.url_at(proxy.port())).unwrap().consume(&queue, &settings()).await.unwrap();
    consumer.receive(1, Duration::from_millis(1)).await.unwrap();
    for number in 0..20 {
        let losing = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            proxy.stall();
            direct.publish(&queue, &messages(number..number + 1)).await.remove(0).unwrap();
            // The server delivers nothing if the consumer has no open request when the stall begins.
            let pending = server.ask(&["XPENDING", &queue.name, "workers"]).unwrap();
            let is_handed_out = !pending.starts_with('0');
            if is_handed_out {
                proxy.cut();
            }
            proxy.heal();
            is_handed_out
        };
        let (received, is_lost) = tokio::join!(consumer.receive(1, super::PATIENCE), losing);
        if is_lost {
            assert!(matches!(received, Err(BrokerError::Unreachable(_))), "{received:?}");
            let came = consumer.receive(1, Duration::from_secs(5)).await.unwrap();
            let id = format!("id-{number}");
            assert_eq!((came[0].message.id.as_str(), came[0].deliveries), (id.as_str(), Some(2)));
            return;
        }
        consumer.acknowledge(&[received.unwrap().remove(0).receipt]).await.unwrap();
    }
    panic!("no answer was lost in 20 rounds");
}

/// Who was silent for too long and wakes up takes nothing from whom it went to.
#[tokio::test]
async fn a_silent_consumer_takes_nothing_back() {
    let Some(server) = Server::shared().unwrap() else { return };
    let (broker, queue) = (Redis::open(&server.url()).unwrap(), stream("takes-nothing-back"));
    let settings = ConsumerSettings { silent_after: Duration::from_secs(3), ..settings() };
    broker.publish(&queue, &messages(0..1)).await.remove(0).unwrap();
    let mut silent = broker.consume(&queue, &settings).await.unwrap();
    let held = take(&mut *silent, 1).await.remove(0);
    let mut other = broker.consume(&queue, &settings).await.unwrap();
    let again = take(&mut *other, 1).await.remove(0);
    // Its id, who has it, since when, and how often it was handed out.
    let pending = || server.ask(&["XPENDING", &queue.name, "workers", "-", "+", "10"]).unwrap();
    let whose = || pending().lines().nth(1).map(str::to_owned);
    let others = whose();
    for _ in 0..3 {
        silent.keep(std::slice::from_ref(&held.receipt)).await.unwrap();
        assert_eq!(whose(), others);
        silent.give_back(std::slice::from_ref(&held.receipt)).await.unwrap();
        assert_eq!(whose(), others);
        other.keep(std::slice::from_ref(&again.receipt)).await.unwrap();
        assert!(silent.receive(1, Duration::from_millis(200)).await.unwrap().is_empty());
    }
    assert!(pending().ends_with("\n2"), "{}", pending());
}

/// A consumer with room for one message, whose return of it is lost, gets it again.
#[tokio::test]
async fn what_could_not_be_given_back_comes_again() {
    let Some(server) = Server::shared().unwrap() else { return };
    let proxy = Proxy::start(server.port()).unwrap();
    let broker = Redis::open(&server.url_at(proxy.port())).unwrap();
    let settings = ConsumerSettings { in_hands_max: 1, silent_after: Duration::from_secs(1), ..settings() };
    for queue in [stream("not-given-back"), list("not-given-back-list")] {
        broker.publish(&queue, &messages(0..1)).await.remove(0).unwrap();
        let mut consumer = broker.consume(&queue, &settings).await.unwrap();
        let held = take(&mut *consumer, 1).await;
        proxy.cut();
        let error = consumer.give_back(std::slice::from_ref(&held[0].receipt)).await.unwrap_err();
        assert!(matches!(error, BrokerError::Unreachable(_)), "{error}");
        proxy.heal();
        let again = next(&mut *consumer).await;
        assert_eq!(again.message.body, held[0].message.body);
        consumer.acknowledge(&[again.receipt]).await.unwrap();
        assert_eq!(broker.look(&queue).await.unwrap().messages, Some(0));
    }
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() {
    let Some(server) = Server::start_with(&["requirepass=s3cret"]).unwrap() else { return };
    publish(&Redis::open(&server.url()).unwrap(), 0).await.unwrap();
    for user in [":wr0ng@", "nobody:wr0ng@", ""] {
        let broker = Redis::open(&format!("redis://{user}127.0.0.1:{}", server.port())).unwrap();
        let queue = stream("faults");
        let errors = [
            broker.declare(&queue).await.unwrap_err(),
            publish(&broker, 1).await.unwrap_err(),
            broker.look(&queue).await.unwrap_err(),
            broker.consume(&queue, &settings()).await.err().unwrap(),
        ];
        for error in errors {
            assert!(matches!(error, BrokerError::Refused(_)) && !error.is_passing(), "{error}");
            assert!(!error.to_string().contains("wr0ng"), "{error}");
        }
    }
}

/// A user is taken away and comes back: calls are refused meanwhile, and go on by themselves, and what was in flight still is.
#[tokio::test]
async fn a_password_is_revoked() {
    let Some(server) = Server::start().unwrap() else { return };
    let set_user = || server.ask(&["ACL", "SETUSER", "windlass", "on", ">s3cret", "~*", "+@all"]).unwrap();
    set_user();
    let broker = Redis::open(&format!("redis://windlass:s3cret@127.0.0.1:{}", server.port())).unwrap();
    for number in 0..2 {
        publish(&broker, number).await.unwrap();
    }
    let mut consumer = broker.consume(&stream("faults"), &settings()).await.unwrap();
    let held = take(&mut *consumer, 1).await.remove(0);

    // This closes the user's connections.
    server.ask(&["ACL", "DELUSER", "windlass"]).unwrap();
    let mut refused = 0;
    for _ in 0..3 {
        refused += usize::from(matches!(publish(&broker, 2).await, Err(BrokerError::Refused(_))));
        let received = consumer.receive(1, Duration::from_millis(100)).await;
        refused += usize::from(matches!(received, Err(BrokerError::Refused(_))));
    }
    // The first call of each connection may only hear that it was closed.
    assert!(refused >= 4, "{refused} of 6 calls were refused");

    set_user();
    publish(&broker, 3).await.unwrap();
    consumer.acknowledge(&[held.receipt]).await.unwrap();
    let came = [next(&mut *consumer).await, next(&mut *consumer).await];
    assert_eq!(came.map(|delivery| delivery.message.id), ["id-1", "id-3"]);
}

#[tokio::test]
async fn what_a_user_may_not_do_is_refused() {
    let Some(server) = Server::start().unwrap() else { return };
    server.ask(&["ACL", "SETUSER", "reader", "on", ">s3cret", "~*", "+@all", "-xadd"]).unwrap();
    let broker = Redis::open(&format!("redis://reader:s3cret@127.0.0.1:{}", server.port())).unwrap();
    let error = publish(&broker, 0).await.unwrap_err();
    assert!(matches!(&error, BrokerError::Refused(why) if why.contains("xadd")), "{error}");
    broker.look(&stream("faults")).await.unwrap_err();
    broker.declare(&stream("faults")).await.unwrap();
    broker.look(&stream("faults")).await.unwrap();
}

/// The user that the page on Redis makes can do all that a broker does.
#[tokio::test]
async fn the_rights_of_the_page_are_enough() {
    let Some(server) = Server::start().unwrap() else { return };
    let page = include_str!("../../../../../docs/operate/brokers/redis.md");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER windlass")).unwrap();
    let words: Vec<&str> =
        line.split(' ').map(|word| word.strip_suffix("PASSWORD").map_or(word, |_| ">s3cret")).collect();
    server.ask(&words).unwrap();
    let broker = Redis::open(&format!("redis://windlass:s3cret@127.0.0.1:{}/1", server.port())).unwrap();
    let settings = ConsumerSettings { silent_after: Duration::from_secs(1), ..settings() };
    for queue in [stream("rights"), list("rights-of-a-list")] {
        broker.declare(&queue).await.unwrap();
        broker.publish(&queue, &messages(0..2)).await.into_iter().collect::<Result<Vec<()>, _>>().unwrap();
        let mut consumer = broker.consume(&queue, &settings).await.unwrap();
        let held = take(&mut *consumer, 1).await;
        consumer.keep(std::slice::from_ref(&held[0].receipt)).await.unwrap();
        consumer.give_back(std::slice::from_ref(&held[0].receipt)).await.unwrap();
        for delivery in take(&mut *consumer, 2).await {
            consumer.acknowledge(&[delivery.receipt]).await.unwrap();
        }
        assert!(consumer.receive(1, Duration::from_millis(700)).await.unwrap().is_empty());
        assert_eq!(broker.look(&queue).await.unwrap().messages, Some(0));
        // A consumer that ends puts back what it has, and leaves.
        broker.publish(&queue, &messages(2..3)).await.remove(0).unwrap();
        take(&mut *consumer, 1).await;
        drop(consumer);
        take(&mut *broker.consume(&queue, &settings).await.unwrap(), 1).await;
    }
}

#[tokio::test]
async fn a_key_that_is_something_else_is_told() {
    let Some(server) = Server::shared().unwrap() else { return };
    let broker = Redis::open(&server.url()).unwrap();
    server.ask(&["SET", "something-else", "1"]).unwrap();
    for queue in [stream("something-else"), list("something-else")] {
        let errors = [
            broker.declare(&queue).await.unwrap_err(),
            broker.publish(&queue, &messages(0..1)).await.remove(0).unwrap_err(),
            broker.look(&queue).await.unwrap_err(),
            broker.consume(&queue, &settings()).await.err().unwrap(),
        ];
        for error in errors {
            assert!(matches!(&error, BrokerError::Invalid(why) if why.contains("something-else")), "{error}");
        }
    }
    let mut queue = stream("something-else");
    queue.kind = Some("topic".to_owned());
    let error = broker.declare(&queue).await.unwrap_err();
    assert!(
        matches!(&error, BrokerError::Invalid(why) if why.contains("a stream, a list or a reliable-list")),
        "{error}"
    );
}

/// A server whose memory is full confirms nothing, and takes messages again once there is room.
#[tokio::test]
async fn memory_is_full() {
    let Some(server) = Server::start().unwrap() else { return };
    let broker = Redis::open(&server.url()).unwrap();
    publish(&broker, 0).await.unwrap();
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let error = publish(&broker, 1).await.unwrap_err();
    assert!(
        matches!(&error, BrokerError::Failed(why) if why.contains("OOM")) && error.is_passing(),
        "{error}"
    );
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    publish(&broker, 2).await.unwrap();
}

/// The server does not answer, and the connection stays open: calls end in time, and work again after it.
#[tokio::test]
async fn the_server_stands_still() {
    let Some(server) = Server::start().unwrap() else { return };
    let broker = Redis::open(&server.url()).unwrap();
    let mut consumer = broker.consume(&stream("faults"), &settings()).await.unwrap();
    publish(&broker, 0).await.unwrap();
    take(&mut *consumer, 1).await;
    server.pause().unwrap();
    let begun = Instant::now();
    let (published, received) =
        tokio::join!(publish(&broker, 1), consumer.receive(1, Duration::from_secs(1)));
    assert!(matches!(published, Err(BrokerError::Unreachable(_))), "{published:?}");
    assert!(matches!(received, Err(BrokerError::Unreachable(_))), "{received:?}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    server.resume().unwrap();
    publish(&broker, 2).await.unwrap();
    // The one whose sending nobody confirmed may have arrived.
    while next(&mut *consumer).await.message.id != "id-2" {}
}

/// The replica takes over behind the same address, and the old server becomes its replica: what was confirmed and
/// copied is there, in whose hands it was too.
#[tokio::test]
async fn a_replica_takes_over() {
    let Some(first) = Server::start().unwrap() else { return };
    let second = Server::start().unwrap().unwrap();
    second.ask(&["REPLICAOF", "127.0.0.1", &first.port().to_string()]).unwrap();
    until("the replica follows", || {
        second.ask(&["INFO", "replication"]).unwrap().contains("master_link_status:up")
    })
    .await;
    let proxy = Proxy::start(first.port()).unwrap();
    let broker = Redis::open(&first.url_at(proxy.port())).unwrap();
    for number in 0..10 {
        publish(&broker, number).await.unwrap();
    }
    let mut consumer = broker.consume(&stream("faults"), &settings()).await.unwrap();
    let held = take(&mut *consumer, 3).await;
    // `WAIT` would count only what its own connection has written.
    let copied = |server: &Server, field: &str| {
        let info = server.ask(&["INFO", "replication"]).unwrap();
        let line = info.lines().find_map(|line| line.trim().strip_prefix(field).map(str::to_owned));
        line.unwrap_or_else(|| panic!("{info} has {field}"))
    };
    until("all is copied", || copied(&first, "master_repl_offset:") == copied(&second, "slave_repl_offset:"))
        .await;

    // Connections to the old one stay, and lead to a server that takes nothing.
    second.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
    proxy.lead_to(second.port());
    first.ask(&["REPLICAOF", "127.0.0.1", &second.port().to_string()]).unwrap();
    let begun = Instant::now();
    while let Err(error) = publish(&broker, 10).await {
        assert!(matches!(error, BrokerError::Unreachable(_)), "{error}");
        assert!(begun.elapsed() < super::PATIENCE);
    }
    println!("published again {:.2?} after the failover", begun.elapsed());
    for delivery in held {
        consumer.acknowledge(&[delivery.receipt]).await.unwrap();
    }
    let mut came = Vec::new();
    while came.len() < 8 {
        let delivery = next(&mut *consumer).await;
        consumer.acknowledge(&[delivery.receipt]).await.unwrap();
        came.push(delivery.message.id);
    }
    assert_eq!(came, (3..11).map(|number| format!("id-{number}")).collect::<Vec<_>>());
    assert_eq!(broker.look(&stream("faults")).await.unwrap().messages, Some(0));
}
