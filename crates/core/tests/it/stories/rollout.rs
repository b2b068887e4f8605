//! A rollout that was aborted rolls back its tasks that succeeded.

use windlass_core::{Command, Ending, Name, Phase, Rejection};

use crate::story::play;

fn roll_back() -> Command {
    Command::RollBack { rollout: Name::new("r").expect("a name") }
}

#[test]
fn a_task_that_succeeded_is_rolled_back_in_reverse_order() {
    let world = play("flow a > b\naccept\nok a\nok b\nrollout r\nok ~b\nok ~a");
    assert_eq!(world.task.state.phase, Phase::Ended(Ending::RolledBack));
    assert_eq!(world.task.message().as_deref(), Some("the rollout r was aborted"));
    let events = play("flow a > b\naccept\nok a\nok b\nrollout r");
    assert_eq!(events.task.state.phase, Phase::Backward);
}

#[test]
fn a_rollback_that_fails_waits_for_an_operator() {
    let world = play("flow a\naccept\nok a\nrollout r\nfail ~a x");
    assert!(world.task.state.stuck.is_some());
}

#[test]
fn steps_that_did_not_run_and_on_error_steps_are_not_rolled_back() {
    let world = play("flow a > b\nb: no rollback\naccept\nok a\nok b\nrollout r\nok ~a");
    assert_eq!(world.task.state.phase, Phase::Ended(Ending::RolledBack));
}

#[test]
fn only_a_task_that_succeeded_is_rolled_back_and_only_if_it_can_be() {
    for (story, rejection) in [
        ("flow a\naccept", Rejection::NotEnded),
        ("flow a\naccept\nfail a x\nok ~a", Rejection::Ended),
        ("flow a\naccept\ncancel", Rejection::Ended),
        ("flow a\nbelow 1\naccept\nok a", Rejection::Ended),
        ("flow a > b\na: no rollback\nb: no rollback\naccept\nok a\nok b", Rejection::NothingToRollBack),
    ] {
        assert_eq!(play(story).apply(&roll_back()).err(), Some(rejection), "{story}");
    }
    let mut twice = play("flow a\naccept\nok a\nrollout r");
    let before = twice.task.clone();
    twice.apply(&roll_back()).expect("it rolls back already");
    assert_eq!(twice.task, before);
}
