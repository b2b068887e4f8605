//! Task lists in a build without Consul.

use std::sync::Arc;

use super::TaskListSettings;
use crate::{http::App, loops::Loops};

/// There is none.
pub(super) enum Intake {}

/// There is none.
pub(super) enum Running {}

impl Intake {
    pub(super) fn new(_: TaskListSettings) -> anyhow::Result<Self> {
        anyhow::bail!(
            "Consul is not in this build: build it with `--features consul`, or with `--features full` for all coordinators"
        )
    }

    pub(super) fn start(self, _: &Arc<App>, _: &mut Loops) -> Running {
        match self {}
    }
}

impl Running {
    pub(super) async fn end(self) {
        match self {}
    }
}
