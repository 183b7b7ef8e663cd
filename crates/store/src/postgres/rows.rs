//! Rows of PostgreSQL as [`StoredRow`].

use super::trouble::Trouble;
use crate::rows::{RowError, StoredRow};
use std::error::Error;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

/// An integer of any width, or a flag as 1 or 0.
struct AnyInteger(i64);

impl<'a> FromSql<'a> for AnyInteger {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(AnyInteger(match *kind {
            Type::BOOL => bool::from_sql(kind, raw)?.into(),
            Type::INT2 => i16::from_sql(kind, raw)?.into(),
            Type::INT4 => i32::from_sql(kind, raw)?.into(),
            _ => i64::from_sql(kind, raw)?,
        }))
    }

    fn accepts(kind: &Type) -> bool {
        [Type::BOOL, Type::INT2, Type::INT4, Type::INT8].contains(kind)
    }
}

impl StoredRow for Row {
    fn int(&self, column: usize) -> Result<Option<i64>, RowError> {
        Ok(value::<AnyInteger>(self, column)?.map(|AnyInteger(number)| number))
    }

    fn str(&self, column: usize) -> Result<Option<&str>, RowError> {
        value(self, column)
    }

    fn blob(&self, column: usize) -> Result<Option<&[u8]>, RowError> {
        value(self, column)
    }
}

fn value<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<Option<T>, RowError> {
    row.try_get(column).map_err(|error| RowError::new(column, error))
}

impl From<RowError> for Trouble {
    fn from(error: RowError) -> Self {
        Trouble::Row(error.to_string())
    }
}
