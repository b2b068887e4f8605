//! Takes the entries of a list in Consul, and starts their tasks.
//!
//! ```text
//! reader ─▶ list ─▶ taker ─ take: compare-and-set that marks the entry ─▶ submit ─▶ its task ends ─▶ settle: delete,
//!                     ▲                                                     ▲                        move, write back
//! leader ─▶ term ─────┘            marked entries that nobody follows ──────┘
//! ```
//!
//! The mark names our store and the id of the task, so that any server of the store goes on with an entry after a crash
//! at any place. See `docs/decisions/0029-the-mark-is-in-the-entry.md`.
//!
//! | file | concern |
//! |---|---|
//! | `fields.rs`, `entry.rs`, `listing.rs` | values, their order, what is written into them: no I/O |
//! | `reader.rs` | reads the list, by blocking query |
//! | `leader.rs` | holds the key that consumers lock while they lead |
//! | `reign.rs` | whether a server of our store leads: tasks are suspended while none does |
//! | `taker.rs` | takes what waits |
//! | `follower.rs` | from a marked entry to its task, and from the end of the task to the entry |
//! | `trouble.rs` | alarms |

mod entry;
mod fields;
mod follower;
mod leader;
mod listing;
pub(crate) mod malformed;
mod reader;
mod reign;
mod taker;
mod trouble;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use tokio::{
    sync::{Notify, watch},
    time,
};
use windlass_client::Term;
use windlass_coordinators::{Consul, Coordinator as _, Kv};

use super::settings::{TaskListSettings, Token};
use crate::{
    cli::read_secret,
    http::App,
    loops::{END_MAX, Loops},
};
use leader::Lead;
use reign::Reign;

/// The longest pause after a failure.
const FAILED_PAUSE_MAX: Duration = Duration::from_secs(5);

/// A configured list that is not read yet.
pub(super) struct Intake {
    settings: TaskListSettings,
    consul: Consul,
    kv: Kv,
}

/// A list that is read: what its loops share.
struct TaskList {
    app: Arc<App>,
    settings: TaskListSettings,
    kv: Kv,
    /// The name of Consul for messages.
    consul: String,
    /// The name of our store in marks.
    store: String,
    /// The leadership of this server, where the list has a leader key.
    term: watch::Receiver<Option<Term>>,
    /// Who leads. It is always this server where the list has no leader key.
    reign: watch::Receiver<Reign>,
    /// The fence of the last leadership of which Consul says that it has ended.
    deposed: watch::Sender<u64>,
    /// Notified when nothing of the last list can be taken any more.
    exhausted: Notify,
    /// Entries that this server takes or follows.
    under_way: AtomicUsize,
}

/// Whether this server may take and submit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Permit {
    /// It may, with this fence of the leader key if the list has one.
    Acts { fence: Option<u64> },
    /// It leads, and a renewal is late.
    AtRisk,
    /// Somebody else leads, or nobody.
    StandsBy,
}

impl TaskList {
    fn permit(&self) -> Permit {
        if self.settings.leader.is_none() {
            return Permit::Acts { fence: None };
        }
        match &*self.term.borrow() {
            Some(term) if term.is_lost() => Permit::StandsBy,
            Some(term) if term.is_at_risk() => Permit::AtRisk,
            Some(term) => Permit::Acts { fence: Some(term.fence()) },
            None => Permit::StandsBy,
        }
    }

    /// By whom tasks are, in their history.
    fn by(&self) -> String {
        format!("the task list {} at {}", self.settings.prefix, self.consul)
    }
}

/// A list with its loops.
pub(super) struct Running {
    ending: watch::Sender<bool>,
    resigned: Arc<Notify>,
    has_leader: bool,
}

impl Intake {
    /// Makes the client, without connecting.
    ///
    /// # Errors
    /// When the URL or the token is invalid.
    pub(super) fn new(settings: TaskListSettings) -> anyhow::Result<Self> {
        let url = settings.consul.as_str();
        let consul = match &settings.token {
            Token::InUrl => Consul::new(url),
            Token::File(file) => Consul::with_token(url, &read_secret(file, "token of Consul")?),
            Token::Variable(name) => {
                // The cause would show a value that is not text.
                let token = std::env::var(name).map_err(|_| {
                    anyhow::anyhow!("`token_variable`: the variable {name} is not set, or is not text")
                })?;
                Consul::with_token(url, token.trim())
            }
        };
        let consul = consul.context("`consul`")?;
        let kv = consul.kv()?;
        Ok(Self { settings, consul, kv })
    }

    /// Starts its loops.
    pub(super) fn start(self, app: &Arc<App>, running: &mut Loops) -> Running {
        let Self { settings, consul, kv } = self;
        let (terms, term) = watch::channel(None);
        let (ending, ends) = watch::channel(false);
        let resigned = Arc::new(Notify::new());
        let leader = settings.leader.clone();
        let first = if leader.is_some() { Reign::Elsewhere } else { Reign::Here };
        let (reigns, reign) = watch::channel(first);
        let list = Arc::new(TaskList {
            app: app.clone(),
            kv,
            consul: consul.name().to_owned(),
            store: app.engine.store_name(),
            settings,
            term,
            reign,
            deposed: watch::Sender::new(0),
            exhausted: Notify::new(),
            under_way: AtomicUsize::new(0),
        });
        let (lists, read) = watch::channel(None);
        running.spawn("reads a task list", reader::run(list.clone(), lists));
        running.spawn("takes entries of a task list", taker::run(list.clone(), read));
        let has_leader = leader.is_some();
        if let Some(settings) = leader {
            let (watched, key) = (consul.clone(), settings.key.clone());
            running.spawn("sees who leads a task list", reign::run(list.clone(), watched, key, reigns));
            let lead = Lead { list, consul, settings, terms, ends, resigned: resigned.clone() };
            running.spawn("campaigns for a task list", lead.run());
        }
        Running { ending, resigned, has_leader }
    }
}

impl Running {
    /// Gives up leadership, unless a task of the list is under way.
    pub(super) async fn end(self) {
        let resigned = self.resigned.notified();
        self.ending.send_replace(true);
        if self.has_leader && time::timeout(END_MAX, resigned).await.is_err() {
            tracing::warn!("the leadership of a task list ends by its lease: Consul does not answer");
        }
    }
}

impl TaskList {
    /// Whether no entry is taken or followed, after the permit was withdrawn.
    fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) == 0
    }

    /// Notes how many entries this server takes or follows.
    fn note_under_way(&self, count: usize) {
        self.under_way.store(count, Ordering::SeqCst);
    }
}
