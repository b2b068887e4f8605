//! The file: records one after the other, from which nothing can be missing unnoticed.

use std::io::{BufRead, Read as _, Write};

use sha2::{Digest as _, Sha256};

use super::{
    ArchiveError,
    record::{FORMAT, Record, Totals},
};

/// What every export begins with, before the number of its format.
const TITLE: &str = "windlass-export ";

/// No first line of an export is longer.
const TITLE_BYTES_MAX: u64 = 32;

/// Writes records.
pub(super) struct Writer<'w> {
    to: &'w mut (dyn Write + Send),
    digest: Sha256,
    totals: Totals,
}

impl<'w> Writer<'w> {
    pub(super) fn begin(to: &'w mut (dyn Write + Send)) -> Result<Self, ArchiveError> {
        let mut writer = Self { to, digest: Sha256::new(), totals: Totals::default() };
        writer.write(format!("{TITLE}{FORMAT}\n").as_bytes())?;
        Ok(writer)
    }

    pub(super) fn record(&mut self, record: &Record) -> Result<(), ArchiveError> {
        let body = postcard::to_stdvec(record).map_err(|error| ArchiveError::Damaged(error.to_string()))?;
        let length = u32::try_from(body.len())
            .map_err(|_| ArchiveError::Refused("a task has more than 4 GiB".to_owned()))?;
        self.write(&length.to_le_bytes())?;
        self.write(&body)?;
        self.totals.count(record);
        Ok(())
    }

    pub(super) fn end(mut self) -> Result<Totals, ArchiveError> {
        let (totals, digest) = (self.totals, self.digest.clone().finalize().into());
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
    totals: Totals,
    at: u64,
}

impl<'r> Reader<'r> {
    pub(super) fn begin(from: &'r mut (dyn BufRead + Send)) -> Result<Self, ArchiveError> {
        let mut title = Vec::new();
        (&mut *from).take(TITLE_BYTES_MAX).read_until(b'\n', &mut title)?;
        let text = std::str::from_utf8(&title).ok().and_then(|line| line.strip_suffix('\n'));
        let format = text.and_then(|line| line.strip_prefix(TITLE)).and_then(|number| number.parse().ok());
        let found: u32 = format.ok_or(ArchiveError::Foreign)?;
        if found != FORMAT {
            return Err(ArchiveError::Newer { found, known: FORMAT });
        }
        let mut digest = Sha256::new();
        digest.update(&title);
        Ok(Self { from, digest, totals: Totals::default(), at: title.len() as u64 })
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
            self.totals.count(&record);
            return Ok(Some(record));
        };
        if digest != before || totals != self.totals {
            return Err(ArchiveError::Damaged("it has changed since it was written".to_owned()));
        }
        if !self.from.fill_buf()?.is_empty() {
            return Err(ArchiveError::Damaged("something follows its end".to_owned()));
        }
        Ok(None)
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
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
