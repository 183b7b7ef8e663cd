//! The columns that statements get as parameters.

use std::borrow::Cow;
use tokio_postgres::types::ToSql;

/// A parameter: the values of one column.
pub type Column<'a> = Box<dyn ToSql + Sync + Send + 'a>;

/// PostgreSQL's texts have no NUL.
pub fn text(from: &str) -> Cow<'_, str> {
    match from.contains('\0') {
        true => from.replace('\0', "\u{fffd}").into(),
        false => from.into(),
    }
}

/// The columns of rows of numbers.
pub fn transposed<'a, T, const N: usize>(rows: Vec<[T; N]>) -> impl Iterator<Item = Column<'a>>
where
    T: ToSql + Sync + Send + Copy + 'a,
{
    (0..N).map(move |column| Box::new(rows.iter().map(|row| row[column]).collect::<Vec<T>>()) as Column<'a>)
}
