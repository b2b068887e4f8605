//! Refuses a configuration that uses one queue for two purposes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{bail, ensure};
use windlass_brokers::Queue;

use super::{BrokerSettings, leader::LeaderSettings, settings::OfferedQueue, url::BrokerUrl};

/// Checks all queues of the configuration, independent of the features of their brokers.
///
/// # Errors
/// Names the sections that conflict.
pub(super) fn check(settings: &BrokerSettings) -> anyhow::Result<()> {
    check_queues(settings)?;
    check_leaders(settings)?;
    check_answers(&settings.queues)
}

/// Refuses a queue with two uses: each reader would take the other's messages. Only results of several
/// modules may share a queue.
fn check_queues(settings: &BrokerSettings) -> anyhow::Result<()> {
    const ANSWERS: &str = "results";

    let of_queues = settings.queues.iter().flat_map(|queue| {
        let steps = format!("the steps of {}", queue.publisher.module);
        let answers = (&queue.broker, queue.publisher.results.name.clone(), ANSWERS.to_owned());
        [(&queue.broker, queue.publisher.queue.name.clone(), steps), answers]
    });
    let of_intake = settings
        .intake
        .iter()
        .map(|intake| (&intake.broker, intake.queue.name.clone(), "messages that start tasks".to_owned()));
    let of_machinery = settings.machinery.iter().flat_map(|machinery| {
        let queues = machinery.queues().into_iter();
        queues.map(|queue| (&machinery.broker, queue.name, "signatures".to_owned()))
    });
    let of_events =
        settings.events.iter().map(|events| (&events.broker, events.topic.name.clone(), "events".to_owned()));
    let mut uses: BTreeMap<(&BrokerUrl, String), String> = BTreeMap::new();
    for (broker, queue, used) in of_queues.chain(of_intake).chain(of_events).chain(of_machinery) {
        let Some(before) = uses.insert((broker, queue.clone()), used.clone()) else { continue };
        ensure!(
            before == used && used == ANSWERS,
            "the queue {queue} of {broker} is configured for {before} and for {used}: use separate queues"
        );
    }
    for (broker, queue) in uses.keys() {
        let dead = Queue::new(queue).dead();
        if let Some(used) = uses.get(&(*broker, dead.name.clone())) {
            bail!(
                "the queue {dead} of {broker} is configured for {used}, and is the dead-letter queue of {queue}: use \
                 separate queues"
            );
        }
    }
    Ok(())
}

/// Refuses two intakes that campaign for one name: a server would read one of them and stand by for the other.
fn check_leaders(settings: &BrokerSettings) -> anyhow::Result<()> {
    let mut campaigns = BTreeSet::new();
    for leader in settings.intake.iter().filter_map(|intake| intake.leader.as_ref()) {
        if let LeaderSettings::Coordinator { url, name, .. } = leader {
            ensure!(
                campaigns.insert((url, name)),
                "two sections [[intake]] have the `leader` {name} of {url}: use a name for each"
            );
        }
    }
    Ok(())
}

/// Refuses one results queue for several modules whose kinds disagree, list and not list: its kind would
/// depend on which module comes first.
fn check_answers(queues: &[OfferedQueue]) -> anyhow::Result<()> {
    let mut firsts: BTreeMap<(&BrokerUrl, &str), &OfferedQueue> = BTreeMap::new();
    for queue in queues {
        let OfferedQueue { broker, publisher, .. } = queue;
        let results = &publisher.results;
        let first = *firsts.entry((broker, &results.name)).or_insert(queue);
        ensure!(
            first.publisher.results.kind == results.kind,
            "in the sections [queues.{}] and [queues.{}]: the queue {} of {broker} has the results of both, and by their `kind` \
             it would be a list for one and not for the other: set `results` in one of them",
            first.publisher.module,
            publisher.module,
            results.name
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{IntakeSection, QueueSection, leader::LeaderSection, read, settings::MessageFormat};

    fn section(broker: &str) -> QueueSection {
        QueueSection {
            broker: broker.to_owned(),
            queue: None,
            kind: None,
            results: None,
            window: None,
            message: MessageFormat::Step,
        }
    }

    fn intake(queue: &str) -> IntakeSection {
        let (broker, queue) = ("redis://h".to_owned(), queue.to_owned());
        IntakeSection {
            broker,
            queue,
            kind: None,
            flow: None,
            trigger: None,
            params: None,
            key: None,
            leader: None,
        }
    }

    #[test]
    fn a_queue_is_for_one_thing() {
        let on = |queue: &str| QueueSection { queue: Some(queue.to_owned()), ..section("redis://h") };
        let read_all = |modules: &[&str], taken: &[&str]| {
            let names = ["one", "other"].iter().map(|name| (*name).to_owned());
            let queues = names.zip(modules.iter().map(|queue| on(queue))).collect();
            read(queues, taken.iter().map(|queue| intake(queue)).collect(), None, None)
        };
        assert!(read_all(&["a", "b"], &["c", "d"]).is_ok(), "answers of both come on one queue");
        let error = |modules: &[&str], taken: &[&str]| read_all(modules, taken).unwrap_err().to_string();
        let steps = error(&["a", "a"], &[]);
        assert!(
            steps.contains("the queue a of redis://h")
                && steps.contains("steps of one and for the steps of other")
        );
        let answers = QueueSection { results: Some("a".to_owned()), ..on("b") };
        let both = [("one".to_owned(), answers), ("other".to_owned(), on("a"))];
        let answers = read(both.into(), Vec::new(), None, None).unwrap_err().to_string();
        assert!(answers.contains("results and for the steps of other"), "{answers}");
        assert!(error(&["a"], &["a"]).contains("the steps of one and for messages that start tasks"));
        assert!(error(&["a"], &["windlass-results"]).contains("results and for messages that start tasks"));
        assert!(error(&[], &["c", "c"]).contains("messages that start tasks and for messages"));
        assert!(error(&["a"], &["a-dead"]).contains("is the dead-letter queue of a"));
        let elsewhere = IntakeSection { broker: "redis://other".to_owned(), ..intake("a") };
        assert!(read([("one".to_owned(), on("a"))].into(), vec![elsewhere], None, None).is_ok());
    }

    #[test]
    fn intakes_have_leaders_of_their_own() {
        let led = |queue: &str, coordinator: &str, name: Option<&str>| {
            let leader = LeaderSection {
                coordinator: coordinator.to_owned(),
                name: name.map(str::to_owned),
                lease: None,
            };
            IntakeSection { leader: Some(leader), ..intake(queue) }
        };
        let read = |one, other| read(Default::default(), vec![one, other], None, None);
        let one = || led("a", "etcd://u:secret@h", Some("n"));
        let error = read(one(), led("b", "etcd://u:secret@h", Some("n"))).unwrap_err().to_string();
        assert!(error.contains("the `leader` n of etcd://…@h: use a name for each"), "{error}");
        assert!(read(one(), led("b", "etcd://u:secret@h", Some("m"))).is_ok());
        assert!(read(led("a", "store", None), led("b", "store", None)).is_ok(), "one server reads both");
    }

    #[test]
    fn answers_of_several_modules_come_on_one_queue_of_one_kind() {
        let section = |broker: &str, kind: &str, results: Option<&str>| QueueSection {
            kind: Some(kind.to_owned()),
            results: results.map(str::to_owned),
            ..section(broker)
        };
        let read = |one, other| {
            read([("one".to_owned(), one), ("other".to_owned(), other)].into(), vec![], None, None)
        };
        let list = || section("redis://h", "list", None);
        let error = read(list(), section("redis://h", "stream", None)).unwrap_err().to_string();
        assert!(
            error.contains("[queues.one] and [queues.other]: the queue windlass-results of redis://h"),
            "{error}"
        );
        assert!(error.contains("set `results` in one of them"), "{error}");
        assert!(read(list(), list()).is_ok());
        assert!(read(list(), section("redis://h", "stream", Some("streamed"))).is_ok());
        assert!(read(list(), section("redis://other", "stream", None)).is_ok());
    }
}
