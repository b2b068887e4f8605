//! The laws of a saga, on random flows and random walks.
//!
//! Repeating anything changes nothing; a failure rolls back exactly the steps that need it, later ones first; repeated
//! undos change nothing; and the events of a task, replayed, give the task.

use std::{collections::BTreeSet, sync::Arc};

use proptest::prelude::*;
use windlass_core::{
    ActKey, ActState, Backoff, Cause, Command, Direction, Doer, Each, Ending, Event, EventKind, Flow, Millis,
    OnFailure, OnPartial, Phase, Resolution, RetryBy, Role, StepDefinition, Task, Timestamp, Wakeup, evolve,
};

use crate::{
    story::{flow, play},
    world::{Move, START, World, input},
};

/// A flow of up to six steps, a line or any graph, with random retries, deadlines and rollbacks.
fn any_flow() -> impl Strategy<Value = Flow> {
    let step = (any::<u8>(), any_action(), any_action(), 0..5_u8);
    let steps = proptest::collection::vec(step, 1..=6);
    (steps, any::<bool>(), any::<bool>(), 0..5_u8).prop_map(|(steps, line, hold, module)| {
        let names = ["a", "b", "c", "d", "e", "f"];
        let mut built = flow(&names[..steps.len()].join(" > "));
        if hold {
            built.on_failure = OnFailure::Hold;
        }
        if module == 0 {
            built.retry_by = RetryBy::Module;
        }
        for (index, (after, run, undo, no_rollback)) in steps.into_iter().enumerate() {
            let step = &mut built.steps[index];
            if !line {
                step.after = (0..index).filter(|earlier| after & (1 << earlier) != 0).collect();
            }
            run.set(&mut step.run);
            undo.set(step.rollback.as_mut().unwrap());
            if no_rollback == 0 {
                step.rollback = None;
            }
        }
        built
    })
}

/// A flow like those, with all that steps can be: conditions, members, joins that go on without some, signals,
/// delays, a step for errors, a deadline.
fn any_rich_flow() -> impl Strategy<Value = Flow> {
    let extras = proptest::collection::vec((0..12_u8, 1..4_u32, 0..4_u8), 6);
    (any_flow(), extras, any::<bool>(), 0..4_u8).prop_map(|(mut flow, extras, errors, late)| {
        for (step, (kind, number, partial)) in flow.steps.iter_mut().zip(extras) {
            enrich(step, kind, number);
            let joined = if step.each.is_some() { 3 } else { step.after.len() };
            step.on_partial = match partial {
                _ if step.each.is_none() && joined < 2 => OnPartial::Fail,
                0 => OnPartial::Continue,
                1 => OnPartial::AtLeast(number.min(joined as u32)),
                _ => OnPartial::Fail,
            };
        }
        if errors {
            let run = flow.steps[0].run.clone();
            let run = windlass_core::Action { doer: crate::story::action("m", "tell").doer, ..run };
            let name = windlass_core::Name::new("errors").unwrap();
            flow.steps
                .push(StepDefinition { role: Role::OnError, ..StepDefinition::new(name, run, Vec::new()) });
        }
        flow.deadline = (late == 0).then_some(Millis(20_000));
        flow
    })
}

fn enrich(step: &mut StepDefinition, kind: u8, number: u32) {
    let holds = |text: &str| Some(windlass_core::Expression::compile(text).unwrap());
    match kind {
        0 => step.when = holds("list.size() == 3"),
        1 => step.when = holds("list.size() == 4"),
        2 => step.when = holds("missing == 4"),
        3..=5 => step.each = Some(Each { list: "list".into(), parallel: number }),
        6 => step.each = Some(Each { list: "none".into(), parallel: number }),
        7 => step.delay = Some(Millis(700)),
        8 => step.run.start_within = Some(Millis(3000)),
        9 => {
            step.run.doer = Doer::Signal { name: windlass_core::Name::new("go").unwrap() };
            step.rollback = None;
        }
        _ => {}
    }
}

#[derive(Debug, Clone)]
struct ActionSettings {
    retries: u32,
    backoff: Backoff,
    deadline: Option<Millis>,
}

impl ActionSettings {
    fn set(self, action: &mut windlass_core::Action) {
        action.retry.max = self.retries;
        action.retry.backoff = self.backoff;
        action.deadline = self.deadline;
    }
}

fn any_action() -> impl Strategy<Value = ActionSettings> {
    let backoff = prop_oneof![Just(Backoff::Exponential), Just(Backoff::Fixed), Just(Backoff::None)];
    let deadline = prop_oneof![3 => Just(None), 1 => Just(Some(Millis(1500))), 1 => Just(Some(Millis(8000)))];
    (0..3_u32, backoff, deadline).prop_map(|(retries, backoff, deadline)| ActionSettings {
        retries,
        backoff,
        deadline,
    })
}

/// What to choose at each turn of a walk.
fn any_choices() -> impl Strategy<Value = Vec<u16>> {
    proptest::collection::vec(any::<u16>(), 0..60)
}

/// Chooses among everything that can happen.
fn choose(world: &World, choice: u16) -> Option<Move> {
    let mut moves = world.moves();
    // People interfere less often than workers work, or no walk would get far.
    if !choice.is_multiple_of(4) {
        moves.retain(|next| {
            !matches!(
                next,
                Move::Cancel
                    | Move::Pause
                    | Move::Stop
                    | Move::Suspend
                    | Move::Skip(_)
                    | Move::Done(_)
                    | Move::GiveUp(_)
                    | Move::Hold
            )
        });
    }
    (!moves.is_empty()).then(|| moves[usize::from(choice / 4) % moves.len()])
}

fn begin(flow: Flow, at: Option<Timestamp>) -> (World, Vec<Event>) {
    let params = windlass_core::Json::parse(r#"{"list":[1,2,3]}"#).unwrap();
    let mut world = World::new(flow, windlass_core::Input { params, ..input(at) });
    let accepted = world
        .apply(&Command::Accept { done: Vec::new(), overrides_unique: false, by: None })
        .expect("a new task is accepted");
    (world, accepted.events)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Law: a command that is given twice changes nothing the second time.
    #[test]
    fn repeating_changes_nothing(flow in any_rich_flow(), scheduled: bool, choices in any_choices()) {
        let (mut world, _) = begin(flow, scheduled.then_some(START + Millis(500)));
        repeat(&world, &Command::Accept { done: Vec::new(), overrides_unique: false, by: None })?;
        for choice in choices {
            let Some(next) = choose(&world, choice) else { break };
            if let Move::Wake(key) = next {
                world.now = world.now.max(world.waits[&key].due_at.unwrap());
            }
            let command = world.command(next);
            let context = world.context();
            world.play(next);
            let Some(command) = command else { continue };
            repeat(&world, &command)?;
            // Also when what surrounds the task has not seen the first time yet.
            if counts_twice(&world, &command) {
                continue;
            }
            if let Ok(again) = windlass_core::apply(&world.task, &command, &context) {
                prop_assert_eq!(again.events, vec![]);
            }
        }
    }

    /// Law: what happened to a task, replayed, gives the task.
    #[test]
    fn replayed_events_give_the_task(flow in any_rich_flow(), scheduled: bool, choices in any_choices()) {
        let (mut world, mut history) = begin(flow, scheduled.then_some(START + Millis(500)));
        let mut numbered = history.len() as u64;
        for choice in choices {
            let Some(next) = choose(&world, choice) else { break };
            if let Some(Ok(transition)) = world.play(next) {
                numbered += transition.events.len() as u64;
                history.extend(transition.events);
            }
            prop_assert_eq!(world.task.state.events, numbered);
        }
        let mut replayed = Task::new(world.task.id, Arc::clone(&world.task.flow), Arc::clone(&world.task.input));
        for event in &history {
            evolve(&mut replayed, event);
        }
        prop_assert_eq!(replayed, world.task);
    }

    /// Law: a final failure of any step rolls back exactly the steps that need it, each after those of its successors that do.
    #[test]
    fn a_failure_undoes_exactly_what_was_touched(flow in any_flow(), failing in 0..6_usize, choices in any_choices()) {
        let mut flow = flow;
        flow.on_failure = OnFailure::Rollback;
        for step in &mut flow.steps {
            for action in [Some(&mut step.run), step.rollback.as_mut()].into_iter().flatten() {
                action.deadline = None;
            }
        }
        let failing = failing % flow.steps.len();
        let (mut world, mut history) = begin(flow, None);
        for turn in 0..100 {
            let choice = usize::from(choices.get(turn).copied().unwrap_or(0));
            // Workers take and end attempts in any order; the one that has the failing step fails for good, and
            // what is in flight then may still go either way.
            let moves: Vec<Move> = world
                .moves()
                .into_iter()
                .filter(|next| match next {
                    Move::Take(_) => true,
                    Move::Succeed(key) => *key != ActKey::forward(failing),
                    Move::FailForGood(key) => {
                        let turned = world.task.state.phase == Phase::Backward;
                        key.direction == Direction::Forward && (key.step == failing || turned)
                    }
                    _ => false,
                })
                .collect();
            if moves.is_empty() {
                break;
            }
            if let Some(outcome) = world.play(moves[choice % moves.len()]) {
                history.extend(outcome.expect("the attempt is current").events);
            }
        }
        prop_assert!(world.task.is_ended(), "{:#?}", world.task.state);
        check_undoing(&world.task, &history)?;
        prop_assert!(world.task.state.steps[failing].touched, "the failed step is rolled back as well");
    }

    /// The same law in whatever way a walk starts a rollback: exactly the steps that need it are rolled back.
    #[test]
    fn however_a_task_turns_around_it_undoes_what_was_touched(flow in any_rich_flow(), choices in any_choices()) {
        let (mut world, mut history) = begin(flow, None);
        for turn in 0..400 {
            // After the walk everything succeeds, so that it comes to its end.
            let chosen = match choices.get(turn) {
                Some(choice) => choose(&world, *choice),
                None => world.best_move(),
            };
            let Some(next) = chosen else { break };
            if let Some(Ok(transition)) = world.play(next) {
                history.extend(transition.events);
            }
        }
        prop_assert!(world.task.is_ended(), "{:#?}", world.task.state);
        check_undoing(&world.task, &history)?;
    }

    /// Law: reports of undos that come again, late or for another attempt change nothing.
    #[test]
    fn repeated_undos_change_nothing(flow in any_rich_flow(), choices in any_choices()) {
        let (mut world, _) = begin(flow, None);
        // Far enough that there is something to roll back, then back.
        for choice in choices.iter().take(20) {
            let mut moves = world.moves();
            moves.retain(|next| matches!(next, Move::Take(_) | Move::Succeed(_)));
            if moves.is_empty() {
                break;
            }
            world.play(moves[usize::from(*choice) % moves.len()]);
        }
        if !world.task.is_ended() {
            world.play(Move::Cancel);
        }
        let mut reported: Vec<Command> = Vec::new();
        for turn in 0..200 {
            let choice = choices.get(turn).copied().unwrap_or(1);
            let chosen = match (world.handed_out.keys().next(), choice % 4) {
                (Some(key), 0) => Some(Move::Fail(*key)),
                (Some(key), 2) if world.held.contains_key(key) => Some(Move::Lose(*key)),
                _ => world.best_move(),
            };
            let Some(next) = chosen else { break };
            if let Some(command @ (Command::Report(_) | Command::Lose(_))) = world.command(next) {
                reported.push(command);
            }
            world.play(next);
            let before = world.task.clone();
            for command in &reported {
                repeat(&world, command)?;
            }
            prop_assert_eq!(&before, &world.task);
        }
        prop_assert!(world.task.is_ended());
    }

    /// Whatever comes, also what makes no sense, is accepted or refused; it never breaks an invariant.
    #[test]
    fn nonsense_is_refused(
        flow in any_rich_flow(),
        choices in any_choices(),
        nonsense in proptest::collection::vec((0..20_u8, 0..8_usize, any::<bool>(), 0..5_u32, 0..3_u32), 60),
    ) {
        let (mut world, _) = begin(flow, None);
        for (choice, (kind, step, undo, number, member)) in choices.into_iter().zip(nonsense) {
            if let Some(next) = choose(&world, choice) {
                world.play(next);
            }
            let key = if undo { ActKey::rollback(step) } else { ActKey::forward(step) };
            let key = key.of_member(member);
            if let Some(command) = strange(&world, kind, key, number) {
                let before = world.task.clone();
                if world.apply(&command).is_err() {
                    prop_assert_eq!(before, world.task.clone());
                }
            }
        }
    }
}

/// A command for any act and any attempt, whether it can be or not.
fn strange(world: &World, kind: u8, key: ActKey, number: u32) -> Option<Command> {
    let attempt = world.attempt(key, Some(number));
    // Only what was handed out can be reported or lost; anything else would need a forged token.
    let known = world.handed_out.get(&key) == Some(&number);
    let stale = world.task.act(key).is_none_or(|act| number != act.attempt || !act.is_open());
    let next = match kind {
        0 => Move::Succeed(key),
        1 => Move::Fail(key),
        2 => Move::FailForGood(key),
        3 => Move::Later(key),
        4 => Move::Retry(key.step),
        5 => Move::Skip(key.step),
        6 => Move::Done(key.step),
        7 => Move::GiveUp(key.step),
        8 => Move::Resume,
        9 => return Some(Command::Wake(Wakeup::Act(key))),
        10 => return Some(Command::Wake(Wakeup::Start)),
        11 => return Some(Command::Accept { done: Vec::new(), overrides_unique: false, by: None }),
        12 if known || stale => return Some(Command::Lose(attempt)),
        13 if known || stale => return Some(Command::TimeOut(attempt)),
        14 => return Some(Command::Park(attempt)),
        _ => return None,
    };
    match world.command(next)? {
        Command::Report(mut report) if known || stale => {
            report.attempt = attempt;
            Some(Command::Report(report))
        }
        Command::Report(_) => None,
        command => Some(command),
    }
}

/// A signal that is sent twice are two signals, and what fails at once on its parameters may be tried again.
fn counts_twice(world: &World, command: &Command) -> bool {
    let is_failed = |key: ActKey| world.act(key).state == ActState::Failed;
    match command {
        Command::Signal { .. } => true,
        Command::Resolve { step, resolution: Resolution::Retry(_), .. } => {
            is_failed(ActKey::forward(*step)) || is_failed(ActKey::rollback(*step))
        }
        _ => false,
    }
}

fn repeat(world: &World, command: &Command) -> Result<(), TestCaseError> {
    if counts_twice(world, command) {
        return Ok(());
    }
    if let Ok(again) = windlass_core::apply(&world.task, command, &world.context()) {
        prop_assert_eq!(again.events, vec![], "{:?} again changes something", command);
        prop_assert_eq!(again.effects, vec![]);
        prop_assert_eq!(&again.task, &world.task);
    }
    Ok(())
}

/// Checks from the history alone that an ended task undid what it had to, in an order that it may: steps, and members
/// of those that were fanned out.
fn check_undoing(task: &Task, history: &[Event]) -> Result<(), TestCaseError> {
    let mut touched: BTreeSet<ActKey> = BTreeSet::new();
    let mut settled: BTreeSet<usize> = BTreeSet::new();
    let mut begun: BTreeSet<ActKey> = BTreeSet::new();
    for event in history {
        match &event.kind {
            EventKind::ActReady { key, .. } if key.direction == Direction::Forward => {
                touched.insert(*key);
            }
            EventKind::ActWithdrawn { key, touched: false, .. } => {
                touched.remove(key);
            }
            EventKind::TaskRollingBack { cause } => {
                let failed = matches!(cause, Cause::Failure { .. } | Cause::GivenUp { .. } | Cause::Deadline);
                let steps = (0..task.flow.steps.len()).filter(|step| failed && is_for_errors(task, *step));
                touched.extend(steps.map(ActKey::forward));
            }
            EventKind::ActReady { key, .. } | EventKind::ActParked { key, .. }
                if key.direction == Direction::Rollback =>
            {
                let is_open = |later: &&ActKey| {
                    task.flow.ancestors(later.step)[key.step] && !settled.contains(&later.step)
                };
                let open = touched.iter().find(is_open);
                prop_assert!(open.is_none(), "step {} is rolled back before {:?}", key.step, open);
                begun.insert(ActKey { direction: Direction::Forward, ..*key });
            }
            EventKind::ActSucceeded { key, .. }
            | EventKind::ActSkipped { key }
            | EventKind::ActResolved { key, .. }
                if key.direction == Direction::Rollback && !key.is_member() =>
            {
                let done = task.act(*key).is_some_and(|act| act.is_satisfied());
                prop_assert!(done);
                settled.insert(key.step);
            }
            _ => {}
        }
    }
    let can_be_undone =
        |key: &&ActKey| task.flow.steps[key.step].rollback.is_some() || is_for_errors(task, key.step);
    let expected: BTreeSet<ActKey> = touched.iter().filter(can_be_undone).copied().collect();
    match task.state.phase {
        Phase::Ended(Ending::Succeeded) => prop_assert_eq!(begun, BTreeSet::new()),
        _ => prop_assert_eq!(begun, expected),
    }
    Ok(())
}

fn is_for_errors(task: &Task, step: usize) -> bool {
    task.flow.steps[step].role == Role::OnError
}

/// On a line the order is one and only one: the reverse, from wherever it fails.
#[test]
fn a_line_that_fails_at_each_step_is_undone_in_reverse() {
    let names = ["a", "b", "c", "d", "e", "f"];
    for failing in 0..names.len() {
        let mut story = format!("flow {}\naccept\n", names.join(" > "));
        for name in &names[..failing] {
            story += &format!("ok {name}\n");
        }
        story += &format!("final {} boom\n", names[failing]);
        let mut world = play(&story);
        for step in (0..=failing).rev() {
            let ready: Vec<ActKey> = world
                .task
                .acts()
                .filter(|(_, act)| act.state == ActState::Ready)
                .map(|(key, _)| key)
                .collect();
            assert_eq!(ready, [ActKey::rollback(step)], "failed at {failing}");
            world.play(Move::Take(ready[0]));
            world.play(Move::Succeed(ready[0])).unwrap().unwrap();
        }
        assert_eq!(world.task.state.phase, Phase::Ended(Ending::RolledBack));
    }
}
