//! The devices of a world: how they are declared, how they behave, and the steps that give them jobs.

use std::collections::BTreeMap;

use windlass_core::{
    Action, Device, DeviceJob, Doer, JobArgs, JobTopic, LockRef, Millis, Name, PresenceRule, StepDefinition,
    WhileOffline, device_lock, device_lock_expression,
};

use crate::{
    flows::{expression, named},
    world::World,
};

/// The longest timeout of a job, in milliseconds: a device that is silent keeps its lock for as long.
const TIMEOUT_MS_MAX: u64 = 8_000;

/// The longest time for which a device stays locked after a timeout, in milliseconds.
const SETTLE_MS_MAX: u64 = 4_000;

/// The devices of a world, and the broker that they are connected to.
#[derive(Debug, Clone, Default)]
pub(crate) struct FleetConfig {
    pub(crate) devices: Vec<DeviceConfig>,
    /// Whether the broker is unavailable at times, and whether it then loses what it keeps.
    pub(crate) broker_fails: bool,
    pub(crate) broker_forgets: bool,
}

/// How a device behaves. Rates are in a thousand jobs.
#[derive(Debug, Clone)]
pub(crate) struct DeviceConfig {
    pub(crate) presence: PresenceRule,
    /// Whether its answers name the attempt.
    pub(crate) echoes: bool,
    /// Whether the broker keeps jobs for it while it is offline.
    pub(crate) is_kept: bool,
    /// Whether it does a job that comes twice once.
    pub(crate) remembers: bool,
    /// Whether it goes offline at times, and how long it then stays online at most.
    pub(crate) online_ms: Option<u64>,
    pub(crate) fails: u64,
    pub(crate) silent: u64,
    pub(crate) late: u64,
    /// It sends something wrong, before or instead of its answer.
    pub(crate) lies: u64,
    /// Whether it reports measurements without end.
    pub(crate) chatters: bool,
}

impl FleetConfig {
    pub(crate) fn draw(dice: &mut fastrand::Rng) -> Self {
        let devices = (0..dice.usize(1..=3)).map(|index| DeviceConfig::draw(index, dice)).collect();
        let broker_fails = dice.bool();
        Self { devices, broker_fails, broker_forgets: broker_fails && dice.bool() }
    }

    /// The declaration of a device.
    pub(crate) fn declaration(&self, index: usize) -> Device {
        let config = &self.devices[index];
        Device {
            name: device(index),
            labels: BTreeMap::new(),
            presence: config.presence.clone(),
            echoes_attempt: config.echoes,
        }
    }
}

impl DeviceConfig {
    fn draw(index: usize, dice: &mut fastrand::Rng) -> Self {
        let mut rate = |most: u64| if dice.bool() { dice.u64(..most) } else { 0 };
        let [fails, silent, late, lies] = [rate(200), rate(150), rate(200), rate(700)];
        let presence = match dice.u8(..4) {
            0 => PresenceRule::Always,
            1 => PresenceRule::KeepAlive(Millis(dice.u64(2_000..=8_000))),
            _ => watched(index),
        };
        Self {
            presence,
            echoes: dice.u8(..4) > 0,
            is_kept: dice.bool(),
            remembers: dice.u8(..4) > 0,
            online_ms: dice.bool().then(|| dice.u64(500..=20_000)),
            fails,
            silent,
            late,
            lies,
            chatters: dice.u8(..10) == 0,
        }
    }
}

/// Presence by the status topic of a device.
pub(crate) fn watched(index: usize) -> PresenceRule {
    PresenceRule::Topic { topic: status(index).into(), online: "online".into(), offline: "offline".into() }
}

/// The name of a device.
pub(crate) fn device(index: usize) -> Name {
    named(&format!("d{index}"))
}

/// The topic on which a device publishes its status.
pub(crate) fn status(index: usize) -> String {
    format!("d{index}/status")
}

/// The topic on which a device gets its jobs.
pub(crate) fn jobs(index: usize) -> String {
    format!("d{index}/run")
}

/// The topic on which a device answers.
pub(crate) fn answers(index: usize) -> String {
    format!("d{index}/done")
}

/// The number of the device that gets jobs on this topic.
pub(crate) fn of_topic(topic: &str) -> Option<usize> {
    topic.strip_prefix('d')?.strip_suffix("/run")?.parse().ok()
}

/// Lets a device do this step, and sometimes its rollback.
pub(crate) fn give_to_device(world: &World, step: &mut StepDefinition) {
    let count = world.config.fleet.devices.len();
    let index = usize::try_from(world.below(count as u64)).unwrap_or(0);
    let is_fixed = world.chance(600);
    let choice = format!("'d' + string(size % {count})");
    let lock = match device_lock(&device(index)) {
        Some(lock) if is_fixed => LockRef::Name(lock),
        _ => LockRef::Expression(expression(&device_lock_expression(&choice))),
    };
    step.locks.insert(0, lock);
    let topic = || match is_fixed {
        true => JobTopic::Fixed(jobs(index).into()),
        false => JobTopic::Expression(expression(&format!("{choice} + '/run'"))),
    };
    let done = (is_fixed && world.chance(200)).then(|| answers(index));
    let run = |action: &mut Action| {
        action.timeout = Millis(world.within(300..=TIMEOUT_MS_MAX));
        let settle = Millis(if world.chance(300) { 0 } else { world.within(100..=SETTLE_MS_MAX) });
        // The device has no other way to know when it is late.
        let (timeout, settle_ms) = (action.timeout.0, settle.0);
        let args = match world.chance(700) {
            true => JobArgs::Fixed(format!("{{\"timeout\":{timeout},\"settle\":{settle_ms}}}").into()),
            false => {
                let args = format!("{{'timeout': {timeout}, 'settle': {settle_ms}, 'size': size}}");
                JobArgs::Expression(expression(&args))
            }
        };
        let offline = if world.chance(250) { WhileOffline::Fail } else { WhileOffline::Wait };
        let job = DeviceJob {
            args,
            done: done.as_deref().map(Into::into),
            offline,
            settle,
            ..DeviceJob::new(topic())
        };
        action.doer = Doer::Device(Box::new(job));
    };
    run(&mut step.run);
    if let Some(rollback) = step.rollback.as_mut().filter(|_| world.chance(500)) {
        run(rollback);
    }
}
