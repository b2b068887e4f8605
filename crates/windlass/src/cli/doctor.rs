//! `windlass doctor`: what may be wrong with a store.

use clap::Args;

use super::{
    exit::Exit,
    output::{Format, Output, Style},
    time::age,
};
use crate::{doctor::Diagnosis, wire};

/// What to look at.
#[derive(Debug, Clone, Args)]
pub(crate) struct DoctorArgs {
    /// The store to look at: sqlite:PATH
    #[arg(
        long,
        value_name = "URL",
        env = "WINDLASS_SERVER_STORE",
        hide_env_values = true,
        default_value = "sqlite:windlass.db"
    )]
    pub(crate) store: String,
}

impl DoctorArgs {
    /// Reads the store whole and prints what was found. A server may have it open meanwhile.
    pub(crate) fn run(self, format: Format) -> anyhow::Result<Exit> {
        let diagnosis = wire::examine(&self.store.parse()?)?;
        Output::new(format).show(&diagnosis, |diagnosis, _: Style| render(diagnosis))?;
        Ok(if diagnosis.problems.is_empty() { Exit::Done } else { Exit::Failed })
    }
}

fn render(diagnosis: &Diagnosis) -> String {
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let created = diagnosis.created_at.map(|at| age(at, jiff::Timestamp::now())).unwrap_or_default();
    let mut ended: Vec<String> =
        diagnosis.ended.iter().map(|(status, count)| format!("{count} {}", status.as_str())).collect();
    if ended.is_empty() {
        ended.push("none".to_owned());
    }
    let mut lines = vec![
        format!("store     {}, format {}, made {created}", diagnosis.store, diagnosis.format),
        format!(
            "opened    {}, {}",
            counted(u64::from(diagnosis.opened), "time", "times"),
            diagnosis.opened_by.as_deref().unwrap_or("by nobody now")
        ),
        format!(
            "size      {} and a log of {}; {} left on the file system",
            mib(diagnosis.file_bytes),
            mib(diagnosis.wal_bytes),
            mib(diagnosis.free_bytes)
        ),
        format!("tasks     {} active; ended: {}", diagnosis.active, ended.join(", ")),
        format!("flows     {} in {}", diagnosis.flows.0, counted(diagnosis.flows.1, "version", "versions")),
        format!("alarms    {} open", diagnosis.open_alarms),
    ];
    if diagnosis.problems.is_empty() {
        lines.push("All that was read is sound.".to_owned());
    }
    lines.extend(diagnosis.problems.iter().map(|problem| format!("problem   {problem}")));
    lines.join("\n") + "\n"
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use windlass_api::TaskStatus;

    use super::*;

    #[test]
    fn a_diagnosis_for_people() {
        let diagnosis = Diagnosis {
            store: "sqlite:a.db".to_owned(),
            format: 1,
            created_at: None,
            opened_by: Some("pid 7".to_owned()),
            opened: 1,
            file_bytes: 5 << 20,
            wal_bytes: 32 << 20,
            free_bytes: 9 << 30,
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
