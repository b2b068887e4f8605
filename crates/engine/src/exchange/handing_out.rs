//! Handing out: ready attempts go to polls that wait.

use std::collections::BTreeMap;

use windlass_core::{Action, Attempt, Command, Failure, Millis, Name, Outcome, Report, TaskId, Timestamp};

use super::{ATTEMPTS_MAX, ExchangeAnswer, HandedOut, Results, Seq, answer_size::AnswerSize};
use crate::{
    Engine, EngineError, Notice,
    inbox::Item,
    ports::{AttemptId, Claimed, Loaded, Now, SessionId, StoreError, Wish},
    sessions::LOOKED_FOR,
};

/// Attempts claimed at once: those that do not fit in the answer go back, so not many more than fit.
pub(super) const CLAIMS_MAX: u32 = 100;

impl Engine {
    /// Hands ready attempts to polls that wait. Where that is under way already, it is gone on with for this one.
    pub(crate) async fn dispatch(&self, now: Now) -> Result<(), EngineError> {
        self.offering.stir();
        let Some(mut turn) = self.dispatching.take(&self.timers, now) else { return Ok(()) };
        let mut next = Some(now);
        while let Some(now) = next {
            self.hand_out(self.latest.not_before(now)).await?;
            next = turn.next();
        }
        Ok(())
    }

    /// Hands ready attempts to polls that wait, the one that waits longest first.
    pub(super) async fn hand_out(&self, now: Now) -> Result<(), EngineError> {
        let mut waiting = self.sessions.lock().waiting().into_iter();
        let mut empty = Vec::new();
        while let Some((session, seq, wishes, free)) = self.next_with_room(&mut waiting, &empty) {
            if self.store.prepare_claims(&wishes).await? {
                // Some time has passed: the dispatcher comes again with the time it is now.
                self.timers.set();
                return Ok(());
            }
            let mut hand = Hand::new(self, session, seq);
            let filled = hand.fill(&wishes, free, &mut empty, now).await;
            hand.end(filled, now).await?;
        }
        Ok(())
    }

    /// The next poll that may get something, what it takes and how much of that. Polls that only wait for what is in `empty`
    /// are passed over at once: this runs after each commit, and thousands may wait.
    fn next_with_room(
        &self,
        waiting: &mut impl Iterator<Item = (SessionId, Seq)>,
        empty: &[Line],
    ) -> Option<(SessionId, Seq, Vec<Wish>, u32)> {
        let mut sessions = self.sessions.lock();
        waiting.find_map(|(session, seq)| {
            let (wishes, free) = sessions.find(session)?.room();
            let is_empty = |wish: &Wish| {
                empty.iter().any(|(module, commands)| *module == wish.module && *commands == wish.commands)
            };
            let may_get = free > 0 && wishes.iter().any(|wish| wish.free > 0 && !is_empty(wish));
            may_get.then(|| (session, seq, wishes.to_vec(), free))
        })
    }

    /// The tasks that attempts are of, each once: many may be of one task, as its members are.
    pub(crate) async fn tasks_of(
        &self,
        attempts: &[AttemptId],
    ) -> Result<BTreeMap<TaskId, Loaded>, StoreError> {
        let ids = ids_of(attempts);
        let tasks = self.store.load(&ids).await?;
        Ok(ids.into_iter().zip(tasks).filter_map(|(id, loaded)| Some((id, loaded?))).collect())
    }

    /// As [`Engine::tasks_of`], for those who look at neither parameters nor results.
    pub(crate) async fn heads_of(
        &self,
        attempts: &[AttemptId],
    ) -> Result<BTreeMap<TaskId, Loaded>, StoreError> {
        let ids = ids_of(attempts);
        let heads = self.store.load_heads(&ids).await?;
        Ok(ids.into_iter().zip(heads).filter_map(|(id, loaded)| Some((id, loaded?))).collect())
    }

    /// The tasks of attempts that were claimed just now; those that are known here are not read.
    pub(crate) async fn tasks_of_claimed(
        &self,
        claimed: &[Claimed],
    ) -> Result<BTreeMap<TaskId, Loaded>, StoreError> {
        let (mut tasks, mut unknown) = (BTreeMap::new(), Vec::new());
        for claimed in claimed {
            match self.known.claimed(claimed) {
                Some(loaded) => drop(tasks.insert(claimed.id.task, loaded)),
                None => unknown.push(claimed.id),
            }
        }
        if !unknown.is_empty() {
            let connected = self.known.connected();
            let read = self.tasks_of(&unknown).await?;
            read.values().for_each(|loaded| self.known.learn(loaded, connected));
            tasks.extend(read);
        }
        Ok(tasks)
    }

    /// A claimed attempt as its worker gets it.
    pub(crate) fn handed_out(&self, id: AttemptId, loaded: &Loaded) -> HandedOut {
        let token = self.tokens.seal(&id);
        let task = loaded.task.clone();
        let (params, results) = (task.params_for(id.key), Results::of(&task, id.key));
        HandedOut { token, id, task, params, results }
    }

    /// An attempt whose parameters have grown beyond what may be handed out fails for good.
    pub(crate) fn refuse_too_large(&self, id: AttemptId) {
        self.refuse_offered(id, "its parameters have grown beyond 4 MiB: return less from the steps before");
    }

    /// An attempt that cannot be handed to anybody fails for good.
    pub(crate) fn refuse_offered(&self, id: AttemptId, message: &str) {
        let failure = Failure::new(message, 1, false);
        let attempt = Attempt { key: id.key, number: id.attempt, started_at: None };
        let command = Command::Report(Report { attempt, outcome: Outcome::Failed(failure) });
        self.inbox.post(vec![Item::Task { id: id.task, command, claim: Some(id.claim), logs: Vec::new() }]);
    }
}

/// What wishes are for: of many polls that wait for the same, only the first one that gets nothing asks the store.
type Line = (Name, Option<Vec<Name>>);

/// What was claimed for a poll and not given to it yet. Nobody else can have it, so it must not be lost: when this
/// is dropped before its time, the session gets it with its next poll.
pub(super) struct Hand<'a> {
    engine: &'a Engine,
    session: SessionId,
    seq: Seq,
    /// What the answer is going to be.
    attempts: Vec<HandedOut>,
    size: AnswerSize,
    /// What is not part of the answer.
    rest: Vec<AttemptId>,
    /// Attempts of damaged tasks: once the poll is answered they are released, and take up no place of a limit. The store
    /// gives nothing of a task that its quarantine names.
    withheld: Vec<AttemptId>,
    /// The times of the claims that are being made and taken in, by both clocks.
    claims_at: BTreeMap<Timestamp, Millis>,
}

impl<'a> Hand<'a> {
    pub(super) fn new(engine: &'a Engine, session: SessionId, seq: Seq) -> Self {
        engine.sessions.lock().get(session).hands += 1;
        Self {
            engine,
            session,
            seq,
            attempts: Vec::new(),
            size: AnswerSize::default(),
            rest: Vec::new(),
            withheld: Vec::new(),
            claims_at: BTreeMap::new(),
        }
    }

    /// Claims what the session can take, as far as it fits in an answer; nothing from lines that are `empty`.
    async fn fill(
        &mut self,
        wishes: &[Wish],
        free: u32,
        empty: &mut Vec<Line>,
        now: Now,
    ) -> Result<(), StoreError> {
        self.claims_at.insert(now.wall, now.mono);
        let found = self.take_in_unanswered(now).await?;
        let mut free = free.min(u32::try_from(ATTEMPTS_MAX).unwrap_or(u32::MAX)).saturating_sub(found);
        // Begin with another module each time, so that none of a worker's modules starves.
        let first = usize::try_from(self.seq).unwrap_or(0) % wishes.len().max(1);
        for wish in wishes[first..].iter().chain(&wishes[..first]) {
            let line = (wish.module.clone(), wish.commands.clone());
            if empty.contains(&line) {
                continue;
            }
            let mut wanted = wish.free;
            while wanted.min(free) > 0 {
                let asked = Wish { free: wanted.min(free).min(CLAIMS_MAX), ..wish.clone() };
                let (wishes, leave) = (std::slice::from_ref(&asked), self.engine.known.leave(now));
                let claimed = self.engine.store.claim_leaving(self.session, wishes, &leave, now).await;
                let claimed = claimed.inspect_err(|_| self.note_unanswered(now))?;
                // The store may go by a later time than it was given.
                self.claims_at.extend(claimed.first().map(|claimed| (claimed.at, now.mono)));
                let count = u32::try_from(claimed.len()).unwrap_or(u32::MAX);
                let before = self.withheld.len();
                if count > 0 && !self.take_in(&claimed).await? {
                    return Ok(());
                }
                if count < asked.free {
                    empty.push(line);
                    break;
                }
                // Damaged ones use up no place of the worker: what stands behind them goes to it.
                let withheld = u32::try_from(self.withheld.len() - before).unwrap_or(u32::MAX);
                let used = count.saturating_sub(withheld);
                (wanted, free) = (wanted.saturating_sub(used), free.saturating_sub(used));
            }
        }
        Ok(())
    }

    /// The store did not answer a claim of this time, and may have made it.
    pub(super) fn note_unanswered(&self, now: Now) {
        self.engine.sessions.lock().get(self.session).unanswered.insert(now.wall, now.mono);
    }

    /// Takes in what the store claimed without its answer coming: what the session has since one of those times and
    /// nobody told it of. Returns how many there were.
    async fn take_in_unanswered(&mut self, now: Now) -> Result<u32, StoreError> {
        let times = {
            let mut sessions = self.engine.sessions.lock();
            let unanswered = &mut sessions.get(self.session).unanswered;
            let times = unanswered.clone();
            unanswered.retain(|_, noted| now.mono.0 < noted.0 + LOOKED_FOR.0);
            times
        };
        if times.is_empty() {
            return Ok(0);
        }
        let mut held = self.engine.store.held(self.session).await?;
        {
            let mut sessions = self.engine.sessions.lock();
            let local = sessions.get(self.session);
            held.retain(|claimed| {
                let token = self.engine.tokens.seal(&claimed.id);
                let is_here = self.attempts.iter().any(|attempt| attempt.id == claimed.id);
                times.contains_key(&claimed.at) && !local.given.contains_key(&token) && !is_here
            });
        }
        self.take_in(&held).await?;
        Ok(u32::try_from(held.len()).unwrap_or(u32::MAX))
    }

    /// Answers the poll with what was taken in, also where a later claim failed, and gives the rest back.
    pub(super) async fn end(&mut self, taken_in: Result<(), StoreError>, now: Now) -> Result<(), StoreError> {
        self.claims_at.clear();
        self.give(now);
        while let Some(id) = self.withheld.pop() {
            self.engine.store.release(self.session, id, now).await?;
        }
        if self.put_back(now).await? > 0 {
            // Others may wait for it.
            self.engine.timers.set();
        }
        taken_in
    }

    /// Takes in what was claimed. Tells whether all of it fits in the answer.
    pub(super) async fn take_in(&mut self, claimed: &[Claimed]) -> Result<bool, StoreError> {
        let at_once = self.engine.store.loads_at_once();
        // What stands before this place was looked at and stays. What stands behind it goes back if loading fails.
        let mut place = self.rest.len();
        self.rest.extend(claimed.iter().map(|claimed| claimed.id));
        for some in claimed.chunks(at_once) {
            let tasks = self.engine.tasks_of_claimed(some).await?;
            for id in some.iter().map(|claimed| claimed.id) {
                if !tasks.contains_key(&id.task) && self.engine.store.quarantine().contains(id.task) {
                    self.rest.remove(place);
                    self.withheld.push(id);
                    continue;
                }
                // A task that is not there any more has nothing to hand out.
                let Some(attempt) = tasks.get(&id.task).map(|loaded| self.engine.handed_out(id, loaded))
                else {
                    place += 1;
                    continue;
                };
                if attempt.is_too_large() {
                    self.rest.remove(place);
                    self.engine.refuse_too_large(id);
                    // Should that not reach the disk, the next poll brings it up again.
                    self.engine.sessions.lock().get(self.session).give(attempt.token, id);
                } else if self.size.add(&attempt) {
                    self.rest.remove(place);
                    self.attempts.push(attempt);
                } else {
                    // What stands behind one that does not fit goes after it.
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Answers the poll, if it is still open and there is something.
    fn give(&mut self, now: Now) {
        if self.attempts.is_empty() {
            return;
        }
        let mut sessions = self.engine.sessions.lock();
        let Some(local) = sessions.find(self.session) else { return };
        if local.poll.as_ref().is_none_or(|poll| poll.seq != self.seq || poll.answer.is_canceled()) {
            return;
        }
        for attempt in &self.attempts {
            local.give(attempt.token.clone(), attempt.id);
        }
        let modules = self.attempts.iter().filter_map(|attempt| {
            attempt.task.action(attempt.id.key).and_then(Action::worker).map(|(module, _)| module)
        });
        self.engine.rates.note(modules, now.mono);
        if !self.engine.feed.is_idle() {
            for HandedOut { id, .. } in &self.attempts {
                let worker = local.worker.name.clone();
                let notice = Notice::Started { key: id.key, attempt: id.attempt, at: now.wall, worker };
                self.engine.feed.tell(id.task, &notice);
            }
        }
        let (attempts, lease) = (std::mem::take(&mut self.attempts), local.lease);
        sessions.answer(
            self.session,
            self.seq,
            ExchangeAnswer { attempts, lease, ..ExchangeAnswer::default() },
        );
    }

    /// Gives back what was not given out: nobody has seen it. Tells how much that was.
    async fn put_back(&mut self, now: Now) -> Result<usize, StoreError> {
        self.rest.extend(self.attempts.drain(..).map(|attempt| attempt.id));
        let count = self.rest.len();
        while let Some(id) = self.rest.last() {
            self.engine.store.release(self.session, *id, now).await?;
            self.rest.pop();
        }
        Ok(count)
    }
}

impl Drop for Hand<'_> {
    fn drop(&mut self) {
        let ids: Vec<AttemptId> =
            self.attempts.iter().map(|attempt| attempt.id).chain(self.rest.iter().copied()).collect();
        let mut sessions = self.engine.sessions.lock();
        let local = sessions.get(self.session);
        local.hands = local.hands.saturating_sub(1);
        // The call that handed out went away while the store claimed. That call may be another worker's: the poll that waits
        // here gets what was claimed for it from the dispatcher.
        if !self.claims_at.is_empty() && local.poll.is_some() {
            local.unanswered.append(&mut self.claims_at);
            self.engine.timers.set();
            return;
        }
        for id in ids {
            local.give(self.engine.tokens.seal(&id), id);
        }
    }
}

/// The tasks of attempts, each once.
fn ids_of(attempts: &[AttemptId]) -> Vec<TaskId> {
    let mut ids: Vec<TaskId> = attempts.iter().map(|id| id.task).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
