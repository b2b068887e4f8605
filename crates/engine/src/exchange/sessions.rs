//! What this server knows of the workers that talk to it: their offers, their open poll, what was given them.
//!
//! It is only about talking. Who holds what is in the store, and a worker may go on with another server.

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

/// The sessions that talk to this server.
#[derive(Debug, Default)]
pub(crate) struct LocalSessions {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    sessions: BTreeMap<SessionId, LocalSession>,
    /// Polls that something may be handed out to, the one that waits longest first. May name some that are over.
    waiting: VecDeque<(SessionId, Seq)>,
    /// Attached sessions whose poll ended without another one being open.
    closed: BTreeSet<SessionId>,
    /// Who served modules that no session here serves any more.
    gone: LastWorkers,
}

/// One session.
#[derive(Debug, Default)]
pub(crate) struct LocalSession {
    pub(crate) attached: bool,
    pub(crate) lease: Millis,
    pub(crate) worker: Arc<WorkerState>,
    /// What it can take, as it said in the call with the highest number.
    pub(crate) offers: Offers,
    /// Its open poll, from when the call is heard until it is answered.
    pub(crate) poll: Option<Poll>,
    pub(crate) last_poll: Seq,
    /// The poll that this server has not finished answering. It may be over already: a slow store holds the answer up.
    pub(crate) answering: Option<Seq>,
    /// The highest number of a call.
    pub(crate) last_seq: Seq,
    /// The connection of its last poll went away before the answer.
    pub(crate) is_cut_off: bool,
    /// Attempts given to it.
    pub(crate) given: HashMap<AttemptId, Given>,
    /// Attempts it did not begin. A poll may name them that was sent before that was answered.
    pub(crate) declined: BTreeSet<AttemptId>,
    /// Attempts that it names and that a pause keeps for the resume: it had begun them before this server knew of it.
    pub(crate) parked: BTreeSet<AttemptId>,
    /// Attempts it is to stop, and when it was last told.
    pub(crate) cancels: BTreeMap<AttemptId, Option<Millis>>,
    pub(crate) seen_at: Millis,
    /// When the store was last told of it by this server.
    pub(crate) renewed_at: Option<Millis>,
    /// It was heard of since then, or is to get a new lease.
    pub(crate) is_unsaid: bool,
    /// How often its lease was extended since it was last heard of.
    pub(crate) extensions: u8,
    /// When what the store says it has was last looked at.
    pub(crate) checked_at: Option<Millis>,
    /// What the store said then that it has, and neither it nor this server knew of.
    pub(crate) unheard: BTreeSet<AttemptId>,
    /// When the store was asked for claims and did not answer: it may have made them. They are looked for until
    /// [`LOOKED_FOR`] after that.
    pub(crate) unanswered: BTreeMap<Timestamp, Millis>,
    /// How often attempts are being claimed for it right now.
    pub(crate) hands: usize,
    /// Modules it served before, and until when; the last [`SERVED_BEFORE_MAX`].
    pub(crate) served_before: Vec<(Name, Millis)>,
    /// It takes nothing more, and ends once what it has is done.
    pub(crate) is_draining: bool,
}

/// Modules of the past that are remembered of a session. A worker that names other modules in each call would fill the
/// memory.
pub(crate) const SERVED_BEFORE_MAX: usize = 100;

/// What a session can take.
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
    /// Bytes of log lines that this server kept of it.
    pub(crate) log_bytes: usize,
    /// Invalid reports of it.
    pub(crate) invalid: u32,
    /// It is not given again before this time.
    pub(crate) again_at: Millis,
}

/// How long an attempt is not given again to a session that sent an invalid report of it. It doubles with each of them.
const AGAIN_AFTER: Millis = Millis(500);
const AGAIN_AFTER_MAX: Millis = Millis::from_secs(30);

impl Given {
    /// The session sent an invalid report. It may have forgotten the attempt: given again at once, it would do the same.
    pub(crate) fn note_invalid(&mut self, now: Now) {
        let wait = AGAIN_AFTER.0.saturating_mul(1 << self.invalid.min(10)).min(AGAIN_AFTER_MAX.0);
        self.invalid += 1;
        self.again_at = Millis(now.mono.0 + wait);
    }
}

/// A session is forgotten here when it was silent for this long; the store's lease is what counts.
const FORGET_AFTER: Millis = Millis::from_secs(2 * 3600);

/// How long claims are looked for whose answer was lost: longer than a statement goes on in the database whose
/// connection was cut. Later they are found by [`compare_with_store`](crate::Engine::compare_with_store).
pub(crate) const LOOKED_FOR: Millis = Millis::from_secs(2);

/// One that has nothing is forgotten when it was silent for this long and for its lease.
const FORGET_IDLE_AFTER: Millis = Millis::from_secs(600);

/// Sessions that neither have anything nor poll, and are remembered all the same. Anybody can make up any number
/// of sessions; beyond this those that were silent longest are forgotten first.
const IDLE_SESSIONS_MAX: usize = 10_000;

impl LocalSessions {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the first poll has waited long enough.
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

    /// Opens a poll and answers the one before it. Gives what it will be answered with, or nothing where the call
    /// is a late copy of a poll that was answered or replaced.
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
            // Nobody reads it any more when its connection is gone.
            let _ = before.answer.send(ExchangeAnswer { lease: session.lease, ..ExchangeAnswer::default() });
        }
        Some(receiver)
    }

    /// From now on an open poll may be answered with what becomes ready.
    pub(crate) fn line_up(&mut self, id: SessionId, seq: Seq) {
        self.waiting.push_back((id, seq));
    }

    /// Answers a poll, if it is still open. Tells whether it was.
    pub(crate) fn answer(&mut self, id: SessionId, seq: Seq, answer: ExchangeAnswer) -> bool {
        let poll = self.find(id).and_then(|session| session.poll.take_if(|poll| poll.seq == seq));
        poll.is_some_and(|poll| poll.answer.send(answer).is_ok())
    }

    /// A poll was answered, or its connection went away. Tells whether it was still open.
    ///
    /// A worker that got its answer opens the next poll at once. With `alone` no other server can have that poll, so an
    /// answer that was lost looks the same as a connection that went away. Otherwise the next poll may be at a server that
    /// cannot tell the store, and only the connection says that the worker is gone.
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

    /// Workers whose poll this server has received and not finished answering. The store may hold some for silent as long
    /// as this server has not told it.
    pub(crate) fn polling_workers(&self) -> impl Iterator<Item = (SessionId, &WorkerState)> {
        let polling = self.sessions.iter().filter(|(_, session)| session.answering.is_some());
        polling.map(|(id, session)| (*id, &*session.worker))
    }

    /// Sessions that have a poll open here.
    pub(crate) fn polling(&self) -> Vec<SessionId> {
        self.sessions.iter().filter(|(_, session)| session.poll.is_some()).map(|(id, _)| *id).collect()
    }

    /// Polls that something may be handed out to, the one that waits longest first.
    pub(crate) fn waiting(&mut self) -> Vec<(SessionId, Seq)> {
        let sessions = &self.sessions;
        self.waiting.retain(|(id, seq)| {
            let poll = sessions.get(id).and_then(|session| session.poll.as_ref());
            poll.is_some_and(|poll| poll.seq == *seq)
        });
        self.waiting.iter().copied().collect()
    }

    /// Forgets sessions that were silent for long. Gives those whose poll has waited long enough.
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

    /// Forgets sessions that have nothing, as far as there are too many of them.
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

    /// Whether the worker of this session takes nothing more and ends.
    pub(crate) fn is_draining(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|session| session.is_draining)
    }

    /// The worker of a module that was heard of last.
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
    /// Neither has anything nor polls.
    fn is_idle(&self) -> bool {
        self.poll.is_none() && self.given.is_empty()
    }

    /// The modules it serves or served, and when it was last heard of with them.
    fn served(&self) -> impl Iterator<Item = (&Name, Millis)> {
        let now = self.worker.modules.iter().map(|module| (module, self.seen_at));
        now.chain(self.served_before.iter().map(|(module, at)| (module, *at)))
    }

    fn name(&self, id: SessionId) -> Box<str> {
        let name = &self.worker.name;
        if name.is_empty() { id.to_string().into() } else { name.clone() }
    }

    /// It is forgotten; which modules it served is not.
    fn note_in(&self, gone: &mut LastWorkers, id: SessionId) {
        let name = self.name(id);
        self.served().for_each(|(module, at)| gone.note(module, at, &name));
    }

    fn is_remembered(&self, now: Now) -> bool {
        let silence = if self.is_idle() { FORGET_IDLE_AFTER.max(self.lease) } else { FORGET_AFTER };
        self.poll.is_some() || now.mono.0 < self.seen_at.0.saturating_add(silence.0)
    }

    /// What may be handed to it now, and how much over all modules. Attempts are only ever handed to an open
    /// poll, and a worker opens one when it has the answer of the one before: so its offers know of everything
    /// it was given.
    pub(crate) fn room(&self) -> (&[ClaimRequest], u32) {
        let sum = self
            .offers
            .claim_requests
            .iter()
            .map(|claim_request| claim_request.free)
            .fold(0, u32::saturating_add);
        (&self.offers.claim_requests, self.offers.free.unwrap_or(sum))
    }

    /// Cancels that the session was not told of in the last second.
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
