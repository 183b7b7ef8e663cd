//! The statement that adds the notices that a commit owes.

use super::column::{Column, text};
use crate::codes::{int, time};
use crate::notices::NewNotice;

const ADD: &str = "INSERT INTO notices (job, submitter, target, body, at)
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[])";

/// The statement that adds these notices, and its parameters; `None` if there are none.
pub fn added<'a>(notices: impl Iterator<Item = &'a NewNotice>) -> Option<(&'static str, Vec<Column<'a>>)> {
    let notices: Vec<&NewNotice> = notices.collect();
    if notices.is_empty() {
        return None;
    }
    let jobs: Vec<Option<i64>> = notices.iter().map(|notice| notice.job.map(|job| int(job.0))).collect();
    let users: Vec<_> = notices.iter().map(|notice| text(&notice.user)).collect();
    let to: Vec<_> = notices.iter().map(|notice| text(&notice.to)).collect();
    let bodies: Vec<_> = notices.iter().map(|notice| text(&notice.body)).collect();
    let at: Vec<i64> = notices.iter().map(|notice| time(notice.at)).collect();
    Some((ADD, vec![Box::new(jobs), Box::new(users), Box::new(to), Box::new(bodies), Box::new(at)]))
}
