//! Stories of triggers.

use std::collections::BTreeMap;

use super::*;
use crate::Json;

/// An instant each ten seconds.
struct Tens;

impl Instants for Tens {
    fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        Some(Timestamp((time.0.div_euclid(10_000) + 1) * 10_000))
    }

    fn last_until(&self, time: Timestamp) -> Option<Timestamp> {
        Some(Timestamp(time.0.div_euclid(10_000) * 10_000))
    }
}

fn trigger(catch_up: CatchUp, overlap: Overlap) -> Trigger {
    let timing = Timing::Every { interval: Millis(10_000) };
    let schedule = TriggerSchedule { timing, jitter: Millis(0), catch_up, overlap };
    let flow = TriggeredFlow {
        flow: Name::new("f").unwrap(),
        params: Json::empty(),
        map: BTreeMap::new(),
        labels: BTreeMap::new(),
        priority: 0,
    };
    let definition =
        TriggerDefinition { source: TriggerSource::Schedule(schedule), flows: vec![flow], classic: false };
    assert_eq!(definition.check(), Ok(()));
    Trigger::new(Name::new("t").unwrap(), definition, Timestamp(0))
}

fn fire(instant: i64, cancels: bool, missed: u64) -> Decision {
    Decision::Fire(Firing { instant: Timestamp(instant), cancels, missed })
}

/// Does what is to be done, as the engine does, until nothing is to be done. Returns the decisions.
fn run(trigger: &mut Trigger, runs: bool, now: i64) -> Vec<Decision> {
    let mut decisions = Vec::new();
    loop {
        let decision = trigger.decide(&Tens, runs, Timestamp(now));
        let command = match &decision {
            Decision::Wait(_) => return decisions,
            Decision::Pass(missed) => TriggerCommand::Pass(missed.until),
            Decision::Skip(instant) => TriggerCommand::Skip(*instant),
            Decision::Queue(instant) => TriggerCommand::Queue(*instant),
            Decision::Fire(firing) => {
                TriggerCommand::Fired { instant: firing.instant, tasks: vec![TaskId(7)] }
            }
        };
        let next = trigger.apply(&command, Timestamp(now)).expect("a decision can be applied");
        assert!(next.version > trigger.version);
        assert!(trigger.apply(&command, Timestamp(now)).is_ok(), "applying is pure");
        if !matches!(decision, Decision::Fire(_)) || trigger.waiting == next.waiting {
            assert_eq!(next.apply(&command, Timestamp(now)), Err(TriggerRejection::Decided), "{decision:?}");
        }
        *trigger = next;
        decisions.push(decision);
    }
}

#[test]
fn each_instant_fires_once_and_in_order() {
    let mut trigger = trigger(CatchUp::None, Overlap::Allow);
    assert_eq!(trigger.decide(&Tens, false, Timestamp(9_999)), Decision::Wait(Some(Timestamp(10_000))));
    assert_eq!(run(&mut trigger, false, 10_000), [fire(10_000, false, 0)]);
    assert_eq!(run(&mut trigger, false, 10_000), []);
    // A leader that comes within a minute fires what its predecessor left.
    assert_eq!(run(&mut trigger, false, 39_000), [fire(20_000, false, 0), fire(30_000, false, 0)]);
    assert_eq!(trigger.fired, Some(Timestamp(30_000)));
    assert_eq!(run(&mut trigger, false, 5_000), [], "a clock that is set back fires nothing again");
}

#[test]
fn what_was_missed_is_counted_once_and_not_fired() {
    let mut trigger = trigger(CatchUp::None, Overlap::Allow);
    let decisions = run(&mut trigger, false, 600_000);
    // 540 s and later are in time.
    let missed = Decision::Pass(Missed { until: Timestamp(530_000), count: 53 });
    assert_eq!(decisions[0], missed);
    assert_eq!(decisions.len(), 1 + 7);
    assert_eq!(decisions[1], fire(540_000, false, 0));
}

#[test]
fn a_long_gap_is_counted_to_a_limit() {
    let mut trigger = trigger(CatchUp::None, Overlap::Allow);
    let decisions = run(&mut trigger, false, 10_000_000_000);
    let until = Timestamp(9_999_930_000);
    assert_eq!(decisions[0], Decision::Pass(Missed { until, count: MISSED_COUNTED_MAX }));
}

#[test]
fn one_missed_instant_is_caught_up_within_the_window() {
    let within = Millis::from_secs(3600);
    let mut trigger = trigger(CatchUp::One { within }, Overlap::Allow);
    assert_eq!(run(&mut trigger, false, 600_000)[0], fire(530_000, false, 52));
    // Instants within a minute are not missed: one is caught up of the others, and not per gap of a round.
    assert_eq!(run(&mut trigger, false, 600_000), []);
    let late = 600_000 + 2 * 3_600_000;
    assert_eq!(run(&mut trigger, false, late)[0], fire(late - 70_000, false, 712));

    let mut trigger = self::trigger(CatchUp::One { within: Millis(30_000) }, Overlap::Allow);
    let missed = Decision::Pass(Missed { until: Timestamp(530_000), count: 53 });
    assert_eq!(run(&mut trigger, false, 600_000)[0], missed, "the newest one is too old");
}

#[test]
fn all_missed_instants_are_caught_up_within_the_window() {
    let mut trigger = trigger(CatchUp::All { within: Millis(300_000) }, Overlap::Allow);
    let decisions = run(&mut trigger, false, 600_000);
    assert_eq!(decisions[0], Decision::Pass(Missed { until: Timestamp(290_000), count: 29 }));
    assert_eq!(decisions[1], fire(300_000, false, 0));
    assert_eq!(decisions.len(), 1 + 31);
}

#[test]
fn overlapping_instants_are_skipped_queued_or_cancel_the_others() {
    let mut skips = trigger(CatchUp::None, Overlap::Skip);
    assert_eq!(run(&mut skips, false, 10_000), [fire(10_000, false, 0)]);
    assert_eq!(run(&mut skips, true, 20_000), [Decision::Skip(Timestamp(20_000))]);
    assert_eq!(run(&mut skips, false, 30_000), [fire(30_000, false, 0)]);

    let mut queues = trigger(CatchUp::None, Overlap::Queue);
    assert_eq!(run(&mut queues, false, 10_000), [fire(10_000, false, 0)]);
    let queued = [Decision::Queue(Timestamp(20_000)), Decision::Queue(Timestamp(30_000))];
    assert_eq!(run(&mut queues, true, 30_000), queued);
    let decision = queues.decide(&Tens, false, Timestamp(31_000));
    assert_eq!(decision, fire(20_000, false, 0), "the oldest one first, when the tasks have ended");

    let mut cancels = trigger(CatchUp::None, Overlap::CancelOther);
    assert_eq!(run(&mut cancels, false, 10_000), [fire(10_000, false, 0)]);
    assert_eq!(cancels.started, [TaskId(7)]);
    assert_eq!(run(&mut cancels, true, 20_000), [fire(20_000, true, 0)]);
}

#[test]
fn a_queue_has_a_limit() {
    let mut trigger = trigger(CatchUp::All { within: Millis::from_secs(36_000) }, Overlap::Queue);
    let decisions = run(&mut trigger, true, 10_000 * (WAITING_MAX as i64 + 5));
    assert_eq!(trigger.waiting.len(), WAITING_MAX);
    assert_eq!(decisions.iter().filter(|decision| matches!(decision, Decision::Skip(_))).count(), 5);
}

#[test]
fn a_paused_trigger_does_not_fire_and_does_not_catch_up_on_its_pause() {
    let mut trigger = trigger(CatchUp::All { within: Millis::from_secs(3600) }, Overlap::Allow);
    let pause = TriggerCommand::Pause { by: None };
    trigger = trigger.apply(&pause, Timestamp(5_000)).unwrap();
    assert_eq!(trigger.apply(&pause, Timestamp(5_000)), Err(TriggerRejection::Paused));
    assert_eq!(run(&mut trigger, false, 25_000), []);
    trigger = trigger.apply(&TriggerCommand::Resume, Timestamp(25_000)).unwrap();
    assert_eq!(trigger.apply(&TriggerCommand::Resume, Timestamp(25_000)), Err(TriggerRejection::NotPaused));
    assert_eq!(run(&mut trigger, false, 30_000), [fire(30_000, false, 0)]);
}

#[test]
fn another_definition_with_the_same_schedule_goes_on_with_its_instants() {
    let mut trigger = trigger(CatchUp::None, Overlap::Allow);
    assert_eq!(run(&mut trigger, false, 10_000), [fire(10_000, false, 0)]);
    let mut definition = trigger.definition.clone();
    let same = TriggerCommand::Define(definition.clone());
    assert_eq!(trigger.apply(&same, Timestamp(15_000)).unwrap(), trigger, "nothing has changed");
    definition.flows[0].priority = 3;
    trigger = trigger.apply(&TriggerCommand::Define(definition.clone()), Timestamp(25_000)).unwrap();
    assert_eq!(run(&mut trigger, false, 25_000), [fire(20_000, false, 0)]);
    let TriggerSource::Schedule(schedule) = &mut definition.source else { panic!("it has a schedule") };
    schedule.timing = Timing::Every { interval: Millis(30_000) };
    trigger = trigger.apply(&TriggerCommand::Define(definition), Timestamp(45_000)).unwrap();
    assert_eq!((trigger.since, trigger.decided), (Timestamp(45_000), Timestamp(45_000)));
}

#[test]
fn jitter_delays_each_instant_by_its_own_time() {
    let mut trigger = trigger(CatchUp::None, Overlap::Allow);
    let TriggerSource::Schedule(schedule) = &mut trigger.definition.source else { panic!("a schedule") };
    schedule.jitter = Millis(5_000);
    let delays: Vec<_> = (1..=50).map(|n| trigger.jitter(Timestamp(n * 10_000)).0).collect();
    assert!(delays.iter().all(|delay| *delay <= 5_000));
    assert!(delays.iter().any(|delay| *delay < 1_500) && delays.iter().any(|delay| *delay > 3_500));
    let delay = trigger.jitter(Timestamp(10_000));
    let due = Timestamp(10_000) + delay;
    assert_eq!(trigger.decide(&Tens, false, Timestamp(due.0 - 1)), Decision::Wait(Some(due)));
    assert_eq!(trigger.decide(&Tens, false, due), fire(10_000, false, 0));
}

#[test]
fn definitions_that_cannot_work_are_refused() {
    let good = trigger(CatchUp::None, Overlap::Allow).definition;
    let with = |change: &dyn Fn(&mut TriggerDefinition)| {
        let mut definition = good.clone();
        change(&mut definition);
        definition.check().unwrap_err()
    };
    assert_eq!(with(&|it| it.flows.clear()), DefinitionFault::NoFlow);
    assert_eq!(with(&|it| it.flows = vec![it.flows[0].clone(); 17]), DefinitionFault::TooManyFlows(17));
    assert_eq!(with(&|it| it.classic = true), DefinitionFault::ClassicAnswer);
    let short = Signature::Standard { secret: Secret(vec![1; 10]) };
    assert_eq!(with(&|it| it.source = TriggerSource::Http(short.clone())), DefinitionFault::Secret(10));
    assert_eq!(format!("{short:?}"), "Standard { secret: Secret(…) }");
    let timing = Timing::Every { interval: Millis(10) };
    let schedule = TriggerSchedule {
        timing,
        jitter: Millis(0),
        catch_up: CatchUp::One { within: Millis(0) },
        overlap: Overlap::Allow,
    };
    let scheduled =
        |schedule: TriggerSchedule| with(&move |it| it.source = TriggerSource::Schedule(schedule.clone()));
    assert_eq!(scheduled(schedule.clone()), DefinitionFault::Interval(Millis(10)));
    let timing = Timing::Every { interval: Millis(1_000) };
    assert_eq!(scheduled(TriggerSchedule { timing, ..schedule }), DefinitionFault::Window(Millis(0)));
}
