//! Parses messages to attempts.

use serde_json::value::RawValue;
use windlass_api::{
    Attempt, Direction, FORWARD_KEY_HEADER, KEY_HEADER, Payload, StepMessage, TOKEN_HEADER,
    TRACEPARENT_HEADER,
};
use windlass_brokers::Message;

use crate::worker::Failure;

/// An attempt from a message.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) attempt: Attempt,
    /// How many retries of the command this module makes itself.
    pub(super) retries: u32,
    /// The reason why the attempt cannot run, if any.
    pub(super) fault: Option<Failure>,
}

/// Where the parameters of an attempt are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parameters {
    /// In the message.
    Here,
    /// At the server.
    Kept,
}

/// Longer than any token of a server.
const TOKEN_BYTES_MAX: usize = 512;

impl Incoming {
    /// Parses a message with this number of deliveries.
    ///
    /// # Errors
    /// The reason why it is not a step message.
    pub(super) fn read(message: &Message, deliveries: Option<u32>) -> Result<(Self, Parameters), String> {
        let step: StepMessage = serde_json::from_slice(&message.body)
            .map_err(|error| format!("the message is not a step message: {error}"))?;
        let header = |name: &str| message.header(name).map(str::to_owned);
        let token = header(TOKEN_HEADER).or(step.token).filter(|token| !token.is_empty());
        let Some(token) = token else {
            return Err(format!(
                "the step message has no token, neither the header {TOKEN_HEADER} nor the field Token: its result could not be reported"
            ));
        };
        if token.len() > TOKEN_BYTES_MAX {
            return Err(format!(
                "the step message has a token of {} bytes: no server makes tokens of that length",
                token.len()
            ));
        }
        if step.timeout == 0 {
            return Err("the step message has a Timeout of 0: it must be at least 1".to_owned());
        }
        let (params, parameters) = match (step.parameters, step.reference) {
            (Some(params), _) => (checked(params)?, Parameters::Here),
            (None, Some(reference)) if reference == reference_of(&token) => (empty(), Parameters::Kept),
            (None, Some(reference)) => {
                return Err(format!(
                    "the step message refers to {reference}, which is not the path of its attempt"
                ));
            }
            (None, None) => {
                return Err("the step message has neither Parameters nor a Reference to them".to_owned());
            }
        };
        let key = header(KEY_HEADER).or(step.key);
        let name = key.as_deref().and_then(|key| step_name(key, &step.task_id)).map(str::to_owned);
        let attempt = Attempt {
            idempotency_key: key.unwrap_or_else(|| effect_key(&step.task_id, step.cursor, step.direction)),
            token,
            task: step.task_id,
            flow: String::new(),
            step: name.unwrap_or_else(|| step.cursor.to_string()),
            cursor: step.cursor,
            direction: step.direction,
            attempt: deliveries.unwrap_or(1).max(1),
            module: step.module,
            command: step.command,
            params,
            results: step.results,
            results_omitted: step.results_omitted,
            timeout_ms: step.timeout.saturating_mul(1000),
            forward_idempotency_key: header(FORWARD_KEY_HEADER).or(step.forward_key),
            error: step.error,
            result: step.result,
            traceparent: header(TRACEPARENT_HEADER).or(step.traceparent),
            locks: Vec::new(),
            exclusive: step.exclusive,
        };
        Ok((Self { attempt, retries: step.retry, fault: None }, parameters))
    }

    /// Completes the attempt with the message that the server has stored.
    pub(super) fn complete(mut self, mut whole: StepMessage) -> Self {
        self.attempt.results = whole.results.take();
        self.attempt.results_omitted = whole.results_omitted;
        (self.attempt.result, self.attempt.error) = (whole.result.take(), whole.error.take());
        match whole.parameters.ok_or_else(|| "it has no Parameters".to_owned()).and_then(checked) {
            Ok(params) => self.attempt.params = params,
            Err(error) => {
                self.fault =
                    Some(Failure::permanent(format!("the message stored at the server is invalid: {error}")));
            }
        }
        self
    }

    /// An attempt whose parameters this worker cannot read.
    pub(super) fn without_parameters(mut self) -> Self {
        self.fault = Some(Failure::permanent(
            "the parameters are too large for the broker, and this worker has no server to read them from: \
             give it one, or make them smaller",
        ));
        self
    }
}

/// The server's path of a message that is too large.
fn reference_of(token: &str) -> String {
    format!("/v1/worker/attempts/{token}")
}

/// An idempotency key for messages without one: the same for all attempts of an execution, as far as the
/// message identifies it.
fn effect_key(task: &str, cursor: usize, direction: Direction) -> String {
    let direction = match direction {
        Direction::Forward => "forward",
        Direction::Rollback => "rollback",
    };
    format!("{task}/{cursor}/{direction}")
}

/// The name of the step, taken from its idempotency key: `TASK/STEP/MEMBER/DIRECTION`.
fn step_name<'a>(key: &'a str, task: &str) -> Option<&'a str> {
    let mut parts = key.split('/');
    let (of, name) = (parts.next()?, parts.next()?);
    (of == task && !name.is_empty() && parts.count() == 2).then_some(name)
}

fn checked(params: Payload) -> Result<Payload, String> {
    if params.get().starts_with('{') {
        return Ok(params);
    }
    Err("the step message has Parameters that are not a JSON object".to_owned())
}

fn empty() -> Payload {
    RawValue::NULL.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn step() -> Value {
        json!({"TaskId": "t-1", "Cursor": 2, "Type": 1, "Parameters": {"Cpu": 4}, "Module": "mysql",
            "Command": "clean_instance", "Timeout": 900, "Retry": 3, "Token": "a.b"})
    }

    fn read(step: &Value) -> Result<(Incoming, Parameters), String> {
        Incoming::read(&Message::new("1", "t-1", step.to_string()), Some(2))
    }

    #[test]
    fn a_step_message_is_an_attempt() {
        let (incoming, parameters) = read(&step()).unwrap();
        assert_eq!((incoming.retries, parameters), (3, Parameters::Here));
        let attempt = incoming.attempt;
        assert_eq!((attempt.token.as_str(), attempt.task.as_str(), attempt.attempt), ("a.b", "t-1", 2));
        assert_eq!((attempt.module.as_str(), attempt.command.as_str()), ("mysql", "clean_instance"));
        assert_eq!((attempt.timeout_ms, attempt.params.get()), (900_000, r#"{"Cpu":4}"#));
        assert_eq!((attempt.idempotency_key.as_str(), attempt.step.as_str()), ("t-1/2/rollback", "2"));
    }

    #[test]
    fn headers_go_before_fields() {
        let message = Message::new("1", "t-1", step().to_string())
            .with_header(TOKEN_HEADER, "from.header")
            .with_header(KEY_HEADER, "t-1/clean/0/rollback");
        let attempt = Incoming::read(&message, None).unwrap().0.attempt;
        assert_eq!((attempt.token.as_str(), attempt.attempt), ("from.header", 1));
        let named = (attempt.idempotency_key.as_str(), attempt.step.as_str());
        assert_eq!(named, ("t-1/clean/0/rollback", "clean"));
    }

    #[test]
    fn large_parameters_are_with_the_server() {
        let mut step = step();
        step.as_object_mut().unwrap().remove("Parameters");
        step["Reference"] = json!("/v1/worker/attempts/a.b");
        let (incoming, parameters) = read(&step).unwrap();
        assert_eq!(parameters, Parameters::Kept);
        let whole = serde_json::from_value(self::step()).unwrap();
        let complete = incoming.complete(whole);
        assert_eq!((complete.attempt.params.get(), complete.fault), (r#"{"Cpu":4}"#, None));
        let (incoming, _) = read(&step).unwrap();
        assert!(incoming.without_parameters().fault.unwrap().message.contains("no server to read them from"));
        step["Reference"] = json!("/v1/tasks");
        assert!(read(&step).unwrap_err().contains("refers to /v1/tasks"));
    }

    #[test]
    fn what_is_no_step_message_is_told_why() {
        let without = |field: &str| {
            let mut step = step();
            step.as_object_mut().unwrap().remove(field);
            read(&step).unwrap_err()
        };
        let with = |field: &str, value: Value| {
            let mut step = step();
            step[field] = value;
            read(&step).unwrap_err()
        };
        assert!(without("TaskId").contains("missing field `TaskId`"));
        assert!(without("Token").contains("no token"));
        assert!(without("Parameters").contains("neither Parameters nor"));
        assert!(with("Parameters", json!([1])).contains("not a JSON object"));
        assert!(with("Timeout", json!(0)).contains("Timeout of 0"));
        assert!(
            Incoming::read(&Message::new("1", "k", "hello"), None)
                .unwrap_err()
                .contains("not a step message")
        );
    }
}
