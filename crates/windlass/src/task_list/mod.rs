//! Task lists in Consul: their entries start tasks, beside other consumers of the list.
//!
//! | file | concern |
//! |---|---|
//! | `settings.rs` | the configuration |
//! | `intake` | takes entries, starts their tasks, and settles them when these have ended |
//! | `absent.rs` | the same in a build without Consul: a refusal |

#[cfg(not(feature = "consul"))]
#[path = "absent.rs"]
mod intake;
#[cfg(feature = "consul")]
mod intake;
mod settings;

use std::sync::Arc;

use anyhow::Context as _;
use futures_util::future::join_all;

use crate::{http::App, loops::Loops};
use intake::{Intake, Running};

#[cfg(feature = "consul")]
pub use intake::malformed::task_list_entry;
pub(crate) use settings::{TaskListSection, TaskListSettings, read};

/// The task lists of a server.
pub(crate) struct TaskLists {
    intakes: Vec<Intake>,
}

/// The task lists of a server that runs.
pub(crate) struct RunningTaskLists {
    lists: Vec<Running>,
}

impl TaskLists {
    /// Makes the clients of the configured lists, without connecting.
    ///
    /// # Errors
    /// When a URL or a token is invalid, or Consul is not in this build. Names the section.
    pub(crate) fn new(settings: Vec<TaskListSettings>) -> anyhow::Result<Self> {
        let intake = |settings: TaskListSettings| {
            let place = settings::place(&settings.prefix);
            Intake::new(settings).context(place)
        };
        let intakes = settings.into_iter().map(intake).collect::<anyhow::Result<_>>();
        Ok(Self { intakes: intakes.context("in the configuration file")? })
    }

    /// Starts the loops that take entries. The caller must end them before it ends the loops.
    pub(crate) fn start(self, app: &Arc<App>, running: &mut Loops) -> RunningTaskLists {
        RunningTaskLists {
            lists: self.intakes.into_iter().map(|intake| intake.start(app, running)).collect(),
        }
    }
}

impl RunningTaskLists {
    /// Gives up leadership of lists of which no task is under way, so that the next consumer leads at once.
    pub(crate) async fn end(self) {
        join_all(self.lists.into_iter().map(Running::end)).await;
    }
}
