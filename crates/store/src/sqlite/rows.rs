//! Rows of SQLite as [`StoredRow`].

use crate::rows::{RowError, StoredRow};
use rusqlite::Row;
use rusqlite::types::{FromSqlResult, Type, ValueRef};

impl StoredRow for Row<'_> {
    fn int(&self, column: usize) -> Result<Option<i64>, RowError> {
        value(self, column, |value| value.as_i64_or_null())
    }

    fn str(&self, column: usize) -> Result<Option<&str>, RowError> {
        value(self, column, |value| value.as_str_or_null())
    }

    fn blob(&self, column: usize) -> Result<Option<&[u8]>, RowError> {
        value(self, column, |value| value.as_blob_or_null())
    }
}

fn value<'a, T>(
    row: &'a Row<'_>,
    column: usize,
    read: fn(ValueRef<'a>) -> FromSqlResult<T>,
) -> Result<T, RowError> {
    let value = row.get_ref(column).map_err(|error| RowError::new(column, error))?;
    read(value).map_err(|error| RowError::new(column, error))
}

impl From<RowError> for rusqlite::Error {
    fn from(error: RowError) -> Self {
        rusqlite::Error::FromSqlConversionFailure(error.column, Type::Null, Box::new(error))
    }
}
