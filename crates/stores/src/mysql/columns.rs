//! Columns of rows that were read.

use mysql_async::{Row, Value};
use windlass_core::{Name, TaskId};

use super::error::{Fault, damaged};

/// Reads the columns of a row by their places.
pub(super) trait Columns {
    /// The bytes of a column; nothing of NULL.
    fn optional_bytes(&self, column: usize) -> Result<Option<&[u8]>, Fault>;

    /// What is wrong with a column, which the statement has given this name.
    fn wrong(&self, column: usize, what: &str) -> Fault;

    fn bytes(&self, column: usize) -> Result<&[u8], Fault> {
        self.optional_bytes(column)?.ok_or_else(|| self.wrong(column, "is empty"))
    }

    /// A whole number; nothing of NULL.
    fn optional_number(&self, column: usize) -> Result<Option<i64>, Fault> {
        let Some(bytes) = self.optional_bytes(column)? else { return Ok(None) };
        let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
        Ok(Some(number.ok_or_else(|| self.wrong(column, "is no number"))?))
    }

    fn number(&self, column: usize) -> Result<i64, Fault> {
        self.optional_number(column)?.ok_or_else(|| self.wrong(column, "is empty"))
    }

    fn text(&self, column: usize) -> Result<&str, Fault> {
        let no_text = |_| self.wrong(column, "is no text");
        std::str::from_utf8(self.bytes(column)?).map_err(no_text)
    }

    /// A text of any bytes, for people.
    fn any_text(&self, column: usize) -> String {
        let bytes = self.optional_bytes(column).ok().flatten();
        String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
    }

    fn name(&self, column: usize) -> Result<Name, Fault> {
        Ok(crate::rows::name(self.text(column)?)?)
    }

    fn optional_name(&self, column: usize) -> Result<Option<Name>, Fault> {
        if self.optional_bytes(column)?.is_none() { Ok(None) } else { self.name(column).map(Some) }
    }

    /// An identifier; nothing of NULL.
    fn optional_id(&self, column: usize) -> Result<Option<u128>, Fault> {
        let Some(bytes) = self.optional_bytes(column)? else { return Ok(None) };
        let no_id = |_| self.wrong(column, "has not 16 bytes");
        Ok(Some(u128::from_be_bytes(bytes.try_into().map_err(no_id)?)))
    }

    fn id(&self, column: usize) -> Result<u128, Fault> {
        self.optional_id(column)?.ok_or_else(|| self.wrong(column, "is empty"))
    }

    fn task(&self, column: usize) -> Result<TaskId, Fault> {
        Ok(TaskId(self.id(column)?))
    }

    fn hash(&self, column: usize) -> Result<[u8; 32], Fault> {
        let no_hash = |_| self.wrong(column, "has not 32 bytes");
        self.bytes(column)?.try_into().map_err(no_hash)
    }
}

impl Columns for Row {
    fn optional_bytes(&self, column: usize) -> Result<Option<&[u8]>, Fault> {
        match self.as_ref(column) {
            Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
            Some(Value::NULL) => Ok(None),
            _ => Err(self.wrong(column, "is missing")),
        }
    }

    fn wrong(&self, column: usize, what: &str) -> Fault {
        let name = self.columns_ref().get(column).map_or("?".into(), |column| column.name_str());
        damaged(format!("column {column}, {name:?}, of a row {what}"))
    }
}
