//! Translates advice in messages of the server: the server names HTTP calls, an operator at a shell needs
//! commands.

/// HTTP calls in the server's messages, and the commands that do the same. Where one call is the prefix of
/// another, the longer one comes first.
const COMMANDS: &[(&str, &str)] = &[
    ("GET /v1/alarms?all=true", "`windlass alarm list --all`"),
    ("GET /v1/devices/NAME", "`windlass device show NAME`"),
    ("GET /v1/devices", "`windlass device list`"),
    ("PUT /v1/devices/NAME", "`windlass device apply FILE`"),
    ("GET /v1/limits", "`windlass limit list`"),
    ("GET /v1/locks", "`windlass lock list`"),
    ("GET /v1/queues", "`windlass queue list`"),
    ("GET /v1/tasks/ID/why", "`windlass task why ID`"),
    ("GET /v1/tasks", "`windlass task list`"),
    ("POST /v1/tasks", "`windlass task start`"),
    ("GET /v1/tokens", "`windlass token list`"),
    ("PUT /v1/flows/NAME", "`windlass flow apply FILE`"),
    ("PUT /v1/rollouts/NAME", "`windlass rollout start FILE`"),
    ("PUT /v1/triggers/NAME", "`windlass trigger apply FILE`"),
    ("after the seconds in `Retry-After`", "in a second or so"),
];

/// Replaces the HTTP calls in a message of the server by commands.
#[must_use]
pub(super) fn as_commands(message: &str) -> String {
    COMMANDS.iter().fold(message.to_owned(), |message, (call, command)| message.replace(call, command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_that_a_refusal_advises_has_its_command() {
        let texts = [
            include_str!("../http/answer/problem.rs"),
            include_str!("../http/answer/errors.rs"),
            include_str!("../http/request/path.rs"),
        ]
        .concat();
        let mut calls = 0;
        // Only string literals: comments name other calls.
        for line in
            texts.lines().filter(|line| !line.trim_start().starts_with("//") && line.contains(" /v1/"))
        {
            calls += 1;
            assert!(!as_commands(line).contains("/v1/"), "{line}");
        }
        assert!(calls >= 6, "the texts are where they were");
    }
}
