//! Reports to an operator who waits for a task why nothing happens: the server is unavailable, or the task waits
//! for something. The client retries silently for any length of time, and so does a task.

use std::{convert::Infallible, future::Future, time::Duration};

use serde_json::Value;
use windlass_api::Why;
use windlass_client::Client;

use crate::cli::output::one_line;

/// How often to ask the server: often enough for an operator, with negligible cost.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// What to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// That the server has stopped answering, and that it answers again.
    Server,
    /// Also what the task waits for.
    ServerAndTask,
}

/// Runs `waiting`. Reports on standard error why nothing happens, each thing once.
pub(super) async fn while_waiting<T>(
    client: &Client,
    id: &str,
    about: About,
    waiting: impl Future<Output = T>,
) -> T {
    tokio::select! {
        biased;
        done = waiting => done,
        never = report(client, id, about) => match never {},
    }
}

async fn report(client: &Client, id: &str, about: About) -> Infallible {
    let (mut is_away, mut waits) = (false, Waits::default());
    loop {
        tokio::time::sleep(ASK_EVERY).await;
        match client.why(id).await {
            Err(error) if error.is_temporary() => {
                if !is_away {
                    eprintln!(
                        "windlass: the server at {} does not answer; retrying until it does",
                        client.server()
                    );
                }
                is_away = true;
            }
            Ok(why) => {
                if is_away {
                    eprintln!("windlass: the server answers again");
                }
                is_away = false;
                if about == About::ServerAndTask && waits.is_news(&why) {
                    eprintln!("windlass: {}", one_line(&why.sentence));
                }
            }
            // The waiting call reports a refusal.
            Err(_) => {}
        }
    }
}

/// What the task was waiting for.
#[derive(Debug, Default)]
struct Waits {
    /// At the last look.
    last: Vec<String>,
    /// At the last report.
    reported: Vec<String>,
}

impl Waits {
    /// Whether the task has been waiting for the same things since the last look, and this was not reported yet.
    fn is_news(&mut self, why: &Why) -> bool {
        let mut now: Vec<String> = why
            .reasons
            .iter()
            .filter_map(|one| wait(&one.reason, &one.data).map(|wait| format!("{:?} {wait}", one.step)))
            .collect();
        // Other steps may settle meanwhile, which changes the order.
        now.sort();
        let lasts = !now.is_empty() && now == self.last;
        let is_news = lasts && now != self.reported;
        if is_news || now.is_empty() {
            self.reported.clone_from(&now);
        }
        self.last = now;
        is_news
    }
}

/// A reason without the times in it; `None` if a worker runs the step, or nothing is waited for.
fn wait(reason: &str, data: &Value) -> Option<String> {
    let nested = |inner: &Value| wait(inner["reason"].as_str()?, &inner["data"]);
    match reason {
        "running" | "ending" | "ended" | "stuck" | "grace" | "moving" => None,
        "child" => nested(&data["because"]),
        "members" => nested(&data["first"]),
        // Each failure is another wait.
        "retry" | "postponed" => Some(format!("{reason} {}", data["attempt"])),
        _ => Some(reason.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn why(reasons: &[(&str, &str, Value)]) -> Why {
        let reasons: Vec<Value> = reasons
            .iter()
            .map(|(reason, step, data)| json!({ "reason": reason, "sentence": "", "step": step, "data": data }))
            .collect();
        serde_json::from_value(json!({ "sentence": "", "reason": "", "reasons": reasons })).unwrap()
    }

    /// For each look, whether it is reported.
    fn news(looks: &[Why]) -> Vec<bool> {
        let mut waits = Waits::default();
        looks.iter().map(|look| waits.is_news(look)).collect()
    }

    #[test]
    fn a_wait_is_reported_once_it_lasts_and_then_never_again() {
        let no_worker = |ago: u32| why(&[("no_worker", "one", json!({ "heard": ago }))]);
        let retry = |attempt: u32| why(&[("retry", "one", json!({ "attempt": attempt }))]);
        assert_eq!(news(&[no_worker(1), no_worker(2), no_worker(3)]), [false, true, false]);
        assert_eq!(news(&[retry(1), retry(2), retry(3)]), [false, false, false], "it goes on");
        assert_eq!(news(&[retry(1), retry(1), retry(2), retry(2)]), [false, true, false, true]);
        let running = why(&[("running", "one", json!({}))]);
        let looks = [no_worker(1), no_worker(2), running, no_worker(3), no_worker(4)];
        assert_eq!(news(&looks), [false, true, false, false, true], "it moved in between");
    }

    #[test]
    fn what_runs_is_not_reported() {
        let running = |step| ("running", step, json!({}));
        let child = |reason: &str| ("child", "two", json!({ "because": { "reason": reason, "data": {} } }));
        let items = |first: Value| ("members", "two", json!({ "first": first }));
        for quiet in [
            vec![running("one")],
            vec![running("one"), child("running")],
            vec![items(Value::Null)],
            vec![("child", "two", json!({ "task": null }))],
        ] {
            assert_eq!(news(&[why(&quiet), why(&quiet)]), [false, false], "{quiet:?}");
        }
        for waiting in [
            vec![running("one"), ("no_worker", "two", json!({}))],
            vec![child("signal")],
            vec![items(json!({ "reason": "no_worker", "data": {} }))],
        ] {
            assert_eq!(news(&[why(&waiting), why(&waiting)]), [false, true], "{waiting:?}");
        }
    }
}
