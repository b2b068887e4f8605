//! Reads the list, by blocking query.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::sleep};
use windlass_client::Pacing;
use windlass_coordinators::KvList;

use super::{FAILED_PAUSE_MAX, TaskList, trouble::Trouble};

/// How long one query waits for a change. What a broken connection hides is seen after it.
const WAIT: Duration = Duration::from_secs(30);

/// The pause between two queries: each returns the whole list, and changes of this time come together.
const PAUSE: Duration = Duration::from_millis(50);

/// The same while entries of the last list can still be taken.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// Reads the list as it changes, for ever.
pub(super) async fn run(list: Arc<TaskList>, lists: watch::Sender<Option<Arc<KvList>>>) {
    let prefix = &list.settings.prefix;
    let trouble = Trouble::new(&list, prefix, format!("cannot read the task list {prefix}"));
    let mut pacing = Pacing::up_to(FAILED_PAUSE_MAX);
    let mut seen = 0;
    loop {
        match list.kv.list(prefix, seen, WAIT).await {
            Ok(read) => {
                pacing.succeeded();
                trouble.ends().await;
                seen = read.index;
                lists.send_replace(Some(Arc::new(read)));
                sleep(PAUSE).await;
                tokio::select! {
                    () = list.exhausted.notified() => {}
                    () = sleep(BUSY_PAUSE) => {}
                }
            }
            Err(error) => {
                trouble.goes_on(&error).await;
                sleep(pacing.failed()).await;
            }
        }
    }
}
