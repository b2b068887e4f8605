//! Messages of brokers: steps on a module's queue, and results on a results queue.
//!
//! Both are the documents of the classic design, field for field, so that existing modules continue to work.
//! The only addition is the token, which identifies the attempt: in the header [`TOKEN_HEADER`] if the broker
//! has headers, otherwise in the field `Token`. Readers must accept both, and ignore unknown fields.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::ToSchema;

use crate::{AttemptLock, Direction, Payload};

/// The header with the attempt's token, in step messages and result messages.
pub const TOKEN_HEADER: &str = "windlass-token";

/// The header with the idempotency key of the action, in step messages.
pub const KEY_HEADER: &str = "windlass-idempotency-key";

/// The header with the idempotency key of the action that is rolled back, in step messages of rollbacks.
pub const FORWARD_KEY_HEADER: &str = "windlass-forward-idempotency-key";

/// The header with the W3C trace context, in step messages and in messages that start tasks.
pub const TRACEPARENT_HEADER: &str = "traceparent";

/// The code of a result that means: retry later, which does not count as a retry (`EX_TEMPFAIL` of
/// sysexits.h).
pub const CODE_RETRY_LATER: i32 = 75;

/// The code of a result that means: a retry cannot help (`EX_DATAERR` of sysexits.h).
pub const CODE_FINAL: i32 = 65;

/// What a module is to do: one message of its queue.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct StepMessage {
    /// Id of the task.
    pub task_id: String,
    /// Index of the step.
    pub cursor: usize,
    /// 0 = run it, 1 = roll it back.
    #[serde(rename = "Type", with = "type_number")]
    #[schema(value_type = u8)]
    pub direction: Direction,
    /// The parameters, with the results of the steps before. Left out where [`Self::reference`] says where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Payload>,
    /// Whose work it is.
    pub module: String,
    /// What to do.
    pub command: String,
    /// How many seconds it may take, all attempts that the module makes together.
    pub timeout: u64,
    /// How often the module itself runs the command again when it failed; 0 where the engine sees to that.
    pub retry: u32,
    /// Names the attempt, where the broker has no headers: to be sent back with every result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The idempotency key of the action, the same for all attempts of it, where the broker has no headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Of a rollback: the idempotency key of what is rolled back, where the broker has no headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_key: Option<String>,
    /// The W3C trace context of the attempt, where the broker has no headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// What the steps before returned, by their names. Flows of the classic catalogue do without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub results: Option<Payload>,
    /// Whether `Results` is left out because it is too large.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub results_omitted: bool,
    /// Of a rollback: what the step, or its item, returned. Flows of the classic catalogue do without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Payload>,
    /// Of a rollback: why the task is rolled back. Flows of the classic catalogue do without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The exclusive queue that the task has while the step runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<AttemptLock>,
    /// Where the message with its parameters would be larger than the broker takes: the path under which the server
    /// gives the whole of it, `/v1/worker/attempts/TOKEN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// What became of a step message: one message of a results queue. The token alone says which step it is about; the task and
/// the step are there for people and may be left out.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct ResultMessage {
    /// Id of the task.
    #[serde(default)]
    pub task_id: String,
    /// Index of the step.
    #[serde(default)]
    pub cursor: usize,
    /// 0 = it ran, 1 = it was rolled back.
    #[serde(rename = "Type", with = "type_number", default = "forward")]
    #[schema(value_type = u8)]
    pub direction: Direction,
    /// What happened.
    pub event: ResultEvent,
    /// With `failed`: the exit code. 75 = not now, another time without spending a retry; 65 = another attempt cannot help.
    #[serde(default)]
    pub code: i32,
    /// With `failed`: a line for people.
    #[serde(default)]
    pub message: Option<String>,
    /// With `succeeded`: the result, which is merged into the task's parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Payload>,
    /// The token of the step message; may be in the header instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// What a module reports about an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResultEvent {
    /// The step starts.
    Started,
    /// The step succeeded.
    Succeeded,
    /// The step failed, and the module does not retry it itself.
    Failed,
}

fn forward() -> Direction {
    Direction::Forward
}

/// Serializes `Type` of the classic documents.
mod type_number {
    use super::{Deserialize, Deserializer, Direction, Serializer, de};

    pub(super) fn serialize<S: Serializer>(direction: &Direction, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(match direction {
            Direction::Forward => 0,
            Direction::Rollback => 1,
        })
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Direction, D::Error> {
        match u64::deserialize(deserializer)? {
            0 => Ok(Direction::Forward),
            1 => Ok(Direction::Rollback),
            other => {
                Err(de::Error::custom(format_args!("Type is {other}: it is 0 (normal) or 1 (rollback)")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    const CLASSIC: &str = r#"{"TaskId":"t-1","Cursor":2,"Type":1,"Parameters":{"Cpu":4,"Memory":8.0},"Module":"mysql","Command":"clean_instance","Timeout":900,"Retry":3}"#;

    #[test]
    fn a_step_message_is_the_classic_document() {
        let message: StepMessage = serde_json::from_str(CLASSIC).unwrap();
        assert_eq!((message.cursor, message.direction, message.retry), (2, Direction::Rollback, 3));
        assert_eq!(serde_json::to_string(&message).unwrap(), CLASSIC);
    }

    #[test]
    fn a_token_and_a_reference_stand_behind_the_classic_fields() {
        let mut message: StepMessage = serde_json::from_str(CLASSIC).unwrap();
        message.parameters = None;
        message.token = Some("a.b".to_owned());
        message.key = Some("t-1/init/0/rollback".to_owned());
        message.reference = Some("/v1/worker/attempts/a.b".to_owned());
        let text = serde_json::to_string(&message).unwrap();
        let expected = r#"{"TaskId":"t-1","Cursor":2,"Type":1,"Module":"mysql","Command":"clean_instance","Timeout":900,"Retry":3,"Token":"a.b","Key":"t-1/init/0/rollback","Reference":"/v1/worker/attempts/a.b"}"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn a_result_has_the_fields_of_its_document() {
        let mut result = ResultMessage {
            task_id: "t-1".to_owned(),
            cursor: 0,
            direction: Direction::Forward,
            event: ResultEvent::Succeeded,
            code: 0,
            message: None,
            parameters: Some(to_raw_value(&serde_json::json!({"Ip": "10.0.0.7"})).unwrap()),
            token: Some("a.b".to_owned()),
        };
        let text = serde_json::to_string(&result).unwrap();
        let expected = r#"{"TaskId":"t-1","Cursor":0,"Type":0,"Event":"succeeded","Code":0,"Message":null,"Parameters":{"Ip":"10.0.0.7"},"Token":"a.b"}"#;
        assert_eq!(text, expected);
        result.event = ResultEvent::Failed;
        result.code = CODE_FINAL;
        result.message = Some("no such disk".to_owned());
        result.parameters = None;
        let text = serde_json::to_string(&result).unwrap();
        let expected = r#"{"TaskId":"t-1","Cursor":0,"Type":0,"Event":"failed","Code":65,"Message":"no such disk","Token":"a.b"}"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn a_module_may_send_back_what_it_got_with_an_event() {
        let sent_back = CLASSIC.replace(r#""Retry":3"#, r#""Retry":3,"Event":"started","Token":"a.b""#);
        let result: ResultMessage = serde_json::from_str(&sent_back).unwrap();
        assert_eq!((result.event, result.token.as_deref()), (ResultEvent::Started, Some("a.b")));
    }

    #[test]
    fn what_is_wrong_is_said_with_the_field() {
        let error = |text: &str| serde_json::from_str::<StepMessage>(text).unwrap_err().to_string();
        assert!(error(&CLASSIC.replace(r#""Type":1"#, r#""Type":2"#)).contains("Type is 2: it is 0"));
        assert!(error(&CLASSIC.replace(r#""Module":"mysql","#, "")).contains("missing field `Module`"));
    }
}
