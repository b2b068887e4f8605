//! The columns of a row, read by their places: alike in every product.

use windlass_core::{Millis, Name, TaskId};

use super::{Fault, damaged, from_integer};

/// A row of a query's answer. Errors name the column, never its content.
pub(crate) trait Columns: Send + Sync + 'static {
    /// The bytes of a column that has bytes, text or an identifier; `None` for NULL.
    fn optional_bytes(&self, column: usize) -> Result<Option<&[u8]>, Fault>;

    /// A whole number, or a truth value as 0 or 1; `None` for NULL.
    fn optional_number(&self, column: usize) -> Result<Option<i64>, Fault>;

    /// The name of a column in its statement.
    fn column_name(&self, column: usize) -> Option<String>;

    /// The error of a column whose content is invalid.
    fn wrong(&self, column: usize, what: &str) -> Fault {
        let name = self.column_name(column).unwrap_or_else(|| "?".to_owned());
        damaged(format!("column {column}, {name:?}, of a row {what}"))
    }

    /// Bytes.
    fn bytes(&self, column: usize) -> Result<&[u8], Fault> {
        self.optional_bytes(column)?.ok_or_else(|| self.wrong(column, "is empty"))
    }

    /// A whole number.
    fn number(&self, column: usize) -> Result<i64, Fault> {
        self.optional_number(column)?.ok_or_else(|| self.wrong(column, "is empty"))
    }

    /// A truth value. NULL is `false`.
    fn flag(&self, column: usize) -> Result<bool, Fault> {
        Ok(self.optional_number(column)? == Some(1))
    }

    /// A number of milliseconds.
    fn millis(&self, column: usize) -> Result<Millis, Fault> {
        Ok(Millis(from_integer(self.number(column)?)))
    }

    /// A string.
    fn text(&self, column: usize) -> Result<&str, Fault> {
        let not_text = |_| self.wrong(column, "is not UTF-8");
        std::str::from_utf8(self.bytes(column)?).map_err(not_text)
    }

    /// A string for display: invalid bytes are replaced, NULL is empty.
    fn any_text(&self, column: usize) -> String {
        let bytes = self.optional_bytes(column).ok().flatten();
        String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
    }

    /// A name.
    fn name(&self, column: usize) -> Result<Name, Fault> {
        Ok(super::name(self.text(column)?)?)
    }

    /// A name; `None` for NULL.
    fn optional_name(&self, column: usize) -> Result<Option<Name>, Fault> {
        if self.optional_bytes(column)?.is_none() { Ok(None) } else { self.name(column).map(Some) }
    }

    /// An identifier of 16 bytes; `None` for NULL.
    fn optional_id(&self, column: usize) -> Result<Option<u128>, Fault> {
        let Some(bytes) = self.optional_bytes(column)? else { return Ok(None) };
        let wrong = |_| self.wrong(column, "does not have 16 bytes");
        Ok(Some(u128::from_be_bytes(bytes.try_into().map_err(wrong)?)))
    }

    /// An identifier of 16 bytes.
    fn id(&self, column: usize) -> Result<u128, Fault> {
        self.optional_id(column)?.ok_or_else(|| self.wrong(column, "is empty"))
    }

    /// The identifier of a task.
    fn task(&self, column: usize) -> Result<TaskId, Fault> {
        Ok(TaskId(self.id(column)?))
    }

    /// A hash of 32 bytes.
    fn hash(&self, column: usize) -> Result<[u8; 32], Fault> {
        let wrong = |_| self.wrong(column, "does not have 32 bytes");
        self.bytes(column)?.try_into().map_err(wrong)
    }
}
