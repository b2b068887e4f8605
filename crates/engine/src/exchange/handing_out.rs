//! Hands ready attempts to waiting polls.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

use windlass_core::{Action, Millis, Name, TaskId, Timestamp};
use windlass_store::{AttemptId, ClaimOutcome, ClaimRequest, Claimed, Loaded, Now, SessionId, StoreError};

use super::{
    ATTEMPTS_MAX, ExchangeAnswer, HandedOut, Results, Seq, answer_size::AnswerSize, holdings::may_start,
};
use crate::{Engine, EngineError, Notice, exchange::sessions::LOOKED_FOR};

/// What came of claiming for a poll.
enum Filled {
    /// All was claimed that there is for it, and that fits.
    Done,
    /// The store took time to read: the rest is to be claimed with another time.
    Later,
}

/// The maximum number of attempts claimed at once. Attempts that do not fit in the answer must be released, so the
/// limit is not much higher than the number that fits.
pub(super) const CLAIMS_MAX: u32 = 100;

impl Engine {
    /// Hands ready attempts to waiting polls. If another caller is doing so already, that caller makes another round
    /// for this.
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

    /// Hands ready attempts to waiting polls, the longest waiting first.
    pub(super) async fn hand_out(&self, now: Now) -> Result<(), EngineError> {
        let mut waiting = self.sessions.lock().waiting().into_iter();
        let mut empty = Vec::new();
        while let Some((session, seq, claim_requests, free)) = self.next_with_room(&mut waiting, &empty) {
            let mut hand = Hand::new(self, session, seq);
            let filled = hand.fill(&claim_requests, free, &mut empty, now).await;
            let is_later = matches!(filled, Ok(Filled::Later));
            hand.end(filled.map(drop), now).await?;
            if is_later {
                // Some time has passed: the dispatcher tries again with the current time.
                self.timers.set();
                return Ok(());
            }
        }
        Ok(())
    }

    /// The next poll that may get attempts, with its claim requests and their total limit. Polls that wait only for
    /// queues in `empty` are skipped at once: this runs after each commit, and thousands of polls may wait.
    fn next_with_room(
        &self,
        waiting: &mut impl Iterator<Item = (SessionId, Seq)>,
        empty: &[Line],
    ) -> Option<(SessionId, Seq, Vec<ClaimRequest>, u32)> {
        let mut sessions = self.sessions.lock();
        waiting.find_map(|(session, seq)| {
            let (claim_requests, free) = sessions.find(session)?.room();
            let is_empty = |claim_request: &ClaimRequest| {
                empty.iter().any(|(module, commands)| {
                    *module == claim_request.module && *commands == claim_request.commands
                })
            };
            let may_get = free > 0
                && claim_requests
                    .iter()
                    .any(|claim_request| claim_request.free > 0 && !is_empty(claim_request));
            may_get.then(|| (session, seq, claim_requests.to_vec(), free))
        })
    }

    /// A claimed attempt in the form that its worker gets.
    pub(crate) fn handed_out(&self, id: AttemptId, loaded: &Loaded) -> HandedOut {
        let token = self.tokens.seal(&id);
        let task = loaded.task.clone();
        let (params, results) = (task.params_for(id.key), Results::of(&task, id.key));
        let traceparent = self.traceparent(&task, id.key, id.attempt);
        HandedOut { token, id, task, params, results, traceparent }
    }
}

/// The queue that a claim request reads: its module and commands. Of many polls that wait for the same queue, only the
/// first one that gets nothing asks the store.
type Line = (Name, Option<Vec<Name>>);

/// Attempts claimed for a poll and not given to it yet. No other session can claim them, so they must not be lost: if
/// this is dropped before its end, the session gets them with its next poll.
pub(super) struct Hand<'a> {
    engine: &'a Engine,
    session: SessionId,
    seq: Seq,
    /// The attempts for the answer.
    attempts: Vec<HandedOut>,
    size: AnswerSize,
    /// Claimed attempts that are not part of the answer.
    rest: Vec<AttemptId>,
    /// Attempts of damaged tasks. They are released once the poll is answered, and then count against no limit. The
    /// store hands out no attempt of a task in its quarantine.
    withheld: Vec<AttemptId>,
    /// The number of claimed attempts that had ended when their tasks were read.
    ended: usize,
    /// Attempts of claims that the store did not confirm. Another server may have claimed one at the same time of a clock
    /// and have given it to the worker, so they are never released: the next poll finds them again.
    found: BTreeSet<AttemptId>,
    /// The times of the claims in progress, by both clocks.
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
            ended: 0,
            found: BTreeSet::new(),
            claims_at: BTreeMap::new(),
        }
    }

    /// Claims attempts for the session, as far as they fit in an answer; none from queues in `empty`.
    async fn fill(
        &mut self,
        claim_requests: &[ClaimRequest],
        free: u32,
        empty: &mut Vec<Line>,
        now: Now,
    ) -> Result<Filled, StoreError> {
        self.claims_at.insert(now.wall, now.mono);
        let found = self.take_in_unanswered(now).await?;
        let mut free = free.min(u32::try_from(ATTEMPTS_MAX).unwrap_or(u32::MAX)).saturating_sub(found);
        // Start with a different module each time, so that none of a worker's modules starves.
        let first = usize::try_from(self.seq).unwrap_or(0) % claim_requests.len().max(1);
        for claim_request in claim_requests[first..].iter().chain(&claim_requests[..first]) {
            let line = (claim_request.module.clone(), claim_request.commands.clone());
            if empty.contains(&line) {
                continue;
            }
            let mut wanted = claim_request.free;
            while wanted.min(free) > 0 {
                let asked = ClaimRequest { free: wanted.min(free).min(CLAIMS_MAX), ..claim_request.clone() };
                let (claim_requests, leave) =
                    (std::slice::from_ref(&asked), self.engine.task_cache.leave(now));
                let claimed = self.engine.store.claim(self.session, claim_requests, &leave, now).await;
                let claimed = match claimed.inspect_err(|_| self.note_unanswered(now))? {
                    ClaimOutcome::Claimed(claimed) => claimed,
                    ClaimOutcome::Later => return Ok(Filled::Later),
                };
                // The store may use a later time than it was given.
                self.claims_at.extend(claimed.first().map(|claimed| (claimed.at, now.mono)));
                let count = u32::try_from(claimed.len()).unwrap_or(u32::MAX);
                let before = self.withheld.len() + self.ended;
                if count > 0 && !self.take_in(&claimed, now).await? {
                    return Ok(Filled::Done);
                }
                if count < asked.free {
                    empty.push(line);
                    break;
                }
                // The worker gets the next attempts in place of damaged tasks and ended attempts.
                let withheld = self.withheld.len() + self.ended - before;
                let used = count.saturating_sub(u32::try_from(withheld).unwrap_or(u32::MAX));
                (wanted, free) = (wanted.saturating_sub(used), free.saturating_sub(used));
            }
        }
        Ok(Filled::Done)
    }

    /// The store did not answer a claim made at this time, and may have executed it.
    pub(super) fn note_unanswered(&self, now: Now) {
        self.engine.sessions.lock().get(self.session).unanswered.insert(now.wall, now.mono);
    }

    /// Accepts attempts whose claim the store did not confirm: the session has claimed them at one of those times, and was not
    /// given them yet. Returns their number, or the maximum if not all fit in the answer. A later poll accepts or releases
    /// those that must not start now.
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
                let is_here = self.attempts.iter().any(|attempt| attempt.id == claimed.id);
                times.contains_key(&claimed.at) && !local.given.contains_key(&claimed.id) && !is_here
            });
        }
        if held.is_empty() {
            return Ok(0);
        }
        // Not from the task cache: the claims may be old, and their tasks may have been paused since.
        let heads = self.engine.heads_of(&ids(&held)).await?;
        let (held, later): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|claimed| is_startable(claimed, &heads));
        self.search_again(&later, now);
        let (mut count, mut open) = (0, &held[..]);
        while !open.is_empty() {
            let (some, behind) = open.split_at(open.len().min(self.engine.store.loads_at_once()));
            let tasks = self.engine.tasks_of(&ids(some)).await?;
            for (place, claimed) in some.iter().enumerate() {
                if !is_startable(claimed, &tasks) {
                    self.search_again(std::slice::from_ref(claimed), now);
                    continue;
                }
                self.found.insert(claimed.id);
                self.rest.push(claimed.id);
                count += 1;
                if self.accept(self.rest.len() - 1, claimed, &tasks, now).is_break() {
                    self.search_again(&open[place..], now);
                    return Ok(u32::MAX);
                }
            }
            open = behind;
        }
        Ok(count)
    }

    /// Adds these claims to the session's unanswered claims. A later poll checks them again.
    fn search_again(&self, claimed: &[Claimed], now: Now) {
        let mut sessions = self.engine.sessions.lock();
        let unanswered = &mut sessions.get(self.session).unanswered;
        unanswered.extend(claimed.iter().map(|claimed| (claimed.at, now.mono)));
    }

    /// Answers the poll with the accepted attempts, even if a later claim failed, and releases the rest.
    pub(super) async fn end(&mut self, taken_in: Result<(), StoreError>, now: Now) -> Result<(), StoreError> {
        self.claims_at.clear();
        self.give(now);
        while let Some(id) = self.withheld.pop() {
            self.engine.store.release(self.session, id, None, now).await?;
        }
        if self.put_back(now).await? > 0 {
            // Other polls may wait for them.
            self.engine.timers.set();
        }
        taken_in
    }

    /// Accepts claimed attempts. Returns whether all of them fit in the answer.
    pub(super) async fn take_in(&mut self, claimed: &[Claimed], now: Now) -> Result<bool, StoreError> {
        let at_once = self.engine.store.loads_at_once();
        // What stands before this place was looked at and stays. What stands behind it goes back if loading fails.
        let mut place = self.rest.len();
        self.rest.extend(claimed.iter().map(|claimed| claimed.id));
        for some in claimed.chunks(at_once) {
            let tasks = self.engine.tasks_of_claimed(some).await?;
            for claimed in some {
                match self.accept(place, claimed, &tasks, now) {
                    ControlFlow::Continue(stays) => place += usize::from(stays),
                    // Attempts after one that does not fit keep their order, so they wait too.
                    ControlFlow::Break(()) => return Ok(false),
                }
            }
        }
        Ok(true)
    }

    /// Accepts a claimed attempt, which is at this place of `rest`, of one of these tasks. Returns whether it stays there
    /// because there is nothing to hand out; breaks if it does not fit in the answer.
    fn accept(
        &mut self,
        place: usize,
        claimed: &Claimed,
        tasks: &BTreeMap<TaskId, Loaded>,
        now: Now,
    ) -> ControlFlow<(), bool> {
        let id = claimed.id;
        let Some(loaded) = tasks.get(&id.task) else {
            if self.engine.store.quarantine().contains(id.task) {
                self.withheld.push(self.rest.remove(place));
                return ControlFlow::Continue(false);
            }
            // The task was deleted.
            return ControlFlow::Continue(true);
        };
        if !loaded.task.has_ready(id.key, id.attempt) {
            // It has ended since, or a change on its way to the disk ends it. If that change is lost, a later poll gets it.
            self.rest.remove(place);
            self.ended += 1;
            self.search_again(std::slice::from_ref(claimed), now);
            return ControlFlow::Continue(false);
        }
        let attempt = self.engine.handed_out(id, loaded);
        if attempt.is_too_large() {
            self.engine.refuse_too_large(id);
            // If the refusal does not reach the disk, the next poll finds the attempt again.
            self.engine.sessions.lock().get(self.session).give(id);
        } else if self.size.add(&attempt) {
            self.attempts.push(attempt);
        } else {
            return ControlFlow::Break(());
        }
        self.rest.remove(place);
        ControlFlow::Continue(false)
    }

    /// Answers the poll, if it is still open and there are attempts for it. If the claim took longer than the poll, the
    /// next poll of the session gets them: with a short lease and a slow store, every claim may outlast its poll.
    fn give(&mut self, now: Now) {
        if self.attempts.is_empty() {
            return;
        }
        let mut sessions = self.engine.sessions.lock();
        let Some(local) = sessions.find(self.session) else { return };
        let Some(poll) = local.poll.as_ref().filter(|poll| !poll.answer.is_canceled()) else { return };
        let seq = poll.seq;
        if seq != self.seq && !local.has_room_for(&self.attempts) {
            return;
        }
        for attempt in &self.attempts {
            local.give(attempt.id);
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
        sessions.answer(self.session, seq, ExchangeAnswer { attempts, lease, ..ExchangeAnswer::default() });
    }

    /// Releases the attempts that were not handed out: no worker has seen them. Returns their number.
    async fn put_back(&mut self, now: Now) -> Result<usize, StoreError> {
        self.rest.extend(self.attempts.drain(..).map(|attempt| attempt.id));
        self.rest.retain(|id| !self.found.contains(id));
        let count = self.rest.len();
        while let Some(id) = self.rest.last() {
            self.engine.store.release(self.session, *id, None, now).await?;
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
        // The caller that handed out went away during the claim. That call may belong to another worker: the poll that
        // waits here gets its claimed attempts from the dispatcher.
        if !self.claims_at.is_empty() && local.poll.is_some() {
            local.unanswered.append(&mut self.claims_at);
            self.engine.timers.set();
            return;
        }
        for id in ids {
            local.give(id);
        }
    }
}

fn ids(claimed: &[Claimed]) -> Vec<AttemptId> {
    claimed.iter().map(|claimed| claimed.id).collect()
}

/// Whether a claimed attempt may start, going by these tasks. One whose task is gone is left out later.
fn is_startable(claimed: &Claimed, tasks: &BTreeMap<TaskId, Loaded>) -> bool {
    tasks.get(&claimed.id.task).is_none_or(|loaded| may_start(&loaded.task, &claimed.id))
}
