//! Operations of servers on tasks: new tasks, and changes of existing ones.

use windlass_core::{Attempt, Command, Failure, Millis, Outcome as Ended, Report, Resolution, TaskId};
use windlass_store::{AttemptId, Change, Claimed, Due, LostClaim, SubmitKey, TaskChange};

use crate::differential::walk::Walk;
use crate::history::{accept, decide, input, json};

/// The maximum number of active tasks; beyond it the walk submits no more.
const ACTIVE_MAX: usize = 30;

impl Walk {
    pub(super) async fn submit(&mut self) {
        if self.active.len() >= ACTIVE_MAX {
            return;
        }
        let mut changes = Vec::new();
        for _ in 0..=self.random.below(3) {
            let Some(flow) = self.random.pick(&self.flows).cloned() else { return };
            let mut input = input(self.now.wall);
            let tenant = ["a", "b", "c"][self.random.below(3) as usize];
            input.params =
                json(&format!(r#"{{"size": 3, "items": ["a", "b", "c", "d"], "tenant": "{tenant}"}}"#));
            input.priority = i8::try_from(self.random.below(5)).unwrap_or(0) - 2;
            input
                .labels
                .insert("color".to_owned(), if self.random.once_in(2) { "red" } else { "blue" }.to_owned());
            if self.random.once_in(6) {
                input.at = Some(self.now.wall + Millis(self.random.below(20_000)));
            }
            let mut change = accept(self.ids.next(self.now.wall), flow, input);
            if self.random.once_in(3) {
                let scope = u8::try_from(self.random.below(12)).unwrap_or(0);
                let fingerprint = u8::try_from(self.random.below(2)).unwrap_or(0);
                change.submit_key = Some(SubmitKey { scope: [scope; 32], fingerprint: [fingerprint; 32] });
            }
            changes.push(Change::from(change));
        }
        let ids: Vec<TaskId> = changes
            .iter()
            .filter_map(|change| match change {
                Change::Task(change) => Some(change.task.id),
                _ => None,
            })
            .collect();
        self.commit("submit", changes).await;
        let loaded = self.pair.load(&ids).await;
        self.active.extend(loaded.into_iter().flatten().map(|loaded| loaded.task.id));
    }

    pub(super) async fn report(&mut self) {
        let Some(claimed) = self.any_attempt() else { return };
        let (kind, outcome) = match self.random.below(10) {
            0..6 => {
                ("succeed", Ended::Succeeded(self.random.once_in(2).then(|| json(r#"{"made": [1, 2]}"#))))
            }
            6..8 => ("fail", Ended::Failed(Failure::new("it broke", 3, true))),
            8 => ("fail", Ended::Failed(Failure::new("it broke for good", 3, false))),
            _ => {
                let delay = Some(Millis(self.random.below(5_000)));
                ("retry later", Ended::RetryLater { delay, message: "not now".into() })
            }
        };
        let id = claimed.id.task;
        let Some(loaded) = self.pair.load(&[id]).await.remove(0) else { return };
        let claim = loaded.claims.iter().find(|claim| claim.key == claimed.id.key);
        let started_at = claim.map(|claim| claim.at);
        let attempt = Attempt { key: claimed.id.key, number: claimed.id.attempt, started_at };
        self.do_task(kind, id, Command::Report(Report { attempt, outcome })).await;
    }

    /// An operator's command to a task.
    pub(super) async fn order(&mut self) {
        let Some(id) = self.random.pick(&self.active).copied() else { return };
        let Some(loaded) = self.pair.load(&[id]).await.remove(0) else { return };
        let is_stuck = loaded.task.state.stuck.is_some();
        let (kind, command) = match self.random.below(8) {
            0..2 => ("pause", Command::Pause { by: None }),
            2..4 => ("resume", Command::Resume { by: None }),
            4 if !is_stuck => ("cancel", Command::Cancel { by: None }),
            _ => {
                let resolution = match self.random.below(4) {
                    0 => Resolution::Retry(None),
                    1 => Resolution::Skip,
                    2 => Resolution::Done(Some(json(r#"{"by": "hand"}"#))),
                    _ => Resolution::Rollback,
                };
                let step = usize::try_from(self.random.below(3)).unwrap_or(0);
                ("resolve", Command::Resolve { step, resolution, by: None })
            }
        };
        self.do_task(kind, id, command).await;
    }

    pub(super) async fn settle_due(&mut self) {
        let due = self.pair.due(self.now, usize::MAX).await;
        // The rarest kinds go first, so that they are not lost among the others.
        let given_up = due.iter().find(|due| matches!(due, Due::GiveUp { .. }));
        let timed_out =
            due.iter().find(|due| matches!(due, Due::TimeOut(_))).filter(|_| self.random.once_in(2));
        match given_up.or(timed_out).or(self.random.pick(&due)).cloned() {
            Some(Due::Wake { task, wakeup }) => self.do_task("wake", task, Command::Wake(wakeup)).await,
            Some(Due::TimeOut(claimed)) => {
                self.do_task("time out", claimed.id.task, Command::TimeOut(attempt(&claimed))).await;
            }
            Some(Due::Taken(claimed)) => {
                self.do_task("taken", claimed.id.task, Command::Taken(attempt(&claimed))).await;
            }
            Some(Due::GiveUp { task, key, attempt }) => {
                let attempt = Attempt { key, number: attempt, started_at: None };
                self.do_task("give up", task, Command::Lose(attempt)).await;
            }
            Some(Due::Park { task, key, attempt }) => {
                let attempt = Attempt { key, number: attempt, started_at: None };
                self.do_task("park", task, Command::Park(attempt)).await;
            }
            None => {}
        }
    }

    pub(super) async fn settle_lost(&mut self) {
        let lost = self.pair.lost(self.now).await;
        if let Some(claimed) = self.random.pick(&lost).cloned() {
            let AttemptId { task, key, claim, .. } = claimed.id;
            let Some(loaded) = self.pair.load(&[task]).await.remove(0) else { return };
            let command = Command::Lose(attempt(&claimed));
            let Ok(mut change) = decide(&loaded, &command, self.now.wall) else { return };
            // Now and then the session is renewed before that is committed.
            if self.random.once_in(4) {
                self.renew(claimed.session).await;
            }
            change.lost.push(LostClaim {
                key,
                claim,
                session: claimed.session,
                over_at: Some(self.now.mono),
            });
            self.commit_task("lose", change).await;
        }
    }

    /// Decides a command and commits it now, or keeps it to commit it late.
    async fn do_task(&mut self, kind: &'static str, id: TaskId, command: Command) {
        let Some(loaded) = self.pair.load(&[id]).await.remove(0) else { return };
        let Ok(change) = decide(&loaded, &command, self.now.wall) else { return };
        if !change.events.is_empty() {
            self.commit_task(kind, change).await;
        }
    }

    async fn commit_task(&mut self, kind: &'static str, change: TaskChange) {
        let id = change.task.id;
        if self.random.once_in(12) {
            self.late.push(change.into());
            return;
        }
        let is_ended = change.task.is_ended();
        if self.commit(kind, vec![change.into()]).await {
            if is_ended {
                self.count("ended");
                self.active.retain(|active| *active != id);
                self.ended.push(id);
            }
            self.pair.compare_task(id).await;
        }
    }

    /// Commits the late changes, together with a valid one.
    pub(super) async fn come_late(&mut self) {
        let mut changes = std::mem::take(&mut self.late);
        changes.push(Change::Logs(Vec::new()));
        let ids: Vec<TaskId> = self.active.clone();
        self.commit("late", changes).await;
        for loaded in self.pair.load(&ids).await.into_iter().flatten() {
            if loaded.task.is_ended() {
                self.active.retain(|id| *id != loaded.task.id);
                self.ended.push(loaded.task.id);
            }
        }
    }
}

fn attempt(claimed: &Claimed) -> Attempt {
    Attempt { key: claimed.id.key, number: claimed.id.attempt, started_at: Some(claimed.at) }
}
