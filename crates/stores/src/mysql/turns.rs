//! Claims attempts of queues with limits or keys that take turns.

use std::collections::BTreeSet;

use windlass_store::Claimed;

use super::{
    claim::{ATTACHED, READ_LIMITS, add_next_claims, add_take, and_command, finish, timeout_at},
    connection::Connection,
    script::{Cell, Script, cells},
};
use crate::rows::{
    Blocked, Candidate, Columns as _, Fault, KeyTurn, KeysInTurn, Link as _,
    claims::ruled::{Choice, Claiming, RuledSql, candidate},
    to_integer, write_turn,
};

impl RuledSql for Connection {
    fn lock_queue(claiming: Claiming<'_>) -> Script {
        let (module, mono) = (&claiming.claim_request.module, to_integer(claiming.now.mono.0));
        let mut script = Script::begin();
        let queue = "SELECT paused_at IS NOT NULL, turn FROM windlass_queue WHERE name = ? FOR UPDATE";
        script.add(queue, cells![module]);
        script.add(ATTACHED, cells![claiming.session.0]);
        script.add(&format!("{READ_LIMITS} WHERE queue = ?"), cells![module]);
        let running = "SELECT command, fairness FROM windlass_wait FORCE INDEX (by_session)
            WHERE session IS NOT NULL AND module = ?";
        script.add(running, cells![module]);
        let begun =
            "SELECT b.name, b.fairness, b.at FROM windlass_begun b JOIN windlass_limit l ON l.name = b.name
            WHERE l.queue = ? AND b.at > ? - l.per";
        script.add(begun, cells![module, mono]);
        let forget = "DELETE b FROM windlass_begun b JOIN windlass_limit l ON l.name = b.name
            WHERE l.queue = ? AND b.at <= ? - l.per";
        script.add(forget, cells![module, mono]);
        script
    }

    async fn candidates(
        &mut self,
        claiming: Claiming<'_>,
        turn: Option<&KeyTurn>,
        blocked: &[Blocked],
    ) -> Result<(Vec<Candidate>, KeysInTurn), Fault> {
        let module = &claiming.claim_request.module;
        let (mut condition, mut conditions) = and_command(claiming);
        let most = claiming.most + blocked.len();
        let mut script = Script::default();
        // No key is above the last one, and nothing was ready before all time: there is no round.
        let (key, began) = turn.map_or((&[][..], i64::MIN), |turn| (&turn.key, turn.began.0));
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
            let first = cells![module, key, until].into_iter().chain(conditions.iter().cloned());
            let others = cells![module, until].into_iter().chain(conditions.iter().cloned());
            script.add(&keys, first.chain(others));
        }
        let sets = self.send(script).await?;
        let mut in_turn = KeysInTurn::default();
        for row in &sets[0] {
            in_turn.rest.insert(row.bytes(0)?.to_vec());
        }
        in_turn.next.insert(Vec::new());
        for row in &sets[1] {
            in_turn.next.insert(row.bytes(0)?.to_vec());
        }
        let keys: BTreeSet<&Vec<u8>> = in_turn.rest.union(&in_turn.next).collect();
        for (command, key) in blocked {
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
            claiming.most
        );
        let mut script = Script::default();
        for key in keys {
            script.add(&first, cells![module, &key[..]].into_iter().chain(conditions.iter().cloned()));
        }
        let sets = self.send(script).await?;
        let mut candidates = Vec::new();
        for row in sets.iter().flatten() {
            candidates.push(candidate(row)?);
        }
        Ok((candidates, in_turn))
    }

    async fn hand_out(&mut self, claiming: Claiming<'_>, choice: Choice<'_>) -> Result<Vec<Claimed>, Fault> {
        const BEGIN: &str = "INSERT INTO windlass_begun (name, fairness, at, claim)
            SELECT ?, ?, ?, claim FROM windlass_wait WHERE task = ? AND act = ? AND session = ? AND claim = ?";
        let Choice { candidates, turn, grace, hands } = choice;
        let (id, mono) = (claiming.session.0, to_integer(claiming.now.mono.0));
        let mut script = Script::default();
        add_next_claims(&mut script);
        let mut places: Vec<usize> = (0..candidates.len()).collect();
        // In the order in which commits lock them.
        places.sort_unstable_by_key(|place| (candidates[*place].task, candidates[*place].act));
        for place in places {
            let Candidate { task, act, attempt, timeout, .. } = candidates[place];
            let timeout_at = timeout_at(claiming, timeout, grace);
            add_take(&mut script, claiming, (task, act, attempt), place, timeout_at);
            for (limit, key) in hands.starts(&candidates[place]) {
                let mut cells = cells![&limit, &key[..], mono, task, act, id];
                cells.push(Cell::Claim(place));
                script.add(BEGIN, cells);
            }
        }
        script.add(
            "UPDATE windlass_queue SET turn = ? WHERE name = ?",
            cells![turn.map(write_turn), &claiming.claim_request.module],
        );
        // In the order of their turns.
        finish(self, script, claiming).await
    }
}
