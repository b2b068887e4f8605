//! The file: records one after the other, from which nothing can be missing unnoticed.

use std::io::{BufRead, Read as _, Write};

use sha2::{Digest as _, Sha256};

use super::{
    ArchiveError, Progress,
    record::{FORMAT, Record, Totals},
};

/// What every export begins with, before the number of its format.
const TITLE: &str = "windlass-export ";

/// The number of records between two reports of the progress.
const TOLD_EVERY: u64 = 100_000;

/// No first line of an export is longer.
const TITLE_BYTES_MAX: u64 = 32;

/// Writes records.
pub(super) struct Writer<'w> {
    to: &'w mut (dyn Write + Send),
    digest: Sha256,
    tally: Tally<'w>,
}

impl<'w> Writer<'w> {
    pub(super) fn begin(
        to: &'w mut (dyn Write + Send),
        format: u32,
        progress: Progress<'w>,
    ) -> Result<Self, ArchiveError> {
        let mut writer = Self { to, digest: Sha256::new(), tally: Tally::new(progress) };
        writer.write(format!("{TITLE}{format}\n").as_bytes())?;
        Ok(writer)
    }

    pub(super) fn record(&mut self, record: &Record) -> Result<(), ArchiveError> {
        let body = postcard::to_stdvec(record).map_err(|error| ArchiveError::Damaged(error.to_string()))?;
        let length = u32::try_from(body.len())
            .map_err(|_| ArchiveError::Refused("a task has more than 4 GiB".to_owned()))?;
        self.write(&length.to_le_bytes())?;
        self.write(&body)?;
        self.tally.count(record);
        Ok(())
    }

    pub(super) fn end(mut self) -> Result<Totals, ArchiveError> {
        let (totals, digest) = (self.tally.totals, self.digest.clone().finalize().into());
        self.record(&Record::End { totals, digest })?;
        self.to.flush()?;
        Ok(totals)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.digest.update(bytes);
        Ok(self.to.write_all(bytes)?)
    }
}

/// Reads records.
pub(super) struct Reader<'r> {
    from: &'r mut (dyn BufRead + Send),
    digest: Sha256,
    tally: Tally<'r>,
    at: u64,
    /// The format of the file.
    pub(super) format: u32,
}

impl<'r> Reader<'r> {
    pub(super) fn begin(
        from: &'r mut (dyn BufRead + Send),
        progress: Progress<'r>,
    ) -> Result<Self, ArchiveError> {
        let mut title = Vec::new();
        (&mut *from).take(TITLE_BYTES_MAX).read_until(b'\n', &mut title)?;
        let text = std::str::from_utf8(&title).ok().and_then(|line| line.strip_suffix('\n'));
        let format = text.and_then(|line| line.strip_prefix(TITLE)).and_then(|number| number.parse().ok());
        let found: u32 = format.ok_or(ArchiveError::Foreign)?;
        if !(1..=FORMAT).contains(&found) {
            return Err(ArchiveError::Newer { found, known: FORMAT });
        }
        let mut digest = Sha256::new();
        digest.update(&title);
        Ok(Self { from, digest, tally: Tally::new(progress), at: title.len() as u64, format: found })
    }

    /// The next record; nothing once all of them were read, and none is missing or changed.
    pub(super) fn next(&mut self) -> Result<Option<Record>, ArchiveError> {
        let before: [u8; 32] = self.digest.clone().finalize().into();
        let mut length = [0; 4];
        length.copy_from_slice(&self.read(4)?);
        let body = self.read(u32::from_le_bytes(length).into())?;
        let record: Record = postcard::from_bytes(&body)
            .map_err(|error| ArchiveError::Damaged(format!("before byte {}: {error}", self.at)))?;
        let Record::End { totals, digest } = record else {
            self.tally.count(&record);
            return Ok(Some(record));
        };
        if digest != before || totals != self.tally.totals {
            return Err(ArchiveError::Damaged("it has changed since it was written".to_owned()));
        }
        if !self.from.fill_buf()?.is_empty() {
            return Err(ArchiveError::Damaged("something follows its end".to_owned()));
        }
        Ok(None)
    }

    pub(super) fn totals(&self) -> Totals {
        self.tally.totals
    }

    fn read(&mut self, length: u64) -> Result<Vec<u8>, ArchiveError> {
        let mut bytes = Vec::new();
        // Memory is taken as bytes come: a damaged length asks for none.
        (&mut *self.from).take(length).read_to_end(&mut bytes)?;
        self.at += bytes.len() as u64;
        if (bytes.len() as u64) < length {
            return Err(ArchiveError::Cut(self.at));
        }
        self.digest.update(&bytes);
        Ok(bytes)
    }
}

/// How much it was so far, reported from time to time.
struct Tally<'p> {
    totals: Totals,
    records: u64,
    progress: Progress<'p>,
}

impl<'p> Tally<'p> {
    fn new(progress: Progress<'p>) -> Self {
        Self { totals: Totals::default(), records: 0, progress }
    }

    fn count(&mut self, record: &Record) {
        self.totals.count(record);
        self.records += 1;
        if self.records.is_multiple_of(TOLD_EVERY) {
            (self.progress)(self.totals);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_how_far_it_is() {
        let (mut bytes, mut told) = (Vec::new(), Vec::new());
        let mut progress = |totals: Totals| told.push(totals.log_lines + totals.alarms);
        let mut writer = Writer::begin(&mut bytes, FORMAT, &mut progress).unwrap();
        for _ in 0..2 * TOLD_EVERY + 1 {
            writer.record(&Record::Alarm(Vec::new())).unwrap();
        }
        writer.end().unwrap();
        assert_eq!(told, [TOLD_EVERY, 2 * TOLD_EVERY]);
        let (mut from, mut times) = (&bytes[..], 0);
        let mut progress = |_| times += 1;
        let mut reader = Reader::begin(&mut from, &mut progress).unwrap();
        while reader.next().unwrap().is_some() {}
        assert_eq!(times, 2);
    }
}
