//! Every command in every kind of state: the table shows what each is answered, so that a review sees it change.

use std::fmt::Write as _;

use insta::assert_snapshot;
use windlass_core::{
    ActKey, ActState, Attempt, Command, Failure, Outcome, Rejection, Report, Resolution, Wakeup, apply,
    task_status,
};

use crate::{
    story::play,
    world::{World, anna},
};

/// A story to each kind of state, and the step that commands are about. `a` runs before `b`.
const STATES: &[(&str, &str, &str)] = &[
    ("new", "", ""),
    ("scheduled", "at 60s", "accept"),
    ("scheduled, paused", "at 60s", "accept\npause"),
    ("ready", "", "accept"),
    ("running", "", "accept\ntake a"),
    ("overdue", "on_failure hold\na: deadline 5s", "accept\ntake a\nnext"),
    ("delayed", "a: retry 1", "accept\nfail a x"),
    ("retry due", "a: retry 1", "accept\nfail a x\n+ 9s"),
    ("deadline due", "a: deadline 5s", "accept\n+ 9s"),
    ("succeeded", "", "accept\nok a"),
    ("skipped", "on_failure hold", "accept\nfail a x\nresolve a skip"),
    ("held", "on_failure hold", "accept\nfail a x"),
    ("poisoned", "", "accept\nlose a\nlose a\nlose a"),
    ("pausing", "", "accept\ntake a\npause"),
    ("pausing, given back", "", "accept\ntake a\npause\ndecline a"),
    ("paused", "", "accept\npause"),
    ("paused, delayed", "a: retry 1", "accept\nfail a x\npause"),
    ("held, paused", "on_failure hold", "accept\nfail a x\npause"),
    ("engine fault", "", "accept\nhold x"),
    ("engine fault, given back", "", "accept\ntake a\nhold x\ndecline a"),
    ("draining", "", "accept\ntake a\ncancel"),
    ("draining, given back", "", "accept\ntake a\ncancel\ndecline a"),
    ("draining, paused", "", "accept\ntake a\ncancel\npause"),
    ("undo ready", "", "accept\nfail a x"),
    ("undo running", "", "accept\nfail a x\ntake ~a"),
    ("undo overdue", "~a: deadline 5s", "accept\nfail a x\ntake ~a\nnext"),
    ("undo delayed", "~a: retry 1", "accept\nfail a x\nfail ~a x"),
    ("undo pausing, given back", "", "accept\nfail a x\ntake ~a\npause\ndecline ~a"),
    ("undo paused", "", "accept\nfail a x\npause"),
    ("undo failed", "", "accept\nfail a x\nfail ~a x"),
    ("undo poisoned", "", "accept\nfail a x\nlose ~a\nlose ~a\nlose ~a"),
    ("undone", "", "accept\nok a\nfail b x\nok ~b"),
    ("succeeded for good", "", "accept\nok a\nok b"),
    ("rolled back", "", "accept\nfail a x\nok ~a"),
    ("failed", "a: no rollback", "accept\nfail a x"),
    ("cancelled", "", "accept\ncancel"),
];

/// Every kind of command about step `a`; those about attempts name the current one.
fn commands(world: &World) -> Vec<(&'static str, Command)> {
    let attempt = |key: ActKey| {
        let number = world.act(key).attempt.max(1);
        Attempt { key, number, started_at: None }
    };
    let report = |key, outcome| Command::Report(Report { attempt: attempt(key), outcome });
    let failure = || Outcome::Failed(Failure::new("x", 1, true));
    let later = || Outcome::RetryLater { delay: None, message: "x".into() };
    let resolve = |resolution| Command::Resolve { step: 0, resolution, by: anna() };
    let (a, undo) = (ActKey::forward(0), ActKey::rollback(0));
    let stale = Attempt { number: world.act(a).attempt.saturating_sub(1), ..attempt(a) };
    let future = Attempt { number: world.act(a).attempt + 1, ..attempt(a) };
    let of = |attempt| Command::Report(Report { attempt, outcome: Outcome::Succeeded(None) });
    vec![
        ("accept", Command::Accept { done: Vec::new(), by: None }),
        ("ok a", report(a, Outcome::Succeeded(None))),
        ("fail a", report(a, failure())),
        ("later a", report(a, later())),
        ("ok a, the last", of(stale)),
        ("ok a, the next", of(future)),
        ("ok z", of(Attempt { key: ActKey::forward(9), ..attempt(a) })),
        ("lose a", Command::Lose(attempt(a))),
        ("timeout a", Command::TimeOut(attempt(a))),
        ("park a", Command::Park(attempt(a))),
        ("wake a", Command::Wake(Wakeup::Act(a))),
        ("ok ~a", report(undo, Outcome::Succeeded(None))),
        ("fail ~a", report(undo, failure())),
        ("later ~a", report(undo, later())),
        ("lose ~a", Command::Lose(attempt(undo))),
        ("timeout ~a", Command::TimeOut(attempt(undo))),
        ("park ~a", Command::Park(attempt(undo))),
        ("wake ~a", Command::Wake(Wakeup::Act(undo))),
        ("wake start", Command::Wake(Wakeup::Start)),
        ("cancel", Command::Cancel { by: anna() }),
        ("pause", Command::Pause { by: anna() }),
        ("resume", Command::Resume { by: anna() }),
        ("resolve retry", resolve(Resolution::Retry(None))),
        ("resolve skip", resolve(Resolution::Skip)),
        ("resolve done", resolve(Resolution::Done(None))),
        ("resolve rollback", resolve(Resolution::Rollback)),
        ("resolve z", Command::Resolve { step: 9, resolution: Resolution::Skip, by: anna() }),
        ("hold", Command::Hold { message: "x".into() }),
    ]
}

#[test]
fn every_command_in_every_kind_of_state() {
    let mut table = String::new();
    for (name, settings, story) in STATES {
        let world = play(&format!("flow a > b\n{settings}\n{story}"));
        let status = task_status(&world.task, &world.context().held);
        let acts: Vec<String> = world
            .task
            .acts()
            .filter(|(_, act)| act.state != ActState::Idle)
            .map(|(key, act)| {
                let undo = if key == ActKey::rollback(key.step) { "~" } else { "" };
                let state = format!("{:?}", act.state);
                let word = state.split(' ').next().unwrap_or_default().to_lowercase();
                format!(" {undo}{}={word}", world.task.flow.steps[key.step].name)
            })
            .collect();
        writeln!(table, "{name} ({status:?}{})", acts.concat()).unwrap();
        for (answer, commands) in answers(&world) {
            writeln!(table, "  {answer}: {}", commands.join(" · ")).unwrap();
        }
    }
    assert_snapshot!(table, @"
    new (Pending)
      -> Pending: accept
      unknown: ok a · fail a · later a · ok a, the last · ok a, the next · ok z · lose a · timeout a · park a · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> Cancelled: cancel
      -> Paused: pause
      nothing changes: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    scheduled (Scheduled)
      this attempt was reported before: accept
      unknown: ok a · fail a · later a · ok a, the last · ok a, the next · ok z · lose a · timeout a · park a · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> Cancelled: cancel
      -> Paused: pause
      nothing changes: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    scheduled, paused (Paused)
      this attempt was reported before: accept
      unknown: ok a · fail a · later a · ok a, the last · ok a, the next · ok z · lose a · timeout a · park a · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> Cancelled: cancel
      nothing changes: pause
      -> Scheduled: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    ready (Pending a=ready)
      this attempt was reported before: accept
      -> Running: ok a · later a · lose a
      -> RollingBack: fail a · timeout a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: park a · wake a · wake ~a · wake start
      -> Cancelled: cancel
      -> Paused: pause
      nothing changes: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    running (Running a=ready)
      this attempt was reported before: accept
      -> Running: ok a · later a · lose a
      -> RollingBack: fail a · timeout a · cancel
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: park a · wake a · wake ~a · wake start
      -> Pausing: pause
      nothing changes: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    overdue (Running a=ready)
      this attempt was reported before: accept
      -> Running: ok a
      -> Stuck: fail a · later a · lose a · timeout a · hold
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: park a · wake a · wake ~a · wake start
      -> RollingBack: cancel
      -> Pausing: pause
      nothing changes: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
    delayed (Running a=delayed)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> RollingBack: cancel
      -> Paused: pause
      nothing changes: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    retry due (Running a=delayed)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      -> Running: wake a
      nothing is due: wake ~a · wake start
      -> RollingBack: cancel
      -> Paused: pause
      nothing changes: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    deadline due (Pending a=ready)
      this attempt was reported before: accept
      -> Running: ok a · later a · lose a
      -> RollingBack: fail a · timeout a · wake a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: park a · wake ~a · wake start
      -> Cancelled: cancel
      -> Paused: pause
      nothing changes: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    succeeded (Running a=succeeded b=ready)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> RollingBack: cancel
      -> Paused: pause
      nothing changes: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    skipped (Running a=skipped b=ready)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> RollingBack: cancel
      -> Paused: pause
      nothing changes: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    held (Stuck a=failed)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> RollingBack: cancel · resolve rollback
      -> Stuck: pause · hold
      nothing changes: resume
      -> Running: resolve retry · resolve skip · resolve done
    poisoned (Stuck a=failed)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a
      another attempt has taken over: ok a, the last
      unknown: ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> RollingBack: cancel · resolve rollback
      -> Stuck: pause · hold
      nothing changes: resume
      -> Running: resolve retry · resolve skip · resolve done
    pausing (Pausing a=ready)
      this attempt was reported before: accept
      -> Paused: ok a · fail a · later a · lose a · timeout a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: park a · wake a · wake ~a · wake start
      -> RollingBack: cancel
      nothing changes: pause
      -> Running: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    pausing, given back (Pausing a=ready)
      this attempt was reported before: accept
      -> Paused: ok a · fail a · later a · lose a · timeout a · park a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> RollingBack: cancel
      nothing changes: pause
      -> Pending: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    paused (Paused a=parked)
      this attempt was reported before: accept
      -> Paused: ok a · fail a · later a · lose a · timeout a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: park a · wake a · wake ~a · wake start
      -> Cancelled: cancel
      nothing changes: pause
      -> Pending: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    paused, delayed (Paused a=delayed)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> RollingBack: cancel
      nothing changes: pause
      -> Running: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    held, paused (Stuck a=failed)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> RollingBack: cancel
      nothing changes: pause
      -> Stuck: resume · hold
      -> Paused: resolve retry · resolve skip · resolve done · resolve rollback
    engine fault (Stuck a=parked)
      this attempt was reported before: accept
      -> Stuck: ok a · fail a · later a · lose a · timeout a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: park a · wake a · wake ~a · wake start
      -> Cancelled: cancel
      nothing changes: pause · hold
      -> Pending: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
    engine fault, given back (Stuck a=ready)
      this attempt was reported before: accept
      -> Stuck: ok a · fail a · later a · lose a · timeout a · park a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> RollingBack: cancel
      nothing changes: pause · hold
      -> Pending: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
    draining (RollingBack a=ready)
      this attempt was reported before: accept
      -> RollingBack: ok a · fail a · later a · lose a · timeout a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: park a · wake a · wake ~a · wake start
      nothing changes: cancel · resume
      -> Pausing: pause
      nothing to resolve: resolve retry · resolve skip · resolve done
      rolling back already: resolve rollback
      -> Stuck: hold
    draining, given back (RollingBack a=ready)
      this attempt was reported before: accept
      -> RollingBack: ok a · fail a · later a · lose a · timeout a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: park a · wake a · wake ~a · wake start
      nothing changes: cancel · resume
      -> Pausing: pause
      nothing to resolve: resolve retry · resolve skip · resolve done
      rolling back already: resolve rollback
      -> Stuck: hold
    draining, paused (Pausing a=ready)
      this attempt was reported before: accept
      -> Paused: ok a · fail a · later a · lose a · timeout a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: park a · wake a · wake ~a · wake start
      nothing changes: cancel · pause
      -> RollingBack: resume
      nothing to resolve: resolve retry · resolve skip · resolve done
      rolling back already: resolve rollback
      -> Stuck: hold
    undo ready (RollingBack a=failed ~a=ready)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · park ~a · wake ~a · wake start
      -> RolledBack: ok ~a
      -> Stuck: fail ~a · timeout ~a · hold
      -> RollingBack: later ~a · lose ~a
      nothing changes: cancel · resume
      -> Paused: pause
      nothing to resolve: resolve retry · resolve skip · resolve done
      rolling back already: resolve rollback
    undo running (RollingBack a=failed ~a=ready)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · park ~a · wake ~a · wake start
      -> RolledBack: ok ~a
      -> Stuck: fail ~a · timeout ~a · hold
      -> RollingBack: later ~a · lose ~a
      nothing changes: cancel · resume
      -> Pausing: pause
      nothing to resolve: resolve retry · resolve skip · resolve done
      rolling back already: resolve rollback
    undo overdue (RollingBack a=failed ~a=ready)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · park ~a · wake ~a · wake start
      -> RolledBack: ok ~a
      -> Stuck: fail ~a · later ~a · lose ~a · timeout ~a · hold
      nothing changes: cancel · resume
      -> Pausing: pause
      nothing to resolve: resolve retry · resolve skip · resolve done
      rolling back already: resolve rollback
    undo delayed (RollingBack a=failed ~a=delayed)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · wake ~a · wake start
      nothing changes: cancel · resume
      -> Paused: pause
      nothing to resolve: resolve retry · resolve skip · resolve done
      rolling back already: resolve rollback
      -> Stuck: hold
    undo pausing, given back (Pausing a=failed ~a=ready)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> RolledBack: ok ~a
      -> Stuck: fail ~a · timeout ~a · hold
      -> Paused: later ~a · lose ~a · park ~a
      nothing changes: cancel · pause
      -> RollingBack: resume
      nothing to resolve: resolve retry · resolve skip · resolve done
      rolling back already: resolve rollback
    undo paused (Paused a=failed ~a=parked)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · park ~a · wake ~a · wake start
      -> RolledBack: ok ~a
      -> Stuck: fail ~a · timeout ~a · hold
      -> Paused: later ~a · lose ~a
      nothing changes: cancel · pause
      -> RollingBack: resume
      nothing to resolve: resolve retry · resolve skip · resolve done
      rolling back already: resolve rollback
    undo failed (Stuck a=failed ~a=failed)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · wake ~a · wake start
      nothing changes: cancel · resume
      -> Stuck: pause · hold
      -> RollingBack: resolve retry
      -> RolledBack: resolve skip · resolve done
      rolling back already: resolve rollback
    undo poisoned (Stuck a=failed ~a=failed)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · wake ~a · wake start
      nothing changes: cancel · resume
      -> Stuck: pause · hold
      -> RollingBack: resolve retry
      -> RolledBack: resolve skip · resolve done
      rolling back already: resolve rollback
    undone (RollingBack a=succeeded ~a=ready b=failed ~b=succeeded)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · park ~a · wake ~a · wake start
      -> RolledBack: ok ~a
      -> Stuck: fail ~a · timeout ~a · hold
      -> RollingBack: later ~a · lose ~a
      nothing changes: cancel · resume
      -> Paused: pause
      nothing to resolve: resolve retry · resolve skip · resolve done
      rolling back already: resolve rollback
    succeeded for good (Succeeded a=succeeded b=succeeded)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      the task has ended: cancel · pause · resume · resolve retry · resolve skip · resolve done · resolve rollback · hold
    rolled back (RolledBack a=failed ~a=succeeded)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · wake ~a · wake start
      the task has ended: cancel · pause · resume · resolve retry · resolve skip · resolve done · resolve rollback · hold
    failed (Failed a=failed ~a=skipped)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      the task has ended: cancel · pause · resume · resolve retry · resolve skip · resolve done · resolve rollback · hold
    cancelled (Cancelled)
      this attempt was reported before: accept
      another attempt has taken over: ok a · fail a · later a · lose a · timeout a · park a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      the task has ended: cancel · pause · resume · resolve retry · resolve skip · resolve done · resolve rollback · hold
    ");
}

/// The commands by what they are answered, in the order of the first of each.
fn answers(world: &World) -> Vec<(String, Vec<&'static str>)> {
    let mut answers: Vec<(String, Vec<&'static str>)> = Vec::new();
    for (name, command) in commands(world) {
        let answer = match apply(&world.task, &command, &world.context()) {
            Ok(transition) if transition.events.is_empty() => "nothing changes".to_owned(),
            Ok(transition) => {
                // The surroundings must be able to follow as well.
                world.clone().apply(&command).expect("it was accepted before");
                format!("-> {:?}", task_status(&transition.task, &world.context().held))
            }
            Err(rejection) => match rejection {
                Rejection::UnknownAct => "unknown".to_owned(),
                Rejection::NothingToResolve(_) => "nothing to resolve".to_owned(),
                Rejection::AlreadyRollingBack(_) => "rolling back already".to_owned(),
                Rejection::Fault(fault) => panic!("{name}: {fault}"),
                rejection => rejection.to_string(),
            },
        };
        match answers.iter_mut().find(|(known, _)| *known == answer) {
            Some((_, commands)) => commands.push(name),
            None => answers.push((answer, vec![name])),
        }
    }
    answers
}
