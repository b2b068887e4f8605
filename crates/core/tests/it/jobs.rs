//! The numbers of the jobs of devices.

use std::{collections::BTreeSet, sync::Arc};

use windlass_core::{
    ActKey, Action, DeviceJob, Doer, Flow, Input, JobTopic, Json, Name, RETRIES_MAX, StepDefinition, Task,
    TaskId, Timestamp,
};

#[test]
fn no_two_jobs_of_a_task_have_the_same_number() {
    let name = |name: &str| Name::new(name).unwrap();
    let job = || {
        let doer = Doer::Device(Box::new(DeviceJob::new(JobTopic::Fixed("d/run".into()))));
        Action { doer, ..Action::of_worker(name("m"), name("c")) }
    };
    let step = |index: usize| {
        let step = StepDefinition::new(name(&format!("s{index}")), job(), Vec::new());
        StepDefinition { rollback: Some(job()), ..step }
    };
    let flow = Flow::new(name("f"), (0..3).map(step).collect());
    let task = Task::new(TaskId(1), Arc::new(flow), Arc::new(Input::new(Json::empty(), Timestamp(0))));
    let mut seen = BTreeSet::new();
    for key in (0..3).flat_map(|step| [ActKey::forward(step), ActKey::rollback(step)]) {
        for member in 0..3 {
            for attempt in [1, 2, RETRIES_MAX + 1] {
                let number = task.job_number(ActKey { member, ..key }, attempt);
                assert!(seen.insert(number), "{key:?} of item {member}, attempt {attempt}: {number}");
            }
        }
    }
    assert_eq!(task.job_number(ActKey::forward(0), 3), 3);
}
