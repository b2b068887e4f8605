//! The columns of MySQL's rows, which come as text.

use mysql_async::{Row, Value};

use crate::rows::{Columns, Fault};

impl Columns for Row {
    fn optional_bytes(&self, column: usize) -> Result<Option<&[u8]>, Fault> {
        match self.as_ref(column) {
            Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
            Some(Value::NULL) => Ok(None),
            _ => Err(self.wrong(column, "is missing")),
        }
    }

    fn optional_number(&self, column: usize) -> Result<Option<i64>, Fault> {
        let Some(bytes) = self.optional_bytes(column)? else { return Ok(None) };
        let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
        Ok(Some(number.ok_or_else(|| self.wrong(column, "is not a number"))?))
    }

    fn column_name(&self, column: usize) -> Option<String> {
        Some(self.columns_ref().get(column)?.name_str().into_owned())
    }
}
