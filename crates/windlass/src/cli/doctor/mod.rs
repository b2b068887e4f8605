//! `windlass doctor`: reports problems of a store, or of what the Go library machinery keeps.

mod machinery;

use clap::{Args, Subcommand};

use self::machinery::MachineryArgs;
use crate::cli::{
    exit::Exit,
    output::{Format, Output, Style, time::age},
};
use crate::{doctor::Diagnosis, wire};

/// The store to examine.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DoctorArgs {
    #[command(subcommand)]
    other: Option<DoctorCommand>,
    /// The store to examine: sqlite:PATH, postgres://… or mysql://…
    #[arg(
        long,
        value_name = "URL",
        env = "WINDLASS_SERVER_STORE",
        hide_env_values = true,
        default_value = "sqlite:windlass.db"
    )]
    pub(crate) store: String,
}

/// What can be examined other than a store.
#[derive(Debug, Clone, Subcommand)]
enum DoctorCommand {
    /// Report problems of tasks of the Go library machinery, which are on its servers
    Machinery(MachineryArgs),
}

impl DoctorArgs {
    /// Reads the whole store and prints the findings. Servers may have it open meanwhile.
    pub(crate) async fn run(self, format: Format) -> anyhow::Result<Exit> {
        if let Some(DoctorCommand::Machinery(args)) = self.other {
            return args.run(format).await;
        }
        let diagnosis = wire::examine(&self.store.parse()?).await?;
        Output::new(format).show(&diagnosis, |diagnosis, _: Style| render(diagnosis))?;
        Ok(if diagnosis.problems.is_empty() { Exit::Done } else { Exit::Failed })
    }
}

fn render(diagnosis: &Diagnosis) -> String {
    let mut ended: Vec<String> =
        diagnosis.ended.iter().map(|(status, count)| format!("{count} {}", status.as_str())).collect();
    if ended.is_empty() {
        ended.push("none".to_owned());
    }
    let mut lines = head(diagnosis);
    lines.extend([
        format!("tasks     {} active; ended: {}", diagnosis.active, ended.join(", ")),
        format!("flows     {} in {}", diagnosis.flows.0, counted(diagnosis.flows.1, "version", "versions")),
        format!("alarms    {} open", diagnosis.open_alarms),
    ]);
    if diagnosis.problems.is_empty() {
        lines.push("All that was read is sound.".to_owned());
    }
    lines.extend(diagnosis.problems.iter().map(|problem| format!("problem   {problem}")));
    lines.join("\n") + "\n"
}

/// The store, who has it open, and the size of its file where it is a file.
fn head(diagnosis: &Diagnosis) -> Vec<String> {
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let Diagnosis { store, format, .. } = diagnosis;
    let opened_by = diagnosis.opened_by.as_deref().unwrap_or("by nobody now");
    let Some(file) = &diagnosis.file else {
        return vec![format!("store     {store}, format {format}"), format!("opened    {opened_by}")];
    };
    let created = file.created_at.map(|at| age(at, jiff::Timestamp::now())).unwrap_or_default();
    vec![
        format!("store     {store}, format {format}, made {created}"),
        format!("opened    {}, {opened_by}", counted(u64::from(file.opened), "time", "times")),
        format!(
            "size      {} and a log of {}; {} left on the file system",
            mib(file.file_bytes),
            mib(file.wal_bytes),
            mib(file.free_bytes)
        ),
    ]
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use windlass_api::TaskStatus;

    use super::*;
    use crate::doctor::FileDiagnosis;

    #[test]
    fn a_diagnosis_for_people() {
        let diagnosis = Diagnosis {
            store: "sqlite:a.db".to_owned(),
            format: 1,
            file: Some(FileDiagnosis {
                created_at: None,
                opened: 1,
                file_bytes: 5 << 20,
                wal_bytes: 32 << 20,
                free_bytes: 9 << 30,
            }),
            opened_by: Some("pid 7".to_owned()),
            active: 3,
            ended: [(TaskStatus::Succeeded, 4)].into(),
            flows: (1, 2),
            open_alarms: 0,
            problems: vec!["task X cannot be read".to_owned()],
        };
        insta::assert_snapshot!(render(&diagnosis), @r"
        store     sqlite:a.db, format 1, made 
        opened    1 time, pid 7
        size      5 MiB and a log of 32 MiB; 9216 MiB left on the file system
        tasks     3 active; ended: 4 succeeded
        flows     1 in 2 versions
        alarms    0 open
        problem   task X cannot be read
        ");
    }
}
