//! A task with what surrounds it: a clock, the workers that hold attempts, what waits in the store, the alarms.
//!
//! Stories, laws and the exploration all play on it, so whatever is checked here is checked by all of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use windlass_core::{
    Act, ActKey, ActState, Actor, Alarm, AlarmId, AlarmKind, AlarmState, Attempt, Awaited, Command, Context,
    Direction, Doer, Effect, Event, EventKind, Failure, Flow, Free, Input, Json, Lock, LockCommand, LockName,
    LockOwner, Message, Millis, Name, Outcome, Pause, Phase, Rejection, Report, Resolution, START_CODE,
    StuckKind, Task, TaskId, Timestamp, Transition, Waiting, Wakeup, apply, waits, wants_lock,
};

/// When every story begins.
pub(crate) const START: Timestamp = Timestamp(1_000_000_000);

/// A task and what surrounds it.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) task: Task,
    pub(crate) now: Timestamp,
    /// Which attempt of an act a worker has, and since when.
    pub(crate) held: BTreeMap<ActKey, (u32, Timestamp)>,
    /// Acts whose current attempt waits on a broker; `held` has them too.
    pub(crate) offered: BTreeSet<ActKey>,
    /// Claimed acts of modules that answer over a broker alone.
    pub(crate) afar: BTreeSet<ActKey>,
    /// Which attempt of an act a worker may have had.
    pub(crate) handed_out: BTreeMap<ActKey, u32>,
    /// What a worker had to do, so that it may have had effects.
    pub(crate) ran: BTreeSet<ActKey>,
    /// What the store would wait for after the effects so far.
    pub(crate) waits: BTreeMap<Wakeup, Waiting>,
    pub(crate) alarms: BTreeMap<AlarmId, Alarm>,
    pub(crate) locks: BTreeMap<LockName, Lock>,
    /// What locks have said and nobody has heard yet.
    pub(crate) said: VecDeque<Message>,
}

/// One thing that can happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    Take(ActKey),
    /// The worker gave the attempt back unrun.
    Decline(ActKey),
    Succeed(ActKey),
    Fail(ActKey),
    FailForGood(ActKey),
    Later(ActKey),
    Lose(ActKey),
    TimeOut(ActKey),
    Park(ActKey),
    Keep(ActKey),
    /// The clock goes on to when this is due, if it is not there yet, and it is woken.
    Wake(Wakeup),
    Cancel,
    Pause,
    Stop,
    Suspend,
    Continue,
    Resume,
    Retry(usize),
    Skip(usize),
    Done(usize),
    GiveUp(usize),
    Hold,
    /// Somebody sends the signal of this step, to be kept if it comes too early.
    Signal(usize),
    /// The next message of a lock arrives.
    Hear,
    /// An operator moves the exclusive queue past the task.
    SkipQueue,
    /// An operator takes the exclusive queue from the task, at the lock.
    SeizeQueue,
}

pub(crate) fn input(at: Option<Timestamp>) -> Input {
    Input { at, ..Input::new(Json::empty(), START) }
}

pub(crate) fn anna() -> Option<Actor> {
    Some(Actor { name: "anna".into(), claimed: false })
}

impl World {
    pub(crate) fn new(flow: Flow, input: Input) -> Self {
        flow.check().expect("the flow of a test is sound");
        let task = Task::new(TaskId(7), flow.into(), input.into());
        Self {
            task,
            now: START,
            held: BTreeMap::new(),
            offered: BTreeSet::new(),
            afar: BTreeSet::new(),
            handed_out: BTreeMap::new(),
            ran: BTreeSet::new(),
            waits: BTreeMap::new(),
            alarms: BTreeMap::new(),
            locks: BTreeMap::new(),
            said: VecDeque::new(),
        }
    }

    pub(crate) fn context(&self) -> Context {
        Context {
            now: self.now,
            held: self.held.iter().map(|(key, (_, at))| (*key, Some(*at))).collect(),
            offered: self.offered.clone(),
            afar: self.afar.clone(),
            handed_out: self.handed_out.keys().copied().collect(),
        }
    }

    /// Acts whose current attempt a worker has.
    pub(crate) fn held_keys(&self) -> BTreeSet<ActKey> {
        self.held.keys().copied().collect()
    }

    pub(crate) fn act(&self, key: ActKey) -> &Act {
        self.task.act(key).expect("the step is there")
    }

    /// Applies a command and carries its effects out.
    pub(crate) fn apply(&mut self, command: &Command) -> Result<Transition, Rejection> {
        let transition = apply(&self.task, command, &self.context())?;
        let before = std::mem::replace(&mut self.task, transition.task.clone());
        self.check_running(command, &transition);
        self.check_attempts(&before, &transition);
        for effect in &transition.effects {
            self.carry_out(effect);
        }
        let task = &self.task;
        let is_current = |key: &ActKey, number: u32| {
            task.act(*key).is_some_and(|act| {
                act.attempt == number && matches!(act.state, ActState::Ready | ActState::Parked)
            })
        };
        self.held.retain(|key, (number, _)| is_current(key, *number));
        self.offered.retain(|key| self.held.contains_key(key));
        self.afar.retain(|key| self.held.contains_key(key));
        self.handed_out.retain(|key, number| is_current(key, *number));
        self.check();
        Ok(transition)
    }

    /// Sends a message to a lock; its answer is delivered later.
    pub(crate) fn tell_lock(&mut self, name: &LockName, command: &LockCommand) {
        let lock = self.locks.entry(name.clone()).or_insert_with(|| Lock::new(name.clone(), 0));
        if let Some(transition) = lock.apply(command, self.now).expect("the lock takes it") {
            *lock = transition.lock;
            self.said.extend(transition.messages.into_iter().map(|(_, message)| message));
        }
    }

    /// Delivers the next message of a lock, as the engine does it: a grant that the task does not want goes back.
    fn hear_one(&mut self, message: Message) -> Option<Result<Transition, Rejection>> {
        match message {
            Message::Granted { owner, .. } if owner.task != self.task.id => None,
            Message::Granted { owner, name, fence } if wants_lock(&self.task, &owner, &name) => {
                Some(self.apply(&Command::Granted { key: owner.key, turn: owner.turn, name, fence }))
            }
            Message::Granted { owner, name, .. } => {
                self.tell_lock(&name, &LockCommand::Release { owner });
                None
            }
            // The task may have released the lock meanwhile.
            Message::Seized { owner, name, fence, reason, by } if owner.task == self.task.id => {
                self.apply(&Command::Seized { key: owner.key, name, fence, reason, by }).ok().map(Ok)
            }
            _ => None,
        }
    }

    /// Delivers all messages of locks.
    pub(crate) fn hear(&mut self) {
        while let Some(message) = self.said.pop_front() {
            if let Some(Err(rejection)) = self.hear_one(message) {
                panic!("a wanted lock is refused: {rejection}");
            }
        }
    }

    fn carry_out(&mut self, effect: &Effect) {
        match effect {
            Effect::Wait(waiting) => {
                self.waits.insert(waiting.key, waiting.clone());
            }
            Effect::Forget(key) => {
                assert!(self.waits.remove(key).is_some(), "{key:?} is forgotten, and nothing waited for it");
            }
            Effect::Send(Message::Lock { name, command }) => self.tell_lock(name, command),
            Effect::Send(Message::Granted { .. } | Message::Seized { .. }) => {
                unreachable!("only locks send these")
            }
            // Nobody answers but the story.
            Effect::Send(Message::Child { .. } | Message::ChildEnded { .. }) => {}
            Effect::Send(Message::Alarm { id, command }) => {
                let alarm = Alarm::apply(self.alarms.get(id), id, command, self.now)
                    .unwrap_or_else(|rejection| panic!("alarm {id} refuses {command:?}: {rejection}"))
                    .unwrap_or_else(|| panic!("alarm {id}: {command:?} changes nothing"));
                self.alarms.insert(id.clone(), alarm);
            }
        }
    }

    /// What a worker has stays its own until it is reported, lost or timed out, whatever else happens to the
    /// task; and nothing new begins while an operator holds the task.
    fn check_running(&self, command: &Command, transition: &Transition) {
        let settled = match command {
            Command::Report(report) => Some(report.attempt.key),
            Command::Lose(attempt) | Command::Reclaim(attempt) | Command::TimeOut(attempt) => {
                Some(attempt.key)
            }
            _ => None,
        };
        for (key, (number, _)) in self.held.iter().filter(|(key, _)| Some(**key) != settled) {
            // Nobody has begun what is offered, and what is not started in time has failed.
            if self.offered.contains(key)
                && self.act(*key).trouble().is_some_and(|why| why.code == START_CODE)
            {
                continue;
            }
            let act = self.act(*key);
            let current = act.attempt == *number && act.state == ActState::Ready;
            assert!(current, "{command:?} took {key:?} from its worker");
        }
        let queue = self.task.input.exclusive.is_none() || self.task.queue_fence().is_some();
        let began = transition.events.iter().find(|event| matches!(event.kind, EventKind::ActReady { .. }));
        assert!(queue || began.is_none(), "nothing begins without the queue: {began:?}");
        if self.task.state.pause.is_paused() {
            let began = |event: &&Event| matches!(event.kind, EventKind::ActReady { .. });
            assert_eq!(transition.events.iter().find(began), None, "nothing new begins in a pause");
        }
    }

    /// An attempt keeps its place in line, also through a pause; a retry comes before the deadline; a lost worker
    /// spends no retry, and what has taken too many workers with it is not tried again.
    fn check_attempts(&self, before: &Task, transition: &Transition) {
        let current = |act: &Act| matches!(act.state, ActState::Ready | ActState::Parked);
        let idle = Act::default();
        for (key, is) in self.task.acts() {
            let was = before.act(key).unwrap_or(&idle);
            if current(was) && current(is) && was.attempt == is.attempt {
                assert_eq!(was.ready_at, is.ready_at, "{key:?} lost its place");
            }
            let tried_again = is.is_open() && is.deaths >= self.task.flow.deaths_max;
            assert!(!tried_again, "{key:?} is tried again after {} deaths", is.deaths);
            let turned = key.direction == Direction::Forward && self.task.state.phase == Phase::Backward;
            let kept = turned && is.state == ActState::Parked;
            assert!(!kept, "{key:?} is to stop, and is kept for later");
        }
        for event in &transition.events {
            if let EventKind::ActLost { key, .. } = event.kind
                && self.act(key).is_open()
            {
                let failures = before.act(key).map_or(0, |was| was.failures);
                assert_eq!(failures, self.act(key).failures, "{key:?} was lost, and spent a retry");
            }
            if let EventKind::ActRetrying { key, until, .. } = &event.kind {
                let deadline_at = self.act(*key).deadline_at;
                assert!(deadline_at.is_none_or(|at| *until < at), "{key:?} is retried after its deadline");
            }
        }
    }

    /// What must hold between the task and its surroundings.
    fn check(&self) {
        let waiting: BTreeMap<Wakeup, Waiting> =
            waits(&self.task).into_iter().map(|waiting| (waiting.key, waiting)).collect();
        assert_eq!(self.waits, waiting, "the effects so far give what the task waits for");
        if self.task.state.pause.is_paused() || self.task.lacks_queue() {
            let handed_out =
                |waiting: &&Waiting| waiting.ready.as_ref().is_some_and(|ready| ready.free == Free::HandOut);
            assert_eq!(self.waits.values().find(handed_out), None, "nothing is handed out now");
        }
        let owner = self.task.queue_owner();
        let queue = self.task.input.exclusive.as_ref().and_then(|queue| self.locks.get(queue));
        let is_known =
            |owner| queue.is_some_and(|queue| queue.place(&owner).is_some() || self.holds(queue, owner));
        assert!(owner.is_none_or(is_known), "a task that is in its queue is known there");
        if self.task.is_ended() {
            assert_eq!(self.waits, BTreeMap::new(), "an ended task waits for nothing");
            assert_eq!(self.task.state.stuck, None, "an ended task is not stuck");
        }
        for key in &self.ran {
            let step = &self.task.state.steps[key.step];
            let member = step.members.as_ref().and_then(|members| members.get(key.member));
            let touched = member.map_or(step.touched, |member| member.touched);
            assert!(touched && step.touched, "{key:?} ran, and would not be rolled back");
        }
        self.check_members();
        let raised: BTreeSet<(AlarmKind, Option<String>)> = self
            .alarms
            .values()
            .filter(|alarm| alarm.state != AlarmState::Resolved)
            .map(|alarm| (alarm.kind, alarm.step.as_ref().map(ToString::to_string)))
            // A fault of the engine stays for an operator to see, also when the task ends by itself.
            .filter(|(kind, _)| !(*kind == AlarmKind::EngineFault && self.task.is_ended()))
            .collect();
        let troubles = self.troubles().into_iter().map(|(kind, step)| (kind.into(), step)).collect();
        assert_eq!(raised, troubles, "there are alarms for what waits for an operator: {:#?}", self.task);
    }

    /// Whether the lock has this holder, or said a moment ago that an operator took it away.
    fn holds(&self, lock: &Lock, owner: LockOwner) -> bool {
        let taken = |message: &Message| matches!(message, Message::Seized { owner: of, .. } if *of == owner);
        lock.holder.is_some_and(|holder| holder.owner == owner) || self.said.iter().any(taken)
    }

    /// What is counted of members is what there is, a window of them is under way, and none once their step is
    /// settled.
    fn check_members(&self) {
        for (index, members) in self.task.fans() {
            members.check().unwrap_or_else(|wrong| panic!("{wrong}"));
            let step = &self.task.state.steps[index];
            assert_eq!(step.touched, members.touched() > 0, "a fanned-out step is as its members are");
            let parallel = self.task.flow.steps[index].each.as_ref().expect("it is fanned out").parallel;
            for direction in [Direction::Forward, Direction::Rollback] {
                let open = members.iter().filter(|(_, member)| member.act(direction).is_open()).count();
                assert!(open <= parallel as usize, "{open} members of step {index} are under way");
                let settled = step.act(direction).is_settled();
                let turned = direction == Direction::Forward && self.task.state.phase == Phase::Backward;
                assert!(!settled || open == 0 || turned, "step {index} is settled before its members");
            }
        }
    }

    /// What waits for an operator, seen from outside.
    fn troubles(&self) -> BTreeSet<(StuckKind, Option<String>)> {
        let mut troubles = BTreeSet::new();
        if self.task.is_ended() {
            return troubles;
        }
        if self.task.state.stuck.as_ref().is_some_and(|stuck| stuck.kind == StuckKind::EngineFault) {
            troubles.insert((StuckKind::EngineFault, None));
        }
        if self.task.state.pause.is_paused() && self.task.queue_fence().is_some() {
            troubles.insert((StuckKind::QueueBlocked, None));
        }
        for (key, act) in self.task.step_acts().filter(|(_, act)| act.state == ActState::Failed) {
            let killed = |act: &Act| act.state == ActState::Failed && act.deaths >= self.task.flow.deaths_max;
            let members = self.task.state.steps[key.step].members.iter().flat_map(|members| members.iter());
            let poisoned = killed(act) || members.into_iter().any(|(_, m)| killed(m.act(key.direction)));
            let kind = match (key.direction, self.task.state.phase) {
                (Direction::Forward, Phase::Backward) => continue,
                (Direction::Forward, _) if self.task.flow.tolerates(key.step) => continue,
                _ if poisoned => StuckKind::Poisoned,
                (Direction::Forward, _) => StuckKind::Held,
                (Direction::Rollback, _) => StuckKind::RollbackFailed,
            };
            troubles.insert((kind, Some(self.task.flow.steps[key.step].name.to_string())));
        }
        troubles
    }

    /// What is to become of the act's attempt, if it is ready and no worker has it.
    pub(crate) fn free(&self, key: ActKey) -> Option<Free> {
        let waiting = self.waits.get(&Wakeup::Act(key)).filter(|_| !self.held.contains_key(&key))?;
        waiting.ready.as_ref().map(|ready| ready.free)
    }

    /// The act's attempt is offered on a broker.
    pub(crate) fn offer(&mut self, key: ActKey) {
        self.take(key);
        self.offered.insert(key);
    }

    /// A module that answers over a broker alone takes the act's attempt.
    pub(crate) fn take_afar(&mut self, key: ActKey) {
        self.take(key);
        self.afar.insert(key);
    }

    /// A worker takes the act's attempt.
    pub(crate) fn take(&mut self, key: ActKey) {
        let (act, now) = (self.act(key), self.now);
        assert_eq!(act.state, ActState::Ready, "only a ready attempt is handed out");
        let number = act.attempt;
        // After a restart workers name what they have, also what is not handed out any more.
        let named = self.handed_out.get(&key) == Some(&number);
        assert!(named || self.free(key) == Some(Free::HandOut), "{key:?} is not to be handed out");
        self.held.insert(key, (number, now));
        self.handed_out.insert(key, number);
        if key.direction == Direction::Forward {
            self.ran.insert(key);
        }
    }

    /// Whether the deadline of an act counts from the claim of its current attempt.
    pub(crate) fn begins_deadline(&self, key: ActKey) -> bool {
        let has_deadline = self.task.action(key).is_some_and(|action| action.deadline.is_some());
        has_deadline && self.act(key).deadline_at.is_none()
    }

    /// The attempt `number` of an act, or its current one, as a worker names it.
    pub(crate) fn attempt(&self, key: ActKey, number: Option<u32>) -> Attempt {
        let number = number.unwrap_or_else(|| self.task.act(key).map_or(1, |act| act.attempt));
        let started_at = self.held.get(&key).filter(|(held, _)| *held == number).map(|(_, since)| *since);
        Attempt { key, number, started_at }
    }

    pub(crate) fn report(&self, key: ActKey, outcome: Outcome) -> Command {
        Command::Report(Report { attempt: self.attempt(key, None), outcome })
    }

    /// Makes a move; those that are no commands give no transition.
    pub(crate) fn play(&mut self, next: Move) -> Option<Result<Transition, Rejection>> {
        match next {
            Move::Take(key) => {
                self.take(key);
                return None;
            }
            Move::Decline(key) => {
                self.held.remove(&key);
                return None;
            }
            Move::Hear => {
                let message = self.said.pop_front()?;
                return self.hear_one(message);
            }
            Move::SeizeQueue => {
                let queue = self.task.input.exclusive.clone()?;
                self.tell_lock(&queue, &LockCommand::Seize { reason: "gone".into(), by: anna() });
                return None;
            }
            Move::Wake(key) => {
                self.now = self.now.max(self.waits[&key].due_at.unwrap_or(self.now));
            }
            _ => {}
        }
        let command = self.command(next)?;
        Some(self.apply(&command))
    }

    /// The command of a move, where it is one.
    pub(crate) fn command(&self, next: Move) -> Option<Command> {
        let failure = |retryable| Outcome::Failed(Failure::new("boom", 2, retryable));
        let resolve = |step, resolution| Command::Resolve { step, resolution, by: anna() };
        Some(match next {
            Move::Take(_) | Move::Decline(_) | Move::Hear | Move::SeizeQueue => return None,
            Move::SkipQueue => Command::SkipQueue { reason: "waits".into(), by: anna() },
            Move::Succeed(key) => self.report(key, Outcome::Succeeded(None)),
            Move::Fail(key) => self.report(key, failure(true)),
            Move::FailForGood(key) => self.report(key, failure(false)),
            Move::Later(key) => {
                let delay = Some(Millis::from_secs(5));
                self.report(key, Outcome::RetryLater { delay, message: "busy".into() })
            }
            Move::Lose(key) => Command::Lose(self.attempt(key, None)),
            Move::TimeOut(key) => Command::TimeOut(self.attempt(key, None)),
            Move::Park(key) => Command::Park(self.attempt(key, None)),
            Move::Keep(key) => Command::Taken(self.attempt(key, None)),
            Move::Wake(key) => Command::Wake(key),
            Move::Cancel => Command::Cancel { by: anna() },
            Move::Pause => Command::Pause { by: anna() },
            Move::Stop => Command::Stop { by: anna() },
            Move::Suspend => Command::Suspend { by: None },
            Move::Continue => Command::Continue { by: None },
            Move::Resume => Command::Resume { by: anna() },
            Move::Retry(step) => resolve(step, Resolution::Retry(None)),
            Move::Skip(step) => resolve(step, Resolution::Skip),
            Move::Done(step) => resolve(step, Resolution::Done(None)),
            Move::GiveUp(step) => resolve(step, Resolution::Rollback),
            Move::Hold => Command::Hold { message: "a count is off".into() },
            Move::Signal(step) => {
                let name = self.signal_of(step)?;
                Command::Signal { name, params: None, keep: true, by: anna() }
            }
        })
    }

    /// Whether workers have attempts that must stop.
    fn is_stopping(&self) -> bool {
        let ready = |act: &Act| act.state == ActState::Ready;
        self.task.state.pause.stops() && self.task.acts().any(|(_, act)| ready(act))
    }

    /// The signal that a step waits for when it has its turn.
    fn signal_of(&self, step: usize) -> Option<Name> {
        match &self.task.flow.steps[step].run.doer {
            Doer::Signal { name } => Some(name.clone()),
            _ => None,
        }
    }

    /// Everything that can happen now: workers, clock and people in any order.
    pub(crate) fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (key, act) in self.task.acts() {
            let free = self.free(key);
            match free {
                Some(Free::HandOut) => moves.push(Move::Take(key)),
                Some(Free::Park) => moves.push(Move::Park(key)),
                Some(Free::GiveUp) => moves.push(Move::Lose(key)),
                None => {}
            }
            // A worker may name what it has only now.
            if free.is_some_and(|free| free != Free::HandOut) && self.handed_out.contains_key(&key) {
                moves.push(Move::Take(key));
            }
            if self.held.contains_key(&key) {
                moves.extend([Move::Decline(key), Move::Lose(key), Move::TimeOut(key)]);
                if self.begins_deadline(key) {
                    moves.push(Move::Keep(key));
                }
            }
            // Also a worker that was thought to be gone may still report.
            if self.handed_out.contains_key(&key) {
                moves.extend([Move::Succeed(key), Move::Fail(key), Move::FailForGood(key), Move::Later(key)]);
            }
            if act.state == ActState::Failed && !key.is_member() {
                let step = key.step;
                moves.extend([Move::Retry(step), Move::Skip(step), Move::Done(step), Move::GiveUp(step)]);
            }
        }
        moves.extend(
            self.waits.values().filter(|waiting| waiting.due_at.is_some()).map(|w| Move::Wake(w.key)),
        );
        if !self.said.is_empty() {
            moves.push(Move::Hear);
        }
        if self.task.queue_fence().is_some() {
            moves.push(Move::SkipQueue);
        }
        let queue = self.task.input.exclusive.as_ref().and_then(|queue| self.locks.get(queue));
        if queue.is_some_and(|queue| queue.holder.is_some()) {
            moves.push(Move::SeizeQueue);
        }
        if !self.task.is_ended() {
            let kept = self.task.state.signals.len();
            let signals = (0..self.task.flow.steps.len()).filter(|step| self.signal_of(*step).is_some());
            moves.extend(signals.filter(|_| kept == 0).map(Move::Signal));
            moves.extend([Move::Cancel, Move::Hold]);
            let is_stopping = self.is_stopping();
            match self.task.state.pause {
                Pause::None => moves.extend([Move::Pause, Move::Stop, Move::Suspend]),
                Pause::Held => moves.extend([Move::Resume, Move::Stop, Move::Suspend]),
                Pause::Stopping | Pause::Suspended if is_stopping => {}
                Pause::Stopping => moves.push(Move::Resume),
                Pause::Suspended => moves.extend([Move::Continue, Move::Pause]),
            }
        }
        moves
    }

    /// What leads on when every worker succeeds and an operator resolves what waits for one.
    pub(crate) fn best_move(&self) -> Option<Move> {
        if self.task.is_ended() {
            return None;
        }
        if !self.said.is_empty() {
            return Some(Move::Hear);
        }
        if let Some(key) = self.held.keys().next() {
            return Some(Move::Succeed(*key));
        }
        let free = |wanted| self.task.acts().find(|(key, _)| self.free(*key) == Some(wanted));
        if let Some((key, _)) = free(Free::GiveUp) {
            return Some(Move::Lose(key));
        }
        if let Some((key, _)) = free(Free::Park) {
            return Some(Move::Park(key));
        }
        let stuck = self.task.state.stuck.as_ref();
        if let Some(step) = stuck.and_then(|stuck| stuck.step) {
            return Some(Move::Skip(step));
        }
        if self.task.state.pause.is_paused() {
            return Some(Move::Resume);
        }
        if let Some((key, _)) = free(Free::HandOut) {
            return Some(Move::Take(key));
        }
        let waits = |act: &Act| act.state == ActState::Awaiting(Awaited::Signal);
        if let Some((key, _)) = self.task.step_acts().find(|(_, act)| waits(act)) {
            return Some(Move::Signal(key.step));
        }
        let first = self.waits.values().filter(|waiting| waiting.due_at.is_some()).min_by_key(|w| w.due_at);
        first.map(|waiting| Move::Wake(waiting.key))
    }
}
