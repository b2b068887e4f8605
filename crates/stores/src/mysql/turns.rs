//! Hands out of queues where limits are or keys take turns: one claim after the other.
//!
//! What is in hands is counted, the first attempts of each key are read, and which of them are handed out is decided in
//! `crate::rows`. An attempt that a commit has changed meanwhile is passed over.

use std::collections::{BTreeSet, HashMap};

use mysql_async::Row;
use windlass_core::Millis;
use windlass_store::{Claimed, Quarantine};

use super::{
    claim::{ATTACHED, Wanted, add_next_claims, add_take, finish, grace},
    columns::Columns as _,
    connection::Connection,
    error::Fault,
    limits::{READ_LIMITS, limits_of},
    script::{Cell, Script, cells},
};
use crate::rows::{Candidate, Hands, KeysInTurn, Turn, any_name, choose, to_integer};

/// Looks at one queue so often, each time behind what was found to be held back.
const ROUNDS_MAX: usize = 16;

/// A queue while nobody else claims of it in turns.
struct Queue {
    turn: Option<Turn>,
    grace: Millis,
    hands: Hands,
}

pub(super) async fn claim_in_turns(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    wanted: Wanted<'_>,
) -> Result<Vec<Claimed>, Fault> {
    let Some(Queue { mut turn, grace, mut hands }) = hold_queue(connection, quarantine, wanted).await? else {
        connection.roll_back().await?;
        return Ok(Vec::new());
    };
    let (mut chosen, mut timeouts) = (Vec::<Candidate>::new(), HashMap::new());
    for _ in 0..ROUNDS_MAX {
        let missing = wanted.most - chosen.len();
        if missing == 0 {
            break;
        }
        let (mut candidates, in_turn) =
            candidates(connection, wanted, turn.as_ref(), &hands, &mut timeouts).await?;
        candidates.retain(|new| chosen.iter().all(|old| (old.task, old.act) != (new.task, new.act)));
        let round = choose(candidates, in_turn, &mut hands, turn, wanted.now.wall.0, missing);
        turn = round.turn;
        let is_done = round.attempts.is_empty() || !round.held_back;
        chosen.extend(round.attempts);
        if is_done {
            break;
        }
    }
    if chosen.is_empty() {
        connection.roll_back().await?;
        return Ok(Vec::new());
    }
    hand_out(connection, wanted, &chosen, (turn, grace), &hands, &timeouts).await
}

/// Waits until nobody else claims of the queue, and reads what counts under its limits. Nothing when it is paused, or
/// nobody knows the session.
async fn hold_queue(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    wanted: Wanted<'_>,
) -> Result<Option<Queue>, Fault> {
    let (module, mono) = (wanted.module, to_integer(wanted.now.mono.0));
    let mut script = Script::begin();
    let queue = "SELECT paused_at IS NOT NULL, turn FROM windlass_queue WHERE name = ? FOR UPDATE";
    let queue = script.add(queue, cells![module]);
    let attached = script.add(ATTACHED, cells![wanted.session.0]);
    let limits = script.add(&format!("{READ_LIMITS} WHERE queue = ?"), cells![module]);
    let running = "SELECT command, fairness FROM windlass_wait FORCE INDEX (by_session)
        WHERE session IS NOT NULL AND module = ?";
    let running = script.add(running, cells![module]);
    let begun =
        "SELECT b.name, b.fairness, b.at FROM windlass_begun b JOIN windlass_limit l ON l.name = b.name
        WHERE l.queue = ? AND b.at > ? - l.per";
    let begun = script.add(begun, cells![module, mono]);
    let forget = "DELETE b FROM windlass_begun b JOIN windlass_limit l ON l.name = b.name
        WHERE l.queue = ? AND b.at <= ? - l.per";
    script.add(forget, cells![module, mono]);
    let sets = connection.send(script).await?;
    let (mut is_paused, mut turn) = (false, None);
    for row in &sets[queue] {
        is_paused = row.number(0)? == 1;
        turn = Turn::read(row.optional_bytes(1)?, wanted.now.wall.0);
    }
    let grace = grace(wanted.session, &sets[attached])?.filter(|_| !is_paused);
    let Some(grace) = grace else { return Ok(None) };
    let mut hands = Hands::new(limits_of(&sets[limits], quarantine)?);
    for row in &sets[running] {
        hands.hold(&any_name(&row.any_text(0)), row.bytes(1)?);
    }
    for row in &sets[begun] {
        hands.begin(row.name(0)?, row.bytes(1)?.to_vec(), super::limits::millis(row, 2)?, wanted.now.mono);
    }
    Ok(Some(Queue { turn, grace, hands }))
}

/// The keys behind the cursor that had something ready when the round began, and the first of all; and of each of them the
/// first attempts that no limit holds back.
async fn candidates(
    connection: &mut Connection<'_>,
    wanted: Wanted<'_>,
    turn: Option<&Turn>,
    hands: &Hands,
    timeouts: &mut HashMap<(u128, i64), i64>,
) -> Result<(Vec<Candidate>, KeysInTurn), Fault> {
    let blocked = hands.blocked();
    let (mut condition, mut conditions) = wanted.and_command();
    let most = wanted.most + blocked.len();
    let mut script = Script::default();
    // No key is above the last one, and nothing was ready before all time: there is no round.
    let (key, began) = turn.map_or((&[][..], i64::MIN), |turn| (&turn.key, turn.began));
    for (key, until) in [(key, began), (&[][..], i64::MAX)] {
        let next = |above: &str| {
            format!(
                "(SELECT fairness FROM windlass_wait FORCE INDEX (by_queue)
                  WHERE queue = ? AND fairness > {above} AND ready_at <= ?{condition} ORDER BY fairness LIMIT 1)"
            )
        };
        let keys = format!(
            "WITH RECURSIVE keys_in_turn AS (
                 SELECT {} AS one, 1 AS n
                 UNION ALL SELECT {}, n + 1 FROM keys_in_turn WHERE one IS NOT NULL AND n < {most}
             ) SELECT one FROM keys_in_turn WHERE one IS NOT NULL",
            next("?"),
            next("keys_in_turn.one")
        );
        let first = cells![wanted.module, key, until].into_iter().chain(conditions.iter().cloned());
        let others = cells![wanted.module, until].into_iter().chain(conditions.iter().cloned());
        script.add(&keys, first.chain(others));
    }
    let sets = connection.send(script).await?;
    let mut in_turn = KeysInTurn::default();
    for row in &sets[0] {
        in_turn.rest.insert(row.bytes(0)?.to_vec());
    }
    in_turn.next.insert(Vec::new());
    for row in &sets[1] {
        in_turn.next.insert(row.bytes(0)?.to_vec());
    }
    let keys: BTreeSet<&Vec<u8>> = in_turn.rest.union(&in_turn.next).collect();
    for (command, key) in &blocked {
        condition.push_str(" AND NOT (true");
        if let Some(command) = command {
            condition.push_str(" AND command = ?");
            conditions.push(command.into());
        }
        if let Some(key) = key {
            condition.push_str(" AND fairness = ?");
            conditions.push(key[..].into());
        }
        condition.push(')');
    }
    let first = format!(
        "SELECT task, act, attempt, place, command, fairness, timeout
         FROM windlass_wait FORCE INDEX (by_queue) WHERE queue = ? AND fairness = ?{condition}
         ORDER BY place, task, act LIMIT {}",
        wanted.most
    );
    let mut script = Script::default();
    for key in keys {
        script.add(&first, cells![wanted.module, &key[..]].into_iter().chain(conditions.iter().cloned()));
    }
    let sets = connection.send(script).await?;
    let mut candidates = Vec::new();
    for row in sets.iter().flatten() {
        let candidate = candidate(row)?;
        timeouts.insert((candidate.task, candidate.act), row.optional_number(6)?.unwrap_or(0));
        candidates.push(candidate);
    }
    Ok((candidates, in_turn))
}

fn candidate(row: &Row) -> Result<Candidate, Fault> {
    Ok(Candidate {
        task: row.id(0)?,
        act: row.number(1)?,
        attempt: row.number(2)?,
        rank: row.number(3)?,
        command: any_name(&row.any_text(4)),
        fairness: row.bytes(5)?.to_vec(),
    })
}

async fn hand_out(
    connection: &mut Connection<'_>,
    wanted: Wanted<'_>,
    chosen: &[Candidate],
    (turn, grace): (Option<Turn>, Millis),
    hands: &Hands,
    timeouts: &HashMap<(u128, i64), i64>,
) -> Result<Vec<Claimed>, Fault> {
    const BEGIN: &str = "INSERT INTO windlass_begun (name, fairness, at, claim)
        SELECT ?, ?, ?, claim FROM windlass_wait WHERE task = ? AND act = ? AND session = ? AND claim = ?";
    let (id, mono) = (wanted.session.0, to_integer(wanted.now.mono.0));
    let mut script = Script::default();
    add_next_claims(&mut script);
    let mut places: Vec<usize> = (0..chosen.len()).collect();
    // In the order in which commits lock them.
    places.sort_unstable_by_key(|place| (chosen[*place].task, chosen[*place].act));
    for place in places {
        let Candidate { task, act, attempt, .. } = chosen[place];
        let timeout = timeouts.get(&(task, act)).copied().unwrap_or(0);
        let timeout_at = wanted.timeout_at(timeout, grace);
        add_take(&mut script, wanted, (task, act, attempt), place, timeout_at);
        for (limit, key) in hands.starts(&chosen[place]) {
            let mut cells = cells![&limit, &key[..], mono, task, act, id];
            cells.push(Cell::Claim(place));
            script.add(BEGIN, cells);
        }
    }
    script.add(
        "UPDATE windlass_queue SET turn = ? WHERE name = ?",
        cells![turn.map(|turn| turn.write()), wanted.module],
    );
    // In the order of their turns.
    finish(connection, script, wanted).await
}
