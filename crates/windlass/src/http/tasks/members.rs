//! `GET /v1/tasks/{id}/steps/{step}/members`: the members of a step that is done for each element of a list.

use std::{collections::BTreeMap, sync::Arc};

use axum::{extract::State, response::Response};
use windlass_api as api;
use windlass_core::{
    Act, ActKey, ActState, Direction, Doer, Member, Members, Phase, Task, TaskId, Timestamp, act_status,
};
use windlass_store::{Claim, Loaded};

use crate::http::{
    App,
    answer::{ok, page::Page, problem::Refused},
    request::{FromQuery, Pairs, Path, Query},
    tasks::{
        resolve::step_of,
        view::{self, Overlay},
    },
};

/// Members of a page where the request does not say.
const PAGE_ITEMS: usize = 100;

/// What doing a member can have come to.
const STATUSES: [api::StepStatus; 6] = [
    api::StepStatus::Pending,
    api::StepStatus::Ready,
    api::StepStatus::Running,
    api::StepStatus::Succeeded,
    api::StepStatus::Failed,
    api::StepStatus::Skipped,
];

/// How the members of a step stand, as they are counted: it costs the same however many there are.
pub(in crate::http) fn counts(loaded: &Loaded, step: usize) -> Option<api::MemberCounts> {
    let members = loaded.task.state.steps[step].members.as_ref()?;
    let side = members.side(Direction::Forward);
    let [open, failed] = [&side.open, &side.failed].map(|set| u32::try_from(set.size()).unwrap_or(u32::MAX));
    let running = match loaded.task.flow.steps[step].run.doer {
        Doer::Flow { .. } => open,
        Doer::Worker { .. } | Doer::Signal { .. } | Doer::Device(_) => {
            let is_of_step =
                |claim: &&Claim| side.open.contains(&claim.key.member) && is_doing(claim.key, step);
            u32::try_from(loaded.begun().filter(is_of_step).count()).unwrap_or(u32::MAX)
        }
    };
    let left = members.total().saturating_sub(open + failed + side.satisfied);
    let (pending, skipped) = if is_over(&loaded.task, step) { (0, left) } else { (left, 0) };
    Some(api::MemberCounts {
        total: members.total(),
        pending,
        ready: open.saturating_sub(running),
        running,
        succeeded: side.satisfied,
        failed,
        skipped,
        rolled_back: members.side(Direction::Rollback).satisfied,
    })
}

fn is_doing(key: ActKey, step: usize) -> bool {
    key.step == step && key.is_member() && key.direction == Direction::Forward
}

/// Whether no more members of the step will begin: it was settled, or its task has started rolling back.
fn is_over(task: &Task, step: usize) -> bool {
    task.state.steps[step].forward.is_settled() || task.state.phase != Phase::Forward
}

/// Which members are listed.
pub(crate) struct WantedMembers {
    /// Those in one of these statuses; all where there are none.
    statuses: Vec<api::StepStatus>,
    /// Not the first ones of the step.
    skip: u32,
    limit: usize,
}

impl FromQuery for WantedMembers {
    const NAMES: &'static [&'static str] = &["status", "cursor", "limit"];

    fn from_query(pairs: &Pairs, _: Timestamp) -> Result<Self, Refused> {
        Ok(Self {
            statuses: pairs
                .all("status")
                .flat_map(|list| list.split(','))
                .map(status)
                .collect::<Result<_, _>>()?,
            skip: pairs.number("cursor")?.unwrap_or(0),
            limit: pairs.limit(PAGE_ITEMS)?,
        })
    }
}

/// The items of a step with `each`, in the order of the list. A page ends early, with `next`, once they have 8 MiB of
/// results.
#[utoipa::path(
    get,
    path = "/v1/tasks/{id}/steps/{step}/members", operation_id = "list_members",
    tag = "tasks",
    params(
        ("id" = String, Path, description = "Id of the task"),
        ("step" = String, Path, description = "Name of the step"),
        ("status" = Option<String>, Query, description = "Only with one of these statuses: comma-separated, or given several times"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "1 to 1000; 100 when left out"),
    ),
    responses(
        (status = 200, description = "The page; none before the step has its turn", body = api::List<api::Member>),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
        (status = 404, description = "Unknown task or step, or a step without `each`", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Path((id, name)): Path<(TaskId, String)>,
    Query(wanted): Query<WantedMembers>,
) -> Result<Response, Refused> {
    let loaded = app.engine.task(id).await?;
    let step = step_of(&loaded.task, &name)?;
    if loaded.task.flow.steps[step].each.is_none() {
        return Err(Refused::unknown_step(format!(
            "step {name:?} has no items: the flow does not say `each` for it, so it is done once"
        )));
    }
    let overlay = Overlay::of(&app, &loaded).await?;
    Ok(ok(&page(&loaded, &overlay, step, &wanted)))
}

fn status(word: &str) -> Result<api::StepStatus, Refused> {
    STATUSES.into_iter().find(|status| status.as_str() == word).ok_or_else(|| {
        let known = STATUSES.map(api::StepStatus::as_str).join(", ");
        Refused::malformed(format!("unknown status of an item {word:?}: write one of {known}"))
    })
}

/// The members that are wanted.
fn page(
    loaded: &Loaded,
    overlay: &Overlay<'_>,
    step: usize,
    wanted: &WantedMembers,
) -> api::List<api::Member> {
    let Some(members) = &loaded.task.state.steps[step].members else {
        return api::List { items: Vec::new(), next: None };
    };
    let held = loaded.begun().filter(|claim| is_doing(claim.key, step));
    let held: BTreeMap<u32, &Claim> = held.map(|claim| (claim.key.member, claim)).collect();
    let is_over = is_over(&loaded.task, step);
    let mut page = Page::new(wanted.limit);
    for index in wanted.skip..members.total() {
        let claim = held.get(&(index + 1)).copied();
        let status = member_status(members, index, claim, is_over);
        if !wanted.statuses.is_empty() && !wanted.statuses.contains(&status) {
            continue;
        }
        if page.room() == 0 {
            return page.into_list(Some(index.to_string()));
        }
        let member = document(loaded, overlay, step, index, status, claim);
        let rolled_back = member.rollback.as_ref().and_then(|rollback| rollback.result.as_ref());
        let bytes = member.result.iter().chain(rolled_back).map(|result| result.get().len()).sum();
        page.push(member, bytes);
    }
    page.into_list(None)
}

fn member_status(members: &Members, index: u32, claim: Option<&Claim>, is_over: bool) -> api::StepStatus {
    let idle = Member::default();
    let act = &members.get(index + 1).unwrap_or(&idle).forward;
    match act.state {
        ActState::Idle if is_over => api::StepStatus::Skipped,
        _ => view::act_word(act_status(act, claim.is_some())),
    }
}

fn document(
    loaded: &Loaded,
    overlay: &Overlay<'_>,
    step: usize,
    index: u32,
    status: api::StepStatus,
    claim: Option<&Claim>,
) -> api::Member {
    let (task, definition) = (&loaded.task, &loaded.task.flow.steps[step]);
    let key = ActKey::forward(step).of_member(index + 1);
    let idle = Act::default();
    let act = task.act(key).unwrap_or(&idle);
    let rollback_key = ActKey::rollback(step).of_member(index + 1);
    let rollback = definition.rollback.as_ref().filter(|_| task.act(rollback_key).is_some());
    api::Member {
        index,
        status,
        message: act.trouble().map(|failure| failure.message.to_string()),
        code: act.trouble().map(|failure| failure.code),
        attempts: view::attempts(act, claim.is_some()),
        result: act.result.as_ref().map(view::payload),
        started_at: act.started_at.or(claim.map(|claim| claim.at)).map(view::time),
        ended_at: act.ended_at.map(view::time),
        due_at: view::due_at(act).map(view::time),
        waits_for: view::waits_for(act, &definition.run),
        child: act.child().map(|child| child.to_string()),
        worker: claim.map(|claim| overlay.worker(claim)),
        progress: overlay.progress(task, key, claim),
        rollback: rollback.map(|action| view::rollback(loaded, overlay, rollback_key, action)),
    }
}
