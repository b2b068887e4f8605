//! The sessions of workers that call this server: their offers, their open poll, and the attempts given to them.
//!
//! This is communication state only. The claims are in the store, and a worker may continue with another server.

mod renewals;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_channel::oneshot;
use windlass_core::{Millis, Name, Timestamp};
use windlass_store::{AttemptId, ClaimRequest, Now, SessionId, WorkerState};

use crate::{
    exchange::{ExchangeAnswer, Seq},
    queries::last_heard::{LastHeard, LastWorkers},
};

/// The sessions that call this server.
#[derive(Debug, Default)]
pub(crate) struct LocalSessions {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    sessions: BTreeMap<SessionId, LocalSession>,
    /// Polls that may get attempts, the longest waiting first. Some may be over already.
    waiting: VecDeque<(SessionId, Seq)>,
    /// Attached sessions whose poll ended and that have no other open poll.
    closed: BTreeSet<SessionId>,
    /// The last workers of modules that no session here serves any more.
    gone: LastWorkers,
}

/// One session.
#[derive(Debug, Default)]
pub(crate) struct LocalSession {
    pub(crate) attached: bool,
    pub(crate) lease: Millis,
    pub(crate) worker: Arc<WorkerState>,
    /// The session's free slots, from the call with the highest number.
    pub(crate) offers: Offers,
    /// Its open poll, from the arrival of the call to its answer.
    pub(crate) poll: Option<Poll>,
    pub(crate) last_poll: Seq,
    /// The poll that this server has not finished answering. It may be over already: a slow store delays the answer.
    pub(crate) answering: Option<Seq>,
    /// The highest number of a call.
    pub(crate) last_seq: Seq,
    /// The connection of its last poll went away before the answer.
    pub(crate) is_cut_off: bool,
    /// Attempts given to it.
    pub(crate) given: HashMap<AttemptId, Given>,
    /// Attempts it returns or has returned. Polls name them until the reply to that report.
    pub(crate) declined: BTreeSet<AttemptId>,
    /// Attempts it names that a pause keeps for the resume: it started them before this server received its first call.
    pub(crate) parked: BTreeSet<AttemptId>,
    /// Attempts it must stop, and when the last cancel was sent.
    pub(crate) cancels: BTreeMap<AttemptId, Option<Millis>>,
    pub(crate) seen_at: Millis,
    /// When this server last renewed it in the store.
    pub(crate) renewed_at: Option<Millis>,
    /// It has called since the last renewal, or is to get a new lease.
    pub(crate) is_unsaid: bool,
    /// How often its lease was extended since its last call.
    pub(crate) extensions: u8,
    /// When its claims were last read from the store.
    pub(crate) checked_at: Option<Millis>,
    /// Attempts that must not start any more, with the first poll that did not name them.
    pub(super) doubted: BTreeMap<AttemptId, u64>,
    /// Claims in the store at that time that neither the worker nor this server knew.
    pub(crate) unheard: BTreeSet<AttemptId>,
    /// When the store did not answer a claim call; it may have executed it. These claims are searched for until
    /// [`LOOKED_FOR`] has passed, and for as long as one of them must not start.
    pub(crate) unanswered: BTreeMap<Timestamp, Millis>,
    /// The number of claim operations in progress for it.
    pub(crate) hands: usize,
    /// Modules it served before, each with the time of its last call for it; the last [`SERVED_BEFORE_MAX`].
    pub(crate) served_before: Vec<(Name, Millis)>,
    /// It claims nothing more, and exits once its attempts are done.
    pub(crate) is_draining: bool,
}

/// The maximum number of former modules remembered per session. Otherwise a worker that names other modules in each
/// call would fill the memory.
pub(crate) const SERVED_BEFORE_MAX: usize = 100;

/// The free slots of a session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Offers {
    pub(crate) seq: Seq,
    pub(crate) claim_requests: Vec<ClaimRequest>,
    /// Over all modules together.
    pub(crate) free: Option<u32>,
}

/// An open poll.
#[derive(Debug)]
pub(crate) struct Poll {
    pub(crate) seq: Seq,
    pub(crate) until: Millis,
    pub(crate) answer: oneshot::Sender<ExchangeAnswer>,
}

/// An attempt given to a session.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// The size of the log lines that this server kept of it, in bytes.
    pub(crate) log_bytes: usize,
    /// The number of its invalid reports.
    pub(crate) invalid: u32,
    /// It is not handed out again before this time.
    pub(crate) again_at: Millis,
}

/// How long an attempt is not handed out again to a session after an invalid report. Doubles with each invalid report.
const AGAIN_AFTER: Millis = Millis(500);
const AGAIN_AFTER_MAX: Millis = Millis::from_secs(30);

impl Given {
    /// Counts an invalid report. The worker may have lost the attempt: handed out again at once, it would do the same.
    pub(crate) fn note_invalid(&mut self, now: Now) {
        let wait = AGAIN_AFTER.doubled(self.invalid).min(AGAIN_AFTER_MAX);
        self.invalid += 1;
        self.again_at = Millis(now.mono.0 + wait.0);
    }
}

/// A session is forgotten here after this silence; only the lease in the store matters.
const FORGET_AFTER: Millis = Millis::from_secs(2 * 3600);

/// How long claims whose answer was lost are searched for: longer than a database continues a statement after its
/// connection was cut. Later they are found when a poll is compared with the claims in the store.
pub(crate) const LOOKED_FOR: Millis = Millis::from_secs(2);

/// A session without attempts is forgotten after this silence, but not before its lease ends.
const FORGET_IDLE_AFTER: Millis = Millis::from_secs(600);

/// The maximum number of remembered sessions that have neither attempts nor an open poll. Any caller can make up any
/// number of sessions; beyond this limit the longest silent ones are forgotten first.
const IDLE_SESSIONS_MAX: usize = 10_000;

impl LocalSessions {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the first open poll reaches the end of its wait.
    pub(crate) fn next_expiry(&self) -> Option<Millis> {
        self.lock().sessions.values().filter_map(|session| session.poll.as_ref()).map(|poll| poll.until).min()
    }
}

impl Inner {
    pub(crate) fn get(&mut self, id: SessionId) -> &mut LocalSession {
        self.sessions.entry(id).or_default()
    }

    pub(crate) fn find(&mut self, id: SessionId) -> Option<&mut LocalSession> {
        self.sessions.get_mut(&id)
    }

    /// Whether a session is known to serve a module without this command.
    pub(crate) fn lacks(&self, id: SessionId, module: &str, command: &str) -> bool {
        let offers = self.sessions.get(&id).map(|session| &session.offers);
        let claim_request = offers.and_then(|offers| {
            offers.claim_requests.iter().find(|claim_request| &*claim_request.module == module)
        });
        let commands = claim_request.and_then(|claim_request| claim_request.commands.as_ref());
        commands.is_some_and(|commands| !commands.iter().any(|name| &**name == command))
    }

    /// Opens a poll and answers the previous one. Returns the receiver of its answer, or `None` if the call is a late
    /// copy of a poll that was answered or replaced.
    pub(crate) fn open_poll(
        &mut self,
        id: SessionId,
        seq: Seq,
        until: Millis,
    ) -> Option<oneshot::Receiver<ExchangeAnswer>> {
        let session = self.get(id);
        if seq <= session.last_poll {
            return None;
        }
        (session.last_poll, session.answering, session.is_cut_off) = (seq, Some(seq), false);
        let (answer, receiver) = oneshot::channel();
        if let Some(before) = session.poll.replace(Poll { seq, until, answer }) {
            // The receiver is gone if its connection is gone.
            let _ = before.answer.send(ExchangeAnswer { lease: session.lease, ..ExchangeAnswer::default() });
        }
        Some(receiver)
    }

    /// From now on, an open poll may get attempts that become ready.
    pub(crate) fn line_up(&mut self, id: SessionId, seq: Seq) {
        self.waiting.push_back((id, seq));
    }

    /// Answers a poll, if it is still open. Returns whether it was.
    pub(crate) fn answer(&mut self, id: SessionId, seq: Seq, answer: ExchangeAnswer) -> bool {
        let poll = self.find(id).and_then(|session| session.poll.take_if(|poll| poll.seq == seq));
        poll.is_some_and(|poll| poll.answer.send(answer).is_ok())
    }

    /// Ends a poll that was answered, or whose connection went away. Returns whether it was still open.
    ///
    /// A worker that got its answer opens the next poll at once. With `alone`, no other server can have that poll, so
    /// an answer that was lost looks the same as a connection that went away. Otherwise the next poll may be at a
    /// server that cannot reach the store, and only the closed connection shows that the worker is gone.
    pub(crate) fn end_poll(&mut self, id: SessionId, seq: Seq, alone: bool) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        session.answering.take_if(|answering| *answering == seq);
        let was_open = session.poll.take_if(|poll| poll.seq == seq).is_some();
        if session.attached && session.poll.is_none() && (was_open || (alone && session.last_poll == seq)) {
            session.is_cut_off = true;
            self.closed.insert(id);
        }
        was_open
    }

    /// Workers whose poll this server has received and not finished answering. The store may consider some of them
    /// silent until this server renews them.
    pub(crate) fn polling_workers(&self) -> impl Iterator<Item = (SessionId, &WorkerState)> {
        let polling = self.sessions.iter().filter(|(_, session)| session.answering.is_some());
        polling.map(|(id, session)| (*id, &*session.worker))
    }

    /// Sessions with an open poll at this server.
    pub(crate) fn polling(&self) -> Vec<SessionId> {
        self.sessions.iter().filter(|(_, session)| session.poll.is_some()).map(|(id, _)| *id).collect()
    }

    /// Polls that may get attempts, the longest waiting first.
    pub(crate) fn waiting(&mut self) -> Vec<(SessionId, Seq)> {
        let sessions = &self.sessions;
        self.waiting.retain(|(id, seq)| {
            let poll = sessions.get(id).and_then(|session| session.poll.as_ref());
            poll.is_some_and(|poll| poll.seq == *seq)
        });
        self.waiting.iter().copied().collect()
    }

    /// Forgets sessions after a long silence. Returns those whose poll reached the end of its wait.
    pub(crate) fn expire(&mut self, now: Now) -> Vec<SessionId> {
        let gone = &mut self.gone;
        self.sessions.retain(|id, session| {
            let is_remembered = session.is_remembered(now);
            if !is_remembered {
                session.note_in(gone, *id);
            }
            is_remembered
        });
        if self.sessions.len() > IDLE_SESSIONS_MAX {
            self.forget_idle();
        }
        let over = |session: &LocalSession| session.poll.as_ref().is_some_and(|poll| poll.until <= now.mono);
        self.sessions.iter().filter(|(_, session)| over(session)).map(|(id, _)| *id).collect()
    }

    /// Forgets sessions without attempts or poll beyond [`IDLE_SESSIONS_MAX`].
    fn forget_idle(&mut self) {
        let idle = self.sessions.iter().filter(|(_, session)| session.is_idle());
        let mut idle: Vec<(Millis, SessionId)> = idle.map(|(id, session)| (session.seen_at, *id)).collect();
        idle.sort_unstable();
        for (_, id) in idle.iter().take(idle.len().saturating_sub(IDLE_SESSIONS_MAX)) {
            if let Some(session) = self.sessions.remove(id) {
                session.note_in(&mut self.gone, *id);
            }
        }
    }

    /// Whether the worker of this session claims nothing more and will exit.
    pub(crate) fn is_draining(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|session| session.is_draining)
    }

    /// The worker of a module that called last.
    pub(crate) fn last_heard(&self, module: &Name, now: Now) -> Option<LastHeard> {
        let here = self.sessions.iter().filter_map(|(id, session)| {
            let at = session.served().filter(|(served, _)| *served == module).map(|(_, at)| at).max()?;
            Some((at, session.name(*id)))
        });
        let gone = self.gone.get(module).map(|(at, worker)| (at, worker.into()));
        let last = here.chain(gone).max_by_key(|(at, _)| *at);
        last.map(|(at, worker): (Millis, Box<str>)| LastHeard::new(&worker, at, now))
    }
}

impl LocalSession {
    /// Whether it has neither attempts nor an open poll.
    fn is_idle(&self) -> bool {
        self.poll.is_none() && self.given.is_empty()
    }

    /// The modules it serves or served, and the time of its last call for each.
    fn served(&self) -> impl Iterator<Item = (&Name, Millis)> {
        let now = self.worker.modules.iter().map(|module| (module, self.seen_at));
        now.chain(self.served_before.iter().map(|(module, at)| (module, *at)))
    }

    fn name(&self, id: SessionId) -> Box<str> {
        let name = &self.worker.name;
        if name.is_empty() { id.to_string().into() } else { name.clone() }
    }

    /// Keeps the modules it served when the session is forgotten.
    fn note_in(&self, gone: &mut LastWorkers, id: SessionId) {
        let name = self.name(id);
        self.served().for_each(|(module, at)| gone.note(module, at, &name));
    }

    fn is_remembered(&self, now: Now) -> bool {
        let silence = if self.is_idle() { FORGET_IDLE_AFTER.max(self.lease) } else { FORGET_AFTER };
        self.poll.is_some() || now.mono.0 < self.seen_at.0.saturating_add(silence.0)
    }

    /// Its claim requests, and the limit over all modules. Attempts are handed only to an open poll, and a worker opens
    /// a poll after it has the answer of the previous one: so its offers account for everything it was given.
    pub(crate) fn room(&self) -> (&[ClaimRequest], u32) {
        let sum = self
            .offers
            .claim_requests
            .iter()
            .map(|claim_request| claim_request.free)
            .fold(0, u32::saturating_add);
        (&self.offers.claim_requests, self.offers.free.unwrap_or(sum))
    }

    /// Cancels that were not sent to the session within the last second.
    pub(crate) fn due_cancels(&mut self, now: Now) -> Vec<AttemptId> {
        const AGAIN_AFTER_MS: u64 = 1000;
        let mut due = Vec::new();
        for (id, told) in &mut self.cancels {
            if told.is_none_or(|told| now.mono.0 >= told.0 + AGAIN_AFTER_MS) {
                *told = Some(now.mono);
                due.push(*id);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::{ActKey, TaskId, Timestamp};

    use super::*;

    fn heard(sessions: &mut Inner, id: u128, at: u64) {
        let session = sessions.get(SessionId(id));
        (session.seen_at, session.lease) = (Millis(at), Millis::from_secs(30));
    }

    fn expire(sessions: &mut Inner, at: u64) {
        sessions.expire(Now { wall: Timestamp(0), mono: Millis(at) });
    }

    #[test]
    fn sessions_that_have_nothing_are_forgotten_sooner() {
        let mut sessions = Inner::default();
        for id in 1..=3 {
            heard(&mut sessions, id, 0);
        }
        let id = AttemptId { task: TaskId(1), key: ActKey::forward(0), attempt: 1, claim: 1 };
        sessions.get(SessionId(2)).given.insert(id, Given::default());
        let _answer = sessions.open_poll(SessionId(3), 1, Millis(u64::MAX)).unwrap();
        expire(&mut sessions, FORGET_IDLE_AFTER.0 - 1);
        assert_eq!(sessions.sessions.len(), 3);
        expire(&mut sessions, FORGET_IDLE_AFTER.0);
        assert_eq!(sessions.sessions.keys().map(|id| id.0).collect::<Vec<_>>(), [2, 3]);
        expire(&mut sessions, FORGET_AFTER.0);
        assert_eq!(sessions.sessions.keys().map(|id| id.0).collect::<Vec<_>>(), [3], "it polls");
    }

    #[test]
    fn a_worker_is_connected_until_its_poll_is_answered() {
        let (mut sessions, id) = (Inner::default(), SessionId(1));
        let connected = |sessions: &Inner| sessions.polling_workers().count();
        let _first = sessions.open_poll(id, 1, Millis(0)).unwrap();
        assert!(sessions.answer(id, 1, ExchangeAnswer::default()), "its time is over");
        assert_eq!(connected(&sessions), 1, "a slow store may hold the answer up");
        let _second = sessions.open_poll(id, 2, Millis(0)).unwrap();
        sessions.end_poll(id, 1, true);
        assert_eq!(connected(&sessions), 1, "the next poll is open");
        sessions.end_poll(id, 2, true);
        assert_eq!(connected(&sessions), 0);
    }

    #[test]
    fn only_so_many_sessions_that_have_nothing_are_remembered() {
        let mut sessions = Inner::default();
        let made_up = IDLE_SESSIONS_MAX as u64 + 5;
        for at in 0..made_up {
            heard(&mut sessions, u128::from(made_up - at), at);
        }
        let _answer = sessions.open_poll(SessionId(u128::from(made_up)), 1, Millis(u64::MAX)).unwrap();
        expire(&mut sessions, made_up);
        assert_eq!(sessions.sessions.len(), IDLE_SESSIONS_MAX + 1);
        assert!(sessions.find(SessionId(u128::from(made_up))).is_some(), "it polls");
        assert!(sessions.find(SessionId(1)).is_some(), "it was heard of last");
        assert!(sessions.find(SessionId(u128::from(made_up - 1))).is_none());
    }
}
