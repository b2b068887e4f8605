//! The columns of PostgreSQL's rows, as they come over the wire.

use std::error::Error;

use tokio_postgres::{
    Row,
    types::{FromSql, Type},
};

use crate::rows::{Columns, Fault};

/// The bytes of a column, whatever its type.
struct Raw<'r>(&'r [u8]);

impl<'r> FromSql<'r> for Raw<'r> {
    fn from_sql(_: &Type, raw: &'r [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl Columns for Row {
    fn optional_bytes(&self, column: usize) -> Result<Option<&[u8]>, Fault> {
        let raw: Option<Raw<'_>> = self.try_get(column).map_err(|_| self.wrong(column, "is missing"))?;
        Ok(raw.map(|raw| raw.0))
    }

    fn optional_number(&self, column: usize) -> Result<Option<i64>, Fault> {
        let Some(bytes) = self.optional_bytes(column)? else { return Ok(None) };
        let number = match (self.columns()[column].type_(), bytes) {
            (&Type::BOOL, &[value]) => i64::from(value != 0),
            (&Type::INT2, &[a, b]) => i16::from_be_bytes([a, b]).into(),
            (&Type::INT4, &[a, b, c, d]) => i32::from_be_bytes([a, b, c, d]).into(),
            (&Type::INT8, bytes) => {
                i64::from_be_bytes(bytes.try_into().map_err(|_| self.wrong(column, "is not a number"))?)
            }
            _ => return Err(self.wrong(column, "is not a number")),
        };
        Ok(Some(number))
    }

    fn column_name(&self, column: usize) -> Option<String> {
        Some(self.columns().get(column)?.name().to_owned())
    }
}
