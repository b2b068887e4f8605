//! The rollouts of a world: their devices, and how they are defined.

use std::collections::BTreeMap;

use windlass_core::{
    AbortLimit, AbortOf, AbortThreshold, Device, Json, Name, OnAbort, PresenceRule, RolloutDefinition,
    RolloutRate,
};

use crate::{
    flows::{self, named},
    world::World,
};

/// The most devices that are declared at the beginning.
pub(crate) const DEVICES_MAX: u64 = 14;

/// The most rollouts of a world.
pub(crate) const ROLLOUTS_MAX: u64 = 3;

/// The label that rollouts select, and the one by which they are counted.
pub(crate) const SITE: &str = "site";
const MODEL: &str = "model";

/// The site that rollouts select.
pub(crate) const SELECTED: &str = "nord";

/// The label that two devices share, in the unique keys of tasks.
const PAIR: &str = "pair";

/// The name of a rollout.
pub(crate) fn name(index: u64) -> Name {
    named(&format!("roll{index}"))
}

/// The name of a device.
pub(crate) fn device_name(index: u64) -> Name {
    named(&format!("r{index:02}"))
}

/// A declaration of a device. Most have the label that rollouts select.
pub(crate) fn device(world: &World, index: u64) -> Device {
    let mut labels = BTreeMap::from([(PAIR.to_owned(), format!("p{}", index / 2))]);
    let site = if world.chance(750) { SELECTED } else { "south" };
    labels.insert(SITE.to_owned(), site.to_owned());
    if world.chance(700) {
        labels.insert(MODEL.to_owned(), format!("m{}", index % 2));
    }
    Device { name: device_name(index), labels, presence: PresenceRule::Always, echoes_attempt: false }
}

/// A random rollout over the selected devices.
pub(crate) fn definition(world: &World) -> RolloutDefinition {
    let small = |range: std::ops::RangeInclusive<u64>| u32::try_from(world.within(range)).unwrap_or(1);
    let rate = match world.below(4) {
        0 => RolloutRate::Constant { per_minute: small(4..=20) },
        1 => RolloutRate::Constant { per_minute: small(20..=600) },
        2 => RolloutRate::Constant { per_minute: 6_000 },
        _ => RolloutRate::Exponential {
            base: small(4..=60),
            factor_percent: small(120..=300),
            per_minute_max: small(60..=600),
            after: small(1..=3),
        },
    };
    let threshold = || AbortThreshold {
        of: *world.choose(&[AbortOf::Failed, AbortOf::TimedOut, AbortOf::Any]).unwrap_or(&AbortOf::Any),
        limit: match world.chance(500) {
            true => AbortLimit::Count(small(1..=3)),
            false => AbortLimit::Percent(small(10..=60)),
        },
        at_least: small(0..=5),
    };
    let thresholds = if world.chance(400) { world.within(1..=2) } else { 0 };
    RolloutDefinition {
        flow: named(flows::ROLLED_OUT),
        params: Json::parse(&format!("{{\"size\":{}}}", world.below(5))).unwrap_or_else(|_| Json::empty()),
        priority: if world.chance(200) { 5 } else { 0 },
        selector: BTreeMap::from([(SITE.to_owned(), SELECTED.to_owned())]),
        rate,
        max_running: small(1..=6),
        abort: (0..thresholds).map(|_| threshold()).collect(),
        on_abort: if world.chance(700) { OnAbort::RollBack } else { OnAbort::Stop },
        group_by: world.chance(800).then(|| MODEL.into()),
    }
}
