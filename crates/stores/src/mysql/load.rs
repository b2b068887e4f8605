//! Reads tasks: what belongs to them in one script, as of one moment.

use std::collections::{BTreeSet, HashMap};

use mysql_async::Row;
use windlass_core::TaskId;
use windlass_store::TaskQuery;

use super::{
    connection::Connection,
    script::{Cell, Script, cells},
};
use crate::rows::{
    Answers, Columns as _, Fault, Flows, Link as _, TaskParts, damaged,
    load::{Heads, LoadSql, Piece},
    small,
};

/// Tasks looked at together for a page: each may be large.
const PIECE: usize = 200;

/// The columns of a task, from `t` and its state `s`.
const TASK: &str = "SELECT t.id, t.flow, t.version, t.head, t.params, s.state
    FROM windlass_task t JOIN windlass_state s ON s.task = t.id";
/// The same with `{}` in place of the parameters, which may be large.
const TASK_WITHOUT_PARAMS: &str = "SELECT t.id, t.flow, t.version, t.head, '{}', s.state
    FROM windlass_task t JOIN windlass_state s ON s.task = t.id";

impl LoadSql for Connection {
    fn tasks(ids: &[TaskId]) -> Script {
        let mut script = Script::reading();
        let keys = || ids.iter().map(|id| Cell::from(*id));
        script.for_keys(&format!("{TASK} WHERE t.id"), keys(), "");
        add_waits(&mut script, ids);
        script.for_keys("SELECT task, act, value FROM windlass_result WHERE task", keys(), "");
        script.for_keys(
            "SELECT task, step, number, state FROM windlass_member WHERE task",
            keys(),
            "ORDER BY task, step, number",
        );
        script
    }

    fn read_tasks(answers: Answers<Self>, flows: &Flows) -> Result<Vec<TaskParts>, Fault> {
        let [heads, waits, results, members] = &answers[..] else {
            return Err(damaged("an answer is missing"));
        };
        let mut parts = HashMap::new();
        for row in heads {
            let head = flows.readable(row.task(0)?, task_head(row))?;
            parts.extend(head.map(|head| (head.id, head)));
        }
        read_waits(&mut parts, waits)?;
        for row in results {
            if let Some(of) = parts.get_mut(&row.task(0)?) {
                of.results.push((row.number(1)?, text(row, 2)?));
            }
        }
        for row in members {
            if let Some(of) = parts.get_mut(&row.task(0)?) {
                of.members.push((row.number(1)?, row.number(2)?, row.bytes(3)?.to_vec()));
            }
        }
        Ok(parts.into_values().collect())
    }

    async fn heads(&mut self, flows: &Flows, piece: Piece<'_>) -> Result<Heads, Fault> {
        let Piece { query, endings, before, wanted } = piece;
        let wanted = wanted.min(PIECE);
        let rows = self.rows(ids(query, endings, before, wanted)).await?;
        let ids = rows.iter().map(|row| row.task(0)).collect::<Result<Vec<_>, _>>()?;
        let (end, is_last) = (ids.last().copied(), ids.len() < wanted);
        if ids.is_empty() {
            return Ok(Heads { parts: Vec::new(), end, is_last });
        }
        let mut script = Script::reading();
        let columns = if query.reads_params() { TASK } else { TASK_WITHOUT_PARAMS };
        script.for_keys(&format!("{columns} WHERE t.id"), ids.iter().map(|id| Cell::from(*id)), "");
        add_waits(&mut script, &ids);
        let answers = self.send(script).await?;
        let [heads, waits] = &answers[..] else { return Err(damaged("an answer is missing")) };
        let mut found = HashMap::new();
        for row in heads {
            let head = flows.readable(row.task(0)?, task_head(row))?;
            found.extend(head.map(|head| (head.id, head)));
        }
        read_waits(&mut found, waits)?;
        Ok(Heads { parts: ids.iter().filter_map(|id| found.remove(id)).collect(), end, is_last })
    }

    fn by_scope(scopes: &[[u8; 32]]) -> Script {
        let mut script = Script::default();
        let keys = scopes.iter().map(|scope| Cell::from(&scope[..]));
        script.for_keys("SELECT task FROM windlass_submit_key WHERE scope", keys, "");
        script
    }
}

/// The next tasks that may be on the page, newest first.
fn ids(query: &TaskQuery, endings: Option<&BTreeSet<i64>>, before: TaskId, wanted: usize) -> Script {
    let mut condition = String::new();
    let mut cells = cells![before];
    if let Some(flow) = &query.flow {
        condition.push_str(" AND t.flow = ?");
        cells.push(flow.into());
    }
    for (is, time) in [(">=", query.since), ("<", query.until)] {
        if let Some(time) = time {
            condition = format!("{condition} AND t.created_at {is} ?");
            cells.push(time.0.into());
        }
    }
    let order = format!("ORDER BY t.id DESC LIMIT {wanted}");
    let (sql, cells) = match endings {
        None => (format!("SELECT t.id FROM windlass_task t WHERE t.id < ?{condition} {order}"), cells),
        // Each ending is a list of its own that is in order already.
        Some(endings) => {
            let list = |ending: &i64| {
                format!(
                    "(SELECT t.id FROM windlass_state s FORCE INDEX (by_ending)
                      STRAIGHT_JOIN windlass_task t ON t.id = s.task
                      WHERE s.ending = {ending} AND s.task < ?{condition} ORDER BY s.task DESC LIMIT {wanted})"
                )
            };
            let lists: Vec<String> = endings.iter().map(list).collect();
            let cells: Vec<Cell<'_>> = endings.iter().flat_map(|_| cells.clone()).collect();
            (format!("SELECT t.id FROM ({}) t {order}", lists.join(" UNION ALL ")), cells)
        }
    };
    Script::one(&sql, cells)
}

/// Adds what reads the claims of these tasks, those of the past included.
fn add_waits(script: &mut Script, ids: &[TaskId]) {
    script.for_keys(
        "SELECT task, act, attempt, claim, session, claimed_at, handed_out FROM windlass_wait
         WHERE (session IS NOT NULL OR handed_out IS NOT NULL) AND task",
        ids.iter().map(|id| Cell::from(*id)),
        "",
    );
}

/// Reads what [`add_waits`] asked for.
fn read_waits(parts: &mut HashMap<TaskId, TaskParts>, rows: &[Row]) -> Result<(), Fault> {
    for row in rows {
        let Some(of) = parts.get_mut(&row.task(0)?) else { continue };
        let act = row.number(1)?;
        let claim = (row.optional_number(3)?, row.optional_id(4)?, row.optional_number(5)?);
        if let (Some(number), Some(session), Some(since)) = claim {
            of.claims.push((act, row.number(2)?, number, session, since));
        }
        of.handed_out.extend(row.optional_number(6)?.map(|last| (act, last)));
    }
    Ok(())
}

/// A task from the columns of [`TASK`], without what belongs to it.
fn task_head(row: &Row) -> Result<TaskParts, Fault> {
    Ok(TaskParts {
        id: row.task(0)?,
        flow: row.name(1)?,
        version: small(row.number(2)?),
        head: row.bytes(3)?.to_vec(),
        params: text(row, 4)?,
        state: row.bytes(5)?.to_vec(),
        members: Vec::new(),
        results: Vec::new(),
        claims: Vec::new(),
        handed_out: Vec::new(),
    })
}

fn text(row: &Row, column: usize) -> Result<String, Fault> {
    let text = row.text(column).map_err(|_| damaged("what was written as JSON is not text"))?;
    Ok(text.to_owned())
}
