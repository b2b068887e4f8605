//! The attempts of a worker: which are claimed, which run, and how many more it can accept.

use std::collections::{HashMap, VecDeque, hash_map::Entry};

use windlass_api::Attempt;

use super::Token;

/// The attempts of one session, from their arrival until their report is answered.
///
/// ```text
/// receive ──▶ waiting ──start_next──▶ running ──finish──▶ finished ──settle──▶ (gone)
///    taken ──────▲ └──────withdraw─────────────────────────────▲                    ▲
///                  └──────decline_…─────────────────────▶ declined ──settle─────────┤
/// offer ──▶ offered ────────────────────────────not_taken───────────────────────────┘
/// ```
#[derive(Debug)]
pub(super) struct Ledger {
    slots: usize,
    held: HashMap<Token, Stage>,
    /// Attempts that arrived when no slot was free.
    waiting: VecDeque<(Token, Attempt)>,
    /// Attempts not claimed yet.
    offered: HashMap<Token, Offered>,
    running: usize,
    /// Attempts whose report was answered while polls were open at several servers, with the newest poll at
    /// that time. The answer of a poll up to that one may bring the attempt again, and it must not run again.
    settled: HashMap<Token, u64>,
}

/// An attempt from a feed, before the server has granted the claim.
#[derive(Debug)]
struct Offered {
    attempt: Attempt,
    is_cancelled: bool,
}

/// The state of an attempt after its claim was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It waits for a slot.
    Waits,
    /// It was cancelled meanwhile, and must be reported.
    Cancelled,
    /// It was not offered.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Offered,
    Waiting,
    Running,
    /// Its report is not answered yet: still claimed, but its slot is free.
    Finished,
    /// It is returned, and its report is not answered yet.
    Declined,
}

impl Ledger {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            slots,
            held: HashMap::new(),
            waiting: VecDeque::new(),
            offered: HashMap::new(),
            running: 0,
            settled: HashMap::new(),
        }
    }

    /// Adds an attempt that the server sent. An attempt already claimed came again because the server did not
    /// know that it had arrived: it is ignored, and so is a remembered settled one.
    pub(super) fn receive(&mut self, attempt: Attempt) {
        let token: Token = attempt.token.as_str().into();
        if self.settled.contains_key(&token) {
            return;
        }
        if let Entry::Vacant(vacant) = self.held.entry(token.clone()) {
            vacant.insert(Stage::Waiting);
            self.waiting.push_back((token, attempt));
        }
    }

    /// Adds an attempt that must be claimed before it runs. False if it is already known.
    pub(super) fn offer(&mut self, attempt: Attempt) -> bool {
        let token: Token = attempt.token.as_str().into();
        let Entry::Vacant(vacant) = self.held.entry(token.clone()) else { return false };
        vacant.insert(Stage::Offered);
        self.offered.insert(token, Offered { attempt, is_cancelled: false });
        true
    }

    /// The claim of an offered attempt was granted.
    pub(super) fn taken(&mut self, token: &Token) -> Taken {
        let Some(Offered { attempt, is_cancelled }) = self.offered.remove(token) else {
            return Taken::Unknown;
        };
        if is_cancelled {
            self.held.insert(token.clone(), Stage::Finished);
            return Taken::Cancelled;
        }
        self.held.insert(token.clone(), Stage::Waiting);
        self.waiting.push_back((token.clone(), attempt));
        Taken::Waits
    }

    /// The claim of an offered attempt was refused.
    pub(super) fn not_taken(&mut self, token: &Token) {
        if self.offered.remove(token).is_some() {
            self.held.remove(token);
        }
    }

    /// The next attempt to run, if one waits and a slot is free; it occupies the slot from now on.
    pub(super) fn start_next(&mut self) -> Option<(Token, Attempt)> {
        if self.running >= self.slots {
            return None;
        }
        let (token, attempt) = self.waiting.pop_front()?;
        self.running += 1;
        if let Some(stage) = self.held.get_mut(&token) {
            *stage = Stage::Running;
        }
        Some((token, attempt))
    }

    /// A running attempt has ended and frees its slot.
    pub(super) fn finish(&mut self, token: &Token) {
        if let Some(stage @ Stage::Running) = self.held.get_mut(token) {
            *stage = Stage::Finished;
            self.running -= 1;
        }
    }

    /// Removes an attempt from the queue, to be reported. False if it does not wait there. An offered attempt
    /// is only marked: nothing may be reported of it while it may be another worker's.
    pub(super) fn withdraw(&mut self, token: &Token) -> bool {
        if let Some(offered) = self.offered.get_mut(token) {
            offered.is_cancelled = true;
        }
        let Some(stage @ Stage::Waiting) = self.held.get_mut(token) else { return false };
        *stage = Stage::Finished;
        self.waiting.retain(|(waiting, _)| waiting != token);
        true
    }

    /// Removes all waiting attempts from the queue, to be declined.
    pub(super) fn decline_all(&mut self) -> Vec<Token> {
        self.decline_after(0)
    }

    /// Removes attempts without a free slot from the queue, the last ones first, to be declined.
    pub(super) fn decline_excess(&mut self) -> Vec<Token> {
        self.decline_after(self.slots.saturating_sub(self.running))
    }

    /// Removes the waiting attempts after the first `kept` ones.
    fn decline_after(&mut self, kept: usize) -> Vec<Token> {
        let excess = self.waiting.split_off(kept.min(self.waiting.len()));
        let tokens: Vec<Token> = excess.into_iter().map(|(token, _)| token).collect();
        for token in &tokens {
            self.held.insert(token.clone(), Stage::Declined);
        }
        tokens
    }

    /// The final report of an attempt was answered: the claim is over. False if it is still running.
    pub(super) fn settle(&mut self, token: &Token) -> bool {
        let is_finished = matches!(self.held.get(token), Some(Stage::Finished | Stage::Declined));
        if is_finished {
            self.held.remove(token);
        }
        is_finished
    }

    /// Remembers an attempt that was settled when `newest_poll` was the newest poll.
    pub(super) fn remember_settled(&mut self, token: Token, newest_poll: u64) {
        self.settled.insert(token, newest_poll);
    }

    /// Forgets settled attempts that no answer can bring again: `oldest_poll` is the oldest poll that may
    /// still be answered.
    pub(super) fn forget_settled(&mut self, oldest_poll: u64) {
        self.settled.retain(|_, newest_poll| *newest_poll >= oldest_poll);
    }

    /// How many more attempts the worker can accept now.
    pub(super) fn free(&self) -> u32 {
        let taken = self.running + self.waiting.len() + self.offered.len();
        u32::try_from(self.slots.saturating_sub(taken)).unwrap_or(u32::MAX)
    }

    /// The tokens of all claimed attempts that are not being declined.
    pub(super) fn holding(&self) -> Vec<String> {
        self.tokens(|stage| stage != Stage::Declined)
    }

    /// The tokens of the attempts that are being declined.
    pub(super) fn declining(&self) -> Vec<String> {
        self.tokens(|stage| stage == Stage::Declined)
    }

    fn tokens(&self, of: impl Fn(Stage) -> bool) -> Vec<String> {
        self.held.iter().filter(|(_, stage)| of(**stage)).map(|(token, _)| token.to_string()).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The number of claimed attempts.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(token: &str) -> Attempt {
        serde_json::from_value(serde_json::json!({
            "token": token, "task": "t", "flow": "f", "step": "s", "cursor": 0, "direction": "forward",
            "attempt": 1, "module": "m", "command": "c", "params": {}, "timeout_ms": 1000, "idempotency_key": "k",
        }))
        .unwrap()
    }

    fn holding(ledger: &Ledger) -> Vec<String> {
        let mut tokens = ledger.holding();
        tokens.sort();
        tokens
    }

    #[test]
    fn a_finished_attempt_frees_its_slot_and_is_held_until_its_report_is_answered() {
        let mut ledger = Ledger::new(2);
        ledger.receive(attempt("a"));
        assert_eq!(ledger.free(), 1);
        let (token, _) = ledger.start_next().unwrap();
        assert_eq!((ledger.free(), holding(&ledger)), (1, vec!["a".to_owned()]));
        ledger.finish(&token);
        assert_eq!((ledger.free(), holding(&ledger)), (2, vec!["a".to_owned()]));
        ledger.settle(&token);
        assert!(ledger.is_empty());
    }

    #[test]
    fn what_comes_over_the_slots_waits_in_order() {
        let mut ledger = Ledger::new(1);
        for token in ["a", "b", "c"] {
            ledger.receive(attempt(token));
        }
        assert_eq!(ledger.free(), 0);
        let (first, _) = ledger.start_next().unwrap();
        assert!(ledger.start_next().is_none());
        ledger.finish(&first);
        assert_eq!(ledger.free(), 0);
        assert_eq!(&*ledger.start_next().unwrap().0, "b");
    }

    #[test]
    fn an_attempt_that_comes_again_is_not_run_again() {
        let mut ledger = Ledger::new(4);
        ledger.receive(attempt("a"));
        let (token, _) = ledger.start_next().unwrap();
        ledger.receive(attempt("a"));
        assert!(ledger.start_next().is_none());
        ledger.finish(&token);
        ledger.receive(attempt("a"));
        assert!(ledger.start_next().is_none());
        assert_eq!(ledger.free(), 4);
    }

    #[test]
    fn only_what_was_not_started_can_be_withdrawn() {
        let mut ledger = Ledger::new(1);
        for token in ["a", "b", "c", "d"] {
            ledger.receive(attempt(token));
        }
        let (running, _) = ledger.start_next().unwrap();
        assert!(!ledger.withdraw(&running));
        assert!(ledger.withdraw(&"c".into()));
        assert!(!ledger.withdraw(&"c".into()));
        assert!(!ledger.withdraw(&"x".into()));
        let rest: Vec<String> = ledger.decline_all().iter().map(|token| token.to_string()).collect();
        assert_eq!(rest, ["b", "d"]);
        assert_eq!(ledger.len(), 4);
        ledger.finish(&running);
        assert!(ledger.start_next().is_none());
    }

    #[test]
    fn a_settled_attempt_does_not_run_again_while_an_older_poll_may_bring_it() {
        let mut ledger = Ledger::new(2);
        let run = |ledger: &mut Ledger| {
            ledger.receive(attempt("a"));
            ledger.start_next().map(|(token, _)| ledger.finish(&token))
        };
        assert!(run(&mut ledger).is_some() && ledger.settle(&"a".into()));
        ledger.remember_settled("a".into(), 7);
        ledger.forget_settled(7);
        assert!(run(&mut ledger).is_none() && ledger.is_empty());
        ledger.forget_settled(8);
        assert!(run(&mut ledger).is_some());
    }

    #[test]
    fn attempts_that_no_slot_is_free_for_are_given_back_the_last_ones_first() {
        let mut ledger = Ledger::new(2);
        for token in ["a", "b", "c", "d"] {
            ledger.receive(attempt(token));
        }
        ledger.start_next().unwrap();
        let back: Vec<String> = ledger.decline_excess().iter().map(|token| token.to_string()).collect();
        assert_eq!((&back, ledger.len()), (&vec!["c".to_owned(), "d".to_owned()], 4));
        let mut declining = ledger.declining();
        declining.sort();
        assert_eq!((holding(&ledger), declining), (vec!["a".to_owned(), "b".to_owned()], back));
        assert_eq!(ledger.decline_excess(), Vec::<Token>::new());
        assert_eq!(&*ledger.start_next().unwrap().0, "b");
    }

    #[test]
    fn an_offered_attempt_is_run_only_once_it_was_taken() {
        let mut ledger = Ledger::new(3);
        assert!(ledger.offer(attempt("a")) && ledger.offer(attempt("b")) && ledger.offer(attempt("c")));
        assert!(!ledger.offer(attempt("a")), "it is held already");
        assert_eq!((ledger.free(), holding(&ledger).len()), (0, 3));
        assert!(ledger.start_next().is_none());
        ledger.receive(attempt("a"));
        assert!(ledger.start_next().is_none(), "the server may hand out again what it was asked for");

        assert_eq!(ledger.taken(&"a".into()), Taken::Waits);
        assert_eq!(&*ledger.start_next().unwrap().0, "a");
        ledger.not_taken(&"b".into());
        assert_eq!((ledger.free(), holding(&ledger)), (1, vec!["a".to_owned(), "c".to_owned()]));
        assert!(!ledger.withdraw(&"c".into()), "it may be another's");
        assert_eq!(ledger.taken(&"c".into()), Taken::Cancelled);
        assert!(ledger.start_next().is_none() && ledger.settle(&"c".into()));
        assert_eq!(ledger.taken(&"c".into()), Taken::Unknown);
    }

    #[test]
    fn a_running_attempt_is_not_settled_by_an_answer() {
        let mut ledger = Ledger::new(1);
        ledger.receive(attempt("a"));
        let (token, _) = ledger.start_next().unwrap();
        ledger.settle(&token);
        assert_eq!(ledger.len(), 1);
        ledger.finish(&token);
        ledger.finish(&token);
        assert_eq!(ledger.free(), 1);
    }
}
