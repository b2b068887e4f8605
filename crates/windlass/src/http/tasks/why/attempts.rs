//! Sentences about attempts: with a worker, before the next one, or in a queue.

use serde_json::json;
use windlass_api as api;
use windlass_core::{Millis, Name, Pause, Timestamp};
use windlass_engine::{AtWorker, Holder, LastHeard, OfferedAt};
use windlass_store::{LimitState, QueuePause};

use super::sentences::{About, Explained, span};
use crate::http::tasks::view;

impl About<'_> {
    pub(super) fn ending(self, at: &AtWorker) -> Explained {
        let (subject, worker) = (self.subject(), &at.worker);
        let sentence = match self.task.state.pause {
            Pause::Stopping | Pause::Suspended => {
                format!("The task can be resumed once {subject} has ended with worker {worker}.")
            }
            Pause::None | Pause::Held => {
                format!("The task rolls back once {subject} has ended with worker {worker}.")
            }
        };
        (sentence, self.at_worker(at))
    }

    pub(super) fn running(self, at: &AtWorker) -> Explained {
        let said = at.progress.as_ref().map(|progress| {
            let value = progress.value.map(|value| format!("{:.0} %", value * 100.0));
            let message = progress.message.as_deref().map(str::to_owned);
            format!("; it says: {}", value.into_iter().chain(message).collect::<Vec<_>>().join(", "))
        });
        let sentence = format!(
            "Attempt {} of {} has been with worker {} for {}{}.",
            at.attempt,
            self.subject(),
            at.worker,
            span(self.now, at.since),
            said.unwrap_or_default()
        );
        (sentence, self.at_worker(at))
    }

    fn at_worker(self, at: &AtWorker) -> serde_json::Value {
        json!({
            "attempt": at.attempt,
            "worker": at.worker,
            "since": view::time(at.since),
            "timeout_ms": at.timeout.map(|timeout| timeout.0),
            "progress": at.progress.as_ref().map(view::progress),
        })
    }

    pub(super) fn retry(
        self,
        attempt: u32,
        (failures, retries): (u32, u32),
        until: Timestamp,
        message: Option<&str>,
    ) -> Explained {
        let of = if retries >= failures && failures > 0 {
            format!("Retry {failures} of {retries}")
        } else {
            format!("Attempt {}", attempt + 1)
        };
        let because = message
            .map(|message| format!("; the last attempt failed: {}", message.trim_end_matches('.')))
            .unwrap_or_default();
        (
            format!("{of} of {} is due {}{because}.", self.subject(), self.when(until)),
            json!({
                "attempt": attempt, "until": view::time(until), "failures": failures, "retries": retries,
                "message": message,
            }),
        )
    }

    pub(super) fn postponed(self, attempt: u32, until: Timestamp, message: Option<&str>) -> Explained {
        let because =
            message.map(|message| format!(": {}", message.trim_end_matches('.'))).unwrap_or_default();
        (
            format!(
                "{} is tried again {}, as its attempt {attempt} asked{because}.",
                self.opening(),
                self.when(until)
            ),
            json!({ "attempt": attempt, "until": view::time(until), "message": message }),
        )
    }

    pub(super) fn deadline(self, at: Timestamp) -> Explained {
        (
            format!(
                "{} fails {}: its deadline comes before its next attempt would.",
                self.opening(),
                self.when(at)
            ),
            json!({ "at": view::time(at) }),
        )
    }

    pub(super) fn delayed(self, until: Timestamp) -> Explained {
        (
            format!("{} begins {}: its flow delays it.", self.opening(), self.when(until)),
            json!({ "until": view::time(until) }),
        )
    }

    pub(super) fn offered(self, module: &Name, at: Option<&OfferedAt>, since: Timestamp) -> Explained {
        let opening = self.opening();
        let sentence = match at {
            Some(OfferedAt { broker, queue, trouble: Some((since, message)) }) => format!(
                "{opening} is ready, and cannot be offered in the queue {queue} of {broker} for {}: {message}.",
                span(self.now, *since)
            ),
            Some(OfferedAt { broker, queue, trouble: None }) => format!(
                "{opening} is offered in the queue {queue} of {broker} for {}, and no consumer has taken it yet.",
                span(self.now, since)
            ),
            None => format!(
                "{opening} is offered to the consumers of {module} by another server for {}, and none has taken it yet.",
                span(self.now, since)
            ),
        };
        let facts = json!({
            "module": module,
            "broker": at.map(|at| &at.broker),
            "queue": at.map(|at| &at.queue),
            "trouble": at.and_then(|at| at.trouble.as_ref()).map(|(_, message)| message),
            "since": view::time(since),
        });
        (sentence, facts)
    }

    pub(super) fn limited(self, state: &LimitState, holders: &[Holder]) -> Explained {
        let limit = &state.limit;
        let opening = self.opening();
        let key = if limit.per_key { " of its key" } else { "" };
        let is_full = limit.running.is_some_and(|most| state.running >= most.into());
        let sentence = match (is_full, state.next_start_at, holders.first()) {
            (false, Some(at), _) => format!(
                "{opening} is ready, and the limit {} lets no more{key} begin for {}.",
                limit.name,
                span(at, self.now)
            ),
            (_, _, Some(holder)) => {
                let step = match &holder.step {
                    Some(step) => format!("has had step {step}"),
                    None => "cannot be read (see `windlass doctor`) and has had a step".to_owned(),
                };
                format!(
                    "{opening} is ready, and the limit {} allows {} to run concurrently{key}: task {} {step} for {}; \
                     `windlass limit show {}` lists all.",
                    limit.name,
                    limit.running.unwrap_or_default(),
                    holder.task,
                    span(self.now, holder.since),
                    limit.name
                )
            }
            _ => format!("{opening} is ready, and is kept back by the limit {}.", limit.name),
        };
        let tasks: Vec<String> = holders.iter().map(|holder| holder.task.to_string()).collect();
        let facts = json!({
            "limit": limit.name,
            "running": state.running,
            "started": state.started,
            "next_start_at": state.next_start_at.map(view::time),
            "holders": tasks,
        });
        (sentence, facts)
    }

    pub(super) fn queue_paused(self, module: &Name, pause: &QueuePause) -> Explained {
        let by = pause.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        (
            format!(
                "{} is ready, but the queue {module} was paused {} ago{by}: `windlass queue resume {module}` lets \
                 it go on.",
                self.opening(),
                span(self.now, pause.at)
            ),
            json!({
                "queue": module.as_str(), "since": view::time(pause.at),
                "by": pause.by.as_ref().map(ToString::to_string),
            }),
        )
    }

    pub(super) fn no_worker(
        self,
        module: &Name,
        [draining, without_command, others]: [usize; 3],
        last: Option<&LastHeard>,
        since_start: Option<Timestamp>,
    ) -> Explained {
        let run = self.key.and_then(|key| self.task.action(key)).map(view::run).unwrap_or_default();
        let connected = match (without_command, others) {
            _ if draining == 1 => "the one worker that serves it drains and takes nothing more".to_owned(),
            _ if draining > 1 => format!("all {draining} workers that serve it drain and take nothing more"),
            (0, 0) => "no worker is connected".to_owned(),
            (0, 1) => "the one connected worker does not".to_owned(),
            (0, n) => format!("none of the {n} connected workers does"),
            (1, _) => format!(
                "the connected worker of {module} does not have this command; restart it if the command is new"
            ),
            (n, _) => format!(
                "none of the {n} connected workers of {module} has this command; restart them if it is new"
            ),
        };
        let last_one = match (last, since_start) {
            _ if draining + without_command > 0 => String::new(),
            (Some(last), _) => {
                format!(
                    "; the last one of {module}, {}, was heard of {} ago",
                    last.worker,
                    span(self.now, last.at)
                )
            }
            (None, Some(start)) => {
                format!("; none of {module} was seen since this server started {} ago", span(self.now, start))
            }
            (None, None) => String::new(),
        };
        (
            format!("{} waits for a worker that serves {run}: {connected}{last_one}.", self.opening()),
            json!({
                "module": module.as_str(), "run": run, "other_workers": others,
                "workers_without_command": without_command, "workers_draining": draining,
                "last_worker": last.map(|last| json!({ "name": last.worker, "heard_at": view::time(last.at) })),
                "server_started_at": since_start.map(view::time),
            }),
        )
    }

    pub(super) fn queued(
        self,
        module: &Name,
        before: u64,
        workers: usize,
        estimate: Option<Millis>,
    ) -> Explained {
        let served = match workers {
            1 => "one worker".to_owned(),
            n => format!("{n} workers"),
        };
        let place = match before {
            0 => format!("is the next in the queue {module}, once one of its workers is free"),
            1 => format!("is second in the queue {module}"),
            n => format!("waits in the queue {module} behind {n} others"),
        };
        let turn = match estimate {
            Some(estimate) => {
                let ms = if estimate.0 < 1000 { estimate.0 } else { estimate.0 / 1000 * 1000 };
                format!("at the rate of the last minute its turn comes in about {}", api::Span::from_ms(ms))
            }
            None => "no estimate: nothing of the queue was handed out in the last minute".to_owned(),
        };
        (
            format!("{} {place} ({served} connected; {turn}).", self.opening()),
            json!({
                "queue": module.as_str(), "before": before, "workers": workers,
                "estimate_ms": estimate.map(|estimate| estimate.0),
            }),
        )
    }

    /// `in 12s`, or `now`.
    pub(super) fn when(self, at: Timestamp) -> String {
        if at > self.now { format!("in {}", span(at, self.now)) } else { "now".to_owned() }
    }
}
