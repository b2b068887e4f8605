//! Trace contexts of tasks and attempts (<https://www.w3.org/TR/trace-context/>). They follow from ids alone: every server
//! computes the same ones, also after a restart, and nothing is stored.
//!
//! ```text
//! caller ─▶ submit ─▶ task ─┬─▶ attempt ─▶ what the worker does with it
//!                           └─▶ child task ─▶ attempt …
//! ```

use std::fmt;

use sha2::{Digest as _, Sha256};
use windlass_core::{ActKey, Direction, Task, TaskId};

use crate::Engine;

/// A span, and whether its trace is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    /// Id of the trace, not 0.
    pub trace: u128,
    /// Id of the span, not 0.
    pub span: u64,
    /// Whether spans of the trace are recorded.
    pub is_sampled: bool,
}

/// Which share of the traces that begin here is recorded. Others decide about traces that begin elsewhere.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling(f64);

/// The trace of a task. The ids of its spans are computed when they are asked for.
#[derive(Debug, Clone, Copy)]
pub struct TaskTrace<'t> {
    task: &'t Task,
    id: u128,
    /// Whether spans of the trace are recorded.
    pub is_sampled: bool,
    /// The span in which the task was submitted. `None` = the trace begins with the task.
    pub caller: Option<u64>,
}

impl SpanContext {
    /// Reads the value of a header `traceparent`; `None` if it is invalid.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.splitn(5, '-').collect();
        let [version, trace, span, flags] = parts[..] else { return None };
        if hex(version, 2)? == 0xff {
            return None;
        }
        let (trace, span) = (hex(trace, 32)?, u64::try_from(hex(span, 16)?).ok()?);
        let is_sampled = hex(flags, 2)? & 1 == 1;
        (trace != 0 && span != 0).then_some(Self { trace, span, is_sampled })
    }
}

/// The value of a header `traceparent`.
impl fmt::Display for SpanContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }
}

/// Reads a number of exactly this many hexadecimal digits. Capitals are invalid.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (text.len() == digits && is_hex).then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

impl Sampling {
    /// Records this share of the traces, from 0 to 1.
    #[must_use]
    pub fn new(share: f64) -> Self {
        Self(share)
    }

    /// Whether a trace is recorded. As other implementations do, it uses the last 56 bits of the id, which are random.
    fn takes(self, trace: u128) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "the share has fewer digits")]
        let place = (trace & 0xff_ffff_ffff_ffff) as f64 / (1_u64 << 56) as f64;
        place < self.0
    }

    /// The trace of a task: that of its submit, or one that begins with the task, whose id is then that of the topmost
    /// task.
    #[must_use]
    pub fn trace_of(self, task: &Task) -> TaskTrace<'_> {
        match task.input.traceparent.as_deref().and_then(SpanContext::parse) {
            Some(SpanContext { trace, span, is_sampled }) => {
                TaskTrace { task, id: trace, is_sampled, caller: Some(span) }
            }
            None => {
                let id = task.input.parent.map_or(task.id, |parent| parent.top).0;
                TaskTrace { task, id, is_sampled: self.takes(id), caller: None }
            }
        }
    }
}

impl TaskTrace<'_> {
    /// The span of the submit. A child task has none.
    #[must_use]
    pub fn submit(&self) -> Option<SpanContext> {
        self.task.input.parent.is_none().then(|| self.span(submit_span(self.task.id)))
    }

    /// The span of the task.
    #[must_use]
    pub fn task(&self) -> SpanContext {
        self.span(task_span(self.task.id))
    }

    /// The parent of the span of the task: its submit or, for a child task, the task that started it.
    #[must_use]
    pub fn parent_of_task(&self) -> u64 {
        self.task.input.parent.map_or_else(|| submit_span(self.task.id), |parent| task_span(parent.task))
    }

    /// The span of an attempt of this task.
    #[must_use]
    pub fn attempt(&self, key: ActKey, attempt: u32) -> SpanContext {
        let mut name = [0; 17];
        name[..8].copy_from_slice(&(key.step as u64).to_be_bytes());
        name[8..12].copy_from_slice(&key.member.to_be_bytes());
        name[12..16].copy_from_slice(&attempt.to_be_bytes());
        name[16] = u8::from(key.direction == Direction::Rollback);
        self.span(span_id(self.task.id, &name))
    }

    fn span(&self, span: u64) -> SpanContext {
        SpanContext { trace: self.id, span, is_sampled: self.is_sampled }
    }
}

fn submit_span(task: TaskId) -> u64 {
    span_id(task, b"submit")
}

fn task_span(task: TaskId) -> u64 {
    span_id(task, b"task")
}

/// The id of a span. It is never 0, which would be invalid.
fn span_id(task: TaskId, name: &[u8]) -> u64 {
    let hash = Sha256::new().chain_update(task.0.to_be_bytes()).chain_update(name).finalize();
    let mut id = [0; 8];
    id.copy_from_slice(&hash[..8]);
    u64::from_be_bytes(id).max(1)
}

impl Engine {
    /// From now on this server records traces: workers get the span of their attempt. The first call counts.
    pub fn traced(&self, sampling: Sampling) {
        let _ = self.sampling.set(sampling);
    }

    /// The `traceparent` for what a worker does with an attempt. If this server records no traces, it is that of the
    /// submit.
    pub(crate) fn traceparent(&self, task: &Task, key: ActKey, attempt: u32) -> Option<Box<str>> {
        match self.sampling.get() {
            Some(sampling) => {
                let context = sampling.trace_of(task).attempt(key, attempt);
                Some(context.to_string().into())
            }
            None => task.input.traceparent.clone(),
        }
    }

    /// The `traceparent` for what follows from a task, such as a notification of its end.
    #[must_use]
    pub fn traceparent_of(&self, task: &Task) -> Option<Box<str>> {
        match self.sampling.get() {
            Some(sampling) => Some(sampling.trace_of(task).task().to_string().into()),
            None => task.input.traceparent.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use windlass_core::{Flow, Input, Json, Name, Parent, Timestamp};

    use super::*;

    const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn task(id: u128, change: impl FnOnce(&mut Input)) -> Task {
        let mut input = Input::new(Json::empty(), Timestamp(0));
        change(&mut input);
        let flow = Flow::new(Name::new("f").unwrap(), Vec::new());
        Task::new(TaskId(id), Arc::new(flow), Arc::new(input))
    }

    #[test]
    fn contexts_are_read_and_written() {
        let context = SpanContext::parse(GIVEN).unwrap();
        assert_eq!((context.to_string().as_str(), context.is_sampled), (GIVEN, true));
        for bad in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(SpanContext::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_trace_goes_on_from_the_caller_to_children_and_attempts() {
        let all = Sampling::new(1.0);
        let given = task(7, |input| input.traceparent = Some(GIVEN.into()));
        let given = all.trace_of(&given);
        assert_eq!(given.caller, Some(0xb7ad_6b71_6920_3331));
        assert_eq!(given.task().trace, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        let own = task(7, |_| {});
        let own = all.trace_of(&own);
        let submit = own.submit().expect("it was submitted");
        assert_eq!((own.task().trace, own.caller, own.parent_of_task()), (7, None, submit.span));
        let (key, top) = (ActKey::forward(1), TaskId(7));
        let child =
            task(9, |input| input.parent = Some(Parent { task: top, key, attempt: 1, depth: 1, top }));
        let child = all.trace_of(&child);
        assert_eq!((child.task().trace, child.parent_of_task()), (7, own.task().span));
        assert_eq!(child.submit(), None);
        let spans = [key, ActKey { direction: Direction::Rollback, ..key }, key.of_member(1)];
        let spans = spans.map(|key| own.attempt(key, 1).span);
        let again = own.attempt(key, 2).span;
        let ids = [own.task().span, submit.span, child.task().span, again, spans[0], spans[1], spans[2]];
        assert_eq!(std::collections::BTreeSet::from(ids).len(), ids.len(), "each span has an id of its own");
    }

    #[test]
    fn a_caller_decides_about_its_trace_and_the_share_about_others() {
        let unsampled = GIVEN.replace("-01", "-00");
        let given = |text: &str| task(7, |input| input.traceparent = Some(text.into()));
        assert!(Sampling::new(0.0).trace_of(&given(GIVEN)).is_sampled);
        assert!(!Sampling::new(1.0).trace_of(&given(&unsampled)).is_sampled);
        let ids = (0..1000).map(|n: u128| n * 0x00ab_cdef_1234_5677);
        let taken = ids.filter(|id| Sampling::new(0.25).trace_of(&task(*id, |_| {})).is_sampled);
        let taken = taken.count();
        assert!((200..300).contains(&taken), "{taken} of 1000");
    }
}
