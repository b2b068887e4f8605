//! Stories of rollouts.

use std::collections::BTreeMap;

use super::*;
use crate::Json;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn definition(rate: RolloutRate) -> RolloutDefinition {
    RolloutDefinition {
        flow: name("update"),
        params: Json::empty(),
        priority: 0,
        selector: BTreeMap::from([("site".to_owned(), "nord".to_owned())]),
        rate,
        max_running: 1_000,
        abort: Vec::new(),
        on_abort: OnAbort::Stop,
        group_by: Some("model".into()),
    }
}

fn constant(per_minute: u32) -> RolloutRate {
    RolloutRate::Constant { per_minute }
}

fn rollout(definition: RolloutDefinition) -> Rollout {
    assert_eq!(definition.check(), Ok(()));
    Rollout::new(name("r"), (definition, 1), [(None, 10)], None, Timestamp(0))
}

/// Starts this number of devices, whatever the rate says about the number.
fn start(rollout: &Rollout, count: usize, now: i64) -> Rollout {
    let first = usize::try_from(rollout.total().started).unwrap();
    let device = |index: usize| (name(&format!("d{index:06}")), TaskId(index as u128 + 1), None);
    let devices: Vec<_> = (first..first + count).map(device).collect();
    let cursor = devices.last().unwrap().0.clone();
    rollout.apply(RolloutCommand::Start { devices, cursor }, Timestamp(now)).unwrap()
}

/// All open devices end like this.
fn end(rollout: &Rollout, end: DeviceEnd) -> Rollout {
    rollout.settle(&vec![DeviceProgress::Ended(end); rollout.open.len()]).0
}

fn decide(rollout: &Rollout, now: i64) -> RolloutDecision {
    rollout.decide(&RolloutCounts::default(), Timestamp(now))
}

/// The devices that start in ten minutes, each with its time, when a round is made each `every` milliseconds and tasks end
/// before the next one.
fn started(rate: RolloutRate, every: usize) -> Vec<i64> {
    let (mut rollout, mut times) = (rollout(definition(rate)), Vec::new());
    for now in (0..600_000).step_by(every) {
        if let RolloutDecision::Start(most) = decide(&rollout, now) {
            rollout = end(&start(&rollout, most, now), DeviceEnd::Succeeded);
            times.extend(std::iter::repeat_n(now, most));
        }
    }
    times
}

/// The most devices that start within a minute, wherever it begins.
fn most_in_a_minute(times: &[i64]) -> usize {
    let before = |end: i64| times.partition_point(|time| *time < end);
    times.iter().map(|begin| before(begin + 60_000) - before(*begin)).max().unwrap_or(0)
}

#[test]
fn in_no_minute_start_more_devices_than_the_rate_says_and_hardly_fewer() {
    for per_minute in [1, 2, 7, 59, 60, 61, 100, 119, 600, 1_000, 6_000] {
        for every in [10, 250, 1_000] {
            let times = started(constant(per_minute), every);
            let most = most_in_a_minute(&times);
            assert!(most <= per_minute as usize, "{per_minute} per minute, and {most} started in one");
            // A round that is a little late makes the next devices late: with a second between rounds, up to half are missing.
            if every == 10 {
                assert!(times.len() * 100 >= 10 * per_minute as usize * 95, "{per_minute}: {}", times.len());
            }
        }
    }
}

#[test]
fn an_exponential_rate_grows_with_successes_up_to_its_maximum() {
    let rate = RolloutRate::Exponential { base: 10, factor_percent: 150, per_minute_max: 50, after: 4 };
    let rates: Vec<u32> = (0..30).map(|succeeded| rate.per_minute(succeeded)).collect();
    assert_eq!(rates[..9], [10, 10, 10, 10, 15, 15, 15, 15, 22]);
    assert_eq!([rates[12], rates[16], rates[29]], [33, 50, 50]);
    // Failed devices do not count.
    let mut failing = rollout(definition(rate));
    for round in 0..10 {
        let now = round * 60_000;
        failing = end(&start(&failing, 1, now), DeviceEnd::Failed);
    }
    assert_eq!(failing.per_minute(), 10);
    // A rate of 1 that grows by a hundredth grows too, however many succeed.
    let slow = RolloutRate::Exponential { base: 1, factor_percent: 101, per_minute_max: 60_000, after: 1 };
    assert_eq!((slow.per_minute(69), slow.per_minute(70)), (1, 2));
    assert_eq!(slow.per_minute(u64::MAX), 60_000);
}

#[test]
fn no_more_tasks_run_than_allowed() {
    let narrow = rollout(RolloutDefinition { max_running: 3, ..definition(constant(600)) });
    assert_eq!(decide(&narrow, 0), RolloutDecision::Start(3));
    let full = start(&narrow, 3, 0);
    assert_eq!(decide(&full, 60_000), RolloutDecision::Wait(None));
    let (one_less, _) = full.settle(&[
        DeviceProgress::Running,
        DeviceProgress::Ended(DeviceEnd::Succeeded),
        DeviceProgress::Failing(DeviceEnd::Failed),
    ]);
    assert_eq!(decide(&one_less, 60_000), RolloutDecision::Start(1));
    assert_eq!(one_less.open.len(), 2, "one that fails is open until it has ended");
}

#[test]
fn a_device_behind_the_portion_waits_for_its_time() {
    let slow = start(&rollout(definition(constant(6))), 1, 0);
    assert_eq!(decide(&slow, 9_999), RolloutDecision::Wait(Some(Timestamp(10_000))));
    assert_eq!(decide(&slow, 10_000), RolloutDecision::Start(1));
    let early = RolloutCommand::Start { devices: Vec::new(), cursor: name("d9") };
    assert_eq!(slow.apply(early, Timestamp(9_999)), Err(RolloutRejection::OtherStage));
}

/// What is decided when this many devices have ended like this, with one threshold.
fn at_threshold(threshold: AbortThreshold, ends: &[(DeviceEnd, usize)]) -> bool {
    let mut counted = rollout(RolloutDefinition { abort: vec![threshold], ..definition(constant(60_000)) });
    let mut now = 0;
    for (kind, count) in ends.iter().filter(|(_, count)| *count > 0) {
        counted = end(&start(&counted, *count, now), *kind);
        now += 60_000;
    }
    match decide(&counted, now) {
        RolloutDecision::Abort(reached) => reached == threshold,
        decision => {
            assert!(matches!(decision, RolloutDecision::Start(_)), "{decision:?}");
            false
        }
    }
}

#[test]
fn thresholds_hold_at_their_edges() {
    use DeviceEnd::{Cancelled, Failed, Gone, Refused, Succeeded, TimedOut};
    let percent =
        |of, percent, at_least| AbortThreshold { of, limit: AbortLimit::Percent(percent), at_least };
    let count = |of, count, at_least| AbortThreshold { of, limit: AbortLimit::Count(count), at_least };
    let tenth = percent(AbortOf::Failed, 10, 10);
    assert!(!at_threshold(tenth, &[(Failed, 9)]), "fewer than ten have ended");
    assert!(at_threshold(tenth, &[(Succeeded, 9), (Failed, 1)]));
    assert!(!at_threshold(tenth, &[(Succeeded, 10), (Failed, 1)]), "1 of 11 is less than a tenth");
    assert!(at_threshold(tenth, &[(Succeeded, 9), (Refused, 1)]));
    assert!(!at_threshold(tenth, &[(Succeeded, 9), (TimedOut, 1)]));
    let all = percent(AbortOf::Any, 100, 1);
    assert!(at_threshold(all, &[(Cancelled, 3), (TimedOut, 2), (Failed, 1)]));
    assert!(!at_threshold(all, &[(Cancelled, 3), (Succeeded, 1)]));
    assert!(!at_threshold(all, &[(Gone, 3)]), "nobody knows how they ended");
    assert!(!at_threshold(percent(AbortOf::Failed, 1, 0), &[(Succeeded, 3)]), "nothing has failed");
    assert!(!at_threshold(count(AbortOf::TimedOut, 2, 0), &[(TimedOut, 1), (Failed, 5)]));
    assert!(at_threshold(count(AbortOf::TimedOut, 2, 0), &[(TimedOut, 2)]));
    assert!(!at_threshold(count(AbortOf::TimedOut, 2, 4), &[(TimedOut, 3)]));
}

#[test]
fn a_device_that_will_fail_counts_for_thresholds_before_its_end() {
    let threshold = AbortThreshold { of: AbortOf::Failed, limit: AbortLimit::Count(2), at_least: 0 };
    let begun =
        start(&rollout(RolloutDefinition { abort: vec![threshold], ..definition(constant(600)) }), 2, 0);
    let fails = DeviceProgress::Failing(DeviceEnd::Failed);
    for (progress, aborts) in [
        ([fails, fails], true),
        ([fails, DeviceProgress::Running], false),
        ([fails, DeviceProgress::Failing(DeviceEnd::Cancelled)], false),
    ] {
        let (settled, failing) = begun.settle(&progress);
        assert_eq!(settled, begun, "nothing has ended");
        let decision = settled.decide(&failing, Timestamp(0));
        assert_eq!(matches!(decision, RolloutDecision::Abort(_)), aborts, "{progress:?}");
    }
}

#[test]
fn a_paused_rollout_starts_nothing_counts_and_aborts() {
    let threshold = AbortThreshold { of: AbortOf::Any, limit: AbortLimit::Count(1), at_least: 0 };
    let begun = rollout(RolloutDefinition { abort: vec![threshold], ..definition(constant(600)) });
    let begun = start(&begun, 2, 0);
    let pause = RolloutCommand::Pause { by: None, reason: Some("lunch".into()) };
    let paused = begun.apply(pause.clone(), Timestamp(1)).unwrap();
    assert_eq!(paused.apply(pause, Timestamp(2)), Err(RolloutRejection::Paused));
    assert_eq!(decide(&paused, 600_000), RolloutDecision::Wait(None));
    let counted = end(&paused, DeviceEnd::Succeeded);
    assert_eq!((counted.total().succeeded, counted.stage), (2, RolloutStage::Paused));
    assert_eq!(decide(&end(&paused, DeviceEnd::Failed), 1), RolloutDecision::Abort(threshold));
    let resumed = counted.apply(RolloutCommand::Resume, Timestamp(600_000)).unwrap();
    assert_eq!(decide(&resumed, 600_000), RolloutDecision::Start(10), "no devices of the pause are added");
    assert_eq!(resumed.apply(RolloutCommand::Resume, Timestamp(0)), Err(RolloutRejection::NotPaused));
}

#[test]
fn an_abort_ends_what_runs_and_then_rolls_back_what_succeeded() {
    let begun =
        start(&rollout(RolloutDefinition { on_abort: OnAbort::RollBack, ..definition(constant(600)) }), 3, 0);
    let (begun, _) = begun.settle(&[
        DeviceProgress::Ended(DeviceEnd::Succeeded),
        DeviceProgress::Running,
        DeviceProgress::Running,
    ]);
    let abort = RolloutCommand::Abort { by: None, reason: None };
    let aborted = begun.apply(abort.clone(), Timestamp(5)).unwrap();
    assert_eq!(decide(&aborted, 600_000), RolloutDecision::Wait(None), "two tasks are cancelled");
    for command in [abort, RolloutCommand::Resume, RolloutCommand::Pause { by: None, reason: None }] {
        assert_eq!(aborted.apply(command, Timestamp(6)), Err(RolloutRejection::Aborting));
    }
    let starting = RolloutCommand::Start { devices: Vec::new(), cursor: name("d9") };
    assert_eq!(aborted.apply(starting, Timestamp(600_000)), Err(RolloutRejection::OtherStage));
    let (quiet, _) = aborted
        .settle(&[DeviceProgress::Ended(DeviceEnd::Succeeded), DeviceProgress::Ended(DeviceEnd::NotStarted)]);
    assert_eq!((quiet.total().started, quiet.total().succeeded), (2, 2));
    assert_eq!(decide(&quiet, 10), RolloutDecision::Finish);
    let rolling = quiet.apply(RolloutCommand::Finish, Timestamp(10)).unwrap();
    assert_eq!(
        (rolling.stage, decide(&rolling, 10)),
        (RolloutStage::RollingBack, RolloutDecision::RollBack(1_000))
    );
    let page = |id: u128, before| RolloutCommand::RollBack {
        devices: vec![(name("d000000"), TaskId(id), None)],
        before,
    };
    let rolling = rolling.apply(page(2, Some(TaskId(2))), Timestamp(11)).unwrap();
    assert_eq!(decide(&rolling, 11), RolloutDecision::RollBack(999));
    let rolling = rolling.apply(page(1, None), Timestamp(12)).unwrap();
    assert_eq!(decide(&rolling, 12), RolloutDecision::Wait(None), "all are listed");
    let (done, _) = rolling.settle(&[
        DeviceProgress::Ended(DeviceEnd::RolledBack),
        DeviceProgress::Ended(DeviceEnd::RollbackStuck),
    ]);
    let ended = done.apply(RolloutCommand::Finish, Timestamp(20)).unwrap();
    assert_eq!((ended.stage, ended.ended_at), (RolloutStage::Ended, Some(Timestamp(20))));
    assert_eq!((ended.total().rolled_back, ended.total().rollback_stuck, ended.total().started), (1, 1, 2));
    assert_eq!(decide(&ended, 600_000), RolloutDecision::Wait(None));
    let abort = RolloutCommand::Abort { by: None, reason: None };
    assert_eq!(ended.apply(abort, Timestamp(30)), Err(RolloutRejection::Ended));
}

#[test]
fn an_abort_of_a_rollout_that_only_stops_ends_without_a_rollback() {
    let begun = end(&start(&rollout(definition(constant(600))), 3, 0), DeviceEnd::Succeeded);
    let aborted = begun.apply(RolloutCommand::Abort { by: None, reason: None }, Timestamp(5)).unwrap();
    let ended = aborted.apply(RolloutCommand::Finish, Timestamp(6)).unwrap();
    assert_eq!(ended.stage, RolloutStage::Ended);
}

#[test]
fn devices_are_counted_by_group_as_far_as_there_is_room() {
    let many = (0..100).map(|index| (Some(format!("g{index:02}").into()), 2));
    let groups = Rollout::new(name("r"), (definition(constant(600)), 1), many, None, Timestamp(0));
    assert_eq!(groups.groups.len(), ROLLOUT_GROUPS_MAX);
    assert_eq!(groups.total().matched, 200);
    assert_eq!(groups.groups[0].counts.matched, 74, "those beyond the maximum");
    let device = |device: &str, group: Option<&str>| (name(device), TaskId(1), group.map(Into::into));
    let devices = vec![device("a", Some("g05")), device("b", Some("new")), device("c", None)];
    let command = RolloutCommand::Start { devices, cursor: name("c") };
    let begun = end(&groups.apply(command, Timestamp(0)).unwrap(), DeviceEnd::Failed);
    assert_eq!((begun.groups[6].counts.failed, begun.groups[0].counts.failed), (1, 2));
}

#[test]
fn definitions_that_cannot_work_are_refused() {
    let good = definition(constant(1));
    let exponential = |base, factor_percent, per_minute_max, after| RolloutDefinition {
        rate: RolloutRate::Exponential { base, factor_percent, per_minute_max, after },
        ..good.clone()
    };
    let threshold = |limit| RolloutDefinition {
        abort: vec![AbortThreshold { of: AbortOf::Any, limit, at_least: 0 }],
        ..good.clone()
    };
    let cases = [
        (definition(constant(0)), "`per_minute` of the rate is 0: use 1 to 60000"),
        (definition(constant(60_001)), "`per_minute` of the rate is 60001: use 1 to 60000"),
        (exponential(0, 150, 10, 1), "`base` of the rate is 0: use 1 to 60000"),
        (
            exponential(20, 150, 10, 1),
            "the rate begins with 20 per minute, and `per_minute_max` is 10: use a `base` of at most 10",
        ),
        (
            exponential(1, 100, 10, 1),
            "`factor` of the rate must be from 1.01 to 10: use `rate: { per_minute: N }` for a constant rate",
        ),
        (
            exponential(1, 150, 10, 0),
            "`after` of the rate is 0: write after how many succeeded devices the rate grows",
        ),
        (RolloutDefinition { max_running: 0, ..good.clone() }, "`max_running` is 0: use 1 to 1000"),
        (RolloutDefinition { max_running: 1_001, ..good.clone() }, "`max_running` is 1001: use 1 to 1000"),
        (threshold(AbortLimit::Percent(101)), "the abort threshold 1 has `percent: 101`: use 1 to 100"),
        (
            threshold(AbortLimit::Count(0)),
            "the abort threshold 1 has `count: 0`, so the rollout would never begin: use 1 or more",
        ),
    ];
    for (definition, message) in cases {
        assert_eq!(definition.check().unwrap_err().to_string(), message);
    }
}
