//! What becomes of messages when rights, memory or the network go.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use windlass_brokers::{Broker, BrokerError, Message, Queue, RabbitMq};
use windlass_testkit::{Proxy, RabbitMq as Server};

use super::{PATIENCE, message, receipts, settings, take};

/// How long any call may take while the server does not answer.
const AWAY_MAX: Duration = Duration::from_secs(30);

/// Makes a user of the default virtual host: what may be declared, written and read by patterns.
pub(super) fn make_user(server: &Server, user: &str, rights: [&str; 3]) {
    let [configure, write, read] = rights;
    server
        .evaluate(&format!(
            "ok = rabbit_auth_backend_internal:add_user(<<\"{user}\">>, <<\"secret\">>, <<\"test\">>), \
             rabbit_auth_backend_internal:set_permissions(<<\"{user}\">>, <<\"/\">>, <<\"{configure}\">>, \
             <<\"{write}\">>, <<\"{read}\">>, <<\"test\">>)"
        ))
        .unwrap();
}

pub(super) fn as_user(server: &Server, user: &str) -> RabbitMq {
    RabbitMq::new(&format!("amqp://{user}:secret@127.0.0.1:{}/", server.port())).unwrap()
}

/// A user who is deleted is out at once, and every call reports it.
#[tokio::test]
async fn rights_that_are_revoked_are_gone() {
    let Some(server) = Server::shared().unwrap() else { return };
    make_user(server, "leaver", [".*", ".*", ".*"]);
    let broker = as_user(server, "leaver");
    let queue = Queue::new("revoked");
    broker.publish(&queue, &[message(1)]).await.remove(0).unwrap();
    let mut consumer = broker.consume(&queue, &settings(10)).await.unwrap();
    take(&mut *consumer, 1).await;
    server.evaluate("rabbit_auth_backend_internal:delete_user(<<\"leaver\">>, <<\"test\">>)").unwrap();

    // The first errors may be that the connection was lost, which says nothing about why.
    let until = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < until, "it is refused");
        match broker.publish(&queue, &[message(2)]).await.remove(0) {
            Err(BrokerError::Refused(why)) => {
                assert!(why.contains("ACCESS_REFUSED") && !why.contains("secret"), "{why}");
                break;
            }
            Err(BrokerError::Unreachable(_)) | Ok(()) => sleep(Duration::from_millis(50)).await,
            Err(other) => panic!("{other}"),
        }
    }
    let mut received = consumer.receive(1, Duration::ZERO).await;
    while matches!(received, Ok(_) | Err(BrokerError::Unreachable(_))) {
        assert!(Instant::now() < until, "it is refused");
        received = consumer.receive(1, Duration::from_millis(50)).await;
    }
    assert!(matches!(received, Err(BrokerError::Refused(_))), "{received:?}");
    // What it had in flight is another one's.
    let other = RabbitMq::new(&server.url()).unwrap();
    let again = take(&mut *other.consume(&queue, &settings(10)).await.unwrap(), 1).await;
    assert_eq!((&*again[0].message.id, again[0].deliveries), ("id-1", Some(2)));
}

/// A missing permission is named, and a user may use a queue without the right to create it.
#[tokio::test]
async fn rights_are_looked_at_one_by_one() {
    let Some(server) = Server::shared().unwrap() else { return };
    let queue = Queue::new("rights");
    RabbitMq::new(&server.url()).unwrap().declare(&queue).await.unwrap();

    make_user(server, "user", ["^$", "^amq[.]default$", "^rights$"]);
    let user = as_user(server, "user");
    user.publish(&queue, &[message(1)]).await.remove(0).unwrap();
    let mut consumer = user.consume(&queue, &settings(10)).await.unwrap();
    take(&mut *consumer, 1).await;
    let error = user.declare(&Queue::new("rights-missing")).await.unwrap_err();
    assert!(matches!(&error, BrokerError::Refused(why) if why.contains("rights-missing")), "{error}");

    make_user(server, "reader", ["^$", "^$", ".*"]);
    let reader = as_user(server, "reader");
    let error = reader.publish(&queue, &[message(2)]).await.remove(0).unwrap_err();
    assert!(matches!(&error, BrokerError::Refused(_)), "{error}");
    make_user(server, "writer", ["^$", ".*", "^$"]);
    let error = as_user(server, "writer").consume(&queue, &settings(10)).await.err().unwrap();
    assert!(matches!(&error, BrokerError::Refused(_)), "{error}");

    let url = format!("amqp://user:wrong@127.0.0.1:{}/", server.port());
    let error = RabbitMq::new(&url).unwrap().look(&queue).await.unwrap_err();
    assert!(matches!(&error, BrokerError::Refused(why) if !why.contains("wrong")), "{error}");
    let url = format!("amqp://user:secret@127.0.0.1:{}/elsewhere", server.port());
    let error = RabbitMq::new(&url).unwrap().look(&queue).await.unwrap_err();
    assert!(matches!(&error, BrokerError::Refused(why) if why.contains("elsewhere")), "{error}");
}

/// A server that is short of memory accepts nothing, which is reported soon; what workers settle gets through.
#[tokio::test]
async fn a_server_short_of_memory_holds_up_publishing_alone() {
    let Some(server) = Server::start_with(&["max_message_size=4096"]).unwrap() else { return };
    let broker = RabbitMq::new(&server.url()).unwrap();
    let queue = Queue::new("memory");
    for outcome in broker.publish(&queue, &[message(1), message(2), message(3)]).await {
        outcome.unwrap();
    }
    let mut consumer = broker.consume(&queue, &settings(1)).await.unwrap();
    let first = take(&mut *consumer, 1).await;

    server.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.0000001)").unwrap();
    // The server has noticed when it takes nothing more, and says so to who sends. That one is under way; the next one is
    // not sent at all.
    let probe = Queue::new("memory-probe");
    let (error, took) = loop {
        let begun = Instant::now();
        if let Err(error) = broker.publish(&probe, &[message(4)]).await.remove(0) {
            break (error, begun.elapsed());
        }
    };
    assert!(error.is_passing() && took < AWAY_MAX, "{error} after {took:?}");
    let begun = Instant::now();
    let error = broker.publish(&probe, &[message(4)]).await.remove(0).unwrap_err();
    assert!(error.is_passing() && error.to_string().contains("memory"), "{error}");
    // A message that was sent would fail after 10 s.
    assert!(begun.elapsed() < Duration::from_secs(5), "after {:?}", begun.elapsed());
    consumer.acknowledge(&receipts(&first)).await.unwrap();
    let second = take(&mut *consumer, 1).await;
    consumer.acknowledge(&receipts(&second)).await.unwrap();
    // The server has heard it, and may still be about to send the third.
    let until = Instant::now() + PATIENCE;
    while broker.look(&queue).await.unwrap().messages != Some(0) {
        assert!(Instant::now() < until, "the third is in flight");
        sleep(Duration::from_millis(50)).await;
    }

    server.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.8)").unwrap();
    let until = Instant::now() + PATIENCE;
    while let Err(error) = broker.publish(&queue, &[message(5)]).await.remove(0) {
        assert!(error.is_passing() && Instant::now() < until, "{error}");
        sleep(Duration::from_millis(50)).await;
    }

    // This server also has a limit of its own, lower than usual: the error names the one message that it is about.
    let large = Message { body: vec![b'x'; 5_000].into(), ..message(6) };
    let outcomes = broker.publish(&queue, &[message(7), large, message(8)]).await;
    assert_eq!((&outcomes[0], &outcomes[2]), (&Ok(()), &Ok(())));
    assert_eq!(outcomes[1], Err(BrokerError::TooLarge { bytes: 5_000, limit: 4_096 }));
}

/// A network that delivers nothing at all: calls end in time, receipts of messages in flight are refused as stale, and
/// those messages are delivered again.
#[tokio::test]
async fn a_network_that_stands_still_is_noticed() {
    let Some(server) = Server::shared().unwrap() else { return };
    let proxy = Proxy::start(server.port()).unwrap();
    let broker = RabbitMq::new(&format!("{}?heartbeat=1", server.url_at(proxy.port()))).unwrap();
    let queue = Queue::new("stalled");
    broker.publish(&queue, &[message(1), message(2)]).await.into_iter().for_each(Result::unwrap);
    let mut consumer = broker.consume(&queue, &settings(10)).await.unwrap();
    let in_hands = take(&mut *consumer, 2).await;

    proxy.stall();
    let begun = Instant::now();
    let error = broker.publish(&queue, &[message(3)]).await.remove(0).unwrap_err();
    assert!(error.is_passing(), "{error}");
    broker.look(&queue).await.unwrap_err();
    let error = consumer.receive(1, PATIENCE).await.unwrap_err();
    assert!(error.is_passing() && begun.elapsed() < AWAY_MAX, "{error} after {:?}", begun.elapsed());
    consumer.keep(&receipts(&in_hands)).await.unwrap_err();
    proxy.heal();

    let error = consumer.acknowledge(&receipts(&in_hands[..1])).await.unwrap_err();
    assert!(error.to_string().contains("deliver them again"), "{error}");
    let until = Instant::now() + PATIENCE;
    let mut ids = Vec::new();
    while ids.len() < 2 {
        assert!(Instant::now() < until, "both come again");
        match consumer.receive(10, Duration::from_secs(1)).await {
            Ok(again) => {
                consumer.acknowledge(&receipts(&again)).await.unwrap();
                let again = again.iter().filter(|delivery| delivery.message.id != "id-3");
                ids.extend(again.map(|delivery| delivery.message.id.clone()));
            }
            Err(error) => assert!(error.is_passing(), "{error}"),
        }
    }
    ids.sort();
    assert_eq!(ids, ["id-1", "id-2"]);
}

/// A server for which a message is in flight for too long takes all of them back, and reports why.
#[tokio::test]
async fn a_message_that_is_in_hands_for_too_long_is_taken_away() {
    let Some(server) = Server::start().unwrap() else { return };
    // Both in milliseconds; by itself it looks once a minute, for half an hour.
    for name in ["consumer_timeout", "channel_tick_interval"] {
        server.evaluate(&format!("application:set_env(rabbit, {name}, 500)")).unwrap();
    }
    let broker = RabbitMq::new(&server.url()).unwrap();
    let queue = Queue::new("too-long");
    broker.publish(&queue, &[message(1)]).await.remove(0).unwrap();
    let mut consumer = broker.consume(&queue, &settings(10)).await.unwrap();
    let in_hands = take(&mut *consumer, 1).await;
    let error = consumer.receive(1, PATIENCE).await.unwrap_err();
    assert!(error.is_passing() && error.to_string().contains("consumer_timeout"), "{error}");
    let again = take(&mut *consumer, 1).await;
    assert_eq!((&*again[0].message.id, again[0].deliveries), ("id-1", Some(2)));
    consumer.acknowledge(&receipts(&in_hands)).await.unwrap_err();
    consumer.acknowledge(&receipts(&again)).await.unwrap();
}

/// Somebody deletes a queue and makes it again so soon that the server sends its consumer nothing, and takes it for one of
/// the new queue.
#[tokio::test]
async fn a_consumer_that_the_server_lost_sight_of_comes_back() {
    let Some(server) = Server::shared().unwrap() else { return };
    let broker = RabbitMq::new(&server.url()).unwrap();
    let queue = Queue::new("made-anew");
    let mut consumer = broker.consume(&queue, &settings(10)).await.unwrap();
    for number in 1..=3 {
        broker.publish(&queue, &[message(number)]).await.remove(0).unwrap();
    }
    let taken = take(&mut *consumer, 3).await;
    consumer.acknowledge(&receipts(&taken)).await.unwrap();
    server
        .evaluate(
            "Name = rabbit_misc:r(<<\"/\">>, queue, <<\"made-anew\">>), {ok, Q} = rabbit_amqqueue:lookup(Name), \
             {ok, _} = rabbit_amqqueue:delete(Q, false, false, <<\"test\">>), \
             {new, _} = rabbit_amqqueue:declare(Name, true, false, \
             [{<<\"x-queue-type\">>, longstr, <<\"quorum\">>}], none, <<\"test\">>)",
        )
        .unwrap();
    broker.publish(&queue, &[message(4)]).await.remove(0).unwrap();
    let until = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < until, "the message comes");
        match consumer.receive(1, Duration::from_secs(1)).await {
            Ok(came) if came.is_empty() => {}
            Ok(came) => break assert_eq!(came[0].message.id, "id-4"),
            Err(error) => assert!(error.is_passing(), "{error}"),
        }
    }
}
