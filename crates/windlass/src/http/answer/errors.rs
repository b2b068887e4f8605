//! What the errors of the engine and of flow files are for a client.

use axum::http::StatusCode;
use windlass_api::ProblemError;
use windlass_core::{AlarmRejection, Rejection};
use windlass_engine::EngineError;
use windlass_store::StoreError;

use super::problem::Refused;
use crate::flowfile::FlowError;

impl From<EngineError> for Refused {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::UnknownFlow(name) => {
                Self::unknown_flow(format!("there is no flow {name}: apply it with PUT /v1/flows/NAME"))
            }
            EngineError::UnknownTrigger(name) => Self::unknown_trigger(format!(
                "there is no trigger {name}: apply it with PUT /v1/triggers/NAME"
            )),
            EngineError::TriggerRejected(rejection) => Self::conflict(rejection.to_string()),
            EngineError::DefinitionFault(fault) => Self::unusable_trigger(fault.to_string()),
            EngineError::ScheduleRefused(error) => Self::unusable_trigger(error.to_string()),
            error @ EngineError::TriggerParams { .. } => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "unusable-params",
                "The parameters cannot be computed",
                error.to_string(),
            ),
            error @ EngineError::TooManyTriggers => Self::conflict(error.to_string()),
            EngineError::UnknownRollout(name) => Self::unknown_rollout(format!(
                "there is no rollout {name}: start it with PUT /v1/rollouts/NAME"
            )),
            error @ (EngineError::RolloutFault(_)
            | EngineError::RolloutIgnoresDevice(_)
            | EngineError::NoDevices) => Self::unusable_rollout(error.to_string()),
            EngineError::RolloutRejected(rejection) => Self::conflict(rejection.to_string()),
            error @ (EngineError::RolloutExists(_) | EngineError::TooManyRollouts { .. }) => {
                Self::conflict(error.to_string())
            }
            EngineError::UnknownTask(id) => Self::unknown_task(format!(
                "there is no task {id}: GET /v1/tasks lists those there are. Ended tasks are deleted after their retention; if it should be there, look for the alarm store_went_back"
            )),
            EngineError::UnknownAlarm(id) => Self::new(
                StatusCode::NOT_FOUND,
                "unknown-alarm",
                "There is no such alarm",
                format!("there is no alarm {id}; GET /v1/alarms?all=true lists those there are"),
            ),
            EngineError::UnknownLock(name) => Self::new(
                StatusCode::NOT_FOUND,
                "unknown-lock",
                "Nobody has this lock",
                format!("nobody has the lock {name}; GET /v1/locks lists those that somebody has"),
            ),
            EngineError::UnknownDevice(name) => Self::new(
                StatusCode::NOT_FOUND,
                "unknown-device",
                "There is no such device",
                format!("there is no device {name}: declare it with PUT /v1/devices/NAME; GET /v1/devices lists them"),
            ),
            EngineError::UnusableDevice { message, .. } => Self::unusable_device(message),
            error @ EngineError::TooManyDevices(_) => Self::too_large(error.to_string()),
            EngineError::DeviceInUse { device, waiting } => Self::new(
                StatusCode::CONFLICT,
                "device-in-use",
                "The device is in use",
                format!(
                    "a task has the device {device} or waits for it ({waiting} waiting; GET /v1/devices/NAME lists them):                      let the tasks end or cancel them, or remove it with `force`"
                ),
            ),
            EngineError::UnknownAccessToken(name) => Self::new(
                StatusCode::NOT_FOUND,
                "unknown-token",
                "There is no such access token",
                format!("there is no access token {name}: GET /v1/tokens lists them"),
            ),
            error @ (EngineError::AccessTokenExists(_) | EngineError::TooManyAccessTokens) => {
                Self::conflict(error.to_string())
            }
            EngineError::AccessTokenFault(fault) => Self::unusable_token(fault.to_string()),
            error @ EngineError::InvalidLeaderName => Self::malformed(error.to_string()),
            EngineError::NoQueueHolder(name) => Self::new(
                StatusCode::NOT_FOUND,
                "no-queue-holder",
                "No task has the exclusive queue",
                format!("no task has the exclusive queue {name}: GET /v1/locks lists the queues and locks that are held"),
            ),
            EngineError::NoUniqueKey { .. } => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "no-unique-key",
                "The task has no key by which it is unique",
                error.to_string(),
            ),
            EngineError::NoQueueName { .. } => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "no-queue-name",
                "The task has no exclusive queue",
                error.to_string(),
            ),
            EngineError::UniqueConflict { flow, task } => Self::new(
                StatusCode::CONFLICT,
                "unique-conflict",
                "A task with the same unique key exists",
                format!(
                    "task {task} of the flow {flow} has the same unique key, and the flow says `on_conflict: fail`: nothing \
                     was started; wait until that task has ended"
                ),
            ),
            EngineError::KeyReused { task } => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "idempotency-key-reused",
                "The idempotency key was used for something else",
                format!(
                    "this idempotency key was used for task {task} with another body: use a new key for each task, \
                     and the same body when you repeat a request"
                ),
            ),
            EngineError::KeyWithoutTask { task } => Self::conflict(format!(
                "this idempotency key was used for task {task}, which is not there: it was deleted after its end, or is \
                 about to be accepted; try again, or use a new key to start a new task"
            ))
            .temporary(),
            EngineError::Rejected(rejection) => rejection.into(),
            EngineError::LockRejected(rejection) => Self::conflict(rejection.to_string()),
            EngineError::AlarmRejected(AlarmRejection::Unknown) => {
                Self::fault("an alarm got a command before it existed")
            }
            EngineError::AlarmRejected(AlarmRejection::Resolved) => {
                Self::conflict("the alarm is resolved already")
            }
            EngineError::RerunRefused(refusal) => Self::conflict(refusal.to_string()),
            EngineError::Overloaded => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "overloaded",
                "Too much is waiting",
                "too many requests wait to be written: try again after the seconds in `Retry-After`",
            )
            .temporary(),
            error @ EngineError::SeqLeap { .. } => Self::malformed(error.to_string()),
            EngineError::Conflict => {
                Self::conflict("others changed it at the same time: look at it again, and try again")
                    .temporary()
            }
            EngineError::Store(error) => error.into(),
        }
    }
}

impl From<Rejection> for Refused {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::UnknownAct => Self::unknown_step("the task has no such step"),
            Rejection::Ended => {
                Self::conflict("the task has ended: nothing can be changed about it any more")
            }
            Rejection::NothingToResolve(step) => Self::conflict(format!(
                "step {step} does not wait for a decision: only stuck and held steps can be resolved, and \
                 `retry` ends the wait for the next attempt; \
                 GET /v1/tasks/ID/why says what the task waits for"
            )),
            rejection @ Rejection::UnknownSignal(_) => {
                Self::new(StatusCode::NOT_FOUND, "unknown-signal", "No such signal", rejection.to_string())
            }
            rejection @ Rejection::TooMuchToEvaluate => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "too-much-to-evaluate",
                "The expressions of the flow take too long",
                rejection.to_string(),
            ),
            rejection @ Rejection::PlainSecret(_) => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "plain-secret",
                "A secret parameter is not a reference",
                rejection.to_string(),
            ),
            rejection @ (Rejection::AlreadyRollingBack(_)
            | Rejection::NobodyWaits(_)
            | Rejection::SignalDone(_)
            | Rejection::TooManySignals
            | Rejection::ListInUse { .. }
            | Rejection::DoneTooEarly(_)
            | Rejection::NotEnded
            | Rejection::NothingToRollBack
            | Rejection::NotInQueue
            | Rejection::UnderWay
            | Rejection::Stopping
            | Rejection::Duplicate
            | Rejection::Stale
            | Rejection::NothingDue) => Self::conflict(rejection.to_string()),
            Rejection::Fault(fault) => {
                Self::fault(format!("the engine refused to break an invariant: {fault}"))
            }
        }
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full(why) => Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "store-full",
                "The store is full",
                format!("the store is full ({why}): nothing was changed; make room on its disk"),
            ),
            StoreError::Unavailable(why) => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "store-unavailable",
                "The store is not available",
                format!("the store is not available ({why}): nothing is known to be changed; try again"),
            )
            .temporary(),
            StoreError::Outgrown(why) => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "store-unavailable",
                "The store is not available",
                format!("this server is too old for its store and ends ({why}): ask another one"),
            )
            .temporary(),
            // Only services of this server write under a lease, so no call gets this.
            StoreError::LeaseLost => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "store-unavailable",
                "The store is not available",
                format!("{error}: nothing was changed; try again"),
            )
            .temporary(),
            StoreError::Damaged(why) => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "store-damaged",
                "The store is damaged",
                format!(
                    "a row of the store is damaged ({why}): run `windlass doctor` on the store, and restore the task from a backup"
                ),
            ),
        }
    }
}

impl From<FlowError> for Refused {
    fn from(error: FlowError) -> Self {
        let one = |error: &FlowError| ProblemError {
            detail: error.message.clone(),
            line: error.line,
            column: error.column,
        };
        let errors = if error.others.is_empty() { Vec::new() } else { error.all().map(one).collect() };
        Self::new(StatusCode::BAD_REQUEST, "invalid-flow", "The flow is not valid", error.message)
            .at(error.line, error.column)
            .with_errors(errors)
    }
}

#[cfg(test)]
mod tests {
    use axum::{http::header, response::IntoResponse as _};
    use windlass_core::{AlarmId, LockRejection, Name, TaskId};
    use windlass_engine::RerunRefusal;

    use super::*;

    #[test]
    fn every_error_of_the_engine_has_its_answer() {
        let why = || "why".to_owned();
        let cases = [
            (EngineError::UnknownFlow(why()), 404, "unknown-flow", false),
            (EngineError::UnknownTask(TaskId(1)), 404, "unknown-task", false),
            (EngineError::UnknownAlarm(AlarmId("a".into())), 404, "unknown-alarm", false),
            (EngineError::UnknownLock(Name::new("a").expect("a name")), 404, "unknown-lock", false),
            (EngineError::NoQueueHolder(Name::new("a").expect("a name")), 404, "no-queue-holder", false),
            (EngineError::LockRejected(LockRejection::Free), 409, "conflict", false),
            (
                EngineError::UniqueConflict { flow: Name::new("f").expect("a name"), task: TaskId(1) },
                409,
                "unique-conflict",
                false,
            ),
            (EngineError::KeyReused { task: TaskId(1) }, 422, "idempotency-key-reused", false),
            (EngineError::KeyWithoutTask { task: TaskId(1) }, 409, "conflict", true),
            (EngineError::Rejected(Rejection::Ended), 409, "conflict", false),
            (EngineError::Rejected(Rejection::NothingToResolve(why())), 409, "conflict", false),
            (EngineError::Rejected(Rejection::AlreadyRollingBack(why())), 409, "conflict", false),
            (EngineError::Rejected(Rejection::UnderWay), 409, "conflict", false),
            (EngineError::Rejected(Rejection::UnknownAct), 404, "unknown-step", false),
            (EngineError::Rejected(Rejection::TooMuchToEvaluate), 422, "too-much-to-evaluate", false),
            (EngineError::Rejected(Rejection::Fault(why())), 500, "engine-fault", false),
            (EngineError::AlarmRejected(AlarmRejection::Resolved), 409, "conflict", false),
            (EngineError::RerunRefused(RerunRefusal::NotEnded), 409, "conflict", false),
            (EngineError::SeqLeap { last: 1, seq: u64::MAX }, 400, "malformed", false),
            (EngineError::Overloaded, 429, "overloaded", true),
            (EngineError::Conflict, 409, "conflict", true),
            (EngineError::Store(StoreError::Full(why())), 507, "store-full", false),
            (EngineError::Store(StoreError::Unavailable(why())), 503, "store-unavailable", true),
            (EngineError::Store(StoreError::Outgrown(why())), 503, "store-unavailable", true),
            (EngineError::Store(StoreError::LeaseLost), 503, "store-unavailable", true),
            (EngineError::Store(StoreError::Damaged(why())), 500, "store-damaged", false),
        ];
        for (error, status, name, is_temporary) in cases {
            assert_eq!(Refused::from(error.clone()).problem().name(), name, "{error:?}");
            let response = Refused::from(error.clone()).into_response();
            assert_eq!(response.status().as_u16(), status, "{error:?}");
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), is_temporary, "{error:?}");
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        }
    }
}
