//! `windlass task show ID --items STEP`: a line for each item of a step with `each`.

use jiff::Timestamp;
use windlass_api::{List, Member, MemberCounts};

use super::steps;
use crate::cli::{
    connection::Context,
    exit::Exit,
    output::{
        Style,
        table::Table,
        time::{age, elapsed},
    },
};

/// Shows the items of a step.
pub(crate) async fn run(id: &str, step: &str, context: &Context) -> anyhow::Result<Exit> {
    let members = context.client.members(id, step, None).await?;
    context.output.show(&members, |members, style| table(members, Timestamp::now(), style))?;
    Ok(Exit::Done)
}

fn table(members: &List<Member>, now: Timestamp, style: Style) -> String {
    let mut table = Table::new(["ITEM", "STATUS", "TRIES", "TIME", "ROLLBACK", "MESSAGE"]);
    for member in &members.items {
        let taken = member.started_at.map(|started| elapsed(started, member.ended_at.unwrap_or(now)));
        table.row([
            member.index.to_string().into(),
            steps::step_status(member.status),
            steps::count(member.attempts).into(),
            taken.unwrap_or_default().into(),
            member.rollback.as_ref().map(steps::rollback_status).unwrap_or_default().into(),
            message(member, now).into(),
        ]);
    }
    table.text(style)
}

/// The message for an item: the failure of its rollback, or else its own, then the next event.
fn message(member: &Member, now: Timestamp) -> String {
    let rollback = member.rollback.as_ref();
    let trouble = rollback.and_then(|rollback| rollback.message.clone()).or(member.message.clone());
    let progress = member.progress.as_ref().map(steps::progress);
    let due = member.due_at.filter(|due| *due > now).map(|due| format!("next try {}", age(due, now)));
    let waits = member.waits_for.as_ref().map(|what| format!("waits for {what}"));
    let worker = member.worker.as_ref().map(|worker| format!("on {worker}"));
    let parts = [trouble, progress, due, waits, worker];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// A summary of the items of a step.
pub(crate) fn summary(counts: &MemberCounts) -> String {
    let mut text = format!("{} of {} items done", counts.succeeded, counts.total);
    let others = [
        (counts.running, "running"),
        (counts.ready, "ready"),
        (counts.failed, "failed"),
        (counts.skipped, "skipped"),
        (counts.rolled_back, "rolled back"),
    ];
    for (count, word) in others.into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!(", {count} {word}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::cli::task::fixture;

    #[test]
    fn a_line_for_each_member() {
        let members: List<Member> = serde_json::from_value(serde_json::json!({ "items": [
            { "index": 0, "status": "succeeded", "message": null, "attempts": 1,
              "started_at": "2030-03-17T17:46:00Z", "ended_at": "2030-03-17T17:46:12Z" },
            { "index": 1, "status": "running", "message": "disk busy", "attempts": 2, "worker": "worker-1",
              "started_at": "2030-03-17T17:46:30Z", "ended_at": null, "progress": { "value": 0.5 } },
            { "index": 2, "status": "pending", "message": null, "attempts": 0, "started_at": null, "ended_at": null },
        ], "next": null }))
        .unwrap();
        assert_snapshot!(table(&members, fixture::now(), Style::PLAIN), @"
        ITEM  STATUS     TRIES  TIME  MESSAGE
        0     succeeded  1      12s
        1     running    2      10s   disk busy; 50%; on worker-1
        2     pending
        ");
    }

    #[test]
    fn counts_in_a_few_words() {
        let counts = MemberCounts {
            total: 100,
            pending: 60,
            ready: 0,
            running: 8,
            succeeded: 30,
            failed: 2,
            skipped: 0,
            rolled_back: 0,
        };
        assert_eq!(summary(&counts), "30 of 100 items done, 8 running, 2 failed");
    }
}
