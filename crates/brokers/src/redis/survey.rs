//! Looks at everything that the Go library machinery keeps in Redis, without changing it.

use std::collections::BTreeSet;

use redis::cmd;

use super::{
    machinery::{DELAYED, Machinery},
    taken::{TAKEN, consumers_of},
};
use crate::{BrokerError, ResultBackend as _, Survey, Waiting};

/// The most keys of one kind, and the most signatures, that are looked at.
const LOOKED_AT_MAX: usize = 500_000;

/// How many are read with one request.
const PAGE: usize = 1_000;

impl Machinery {
    /// Looks at the whole database. What changes meanwhile may be seen twice, or not at all.
    pub(crate) async fn survey(&self) -> Result<Survey, BrokerError> {
        let mut survey = Survey { is_whole: true, ..Survey::default() };
        let (keys, all) = self.keys("string").await?;
        survey.is_whole &= all;
        for keys in keys.chunks(PAGE) {
            let documents = self.read(keys).await?;
            let documents = keys.iter().cloned().zip(documents);
            survey.documents.extend(
                documents.filter_map(|(key, text)| Some((key, text.filter(|text| is_document(text))?))),
            );
        }
        let (lists, all) = self.keys("list").await?;
        survey.is_whole &= all;
        let mut room = LOOKED_AT_MAX;
        for list in lists {
            let signatures = self.list(&list, room).await?;
            room -= signatures.len();
            survey.is_whole &= room > 0;
            if list.contains(TAKEN) {
                survey.in_flight.extend(signatures);
            } else if signatures.first().is_some_and(|text| is_signature(text)) {
                let consumers = cmd("EXISTS").arg(consumers_of(&list)).to_owned();
                let is_read_here = self.link().run::<u64>(&consumers, &list).await? > 0;
                survey.queues.insert(list, Waiting { signatures, is_read_here });
            }
        }
        let delayed = cmd("ZRANGE").arg(DELAYED).arg(0).arg(LOOKED_AT_MAX - 1).arg("WITHSCORES").to_owned();
        let delayed: Vec<(String, f64)> = self.link().run(&delayed, DELAYED).await?;
        survey.is_whole &= delayed.len() < LOOKED_AT_MAX;
        // Times of this size are exact to a microsecond.
        #[expect(clippy::cast_possible_truncation, reason = "a time in nanoseconds fits for centuries")]
        survey.delayed.extend(delayed.into_iter().map(|(signature, at)| (signature, at as i64)));
        Ok(survey)
    }

    /// Keys of a kind, and whether these are all.
    async fn keys(&self, kind: &str) -> Result<(Vec<String>, bool), BrokerError> {
        let (mut keys, mut cursor) = (BTreeSet::new(), 0u64);
        loop {
            let scan = cmd("SCAN").arg(cursor).arg("COUNT").arg(PAGE).arg("TYPE").arg(kind).to_owned();
            let (next, found): (u64, Vec<Vec<u8>>) = self.link().run(&scan, "of keys").await?;
            // A key can come twice. The library has only keys that are text.
            keys.extend(found.into_iter().filter_map(|key| String::from_utf8(key).ok()));
            cursor = next;
            let is_over = cursor == 0;
            if is_over || keys.len() >= LOOKED_AT_MAX {
                return Ok((keys.into_iter().collect(), is_over));
            }
        }
    }

    /// The first signatures of a list.
    async fn list(&self, list: &str, max: usize) -> Result<Vec<String>, BrokerError> {
        let mut signatures: Vec<String> = Vec::new();
        while signatures.len() < max {
            let begin = signatures.len();
            let count = PAGE.min(max - begin);
            let range = cmd("LRANGE").arg(list).arg(begin).arg(begin + count - 1).to_owned();
            let page: Vec<Vec<u8>> = self.link().run(&range, list).await?;
            let is_last = page.len() < count;
            signatures.extend(page.into_iter().map(|text| String::from_utf8_lossy(&text).into_owned()));
            if is_last || !signatures.first().is_some_and(|text| is_signature(text)) {
                break;
            }
        }
        Ok(signatures)
    }
}

/// Whether this may be a document of the library.
fn is_document(text: &str) -> bool {
    text.starts_with('{') && (text.contains("\"TaskUUID\"") || text.contains("\"GroupUUID\""))
}

/// Whether this may be a signature.
fn is_signature(text: &str) -> bool {
    text.starts_with('{') && text.contains("\"UUID\"") && text.contains("\"Name\"")
}
