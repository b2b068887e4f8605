//! `windlass doctor machinery`: reports problems of tasks of the Go library machinery.

use std::time::Duration;

use clap::Args;
use windlass_api::Span;

use crate::{
    brokers::{BrokerUrl, MachineryDiagnosis, MachineryServers, examine_machinery},
    cli::{
        exit::Exit,
        output::{Format, Output, Style},
    },
};

/// Where the library keeps its tasks.
#[derive(Debug, Clone, Args)]
pub(crate) struct MachineryArgs {
    /// The broker of the library: redis://…
    #[arg(long, value_name = "URL", env = "WINDLASS_MACHINERY_BROKER", hide_env_values = true)]
    broker: String,
    /// The result backend of the library. Default: the broker
    #[arg(long, value_name = "URL", env = "WINDLASS_MACHINERY_BACKEND", hide_env_values = true)]
    backend: Option<String>,
    /// Report tasks as lost that are older than this
    #[arg(long, value_name = "SPAN", default_value = "10m")]
    older_than: Span,
}

impl MachineryArgs {
    /// Looks at the servers twice, without changing anything, and prints the findings.
    pub(crate) async fn run(self, format: Format) -> anyhow::Result<Exit> {
        let broker = BrokerUrl::new(self.broker);
        let backend = self.backend.map_or_else(|| broker.clone(), BrokerUrl::new);
        let older_than = Duration::from_millis(self.older_than.ms);
        let diagnosis = examine_machinery(&MachineryServers { broker, backend }, older_than).await?;
        Output::new(format).show(&diagnosis, |diagnosis, _: Style| render(diagnosis))?;
        Ok(if diagnosis.problems.is_empty() { Exit::Done } else { Exit::Failed })
    }
}

fn render(diagnosis: &MachineryDiagnosis) -> String {
    let MachineryDiagnosis { broker, backend, queues, delayed, tasks, groups, is_whole, problems } =
        diagnosis;
    let counted = |counts: &std::collections::BTreeMap<String, u64>| {
        let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
    };
    let mut lines = vec![
        format!("broker    {broker}"),
        format!("backend   {backend}"),
        format!("queues    {}; delayed: {delayed}", counted(queues)),
        format!("tasks     {}", counted(tasks)),
        format!("groups    {groups}"),
    ];
    if !is_whole {
        lines.push("There is more than is looked at, so lost tasks are not reported.".to_owned());
    }
    if problems.is_empty() {
        lines.push("No problems were found.".to_owned());
    }
    for problem in problems {
        lines.push(format!("problem   {}: {}", problem.id, problem.message));
        lines.push(format!("          {}", problem.advice));
    }
    lines.join("\n") + "\n"
}
