//! The commands of a module: each runs for a while and has an external effect.

use std::rc::Rc;

use windlass_core::{Failure, Millis, Outcome, TIMEOUT_CODE};
use windlass_engine::{HandedOut, Progress, Said, effect_key};

use super::{nature, worker::Worker};
use crate::{
    flows::{LONG_MS, result_of},
    judge::Seen,
};

/// The course of one run.
enum Course {
    Ends(Outcome),
    /// Never ends by itself.
    Hangs,
    /// Kills its worker.
    Kills,
}

/// The worker's report about a command that was stopped.
pub(super) fn stopped() -> Outcome {
    Outcome::Failed(Failure::new("stopped", 143, true))
}

/// The worker's report about a command that it stopped because it could not renew its lease.
pub(super) fn interrupted() -> Outcome {
    Outcome::RetryLater { delay: Some(Millis(0)), message: "lost its server".into() }
}

/// One run of a command.
pub(super) async fn run(worker: Rc<Worker>, attempt: HandedOut, number: u64) {
    let world = worker.world.clone();
    let timeout = attempt.task.action(attempt.id.key).map_or(0, |action| action.timeout.0);
    let course = match course(&worker, number) {
        // It would run longer than the world.
        Course::Hangs if timeout == LONG_MS => Course::Ends(stopped()),
        course => course,
    };
    let length = match course {
        Course::Hangs => u64::MAX,
        _ if world.is_calm() => world.within(0..=50),
        _ => world.within(0..=2000),
    };
    let whole = length.min(timeout);
    let effect_at = world.within(0..=whole);
    world.sleep(effect_at).await;
    let key = effect_key(&attempt.task, attempt.id.key);
    world.see(Seen::Effect { id: attempt.id, key });
    if world.chance(100) {
        let progress = Progress { value: Some(0.5), message: None };
        worker.say(&attempt.token, attempt.id, Said::Running(Some(progress)));
    }
    world.sleep(whole - effect_at).await;
    if length > timeout {
        world.count("run: timed out");
        let failure = Failure::new("timed out", TIMEOUT_CODE, true);
        return worker.ended(&attempt.token, Said::Ended(Outcome::Failed(failure)));
    }
    match course {
        Course::Ends(outcome) => worker.ended(&attempt.token, Said::Ended(outcome)),
        Course::Hangs => {}
        Course::Kills => {
            world.count("run: killed its worker");
            let index = worker.index;
            world.after(0, "poison", move |world| nature::kill_worker(world, index));
        }
    }
}

fn course(worker: &Worker, number: u64) -> Course {
    let world = &worker.world;
    let outcomes = &world.config.outcomes;
    let kinds = [outcomes.fails, outcomes.fails_for_good, outcomes.later, outcomes.hangs, outcomes.kills];
    let mut drawn = world.below(1000);
    let mut kind = None;
    for (index, rate) in kinds.into_iter().enumerate().filter(|_| !world.is_calm()) {
        if drawn < rate {
            kind = Some(index);
            break;
        }
        drawn -= rate;
    }
    let (name, course) = match kind {
        Some(0) => ("run: fails", Course::Ends(Outcome::Failed(Failure::new("no", 1, true)))),
        Some(1) => ("run: fails for good", Course::Ends(Outcome::Failed(Failure::new("never", 2, false)))),
        Some(2) => {
            let delay = world.chance(500).then(|| Millis(world.below(3000)));
            ("run: not now", Course::Ends(Outcome::RetryLater { delay, message: "later".into() }))
        }
        Some(3) => ("run: hangs", Course::Hangs),
        Some(_) => ("run: kills its worker", Course::Kills),
        None => {
            let result = world.chance(700).then(|| result_of(number));
            ("run: succeeds", Course::Ends(Outcome::Succeeded(result.flatten())))
        }
    };
    world.count(name);
    course
}
