//! Statements as text that go to the database together.
//!
//! Values are written by `cell.rs`.

use windlass_store::Leadership;

use super::cell::write;
pub(super) use super::cell::{CLAIMS_AT_ONCE, Cell, NEXT_CLAIMS, cells};
use crate::rows::to_integer;

/// Bytes of statements that are sent as one packet, unless one statement alone is longer. Servers allow 16 MiB or more
/// unless they were set otherwise.
const PACKET_BYTES: usize = 4 << 20;

/// Bytes after which rows are written by another statement.
const STATEMENT_BYTES: usize = 1 << 20;

/// Keys that one condition names: more would make the server's optimizer slow, or give up on the index.
const KEYS_MAX: usize = 500;

/// Fails where the lease is another one by now, because the outer subquery has two rows then, and keeps the lease as it is
/// until the end of the transaction.
const CHECK_LEASE: &str = "SELECT (SELECT 1 UNION ALL SELECT 1 FROM dual WHERE NOT EXISTS (
        SELECT 1 FROM windlass_service WHERE name = ? AND holder = ? AND fence = ? LOCK IN SHARE MODE
    ))";

/// Statements that go to the database together, in packets of bounded length.
#[derive(Debug, Default)]
pub(crate) struct Script {
    packets: Vec<Packet>,
    /// Calls that added statements: each has one place in the answers, however many statements it took.
    places: usize,
    /// They begin a transaction.
    begins: bool,
    /// They commit it.
    ends: bool,
    /// They only read, all of them as of one moment, which the connection sees to.
    reads: bool,
}

/// Some statements.
#[derive(Debug, Default)]
pub(super) struct Packet {
    pub(super) text: String,
    /// What each of them answers with, and the place of its rows in the answers.
    pub(super) answers: Vec<(Answer, Option<usize>)>,
}

/// What a statement answers with: what comes is held against it, so that no answer is taken for that of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Rows, perhaps none.
    Rows,
    /// That it is done.
    Done,
}

impl Answer {
    fn of(statement: &str) -> Self {
        let reads = ["SELECT", "WITH"].iter().any(|word| statement.trim_start().starts_with(word));
        if reads { Self::Rows } else { Self::Done }
    }
}

impl Script {
    /// Statements that begin a transaction.
    pub(super) fn begin() -> Self {
        Self { packets: vec![Packet::one("START TRANSACTION")], begins: true, ..Self::default() }
    }

    /// Statements that read as of one moment.
    pub(super) fn reading() -> Self {
        Self { reads: true, ..Self::default() }
    }

    /// One statement.
    pub(super) fn one<'a>(sql: &str, cells: impl IntoIterator<Item = Cell<'a>>) -> Self {
        let mut script = Self::default();
        script.add(sql, cells);
        script
    }

    /// Whether the statements are to read as of one moment.
    pub(super) fn reads(&self) -> bool {
        self.reads
    }

    pub(super) fn begins(&self) -> bool {
        self.begins
    }

    pub(super) fn ends(&self) -> bool {
        self.ends
    }

    /// Has them read as of one moment, that of their own transaction.
    pub(super) fn in_transaction(mut self) -> Self {
        if let Some(first) = self.packets.first_mut() {
            let mut begin = Packet::one("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ");
            begin.append(Packet::one("START TRANSACTION WITH CONSISTENT SNAPSHOT"));
            begin.append(std::mem::take(first));
            *first = begin;
            self.end();
        }
        self
    }

    /// Ends the transaction, and what it did is on disk then.
    pub(super) fn end(&mut self) {
        self.ends = true;
        self.next().append(Packet::one("COMMIT"));
    }

    /// As [`Script::end`], if the lease still stands; otherwise it fails with
    /// [`Kind::LeaseLost`](crate::rows::Kind::LeaseLost). The check is the last statement, so that the row of the lease is
    /// locked only while the database commits: a server that stands still in the middle of a transaction must not keep
    /// others from taking the lease.
    pub(super) fn end_as(&mut self, led: Option<Leadership>) {
        if let Some(Leadership { service, holder, fence }) = led {
            self.add(CHECK_LEASE, cells![service.name(), holder.0, to_integer(fence)]);
        }
        self.end();
    }

    /// Adds a statement with values for its question marks, which mean nothing else. Returns the place of its answer.
    pub(super) fn add<'a>(&mut self, sql: &str, cells: impl IntoIterator<Item = Cell<'a>>) -> usize {
        let place = self.place();
        let mut cells = cells.into_iter();
        let packet = self.next();
        for part in sql.split_inclusive('?') {
            match part.strip_suffix('?') {
                Some(before) => {
                    packet.text.push_str(before);
                    write(&mut packet.text, &cells.next().unwrap_or(Cell::Null));
                }
                None => packet.text.push_str(part),
            }
        }
        packet.end(sql, Some(place));
        place
    }

    /// Adds statements that insert rows: `head`, the rows, and `tail`. None where there are no rows.
    pub(super) fn insert<'a>(
        &mut self,
        head: &str,
        rows: impl IntoIterator<Item = Vec<Cell<'a>>>,
        tail: &str,
    ) -> usize {
        let place = self.place();
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() {
            let packet = self.next();
            let begun = packet.text.len();
            packet.text.push_str(head);
            let mut before = " VALUES ";
            while packet.text.len() - begun < STATEMENT_BYTES
                && let Some(row) = rows.next()
            {
                packet.text.push_str(before);
                write_row(&mut packet.text, &row);
                before = ", ";
            }
            packet.text.push(' ');
            packet.text.push_str(tail);
            packet.end(head, Some(place));
        }
        place
    }

    /// Adds statements with keys of one column: `head`, ` IN (…)` and `tail`. None where there are no keys.
    pub(super) fn for_keys<'a>(
        &mut self,
        head: &str,
        keys: impl IntoIterator<Item = Cell<'a>>,
        tail: &str,
    ) -> usize {
        let mut keys = keys.into_iter().peekable();
        let place = self.place();
        while keys.peek().is_some() {
            let packet = self.next();
            packet.text.push_str(head);
            packet.text.push_str(" IN ");
            write_row(&mut packet.text, &keys.by_ref().take(KEYS_MAX).collect::<Vec<_>>());
            packet.text.push(' ');
            packet.text.push_str(tail);
            packet.end(head, Some(place));
        }
        place
    }

    /// Adds statements with keys of two columns: `head`, `(one = … AND other = …) OR …`, and `tail`. Servers use an
    /// index for this in every version, unlike for rows of values.
    pub(super) fn for_pairs<'a>(
        &mut self,
        head: &str,
        (one, other): (&str, &str),
        keys: impl IntoIterator<Item = (Cell<'a>, Cell<'a>)>,
        tail: &str,
    ) -> usize {
        let mut keys = keys.into_iter().peekable();
        let place = self.place();
        while keys.peek().is_some() {
            let packet = self.next();
            packet.text.push_str(head);
            let mut before = " (";
            for (first, second) in keys.by_ref().take(KEYS_MAX) {
                packet.text.push_str(before);
                packet.text.push_str(one);
                packet.text.push_str(" = ");
                write(&mut packet.text, &first);
                packet.text.push_str(" AND ");
                packet.text.push_str(other);
                packet.text.push_str(" = ");
                write(&mut packet.text, &second);
                before = " OR ";
            }
            packet.text.push_str(") ");
            packet.text.push_str(tail);
            packet.end(head, Some(place));
        }
        place
    }

    /// How many places the answers have.
    pub(super) fn places(&self) -> usize {
        self.places
    }

    /// The next place in the answers.
    fn place(&mut self) -> usize {
        self.places += 1;
        self.places - 1
    }

    pub(super) fn into_packets(self) -> Vec<Packet> {
        self.packets
    }

    /// The packet of the next statement.
    fn next(&mut self) -> &mut Packet {
        if self.packets.last().is_none_or(|packet| packet.text.len() >= PACKET_BYTES) {
            self.packets.push(Packet::default());
        }
        let last = self.packets.len() - 1;
        &mut self.packets[last]
    }
}

impl Packet {
    /// One statement without values.
    pub(super) fn one(statement: &str) -> Self {
        let mut packet = Self { text: statement.to_owned(), answers: Vec::new() };
        packet.end(statement, None);
        packet
    }

    fn append(&mut self, other: Self) {
        self.text.push_str(&other.text);
        self.answers.extend(other.answers);
    }

    /// Ends a statement that begins like this.
    fn end(&mut self, head: &str, place: Option<usize>) {
        self.text.push_str(";\n");
        self.answers.push((Answer::of(head), place));
    }
}

fn write_row(text: &mut String, cells: &[Cell<'_>]) {
    let mut before = '(';
    for cell in cells {
        text.push(before);
        write(text, cell);
        before = ',';
    }
    text.push(')');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(script: Script) -> String {
        script.into_packets().into_iter().map(|packet| packet.text).collect()
    }

    #[test]
    fn values_are_never_part_of_statements() {
        let mut script = Script::default();
        script.add("SELECT ?, ? FROM t WHERE a = ?", cells!["'; --?", -7_i64, None::<i64>]);
        assert_eq!(text(script), "SELECT x'273b202d2d3f', -7 FROM t WHERE a = NULL;\n");
    }

    #[test]
    fn rows_and_keys_come_in_statements() {
        let mut script = Script::default();
        script.insert("INSERT INTO t (a, b)", [cells![1_i64, true], cells![2_i64, ""]], "IGNORE");
        script.insert("INSERT INTO t (a, b)", Vec::<Vec<Cell<'_>>>::new(), "");
        assert_eq!(script.for_keys("SELECT a FROM t WHERE a", cells![1_i64, 2_i64], "FOR UPDATE"), 2);
        assert_eq!(script.for_keys("SELECT a FROM t WHERE a", cells![], ""), 3);
        let pairs = [(Cell::from(1_u128), Cell::from(1_i64)), (Cell::from(2_u128), Cell::from(2_i64))];
        assert_eq!(script.for_pairs("DELETE FROM t WHERE", ("a", "b"), pairs, ""), 4);
        assert_eq!(script.places(), 5);
        let answers = [(Answer::Done, Some(0)), (Answer::Rows, Some(2)), (Answer::Done, Some(4))];
        assert_eq!(
            script.packets[0].answers, answers,
            "each call has a place, also where it adds no statement"
        );
        assert_eq!(
            text(script),
            "INSERT INTO t (a, b) VALUES (1,1), (2,x'') IGNORE;\n\
             SELECT a FROM t WHERE a IN (1,2) FOR UPDATE;\n\
             DELETE FROM t WHERE (a = x'00000000000000000000000000000001' AND b = 1 \
             OR a = x'00000000000000000000000000000002' AND b = 2) ;\n"
        );
    }

    #[test]
    fn many_rows_come_in_packets() {
        let long = vec![7_u8; 600_000];
        let mut script = Script::default();
        script.insert("INSERT", (0..20_i64).map(|n| cells![n, &long[..]]), "");
        let packets = script.into_packets();
        assert!(packets.len() > 1);
        let rows: usize = packets.iter().map(|packet| packet.text.matches("x'").count()).sum();
        assert_eq!(rows, 20);
        assert!(packets.iter().all(|packet| packet.text.len() < PACKET_BYTES + 2 * STATEMENT_BYTES));
    }
}
