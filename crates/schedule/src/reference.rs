//! The instants of expressions against a slow reference: a clock that is watched second after second.

use proptest::prelude::*;
use windlass_core::{Instants, Timestamp};

use crate::Cron;

/// Places of steps: zones, and days on which their clocks were or will be set.
const STEPS: [(&str, &str); 8] = [
    ("Europe/Berlin", "2026-03-29T00:00:00Z"),
    ("Europe/Berlin", "2026-10-25T00:00:00Z"),
    ("America/New_York", "2026-03-08T05:00:00Z"),
    ("America/New_York", "2026-11-01T04:00:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T14:00:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T14:00:00Z"),
    ("Africa/Casablanca", "2026-02-15T01:00:00Z"),
    ("Africa/Casablanca", "2026-03-22T01:00:00Z"),
];

/// Hours watched after each place.
const HOURS: i64 = 5;

/// A field `first/step`, `a,b` or `*`, and the numbers it lists.
fn field(most: i8) -> impl Strategy<Value = (String, Vec<i8>)> {
    prop_oneof![
        Just(("*".to_owned(), (0..=most).collect())),
        (1..=most).prop_map(move |step| {
            (format!("*/{step}"), (0..=most).step_by(usize::try_from(step).unwrap()).collect())
        }),
        proptest::collection::btree_set(0..=most, 1..4).prop_map(|listed| {
            let text: Vec<_> = listed.iter().map(ToString::to_string).collect();
            (text.join(","), listed.into_iter().collect())
        }),
    ]
}

/// Watches a clock minute after minute. A listed minute fires when the clock first shows it or a later one.
fn watch(zone: &str, start: i64, minutes: &[i8], hours: &[i8]) -> Vec<Timestamp> {
    let zone = jiff::tz::TimeZone::get(zone).unwrap();
    let shown = |minute: i64| zone.to_datetime(jiff::Timestamp::from_second(start + minute * 60).unwrap());
    let mut latest = (-26 * 60..0).map(shown).max().unwrap();
    let mut fired = Vec::new();
    for minute in 0..HOURS * 60 {
        let now = shown(minute);
        let mut fires = false;
        while latest < now {
            latest = latest.checked_add(jiff::Span::new().minutes(1)).unwrap();
            fires |= minutes.contains(&latest.minute()) && hours.contains(&latest.hour());
        }
        if fires {
            fired.push(Timestamp((start + minute * 60) * 1000));
        }
    }
    fired
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn instants_are_those_of_a_watched_clock((minutes, hours) in (field(59), field(23)), place in 0..STEPS.len()) {
        let (zone, day) = STEPS[place];
        let start = day.parse::<jiff::Timestamp>().unwrap().as_second();
        let cron = Cron::parse(&format!("{} {} * * *", minutes.0, hours.0), zone).unwrap();
        let end = Timestamp((start + HOURS * 3600) * 1000);
        let next = |time: &Timestamp| cron.next_after(*time).filter(|next| *next < end);
        let found: Vec<_> = std::iter::successors(next(&Timestamp(start * 1000 - 1)), next).collect();
        let watched = watch(zone, start, &minutes.1, &hours.1);
        prop_assert_eq!(&found, &watched);
        // Looking back gives the same instants, from any time between them.
        for pair in watched.windows(2) {
            prop_assert_eq!(cron.last_until(pair[0]), Some(pair[0]));
            prop_assert_eq!(cron.last_until(Timestamp(pair[1].0 - 1)), Some(pair[0]));
        }
    }
}
