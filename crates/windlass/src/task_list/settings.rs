//! The configuration of task lists.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};
use utoipa::ToSchema;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use windlass_api::Span;
use windlass_client::coordinators::Campaign;
use windlass_core::Name;

use crate::brokers::{BrokerUrl, Pointer};

/// The default of `prefix`.
const PREFIX_DEFAULT: &str = "oracleTask/";

/// The default of `params`: the field of the first design.
const PARAMS_DEFAULT: &str = "/taskPara";

/// The default of `lease`. Consul's own minimum of a TTL needs 22.3 s.
const LEASE_DEFAULT: Span = Span::from_ms(30_000);

/// The default of `window` without a leader key: enough to keep workers busy, and some remain for other consumers.
const WINDOW_DEFAULT: u32 = 100;

/// The largest `window`.
const WINDOW_MAX: u32 = 10_000;

/// A section `[[task_list]]`: entries of a list in Consul start tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskListSection {
    /// URL of the Consul cluster, with one or more addresses.
    pub(super) consul: String,
    /// File with the secret of an ACL token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(super) token_file: Option<PathBuf>,
    /// Environment variable with the secret of an ACL token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token_variable: Option<String>,
    /// The prefix of the list's keys. Default: `oracleTask/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prefix: Option<String>,
    /// The flow of tasks whose type is not in `flows`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) flow: Option<String>,
    /// The flow of each type of task.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) flows: BTreeMap<String, String>,
    /// JSON pointer to the parameters in a value. Default: `/taskPara`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) params: Option<String>,
    /// What becomes of a key whose task has ended. Default: it is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) when_ended: Option<WhenEnded>,
    /// The prefix of keys whose tasks have ended, with `when_ended = "move"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) done_prefix: Option<String>,
    /// The key that consumers of the list lock while they lead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) leader: Option<String>,
    /// The lease of the leader. Default: 30 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease: Option<Span>,
    /// How many tasks of the list may be under way at once. Default: 1 with `leader`, else 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) window: Option<u32>,
}

/// What becomes of a key whose task has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum WhenEnded {
    /// It is deleted.
    Delete,
    /// It is moved to the done prefix, with the outcome in its value.
    Move,
    /// It is deleted if the task succeeded. Else it stays, with the failure in its value.
    WriteBack,
}

/// A list in Consul whose entries start tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskListSettings {
    pub(super) consul: BrokerUrl,
    pub(super) token: Token,
    pub(super) prefix: String,
    pub(super) flows: Flows,
    pub(super) params: Pointer,
    pub(super) when_ended: WhenEnded,
    /// Empty unless keys are moved.
    pub(super) done_prefix: String,
    pub(super) leader: Option<LeaderSettings>,
    pub(super) window: usize,
}

/// Where the secret of an ACL token is, unless it is in the URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// In the URL, or there is none.
    InUrl,
    /// In a file.
    File(PathBuf),
    /// In an environment variable.
    Variable(String),
}

/// The flows that tasks become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flows {
    /// By the type of a task.
    pub(super) by_type: BTreeMap<String, Name>,
    /// For other types.
    pub(super) other: Option<Name>,
}

#[cfg(feature = "consul")]
impl Flows {
    /// The flow of a type of task.
    pub(super) fn of(&self, kind: &str) -> Option<&Name> {
        self.by_type.get(kind).or(self.other.as_ref())
    }
}

/// The key that consumers of the list lock while they lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaderSettings {
    pub(super) key: String,
    pub(super) lease: Duration,
}

impl TaskListSettings {
    /// The settings as a section of a configuration file, without the password of the URL.
    pub(crate) fn section(&self) -> TaskListSection {
        let Self { consul, token, prefix, flows, params, when_ended, done_prefix, leader, window } = self;
        let (token_file, token_variable) = match token {
            Token::InUrl => (None, None),
            Token::File(file) => (Some(file.clone()), None),
            Token::Variable(name) => (None, Some(name.clone())),
        };
        let lease = |leader: &LeaderSettings| {
            Span::from_ms(u64::try_from(leader.lease.as_millis()).unwrap_or(u64::MAX))
        };
        TaskListSection {
            consul: consul.to_string(),
            token_file,
            token_variable,
            prefix: Some(prefix.clone()),
            flow: flows.other.as_ref().map(Name::to_string),
            flows: flows.by_type.iter().map(|(kind, flow)| (kind.clone(), flow.to_string())).collect(),
            params: Some(params.as_str().to_owned()),
            when_ended: Some(*when_ended),
            done_prefix: Some(done_prefix.clone()).filter(|prefix| !prefix.is_empty()),
            leader: leader.as_ref().map(|leader| leader.key.clone()),
            lease: leader.as_ref().map(lease),
            window: u32::try_from(*window).ok(),
        }
    }
}

/// Reads the sections of a configuration file.
///
/// # Errors
/// When a value is invalid, or two sections have the same list. Names the section.
pub(crate) fn read(sections: Vec<TaskListSection>) -> anyhow::Result<Vec<TaskListSettings>> {
    let mut all: Vec<TaskListSettings> = Vec::with_capacity(sections.len());
    for section in sections {
        let place = place(section.prefix.as_deref().unwrap_or(PREFIX_DEFAULT));
        let settings = read_one(section).context(place.clone())?;
        let other = all.iter().find(|other| are_nested(&settings.prefix, &other.prefix));
        // Idempotency keys have no address in them: addresses may change.
        if let Some(other) = other {
            anyhow::bail!(
                "{place}: another section has the prefix {}: use prefixes of which none begins with another, also in different clusters",
                other.prefix
            );
        }
        let has_its_leader = |other: &TaskListSettings| {
            let keys = settings.leader.as_ref().zip(other.leader.as_ref());
            settings.consul == other.consul && keys.is_some_and(|(one, other)| one.key == other.key)
        };
        if all.iter().any(has_its_leader) {
            anyhow::bail!("{place}: another section has the same `leader`: use a leader key for each list");
        }
        all.push(settings);
    }
    Ok(all)
}

fn are_nested(one: &str, other: &str) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// The place of a section, for error messages.
pub(super) fn place(prefix: &str) -> String {
    format!("in the section [[task_list]] of {prefix}")
}

fn read_one(section: TaskListSection) -> anyhow::Result<TaskListSettings> {
    let TaskListSection {
        consul,
        token_file,
        token_variable,
        prefix,
        flow,
        flows,
        params,
        when_ended,
        done_prefix,
        leader,
        lease,
        window,
    } = section;
    let token = match (token_file, token_variable) {
        (None, None) => Token::InUrl,
        (Some(file), None) => Token::File(file),
        (None, Some(name)) => Token::Variable(name),
        (Some(_), Some(_)) => {
            anyhow::bail!("both `token_file` and `token_variable` are set: use one of them")
        }
    };
    let prefix = prefix.unwrap_or_else(|| PREFIX_DEFAULT.to_owned());
    check_prefix("prefix", &prefix)?;
    let name = |flow: String| {
        Name::new(&flow).map_err(|error| anyhow::anyhow!("{flow:?} is not the name of a flow: {error}"))
    };
    let flows = Flows {
        other: flow.map(name).transpose().context("`flow`")?,
        by_type: flows
            .into_iter()
            .map(|(kind, flow)| Ok((kind, name(flow)?)))
            .collect::<anyhow::Result<_>>()
            .context("`flows`")?,
    };
    ensure!(
        flows.other.is_some() || !flows.by_type.is_empty(),
        "set `flow`, the flow of every task, or `flows`, a flow for each `taskType`"
    );
    let params = params.unwrap_or_else(|| PARAMS_DEFAULT.to_owned());
    let params = Pointer::parse(&params)
        .map_err(|why| anyhow::anyhow!("`params` is {params:?}, and a JSON pointer {why}"))?;
    let when_ended = when_ended.unwrap_or(WhenEnded::Delete);
    let done_prefix = match (when_ended, done_prefix) {
        (WhenEnded::Move, None) => anyhow::bail!("`when_ended` is \"move\": set `done_prefix`"),
        (WhenEnded::Move, Some(done)) => {
            check_prefix("done_prefix", &done)?;
            ensure!(
                !are_nested(&done, &prefix),
                "`done_prefix` is {done:?} and `prefix` is {prefix:?}: neither may begin with the other"
            );
            done
        }
        (_, None) => String::new(),
        (_, Some(_)) => anyhow::bail!("`done_prefix` needs `when_ended = \"move\"`"),
    };
    let default = if leader.is_some() { 1 } else { WINDOW_DEFAULT };
    let window = window.unwrap_or(default);
    ensure!((1..=WINDOW_MAX).contains(&window), "`window` is {window}: use 1 to {WINDOW_MAX}");
    ensure!(leader.is_some() || lease.is_none(), "`lease` needs `leader`");
    let leader = leader.map(|key| read_leader(key, lease, [&prefix, &done_prefix])).transpose()?;
    Ok(TaskListSettings {
        consul: BrokerUrl::new(consul),
        token,
        prefix,
        flows,
        params,
        when_ended,
        done_prefix,
        leader,
        window: usize::try_from(window)?,
    })
}

fn read_leader(key: String, lease: Option<Span>, prefixes: [&str; 2]) -> anyhow::Result<LeaderSettings> {
    for prefix in prefixes.into_iter().filter(|prefix| !prefix.is_empty()) {
        ensure!(
            !key.starts_with(prefix),
            "`leader` is {key:?}, which is a key of the list itself: use a key outside of {prefix:?}"
        );
    }
    let lease = Duration::from_millis(lease.unwrap_or(LEASE_DEFAULT).ms);
    Campaign::new(&key, "windlass", lease).check().context("`leader`")?;
    Ok(LeaderSettings { key, lease })
}

fn check_prefix(name: &str, prefix: &str) -> anyhow::Result<()> {
    ensure!(
        prefix.len() > 1 && prefix.ends_with('/') && !prefix.starts_with('/'),
        "`{name}` is {prefix:?}: use a prefix that ends with a slash and begins with none, such as {PREFIX_DEFAULT:?}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> anyhow::Result<TaskListSettings> {
        Ok(read(vec![toml::from_str(text)?])?.remove(0))
    }

    #[test]
    fn defaults_are_those_of_the_first_design() {
        let list = read_text("consul = \"consul://:secret@h\"\nflow = \"f\"").unwrap();
        assert_eq!((list.prefix.as_str(), list.params.as_str()), ("oracleTask/", "/taskPara"));
        assert_eq!((list.when_ended, list.window, &list.leader), (WhenEnded::Delete, 100, &None));
        let list = read_text("consul = \"consul://h\"\nflow = \"f\"\nleader = \"consumerLeader\"").unwrap();
        assert_eq!(list.window, 1, "beside other leaders one task at a time");
        assert_eq!(list.leader.unwrap().lease, Duration::from_secs(30));
    }

    #[test]
    fn the_printed_section_means_the_same_and_has_no_secret() {
        let text = "consul = \"consul://:secret@a,b\"\ntoken_file = \"t\"\nprefix = \"p/\"\nflow = \"f\"\n\
                    params = \"/x\"\nwhen_ended = \"move\"\ndone_prefix = \"d/\"\nleader = \"l\"\nlease = \"20s\"\nwindow = 7\n\
                    [flows]\na = \"g\"\n";
        let list = read_text(text).unwrap();
        let printed = toml::to_string(&list.section()).unwrap();
        assert!(!printed.contains("secret") && !format!("{list:?}").contains("secret"), "{printed}");
        let again = read_text(&printed).unwrap();
        assert_eq!(TaskListSettings { consul: list.consul.clone(), ..again }, list);
        assert_eq!(list.flows.of("a").unwrap().as_str(), "g");
        assert_eq!(list.flows.of("b").unwrap().as_str(), "f");
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_the_section() {
        for (rest, words) in [
            ("", "set `flow`"),
            ("flow = \"a b\"", "`flow`"),
            ("flow = \"f\"\nprefix = \"p\"", "`prefix` is \"p\""),
            ("flow = \"f\"\nprefix = \"/p/\"", "`prefix` is"),
            ("flow = \"f\"\nparams = \"x\"", "`params` is"),
            ("flow = \"f\"\nwhen_ended = \"move\"", "set `done_prefix`"),
            ("flow = \"f\"\ndone_prefix = \"d/\"", "needs `when_ended"),
            ("flow = \"f\"\nwhen_ended = \"move\"\ndone_prefix = \"oracleTask/d/\"", "neither may begin"),
            ("flow = \"f\"\nleader = \"oracleTask/l\"", "a key of the list itself"),
            (
                "flow = \"f\"\nleader = \"d/l\"\nwhen_ended = \"move\"\ndone_prefix = \"d/\"",
                "use a key outside of \"d/\"",
            ),
            ("flow = \"f\"\nleader = \"a b\"", "invalid name"),
            ("flow = \"f\"\nleader = \"l\"\nlease = \"1s\"", "invalid lease"),
            ("flow = \"f\"\nlease = \"20s\"", "`lease` needs `leader`"),
            ("flow = \"f\"\nwindow = 0", "`window` is 0"),
            ("flow = \"f\"\ntoken_file = \"t\"\ntoken_variable = \"T\"", "use one of them"),
        ] {
            let error = format!("{:#}", read_text(&format!("consul = \"consul://h\"\n{rest}")).unwrap_err());
            assert!(error.contains("[[task_list]] of") && error.contains(words), "{rest}: {error}");
        }
        let list: TaskListSection = toml::from_str("consul = \"consul://h\"\nflow = \"f\"").unwrap();
        let error = read(vec![list.clone(), list]).unwrap_err().to_string();
        assert!(error.contains("another section has the prefix oracleTask/"), "{error}");
        let led = |prefix: &str| {
            let text =
                format!("consul = \"consul://h\"\nflow = \"f\"\nleader = \"l\"\nprefix = \"{prefix}\"");
            toml::from_str::<TaskListSection>(&text).unwrap()
        };
        let error = read(vec![led("a/"), led("b/")]).unwrap_err().to_string();
        assert!(error.contains("another section has the same `leader`"), "{error}");
    }
}
