//! The engine's encoding: a task of three steps with one done, and the events of one change.

use std::{error::Error, hint::black_box};

use windlass_core::{Event, Retry, Task, apply};
use windlass_store::stored;

use crate::{
    Case, Part,
    line::{done, flow, success, task, with_worker},
};

const WARM: usize = 100;
const MEASURED: usize = 1_000;

/// The cases of this file.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name, run| Case { name, operations: MEASURED, run };
    vec![
        case("engine: encode a task", |part| {
            let (task, _) = sample()?;
            repeat(part, || {
                black_box((
                    stored::write_input(black_box(&task.input)),
                    stored::write_state(black_box(&task.state)),
                ));
                Ok(())
            })
        }),
        case("engine: decode a task", |part| {
            let (task, _) = sample()?;
            let (input, state) = (stored::write_input(&task.input), stored::write_state(&task.state));
            repeat(part, || {
                let input = stored::read_input(black_box(&input), task.input.params.as_str())?;
                black_box((input, stored::read_state(black_box(&state))?));
                Ok(())
            })
        }),
        case("engine: encode the events of a change", |part| {
            let (_, events) = sample()?;
            repeat(part, || {
                black_box(stored::write_events(black_box(&events)));
                Ok(())
            })
        }),
        case("engine: decode the events of a change", |part| {
            let (_, events) = sample()?;
            let bytes = stored::write_events(&events);
            repeat(part, || {
                black_box(stored::read_events(black_box(&bytes))?);
                Ok(())
            })
        }),
    ]
}

/// A task whose first step is done, and what happened when it was.
fn sample() -> Result<(Task, Vec<Event>), Box<dyn Error>> {
    let accepted = done(&task(&flow(Retry::default())?, 1), 0)?;
    let transition = apply(&accepted, &success(0), &with_worker(0))?;
    Ok((transition.task, transition.events))
}

fn repeat(
    part: Part,
    mut operation: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    (0..part.rounds(WARM, MEASURED)).try_for_each(|_| operation())
}
