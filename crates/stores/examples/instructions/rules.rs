//! The core: one transition of each common kind, of a task of three steps.

use std::{error::Error, hint::black_box};

use windlass_core::{
    Backoff, Command, Context, Failure, Millis, Outcome, Report, Retry, Task, Transition, apply,
};

use crate::{
    Case, Part,
    line::{NOW, attempt, done, flow, success, task, with_worker},
};

const WARM: usize = 100;
const MEASURED: usize = 1_000;

/// The cases of this file.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name, run| Case { name, operations: MEASURED, run };
    vec![
        case("core: accept", |part| {
            repeat(
                part,
                &unaccepted(Retry::default())?,
                &Command::Accept { done: Vec::new(), overrides_unique: false, by: None },
                &Context::at(NOW),
            )
        }),
        case("core: success in the middle", |part| {
            let task = done(&unaccepted(Retry::default())?, 1)?;
            repeat(part, &task, &success(1), &with_worker(1))
        }),
        case("core: success of the last step", |part| {
            let task = done(&unaccepted(Retry::default())?, 2)?;
            repeat(part, &task, &success(2), &with_worker(2))
        }),
        case("core: failure, to be tried again", |part| {
            let seconds = Millis::from_secs;
            let retry = Retry { max: 3, backoff: Backoff::Exponential, base: seconds(1), cap: seconds(60) };
            repeat(part, &done(&unaccepted(retry)?, 1)?, &failure(), &with_worker(1))
        }),
        case("core: failure, and back", |part| {
            repeat(part, &done(&unaccepted(Retry::default())?, 1)?, &failure(), &with_worker(1))
        }),
        case("core: worker lost", |part| {
            let task = done(&unaccepted(Retry::default())?, 1)?;
            repeat(part, &task, &Command::Lose(attempt(1)), &with_worker(1))
        }),
    ]
}

fn unaccepted(retry: Retry) -> Result<Task, Box<dyn Error>> {
    Ok(task(&flow(retry)?, 1))
}

/// A worker failed at the step in the middle.
fn failure() -> Command {
    let failure = Failure::new("no space left on device", 1, true);
    Command::Report(Report { attempt: attempt(1), outcome: Outcome::Failed(failure) })
}

/// Applies the command to the same task again and again.
fn repeat(part: Part, task: &Task, command: &Command, context: &Context) -> Result<(), Box<dyn Error>> {
    for _ in 0..part.rounds(WARM, MEASURED) {
        let transition: Transition = apply(black_box(task), black_box(command), black_box(context))?;
        black_box(transition);
    }
    Ok(())
}
