//! A random walk of operations, and the comparisons during it.

use std::sync::Arc;

use windlass_core::{Flow, Millis, TaskId, TaskStatus, Timestamp};
use windlass_store::{Change, Claimed, Now, Outcome, SessionId, Store, TaskQuery};

use crate::differential::{Counts, others::flows, pair::Pair, random::Random};
use windlass_store::TaskIds;

/// Every kind of operation. Each must succeed at least once in a walk.
pub(super) const KINDS: &[&str] = &[
    "submit",
    "key taken",
    "conflict",
    "flow",
    "claim",
    "adopt",
    "release",
    "renew",
    "forgive",
    "succeed",
    "fail",
    "retry later",
    "pause",
    "resume",
    "cancel",
    "resolve",
    "wake",
    "lose",
    "time out",
    "give up",
    "park",
    "queue",
    "limit",
    "logs",
    "alarm",
    "message",
    "sweep",
    "ended",
];

/// The number of sessions in the walk.
const SESSIONS: u64 = 4;

pub(super) struct Walk {
    pub(super) seed: u64,
    pub(super) random: Random,
    pub(super) pair: Pair,
    pub(super) now: Now,
    pub(super) flows: Vec<Arc<Flow>>,
    pub(super) ids: TaskIds,
    pub(super) active: Vec<TaskId>,
    pub(super) ended: Vec<TaskId>,
    /// Attempts that were handed out at some time.
    pub(super) handed_out: Vec<Claimed>,
    /// Changes that are decided and not committed yet.
    pub(super) late: Vec<Change>,
    pub(super) counts: Counts,
}

impl Walk {
    pub(super) async fn begin(seed: u64, one: Arc<dyn Store>, other: Arc<dyn Store>) -> Self {
        let mut walk = Self {
            seed,
            random: Random::new(seed),
            pair: Pair::new(one, other),
            now: Now { wall: Timestamp(1_700_000_000_000), mono: Millis(5_000) },
            flows: Vec::new(),
            ids: TaskIds::new(1),
            active: Vec::new(),
            ended: Vec::new(),
            handed_out: Vec::new(),
            late: Vec::new(),
            counts: Counts::new(),
        };
        for flow in flows() {
            walk.add_flow(flow).await;
        }
        for session in 0..SESSIONS {
            walk.renew(SessionId(session.into())).await;
        }
        walk
    }

    /// Whether each kind of operation has succeeded.
    pub(super) fn has_all_kinds(&self) -> bool {
        KINDS.iter().all(|kind| self.counts.contains_key(kind))
    }

    pub(super) async fn finish(mut self) -> Counts {
        self.look_at_everything().await;
        self.counts
    }

    /// Does one operation, and compares both stores afterwards.
    pub(super) async fn step(&mut self, number: usize) {
        let choice = self.random.below(100);
        self.pair.doing = format!("seed {}, operation {number} ({choice})", self.seed);
        match choice {
            0..10 => self.submit().await,
            10..28 => self.claim().await,
            28..48 => self.report().await,
            48..58 => self.order().await,
            58..64 => self.settle_due().await,
            64..68 => self.settle_lost().await,
            68..71 => self.adopt().await,
            71..75 => self.release().await,
            75..81 => self.hear_of().await,
            81..83 => self.pause_queue().await,
            83..84 => self.set_limit().await,
            84..86 => self.log().await,
            86..90 => self.deliver().await,
            90..91 => self.acknowledge().await,
            91..94 => self.come_late().await,
            94..95 => self.change_flow().await,
            95..96 => self.sweep().await,
            _ => self.pass().await,
        }
        let limit = if self.random.once_in(2) { usize::MAX } else { 3 };
        self.pair.due(self.now, limit).await;
        self.pair.lost(self.now).await;
        let sessions: Vec<SessionId> = (0..SESSIONS).map(|session| SessionId(session.into())).collect();
        self.pair.to_stop(&sessions).await;
        let picked = self.random.pick(&self.active).copied();
        if let Some(id) = picked {
            self.pair.compare_task(id).await;
        }
        if number.is_multiple_of(50) {
            self.look_at_everything().await;
        }
    }

    pub(super) fn count(&mut self, kind: &'static str) {
        *self.counts.entry(kind).or_default() += 1;
    }

    /// Commits and counts; returns whether the first outcome was the intended one.
    pub(super) async fn commit(&mut self, kind: &'static str, mut changes: Vec<Change>) -> bool {
        for change in &mut changes {
            if let Change::Task(change) = change {
                change.announces = change.before.is_multiple_of(3);
            }
        }
        let outcomes = self.pair.commit(changes).await;
        for outcome in &outcomes {
            self.count(match outcome {
                Outcome::Committed => kind,
                Outcome::Conflict => "conflict",
                Outcome::KeyTaken { .. } => "key taken",
                Outcome::Heard => "heard",
                Outcome::Repeats { .. } => "repeats",
            });
        }
        outcomes.first() == Some(&Outcome::Committed)
    }

    async fn pass(&mut self) {
        let length = match self.random.below(10) {
            0..5 => self.random.below(100),
            5..9 => self.random.below(3_000),
            _ => self.random.below(30_000),
        };
        self.now.wall = self.now.wall + Millis(length);
        self.now.mono.0 += length;
    }

    async fn look_at_everything(&mut self) {
        let limit = usize::try_from(1 + self.random.below(9)).unwrap_or(1);
        let all = TaskQuery { limit, ..TaskQuery::default() };
        let red = [("color".to_owned(), "red".to_owned())].into();
        let statuses = vec![TaskStatus::Running, TaskStatus::Paused, TaskStatus::Cancelled];
        for query in [
            TaskQuery { labels: red, ..all.clone() },
            TaskQuery { statuses, ..all.clone() },
            TaskQuery { since: Some(Timestamp(self.now.wall.0 - 5_000)), ..all.clone() },
            all,
        ] {
            self.pair.compare_lists(&query, self.now).await;
        }
        for id in self.active.iter().chain(&self.ended) {
            self.pair.compare_task(*id).await;
        }
    }

    pub(super) fn any_session(&mut self) -> SessionId {
        SessionId(self.random.below(SESSIONS).into())
    }

    /// One of the attempts that were handed out, mostly a recent one.
    pub(super) fn any_attempt(&mut self) -> Option<Claimed> {
        let recent = self.handed_out.len().saturating_sub(if self.random.once_in(10) { 200 } else { 12 });
        self.random.pick(&self.handed_out[recent..]).cloned()
    }
}
