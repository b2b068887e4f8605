//! Jobs over a network whose connections end.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use windlass_brokers::{BrokerError, DeviceCommand, DeviceConnection, DeviceMessage, DeviceNetwork};
use windlass_core::{Action, DeviceJob, Doer, Flow, JobTopic, LockRef, StepDefinition};
use windlass_engine::services::DeviceKeeper;

use super::*;

/// A network in memory.
#[derive(Default)]
struct TestNetwork {
    open: Mutex<Option<Arc<TestConnection>>>,
}

/// A connection to it. The next connection gets the waiting messages.
#[derive(Default)]
struct TestConnection(Mutex<State>);

#[derive(Default, Clone)]
struct State {
    is_over: bool,
    /// It ends before the next jobs are confirmed.
    breaks: bool,
    /// It takes no jobs, and goes on.
    refuses: bool,
    published: usize,
    waiting: Vec<DeviceMessage>,
}

impl TestNetwork {
    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        let open = self.open.lock().unwrap();
        look(&mut open.as_ref().expect("a connection was made").0.lock().unwrap())
    }
}

#[async_trait]
impl DeviceNetwork for TestNetwork {
    fn name(&self) -> &str {
        "test"
    }

    async fn connect(&self) -> Result<Arc<dyn DeviceConnection>, BrokerError> {
        let mut open = self.open.lock().unwrap();
        let before = open.as_ref().map(|open| open.0.lock().unwrap().clone()).unwrap_or_default();
        if before.is_over || open.is_none() {
            let after = State { is_over: false, ..before };
            *open = Some(Arc::new(TestConnection(Mutex::new(after))));
        }
        Ok(open.clone().unwrap())
    }

    async fn disconnect(&self) {
        self.with(|state| state.is_over = true);
    }
}

impl TestConnection {
    fn alive(&self) -> Result<std::sync::MutexGuard<'_, State>, BrokerError> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_over { Err(over()) } else { Ok(state) }
    }
}

fn over() -> BrokerError {
    BrokerError::Unreachable("the connection is over".to_owned())
}

#[async_trait]
impl DeviceConnection for TestConnection {
    async fn publish(&self, messages: &[DeviceCommand]) -> Result<Vec<Result<(), BrokerError>>, BrokerError> {
        let mut state = self.alive()?;
        if state.refuses {
            return Ok(vec![Err(BrokerError::Refused("not allowed".to_owned())); messages.len()]);
        }
        state.published += messages.len();
        state.is_over = std::mem::take(&mut state.breaks);
        let outcome = if state.is_over { Err(over()) } else { Ok(()) };
        Ok(vec![outcome; messages.len()])
    }

    async fn receive(&self, _: usize, _: Duration) -> Result<Vec<DeviceMessage>, BrokerError> {
        Ok(self.alive()?.waiting.clone())
    }

    async fn acknowledge(&self, _: &[u64]) -> Result<(), BrokerError> {
        if let Ok(mut state) = self.alive() {
            state.waiting.clear();
        }
        Ok(())
    }

    async fn refresh(&self) -> Result<(), BrokerError> {
        self.alive().map(drop)
    }
}

/// A flow whose step is a job of this device.
fn flow_of(device: &str) -> Flow {
    let action = Action::of_worker(name("m"), name("run"));
    let job = Doer::Device(Box::new(DeviceJob::new(JobTopic::Fixed(format!("{device}/run").into()))));
    let mut step = StepDefinition::new(name("job"), Action { doer: job, ..action }, Vec::new());
    step.locks.push(LockRef::Name(device_lock(&name(device)).unwrap()));
    Flow { version: 0, ..Flow::new(name("f"), vec![step]) }
}

#[test]
fn a_job_is_not_published_again_over_a_new_connection_before_what_waits_was_heard() {
    let (world, _) = world();
    apply(&world, &[device("d", &[])]).unwrap();
    world.apply(flow_of("d"));
    let task = world.submit("f");
    let network = Arc::new(TestNetwork::default());
    let keeper = DeviceKeeper::new(world.engine.clone(), network.clone());
    let round = || {
        world.pass(10_000);
        world.drive(keeper.run_once(world.now())).unwrap();
    };
    let hear = || world.drive(keeper.hear_once(|| world.now())).unwrap();
    let published = || network.with(|state| state.published);

    round();
    round();
    assert_eq!(published(), 0, "nothing was heard yet");
    hear();
    // The message arrives, and its confirmation does not.
    network.with(|state| state.breaks = true);
    round();
    assert_eq!(published(), 1);
    // All is heard, so the job would be published again. But first that connection ends, and the device answers.
    hear();
    let answer = format!(r#"{{"uuid":"{task}","device":"d","success":true,"attempt":1}}"#);
    network.with(|state| {
        state.is_over = true;
        let (topic, payload) = ("d/done".to_owned(), answer.into_bytes());
        state.waiting.push(DeviceMessage { topic, payload, retained: false, receipt: 1 });
    });
    round();
    assert_eq!(published(), 1, "the answer waits");
    hear();
    round();
    assert_eq!(published(), 1);
    assert_eq!(world.status(task), "Succeeded: Succeeded");
}

#[test]
fn a_network_that_refuses_all_jobs_raises_an_alarm_until_it_takes_one() {
    let (world, _) = world();
    apply(&world, &[device("d", &[])]).unwrap();
    world.apply(flow_of("d"));
    world.submit("f");
    let network = Arc::new(TestNetwork::default());
    let keeper = DeviceKeeper::new(world.engine.clone(), network.clone());
    let round = || {
        world.pass(10_000);
        world.drive(keeper.run_once(world.now())).unwrap();
        world.drive(keeper.hear_once(|| world.now())).unwrap();
    };
    let alarms = || world.drive(world.engine.alarms(false, 9)).unwrap();
    round();
    network.with(|state| state.refuses = true);
    (0..3).for_each(|_| round());
    let found = alarms();
    assert!(found.len() == 1 && found[0].message.contains("not allowed"), "{found:?}");
    network.with(|state| state.refuses = false);
    (0..2).for_each(|_| round());
    assert_eq!((network.with(|state| state.published), alarms().len()), (1, 0));
}
