//! What is wrong with tasks of the library, from two looks at its servers a few seconds apart.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde::Serialize;
use tokio::time;
use windlass_brokers::{BrokerError, Queue, Survey, survey};

use super::{
    chord::Group,
    signature::Signature,
    task::{StateName, TaskState},
};
use crate::brokers::url::BrokerUrl;

/// The time between the looks. A state that changes meanwhile is sound.
const BETWEEN: Duration = Duration::from_secs(3);

/// The most problems of one kind in the report.
const PROBLEMS_MAX: usize = 1_000;

/// Where the library keeps its tasks.
#[derive(Debug, Clone)]
pub(crate) struct Servers {
    pub(crate) broker: BrokerUrl,
    pub(crate) backend: BrokerUrl,
}

/// The report.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct MachineryDiagnosis {
    /// The broker, without its password.
    pub(crate) broker: String,
    /// The result backend, without its password.
    pub(crate) backend: String,
    /// Signatures in each queue.
    pub(crate) queues: BTreeMap<String, u64>,
    /// Signatures that wait for their time.
    pub(crate) delayed: u64,
    /// States of tasks.
    pub(crate) tasks: BTreeMap<String, u64>,
    /// Groups.
    pub(crate) groups: u64,
    /// Whether everything was looked at. If not, no lost tasks are reported.
    pub(crate) is_whole: bool,
    /// The problems found.
    pub(crate) problems: Vec<Problem>,
}

/// A problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// What kind of problem it is.
    pub(crate) kind: ProblemKind,
    /// The UUID of the task or group, or the name of the queue.
    pub(crate) id: String,
    /// What was seen.
    pub(crate) message: String,
    /// What to do.
    pub(crate) advice: &'static str,
}

/// Kinds of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProblemKind {
    /// A chord whose callback can never run.
    StuckChord,
    /// A queue that nobody reads.
    OrphanQueue,
    /// Signatures whose time has come, and that nobody moves.
    OverdueDelay,
    /// A task that has a state and is nowhere.
    LostTask,
}

/// Looks at the servers twice.
///
/// # Errors
/// When a product cannot be looked at, or does not answer.
pub(crate) async fn examine(
    servers: &Servers,
    older_than: Duration,
) -> Result<MachineryDiagnosis, BrokerError> {
    let before = look(servers).await?;
    time::sleep(BETWEEN).await;
    let after = look(servers).await?;
    Ok(diagnose(servers, &before, &after, Timestamp::now(), older_than))
}

async fn look(Servers { broker, backend }: &Servers) -> Result<Survey, BrokerError> {
    let survey_of_broker = survey(broker.as_str()).await?;
    if broker == backend {
        return Ok(survey_of_broker);
    }
    let Survey { documents, is_whole, .. } = survey(backend.as_str()).await?;
    Ok(Survey { documents, is_whole: is_whole && survey_of_broker.is_whole, ..survey_of_broker })
}

/// The report of two looks. States that are younger than `older_than` are not judged yet.
fn diagnose(
    servers: &Servers,
    before: &Survey,
    after: &Survey,
    now: Timestamp,
    older_than: Duration,
) -> MachineryDiagnosis {
    let tasks: BTreeMap<&str, TaskState> = parsed(after);
    let groups: BTreeMap<&str, Group> = parsed(after);
    let mut counted = BTreeMap::new();
    for state in tasks.values() {
        *counted.entry(state.state.as_str().to_owned()).or_insert(0) += 1;
    }
    let is_old = |at: Timestamp| {
        now.duration_since(at)
            >= jiff::SignedDuration::try_from(older_than).unwrap_or(jiff::SignedDuration::MAX)
    };
    let mut problems = stuck_chords(&groups, &tasks);
    problems.extend(orphan_queues(before, after));
    problems.extend(overdue(before, after, now));
    if after.is_whole && before.is_whole {
        problems.extend(lost_tasks(before, after, &tasks, is_old));
    }
    MachineryDiagnosis {
        broker: servers.broker.to_string(),
        backend: servers.backend.to_string(),
        queues: after
            .queues
            .iter()
            .map(|(name, queue)| (name.clone(), queue.signatures.len() as u64))
            .collect(),
        delayed: after.delayed.len() as u64,
        tasks: counted,
        groups: groups.len() as u64,
        is_whole: after.is_whole,
        problems,
    }
}

/// The documents of one kind. Those of the other kind lack a field.
fn parsed<T: serde::de::DeserializeOwned>(survey: &Survey) -> BTreeMap<&str, T> {
    let parse = |text: &String| serde_json::from_str(text).ok();
    survey.documents.iter().filter_map(|(id, text)| Some((id.as_str(), parse(text)?))).collect()
}

/// Groups of which a task has failed, or has no state any more while others have one.
fn stuck_chords(groups: &BTreeMap<&str, Group>, tasks: &BTreeMap<&str, TaskState>) -> Vec<Problem> {
    let open = groups.values().filter(|group| !group.chord_triggered);
    let stuck = open.filter_map(|group| {
        let states = group.task_uuids.iter().map(|uuid| (uuid, tasks.get(uuid.as_str())));
        let (mut failed, mut expired, mut is_known) = (None, None, false);
        for (uuid, state) in states {
            match state {
                Some(state) if state.state == StateName::Failure => failed = failed.or(Some(state)),
                Some(_) => is_known = true,
                None => expired = expired.or(Some(uuid)),
            }
        }
        let message = match (failed, expired) {
            (Some(state), _) => {
                format!("its task {} ({}) has failed: {}", state.task_uuid, state.task_name, state.error)
            }
            (None, Some(uuid)) if is_known => format!("its task {uuid} has no state, or has none any more"),
            _ => return None,
        };
        Some(Problem {
            kind: ProblemKind::StuckChord,
            id: group.group_uuid.clone(),
            message: format!("{message}. If the group has a callback, it can never run"),
            advice: "send the group again. Windlass gives such a callback the state FAILURE, with the reason",
        })
    });
    stuck.take(PROBLEMS_MAX).collect()
}

/// Queues whose first signature was the same in both looks. Nobody is to read dead-letter queues.
fn orphan_queues(before: &Survey, after: &Survey) -> Vec<Problem> {
    let still = after.queues.iter().filter(|(name, queue)| {
        let first = before.queues.get(*name).and_then(|queue| queue.signatures.first());
        first.is_some() && first == queue.signatures.first() && !Queue::new(*name).is_dead()
    });
    let orphans = still.map(|(name, queue)| Problem {
        kind: ProblemKind::OrphanQueue,
        id: name.clone(),
        message: format!(
            "its {} signatures have not moved for {} s: no worker reads it, or all of them are busy",
            queue.signatures.len(),
            BETWEEN.as_secs()
        ),
        advice: "start a worker of this queue, or add the queue to `queues` in the section [machinery] of a server",
    });
    orphans.take(PROBLEMS_MAX).collect()
}

/// Delayed signatures that were due in the first look and are there in the second one.
fn overdue(before: &Survey, after: &Survey, now: Timestamp) -> Option<Problem> {
    let is_due = |at: i64| {
        i128::from(at) + i128::try_from(BETWEEN.as_nanos()).unwrap_or_default() < now.as_nanosecond()
    };
    let still: BTreeSet<&str> = after.delayed.iter().map(|(text, _)| text.as_str()).collect();
    let count =
        before.delayed.iter().filter(|(text, at)| is_due(*at) && still.contains(text.as_str())).count();
    (count > 0).then(|| Problem {
        kind: ProblemKind::OverdueDelay,
        id: "delayed_tasks".to_owned(),
        message: format!("the time of {count} signatures has come, and nobody sends them to their queues"),
        advice: "start a worker of the library, or a server with the section [machinery]",
    })
}

/// Tasks that have not ended and are in no queue, where nothing has changed between the looks.
fn lost_tasks(
    before: &Survey,
    after: &Survey,
    tasks: &BTreeMap<&str, TaskState>,
    is_old: impl Fn(Timestamp) -> bool,
) -> Vec<Problem> {
    let mut waiting = BTreeSet::new();
    for survey in [before, after] {
        let queued = survey.queues.values().flat_map(|queue| &queue.signatures);
        let delayed = survey.delayed.iter().map(|(text, _)| text);
        let all = queued.chain(delayed).chain(&survey.in_flight);
        waiting.extend(all.filter_map(|text| Signature::parse(text).ok()?.uuid().ok()));
    }
    let is_read_here = after.queues.values().any(|queue| queue.is_read_here) || !after.in_flight.is_empty();
    let lost = tasks.iter().filter(|(uuid, state)| {
        let is_same = before.documents.get(**uuid) == after.documents.get(**uuid);
        let has_ended = matches!(state.state, StateName::Success | StateName::Failure);
        is_same && !has_ended && is_old(state.created_at) && !waiting.contains(**uuid)
    });
    let problem = |(uuid, state): (&&str, &TaskState)| Problem {
        kind: ProblemKind::LostTask,
        id: (*uuid).to_owned(),
        message: format!(
            "the task {} is {} since {} and in no queue: its worker has died with it, or still runs it",
            state.task_name,
            state.state.as_str(),
            state.created_at
        ),
        advice: if is_read_here {
            "if a server of Windlass has it, `windlass task list --label machinery=UUID` shows it. Otherwise look for its effects, and send it again"
        } else {
            "look for its effects, and send it again. A server of Windlass in place of the worker loses none"
        },
    };
    lost.map(problem).take(PROBLEMS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use windlass_brokers::Waiting;

    use super::*;

    const OLD: &str = "2026-01-01T00:00:00Z";

    fn state(uuid: &str, state: &str) -> (String, String) {
        let text = format!(
            r#"{{"TaskUUID":"{uuid}","TaskName":"add","State":"{state}","Results":null,"Error":"oops","CreatedAt":"{OLD}"}}"#
        );
        (uuid.to_owned(), text)
    }

    fn group(uuid: &str, tasks: &str, triggered: bool) -> (String, String) {
        let text = format!(
            r#"{{"GroupUUID":"{uuid}","TaskUUIDs":[{tasks}],"ChordTriggered":{triggered},"Lock":false,"CreatedAt":"{OLD}"}}"#
        );
        (uuid.to_owned(), text)
    }

    fn signature(uuid: &str) -> String {
        format!(r#"{{"UUID":"{uuid}","Name":"add"}}"#)
    }

    fn report(before: &Survey, after: &Survey, seconds: i64) -> Vec<(ProblemKind, String)> {
        let url = || BrokerUrl::new("redis://:secret@h".to_owned());
        let servers = Servers { broker: url(), backend: url() };
        let now = OLD.parse::<Timestamp>().unwrap() + jiff::SignedDuration::from_secs(seconds);
        let diagnosis = diagnose(&servers, before, after, now, Duration::from_secs(60));
        assert!(!format!("{diagnosis:?}").contains("secret"));
        diagnosis.problems.into_iter().map(|problem| (problem.kind, problem.id)).collect()
    }

    fn found(kind: ProblemKind, id: &str) -> (ProblemKind, String) {
        (kind, id.to_owned())
    }

    #[test]
    fn a_task_is_lost_if_it_is_old_and_nowhere_in_both_looks() {
        let waiting = |uuids: &[&str]| Waiting {
            signatures: uuids.iter().map(|uuid| signature(uuid)).collect(),
            is_read_here: false,
        };
        let before = Survey {
            documents: ["a", "b", "c", "d"].map(|uuid| state(uuid, "STARTED")).into(),
            queues: [("q".to_owned(), waiting(&["b"]))].into(),
            delayed: vec![(signature("c"), i64::MAX)],
            is_whole: true,
            ..Survey::default()
        };
        let mut after = Survey { queues: BTreeMap::new(), delayed: Vec::new(), ..before.clone() };
        after.documents.extend([state("d", "SUCCESS")]);
        assert_eq!(report(&before, &after, 61), [found(ProblemKind::LostTask, "a")]);
        assert_eq!(report(&before, &after, 59), [], "it is young");
        after.is_whole = false;
        assert_eq!(report(&before, &after, 61), [], "it may be where nobody looked");
    }

    #[test]
    fn a_queue_and_a_delay_are_stuck_if_they_have_not_moved() {
        let queue = |first: &str| {
            let waiting = Waiting { signatures: vec![signature(first)], is_read_here: false };
            [("q".to_owned(), waiting)].into()
        };
        let before = Survey {
            queues: queue("a"),
            delayed: vec![(signature("b"), 0), (signature("c"), i64::MAX)],
            ..Survey::default()
        };
        let problems =
            [found(ProblemKind::OrphanQueue, "q"), found(ProblemKind::OverdueDelay, "delayed_tasks")];
        assert_eq!(report(&before, &before.clone(), 0), problems);
        let dead = Survey {
            queues: [("q-dead".to_owned(), before.queues["q"].clone())].into(),
            ..Survey::default()
        };
        assert_eq!(report(&dead, &dead.clone(), 0), []);
        let after =
            Survey { queues: queue("b"), delayed: vec![(signature("c"), i64::MAX)], ..Survey::default() };
        assert_eq!(report(&before, &after, 0), []);
    }

    #[test]
    fn a_chord_is_stuck_if_a_task_has_failed_or_has_no_state() {
        let survey = Survey {
            documents: [
                state("a", "SUCCESS"),
                state("b", "FAILURE"),
                group("failed", r#""a","b""#, false),
                group("expired", r#""a","x""#, false),
                group("triggered", r#""a","b""#, true),
                group("all_expired", r#""x","y""#, false),
                group("all_succeeded", r#""a""#, false),
            ]
            .into(),
            is_whole: true,
            ..Survey::default()
        };
        let stuck = ["expired", "failed"].map(|id| found(ProblemKind::StuckChord, id));
        assert_eq!(report(&survey, &survey.clone(), 0), stuck);
    }
}
