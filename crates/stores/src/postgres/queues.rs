//! SQL of queues and limits.

pub(super) const QUEUES: &str = "SELECT q.name, q.paused_at, q.by_name, q.by_claimed,
        (SELECT count(*) FROM windlass_wait w
         WHERE w.module = q.name AND w.session IS NULL AND w.free = 0),
        coalesce(r.running, 0),
        (SELECT w.ready_at FROM windlass_wait w WHERE w.module = q.name AND w.session IS NULL AND w.free = 0
         ORDER BY w.rank, w.task, w.act LIMIT 1)
    FROM windlass_queue q
    LEFT JOIN (SELECT module, count(*) AS running FROM windlass_wait WHERE session IS NOT NULL GROUP BY module) r
        ON r.module = q.name
    WHERE q.used OR q.paused_at IS NOT NULL ORDER BY q.name";
/// Of each key how many are in line, and how many of them before this one. Those without a key are the whole line but
/// those with one: so all is counted in indexes, and no row is read. Where nobody has a key, those behind are of no
/// interest.
pub(super) const LINE: &str = "WITH this AS (
        SELECT w.module, w.rank, w.task, w.act, w.fairness, q.turn
        FROM windlass_wait w LEFT JOIN windlass_queue q ON q.name = w.module
        WHERE w.task = $1 AND w.act = $2 AND w.session IS NULL AND w.free + 0 = 0
    ), keyed AS MATERIALIZED (
        SELECT w.fairness, count(*) AS n,
               count(*) FILTER (WHERE (w.rank, w.task, w.act) < (this.rank, this.task, this.act)) AS before
        FROM this JOIN windlass_wait w
            ON w.module = this.module AND w.session IS NULL AND w.free = 0 AND w.fairness <> ''
        GROUP BY w.fairness
    ), line AS MATERIALIZED (
        SELECT (SELECT count(*) FROM windlass_wait w
                WHERE w.module = this.module AND w.session IS NULL AND w.free = 0
                  AND (w.rank, w.task, w.act) < (this.rank, this.task, this.act)) AS before,
               CASE WHEN EXISTS (SELECT FROM keyed) THEN (
                   SELECT count(*) FROM windlass_wait w
                   WHERE w.module = this.module AND w.session IS NULL AND w.free = 0) END AS n
        FROM this
    ), keyless AS (
        SELECT ''::bytea AS fairness,
               coalesce(line.n - (SELECT sum(n) FROM keyed)::int8, line.before + 1) AS n,
               line.before - coalesce((SELECT sum(before) FROM keyed), 0)::int8 AS before
        FROM line
    )
    SELECT k.fairness, k.n, k.before, k.fairness = this.fairness, this.turn
    FROM this CROSS JOIN (SELECT * FROM keyed UNION ALL SELECT * FROM keyless WHERE n > 0) k
    ORDER BY k.fairness";

/// The limits of one queue, or all, by name.
pub(super) const READ_LIMITS: &str = "SELECT name, queue, command, per_key, running, starts, per
    FROM windlass_limit WHERE $1::text IS NULL OR queue = $1 ORDER BY name";
pub(super) const HELD: &str = "SELECT w.task, w.act, w.attempt, w.claim, w.session, w.claimed_at, w.module,
        w.command, w.fairness
    FROM windlass_wait w
    WHERE w.session IS NOT NULL AND w.module IN (SELECT queue FROM windlass_limit)
    ORDER BY w.claimed_at, w.task, w.act";
pub(super) const BEGUN: &str = "SELECT b.name, b.key, b.at FROM windlass_begun b
    JOIN windlass_limit l ON l.name = b.name WHERE b.at > $1 - l.per ORDER BY b.at";
