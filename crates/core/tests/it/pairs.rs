//! Every command in every kind of state: the table shows what each is answered, so that a review sees it change.

use std::fmt::Write as _;

use insta::assert_snapshot;
use windlass_core::{
    ActKey, ActState, Attempt, Command, Failure, Name, Outcome, Rejection, Report, Resolution, Wakeup, apply,
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
    ("overdue", "on_failure hold\na: deadline 5s", "accept\ntake a\nkept a\nnext"),
    ("delayed", "a: retry 1", "accept\nfail a x"),
    ("retry due", "a: retry 1", "accept\nfail a x\n+ 9s"),
    ("deadline due", "a: deadline 5s", "accept\nlose a\n+ 9s"),
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
    ("rollback ready", "", "accept\nfail a x"),
    ("rollback running", "", "accept\nfail a x\ntake ~a"),
    ("rollback overdue", "~a: deadline 5s", "accept\nfail a x\ntake ~a\nkept ~a\nnext"),
    ("rollback delayed", "~a: retry 1", "accept\nfail a x\nfail ~a x"),
    ("rollback pausing, given back", "", "accept\nfail a x\ntake ~a\npause\ndecline ~a"),
    ("rollback paused", "", "accept\nfail a x\npause"),
    ("rollback failed", "", "accept\nfail a x\nfail ~a x"),
    ("rollback poisoned", "", "accept\nfail a x\nlose ~a\nlose ~a\nlose ~a"),
    ("rolled back", "", "accept\nok a\nfail b x\nok ~b"),
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
        ("accept", Command::Accept { done: Vec::new(), overrides_unique: false, by: None }),
        ("ok a", report(a, Outcome::Succeeded(None))),
        ("fail a", report(a, failure())),
        ("later a", report(a, later())),
        ("ok a, the last", of(stale)),
        ("ok a, the next", of(future)),
        ("ok z", of(Attempt { key: ActKey::forward(9), ..attempt(a) })),
        ("lose a", Command::Lose(attempt(a))),
        ("timeout a", Command::TimeOut(attempt(a))),
        ("park a", Command::Park(attempt(a))),
        ("taken a", Command::Taken(attempt(a))),
        ("wake a", Command::Wake(Wakeup::Act(a))),
        ("ok ~a", report(undo, Outcome::Succeeded(None))),
        ("fail ~a", report(undo, failure())),
        ("later ~a", report(undo, later())),
        ("lose ~a", Command::Lose(attempt(undo))),
        ("timeout ~a", Command::TimeOut(attempt(undo))),
        ("park ~a", Command::Park(attempt(undo))),
        ("taken ~a", Command::Taken(attempt(undo))),
        ("wake ~a", Command::Wake(Wakeup::Act(undo))),
        ("wake start", Command::Wake(Wakeup::Start)),
        ("cancel", Command::Cancel { by: anna() }),
        ("pause", Command::Pause { by: anna() }),
        ("stop", Command::Stop { by: anna() }),
        ("suspend", Command::Suspend { by: None }),
        ("continue", Command::Continue { by: None }),
        ("resume", Command::Resume { by: anna() }),
        ("resolve retry", resolve(Resolution::Retry(None))),
        ("resolve skip", resolve(Resolution::Skip)),
        ("resolve done", resolve(Resolution::Done(None))),
        ("resolve rollback", resolve(Resolution::Rollback)),
        ("resolve z", Command::Resolve { step: 9, resolution: Resolution::Skip, by: anna() }),
        ("roll back", Command::RollBack { rollout: Name::new("r").expect("a name") }),
        ("hold", Command::Hold { message: "x".into() }),
    ]
}

#[test]
fn every_command_in_every_kind_of_state() {
    let mut table = String::new();
    for (name, settings, story) in STATES {
        let world = play(&format!("flow a > b\n{settings}\n{story}"));
        let status = task_status(&world.task, &world.held_keys());
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
        for (answer, commands) in answers(&world, commands(&world)) {
            writeln!(table, "  {answer}: {}", commands.join(" · ")).unwrap();
        }
    }
    assert_snapshot!(table, @r"
    new (Pending)
      -> Pending: accept
      unknown: ok a · fail a · later a · ok a, the last · ok a, the next · ok z · lose a · timeout a · park a · taken a · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> Cancelled: cancel
      -> Paused: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      the task has not ended: cancel it: roll back
      -> Stuck: hold
    scheduled (Scheduled)
      this attempt was reported before: accept
      unknown: ok a · fail a · later a · ok a, the last · ok a, the next · ok z · lose a · timeout a · park a · taken a · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> Cancelled: cancel
      -> Paused: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      the task has not ended: cancel it: roll back
      -> Stuck: hold
    scheduled, paused (Paused)
      this attempt was reported before: accept
      unknown: ok a · fail a · later a · ok a, the last · ok a, the next · ok z · lose a · timeout a · park a · taken a · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> Cancelled: cancel
      nothing changes: pause · stop · suspend · continue
      -> Scheduled: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      the task has not ended: cancel it: roll back
      -> Stuck: hold
    ready (Pending a=ready)
      this attempt was reported before: accept
      -> Running: ok a · later a · lose a
      -> RollingBack: fail a · timeout a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: park a · taken a · wake a · wake ~a · wake start
      -> Cancelled: cancel
      -> Paused: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      the task has not ended: cancel it: roll back
      -> Stuck: hold
    running (Running a=ready)
      this attempt was reported before: accept
      -> Running: ok a · later a · lose a
      -> RollingBack: fail a · timeout a · cancel
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: park a · taken a · wake a · wake ~a · wake start
      -> Pausing: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      the task has not ended: cancel it: roll back
      -> Stuck: hold
    overdue (Running a=ready)
      this attempt was reported before: accept
      -> Running: ok a
      -> Stuck: fail a · later a · lose a · timeout a · hold
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: park a · taken a · wake a · wake ~a · wake start
      -> RollingBack: cancel
      -> Pausing: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      the task has not ended: cancel it: roll back
    delayed (Running a=delayed)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> RollingBack: cancel
      -> Paused: pause · stop · suspend
      nothing changes: continue · resume
      -> Running: resolve retry
      nothing to resolve: resolve skip · resolve done · resolve rollback
      the task has not ended: cancel it: roll back
      -> Stuck: hold
    retry due (Running a=delayed)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      -> Running: wake a · resolve retry
      nothing is due: wake ~a · wake start
      -> RollingBack: cancel
      -> Paused: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve skip · resolve done · resolve rollback
      the task has not ended: cancel it: roll back
      -> Stuck: hold
    deadline due (Running a=ready)
      this attempt was reported before: accept
      -> Running: ok a · later a · lose a
      -> RollingBack: fail a · timeout a · wake a · cancel
      another attempt has taken over: ok a, the last
      unknown: ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: park a · taken a · wake ~a · wake start
      -> Paused: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      the task has not ended: cancel it: roll back
      -> Stuck: hold
    succeeded (Running a=succeeded b=ready)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> RollingBack: cancel
      -> Paused: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      the task has not ended: cancel it: roll back
      -> Stuck: hold
    skipped (Running a=skipped b=ready)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> RollingBack: cancel
      -> Paused: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      the task has not ended: cancel it: roll back
      -> Stuck: hold
    held (Stuck a=failed)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> RollingBack: cancel · resolve rollback
      -> Stuck: pause · stop · suspend · hold
      nothing changes: continue · resume
      -> Running: resolve retry · resolve skip · resolve done
      the task has not ended: cancel it: roll back
    poisoned (Stuck a=failed)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a
      another attempt has taken over: ok a, the last
      unknown: ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> RollingBack: cancel · resolve rollback
      -> Stuck: pause · stop · suspend · hold
      nothing changes: continue · resume
      -> Running: resolve retry · resolve skip · resolve done
      the task has not ended: cancel it: roll back
    pausing (Pausing a=ready)
      this attempt was reported before: accept
      -> Paused: ok a · fail a · later a · lose a · timeout a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: park a · taken a · wake a · wake ~a · wake start
      -> RollingBack: cancel
      nothing changes: pause · continue
      -> Pausing: stop · suspend
      -> Running: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      the task has not ended: cancel it: roll back
      -> Stuck: hold
    pausing, given back (Pausing a=ready)
      this attempt was reported before: accept
      -> Paused: ok a · fail a · later a · lose a · timeout a · park a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: taken a · wake a · wake ~a · wake start
      -> RollingBack: cancel
      nothing changes: pause · continue
      -> Pausing: stop · suspend
      -> Pending: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      the task has not ended: cancel it: roll back
      -> Stuck: hold
    paused (Paused a=parked)
      this attempt was reported before: accept
      -> Paused: ok a · fail a · later a · lose a · timeout a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: park a · taken a · wake a · wake ~a · wake start
      -> Cancelled: cancel
      nothing changes: pause · stop · suspend · continue
      -> Pending: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      the task has not ended: cancel it: roll back
      -> Stuck: hold
    paused, delayed (Paused a=delayed)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> RollingBack: cancel
      nothing changes: pause · stop · suspend · continue
      -> Running: resume
      -> Paused: resolve retry
      nothing to resolve: resolve skip · resolve done · resolve rollback
      the task has not ended: cancel it: roll back
      -> Stuck: hold
    held, paused (Stuck a=failed)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      -> RollingBack: cancel
      nothing changes: pause · stop · suspend · continue
      -> Stuck: resume · hold
      -> Paused: resolve retry · resolve skip · resolve done · resolve rollback
      the task has not ended: cancel it: roll back
    engine fault (Stuck a=parked)
      this attempt was reported before: accept
      -> Stuck: ok a · fail a · later a · lose a · timeout a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: park a · taken a · wake a · wake ~a · wake start
      -> Cancelled: cancel
      nothing changes: pause · stop · suspend · continue · hold
      -> Pending: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      the task has not ended: cancel it: roll back
    engine fault, given back (Stuck a=ready)
      this attempt was reported before: accept
      -> Stuck: ok a · fail a · later a · lose a · timeout a · park a · stop · suspend
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: taken a · wake a · wake ~a · wake start
      -> RollingBack: cancel
      nothing changes: pause · continue · hold
      -> Pending: resume
      nothing to resolve: resolve retry · resolve skip · resolve done · resolve rollback
      the task has not ended: cancel it: roll back
    draining (RollingBack a=ready)
      this attempt was reported before: accept
      -> RollingBack: ok a · fail a · later a · lose a · timeout a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: park a · taken a · wake a · wake ~a · wake start
      nothing changes: cancel · continue · resume · roll back
      -> Pausing: pause · stop · suspend
      nothing to resolve: resolve retry · resolve skip · resolve done
      rolling back already: resolve rollback
      -> Stuck: hold
    draining, given back (RollingBack a=ready)
      this attempt was reported before: accept
      -> RollingBack: ok a · fail a · later a · lose a · timeout a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: park a · taken a · wake a · wake ~a · wake start
      nothing changes: cancel · continue · resume · roll back
      -> Pausing: pause · stop · suspend
      nothing to resolve: resolve retry · resolve skip · resolve done
      rolling back already: resolve rollback
      -> Stuck: hold
    draining, paused (Pausing a=ready)
      this attempt was reported before: accept
      -> Paused: ok a · fail a · later a · lose a · timeout a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: park a · taken a · wake a · wake ~a · wake start
      nothing changes: cancel · pause · continue · roll back
      -> Pausing: stop · suspend
      -> RollingBack: resume
      nothing to resolve: resolve retry · resolve skip · resolve done
      rolling back already: resolve rollback
      -> Stuck: hold
    rollback ready (RollingBack a=failed ~a=ready)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · park ~a · taken ~a · wake ~a · wake start
      -> RolledBack: ok ~a
      -> Stuck: fail ~a · timeout ~a · hold
      -> RollingBack: later ~a · lose ~a
      nothing changes: cancel · continue · resume · roll back
      -> Paused: pause · stop · suspend
      nothing to resolve: resolve retry · resolve skip · resolve done
      rolling back already: resolve rollback
    rollback running (RollingBack a=failed ~a=ready)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · park ~a · taken ~a · wake ~a · wake start
      -> RolledBack: ok ~a
      -> Stuck: fail ~a · timeout ~a · hold
      -> RollingBack: later ~a · lose ~a
      nothing changes: cancel · continue · resume · roll back
      -> Pausing: pause · stop · suspend
      nothing to resolve: resolve retry · resolve skip · resolve done
      rolling back already: resolve rollback
    rollback overdue (RollingBack a=failed ~a=ready)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · park ~a · taken ~a · wake ~a · wake start
      -> RolledBack: ok ~a
      -> Stuck: fail ~a · later ~a · lose ~a · timeout ~a · hold
      nothing changes: cancel · continue · resume · roll back
      -> Pausing: pause · stop · suspend
      nothing to resolve: resolve retry · resolve skip · resolve done
      rolling back already: resolve rollback
    rollback delayed (RollingBack a=failed ~a=delayed)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · wake ~a · wake start
      nothing changes: cancel · continue · resume · roll back
      -> Paused: pause · stop · suspend
      -> RollingBack: resolve retry
      nothing to resolve: resolve skip · resolve done
      rolling back already: resolve rollback
      -> Stuck: hold
    rollback pausing, given back (Pausing a=failed ~a=ready)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · taken ~a · wake ~a · wake start
      -> RolledBack: ok ~a
      -> Stuck: fail ~a · timeout ~a · hold
      -> Paused: later ~a · lose ~a · park ~a
      nothing changes: cancel · pause · continue · roll back
      -> Pausing: stop · suspend
      -> RollingBack: resume
      nothing to resolve: resolve retry · resolve skip · resolve done
      rolling back already: resolve rollback
    rollback paused (Paused a=failed ~a=parked)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · park ~a · taken ~a · wake ~a · wake start
      -> RolledBack: ok ~a
      -> Stuck: fail ~a · timeout ~a · hold
      -> Paused: later ~a · lose ~a
      nothing changes: cancel · pause · stop · suspend · continue · roll back
      -> RollingBack: resume
      nothing to resolve: resolve retry · resolve skip · resolve done
      rolling back already: resolve rollback
    rollback failed (Stuck a=failed ~a=failed)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · wake ~a · wake start
      nothing changes: cancel · continue · resume · roll back
      -> Stuck: pause · stop · suspend · hold
      -> RollingBack: resolve retry
      -> RolledBack: resolve skip · resolve done
      rolling back already: resolve rollback
    rollback poisoned (Stuck a=failed ~a=failed)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · wake ~a · wake start
      nothing changes: cancel · continue · resume · roll back
      -> Stuck: pause · stop · suspend · hold
      -> RollingBack: resolve retry
      -> RolledBack: resolve skip · resolve done
      rolling back already: resolve rollback
    rolled back (RollingBack a=succeeded ~a=ready b=failed ~b=succeeded)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · park ~a · taken ~a · wake ~a · wake start
      -> RolledBack: ok ~a
      -> Stuck: fail ~a · timeout ~a · hold
      -> RollingBack: later ~a · lose ~a
      nothing changes: cancel · continue · resume · roll back
      -> Paused: pause · stop · suspend
      nothing to resolve: resolve retry · resolve skip · resolve done
      rolling back already: resolve rollback
    succeeded for good (Succeeded a=succeeded b=succeeded)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      the task has ended: cancel · pause · stop · suspend · continue · resume · resolve retry · resolve skip · resolve done · resolve rollback · hold
      -> RollingBack: roll back
    rolled back (RolledBack a=failed ~a=succeeded)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a
      unknown: ok a, the last · ok a, the next · ok z · resolve z
      nothing is due: wake a · wake ~a · wake start
      the task has ended: cancel · pause · stop · suspend · continue · resume · resolve retry · resolve skip · resolve done · resolve rollback · roll back · hold
    failed (Failed a=failed ~a=skipped)
      this attempt was reported before: accept · ok a · fail a · later a · lose a · timeout a · park a · taken a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      the task has ended: cancel · pause · stop · suspend · continue · resume · resolve retry · resolve skip · resolve done · resolve rollback · roll back · hold
    cancelled (Cancelled)
      this attempt was reported before: accept
      another attempt has taken over: ok a · fail a · later a · lose a · timeout a · park a · taken a
      unknown: ok a, the last · ok a, the next · ok z · ok ~a · fail ~a · later ~a · lose ~a · timeout ~a · park ~a · taken ~a · resolve z
      nothing is due: wake a · wake ~a · wake start
      the task has ended: cancel · pause · stop · suspend · continue · resume · resolve retry · resolve skip · resolve done · resolve rollback · roll back · hold
    ");
}

/// The commands by what they are answered, in the order of the first of each.
fn answers(world: &World, commands: Vec<(&'static str, Command)>) -> Vec<(String, Vec<&'static str>)> {
    let mut answers: Vec<(String, Vec<&'static str>)> = Vec::new();
    for (name, command) in commands {
        let answer = match apply(&world.task, &command, &world.context()) {
            Ok(transition) if transition.events.is_empty() => "nothing changes".to_owned(),
            Ok(transition) => {
                // The surroundings must be able to follow as well.
                world.clone().apply(&command).expect("it was accepted before");
                format!("-> {:?}", task_status(&transition.task, &world.held_keys()))
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

/// Stories to states of what graphs are made of. `a` is done by two members, one at a time; or waits for a signal.
const PARTS: &[(&str, &str, &str)] = &[
    ("delayed first", "a: delay 5s", "accept"),
    ("awaits a signal", "a: signal go, deadline 5s", "accept"),
    ("awaits a signal, paused", "a: signal go", "accept\npause"),
    ("awaits a signal, too late", "a: signal go, deadline 5s", "accept\n+ 9s"),
    ("a signal is kept", "b: signal go", "accept\nsignal go"),
    ("task too late", "deadline 5s", "accept\n+ 9s"),
    ("not started in time", "a: start_within 5s", "accept\n+ 9s"),
    ("started in time", "a: start_within 5s", "accept\ntake a\n+ 9s"),
    ("members ready", "a: each list, parallel 1", "accept"),
    ("a member runs", "a: each list, parallel 1", "accept\ntake a[1]"),
    ("the last member runs", "a: each list, parallel 1", "accept\nok a[1]\ntake a[2]"),
    ("a member is overdue", "a: each list, parallel 1, deadline 5s", "accept\ntake a[1]\nkept a[1]\nnext"),
    ("members paused", "a: each list, parallel 1", "accept\npause"),
    ("members draining", "a: each list", "accept\ntake a[1]\ncancel"),
    ("members held", "a: each list, parallel 1\non_failure hold", "accept\nfinal a[1] x"),
    ("items rolled back", "a: each list, parallel 1", "accept\nfinal a[1] x"),
    ("the rollback of an item failed", "a: each list, parallel 1", "accept\nfinal a[1] x\nfinal ~a[1] x"),
];

/// Every kind of command about a step with members, or one that waits for a signal.
fn commands_of_parts(world: &World) -> Vec<(&'static str, Command)> {
    let attempt = |key: ActKey| {
        let number = world.task.act(key).map_or(1, |act| act.attempt.max(1));
        Attempt { key, number, started_at: None }
    };
    let ok = |key| Command::Report(Report { attempt: attempt(key), outcome: Outcome::Succeeded(None) });
    let failed = || Outcome::Failed(Failure::new("x", 65, false));
    let fail = |key| Command::Report(Report { attempt: attempt(key), outcome: failed() });
    let resolve = |resolution| Command::Resolve { step: 0, resolution, by: anna() };
    let signal = |keep| Command::Signal {
        name: windlass_core::Name::new("go").unwrap(),
        params: None,
        keep,
        by: anna(),
    };
    let list = windlass_core::Json::parse("{\"list\":[7]}").unwrap();
    let (a, undo) = (ActKey::forward(0), ActKey::rollback(0));
    vec![
        ("ok a", ok(a)),
        ("ok a[1]", ok(a.of_member(1))),
        ("fail a[1]", fail(a.of_member(1))),
        ("lose a[1]", Command::Lose(attempt(a.of_member(1)))),
        ("ok a[2]", ok(a.of_member(2))),
        ("ok a[3]", ok(a.of_member(3))),
        ("ok ~a", ok(undo)),
        ("ok ~a[1]", ok(undo.of_member(1))),
        ("wake a", Command::Wake(Wakeup::Act(a))),
        ("wake a[1]", Command::Wake(Wakeup::Act(a.of_member(1)))),
        ("wake deadline", Command::Wake(Wakeup::Deadline)),
        ("signal", signal(true)),
        ("signal now", signal(false)),
        ("cancel", Command::Cancel { by: anna() }),
        ("pause", Command::Pause { by: anna() }),
        ("stop", Command::Stop { by: anna() }),
        ("suspend", Command::Suspend { by: None }),
        ("continue", Command::Continue { by: None }),
        ("resume", Command::Resume { by: anna() }),
        ("resolve retry", resolve(Resolution::Retry(None))),
        ("resolve retry, another list", resolve(Resolution::Retry(Some(list)))),
        ("resolve skip", resolve(Resolution::Skip)),
        ("resolve done", resolve(Resolution::Done(None))),
        ("resolve rollback", resolve(Resolution::Rollback)),
        ("hold", Command::Hold { message: "x".into() }),
    ]
}

#[test]
fn every_command_in_every_kind_of_state_of_parts() {
    let mut table = String::new();
    for (name, settings, story) in PARTS {
        let world = play(&format!("flow a > b\ninput {{\"list\":[1,2]}}\n{settings}\n{story}"));
        let status = task_status(&world.task, &world.held_keys());
        writeln!(table, "{name} ({status:?})").unwrap();
        for (answer, commands) in answers(&world, commands_of_parts(&world)) {
            writeln!(table, "  {answer}: {}", commands.join(" · ")).unwrap();
        }
    }
    assert_snapshot!(table, @r#"
    delayed first (Pending)
      unknown: ok a · ok a[1] · fail a[1] · lose a[1] · ok a[2] · ok a[3] · ok ~a · ok ~a[1] · wake a[1]
      nothing is due: wake a · wake deadline
      no step of the task waits for a signal "go": look at the flow for its name: signal · signal now
      -> Cancelled: cancel
      -> Paused: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve retry · resolve retry, another list · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    awaits a signal (Pending)
      another attempt has taken over: ok a
      unknown: ok a[1] · fail a[1] · lose a[1] · ok a[2] · ok a[3] · ok ~a · ok ~a[1] · wake a[1]
      nothing is due: wake a · wake deadline
      -> Running: signal · signal now
      -> Cancelled: cancel
      -> Paused: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve retry · resolve retry, another list · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    awaits a signal, paused (Paused)
      another attempt has taken over: ok a
      unknown: ok a[1] · fail a[1] · lose a[1] · ok a[2] · ok a[3] · ok ~a · ok ~a[1] · wake a[1]
      nothing is due: wake a · wake deadline
      -> Paused: signal · signal now
      -> Cancelled: cancel
      nothing changes: pause · stop · suspend · continue
      -> Pending: resume
      nothing to resolve: resolve retry · resolve retry, another list · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    awaits a signal, too late (Pending)
      another attempt has taken over: ok a
      unknown: ok a[1] · fail a[1] · lose a[1] · ok a[2] · ok a[3] · ok ~a · ok ~a[1] · wake a[1]
      -> Failed: wake a
      nothing is due: wake deadline
      -> Running: signal · signal now
      -> Cancelled: cancel
      -> Paused: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve retry · resolve retry, another list · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    a signal is kept (Pending)
      -> Succeeded: ok a
      unknown: ok a[1] · fail a[1] · lose a[1] · ok a[2] · ok a[3] · ok ~a · ok ~a[1] · wake a[1]
      nothing is due: wake a · wake deadline
      -> Pending: signal
      no step waits for the signal "go" now: send it later, or have it kept: signal now
      -> Cancelled: cancel
      -> Paused: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve retry · resolve retry, another list · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    task too late (Pending)
      -> Running: ok a
      unknown: ok a[1] · fail a[1] · lose a[1] · ok a[2] · ok a[3] · ok ~a · ok ~a[1] · wake a[1]
      nothing is due: wake a
      -> Failed: wake deadline
      no step of the task waits for a signal "go": look at the flow for its name: signal · signal now
      -> Cancelled: cancel
      -> Paused: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve retry · resolve retry, another list · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    not started in time (Pending)
      -> Running: ok a
      unknown: ok a[1] · fail a[1] · lose a[1] · ok a[2] · ok a[3] · ok ~a · ok ~a[1] · wake a[1]
      -> RollingBack: wake a
      nothing is due: wake deadline
      no step of the task waits for a signal "go": look at the flow for its name: signal · signal now
      -> Cancelled: cancel
      -> Paused: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve retry · resolve retry, another list · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    started in time (Running)
      -> Running: ok a · wake a
      unknown: ok a[1] · fail a[1] · lose a[1] · ok a[2] · ok a[3] · ok ~a · ok ~a[1] · wake a[1]
      nothing is due: wake deadline
      no step of the task waits for a signal "go": look at the flow for its name: signal · signal now
      -> RollingBack: cancel
      -> Pausing: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve retry · resolve retry, another list · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    members ready (Pending)
      another attempt has taken over: ok a
      -> Running: ok a[1] · lose a[1]
      -> RollingBack: fail a[1]
      unknown: ok a[2] · ok a[3] · ok ~a · ok ~a[1]
      nothing is due: wake a · wake a[1] · wake deadline
      no step of the task waits for a signal "go": look at the flow for its name: signal · signal now
      -> Cancelled: cancel
      -> Paused: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve retry · resolve retry, another list · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    a member runs (Running)
      another attempt has taken over: ok a
      -> Running: ok a[1] · lose a[1]
      -> RollingBack: fail a[1] · cancel
      unknown: ok a[2] · ok a[3] · ok ~a · ok ~a[1]
      nothing is due: wake a · wake a[1] · wake deadline
      no step of the task waits for a signal "go": look at the flow for its name: signal · signal now
      -> Pausing: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve retry · resolve retry, another list · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    the last member runs (Running)
      another attempt has taken over: ok a
      this attempt was reported before: ok a[1] · fail a[1] · lose a[1]
      -> Running: ok a[2]
      unknown: ok a[3] · ok ~a · ok ~a[1]
      nothing is due: wake a · wake a[1] · wake deadline
      no step of the task waits for a signal "go": look at the flow for its name: signal · signal now
      -> RollingBack: cancel
      -> Pausing: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve retry · resolve retry, another list · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    a member is overdue (Running)
      another attempt has taken over: ok a
      -> Running: ok a[1]
      -> RollingBack: fail a[1] · lose a[1] · cancel
      unknown: ok a[2] · ok a[3] · ok ~a · ok ~a[1]
      nothing is due: wake a · wake a[1] · wake deadline
      no step of the task waits for a signal "go": look at the flow for its name: signal · signal now
      -> Pausing: pause · stop · suspend
      nothing changes: continue · resume
      nothing to resolve: resolve retry · resolve retry, another list · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    members paused (Paused)
      another attempt has taken over: ok a
      -> Paused: ok a[1] · fail a[1] · lose a[1]
      unknown: ok a[2] · ok a[3] · ok ~a · ok ~a[1]
      nothing is due: wake a · wake a[1] · wake deadline
      no step of the task waits for a signal "go": look at the flow for its name: signal · signal now
      -> Cancelled: cancel
      nothing changes: pause · stop · suspend · continue
      -> Pending: resume
      nothing to resolve: resolve retry · resolve retry, another list · resolve skip · resolve done · resolve rollback
      -> Stuck: hold
    members draining (RollingBack)
      another attempt has taken over: ok a · ok a[2]
      -> RollingBack: ok a[1] · fail a[1] · lose a[1]
      unknown: ok a[3] · ok ~a · ok ~a[1]
      nothing is due: wake a · wake a[1] · wake deadline
      no step of the task waits for a signal "go": look at the flow for its name: signal · signal now
      nothing changes: cancel · continue · resume
      -> Pausing: pause · stop · suspend
      nothing to resolve: resolve retry · resolve retry, another list · resolve skip · resolve done
      rolling back already: resolve rollback
      -> Stuck: hold
    members held (Stuck)
      this attempt was reported before: ok a · ok a[1] · fail a[1] · lose a[1]
      unknown: ok a[2] · ok a[3] · ok ~a · ok ~a[1]
      nothing is due: wake a · wake a[1] · wake deadline
      no step of the task waits for a signal "go": look at the flow for its name: signal · signal now
      -> RollingBack: cancel · resolve rollback
      -> Stuck: pause · stop · suspend · hold
      nothing changes: continue · resume
      -> Running: resolve retry · resolve skip · resolve done
      step "a" has begun with the elements of `list`: give it other parameters, not another list: resolve retry, another list
    items rolled back (RollingBack)
      this attempt was reported before: ok a · ok a[1] · fail a[1] · lose a[1]
      unknown: ok a[2] · ok a[3]
      another attempt has taken over: ok ~a
      -> RolledBack: ok ~a[1]
      nothing is due: wake a · wake a[1] · wake deadline
      no step of the task waits for a signal "go": look at the flow for its name: signal · signal now
      nothing changes: cancel · continue · resume
      -> Paused: pause · stop · suspend
      nothing to resolve: resolve retry · resolve retry, another list · resolve skip · resolve done
      rolling back already: resolve rollback
      -> Stuck: hold
    the rollback of an item failed (Stuck)
      this attempt was reported before: ok a · ok a[1] · fail a[1] · lose a[1] · ok ~a · ok ~a[1]
      unknown: ok a[2] · ok a[3]
      nothing is due: wake a · wake a[1] · wake deadline
      no step of the task waits for a signal "go": look at the flow for its name: signal · signal now
      nothing changes: cancel · continue · resume
      -> Stuck: pause · stop · suspend · hold
      -> RollingBack: resolve retry
      step "a" has begun with the elements of `list`: give it other parameters, not another list: resolve retry, another list
      -> RolledBack: resolve skip · resolve done
      rolling back already: resolve rollback
    "#);
}
