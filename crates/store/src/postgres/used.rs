//! The statement that adds what the attempts took that a commit ends.

use super::column::{Column, text};
use crate::codes::int;
use crate::usage::{SUM_MAX, USAGE_OTHERS, USAGE_PAIRS_MAX, UsageKey, UsageSum};
use std::collections::BTreeMap;

/// Rows of a day beyond the most that it tells apart are those of others. Names whose characters the database does not
/// have may have become the same, so rows are grouped before they are added.
const ADD: &str = "WITH given AS (
        SELECT v.*, EXISTS (SELECT 1 FROM day_usage u
            WHERE u.day = v.day AND u.submitter = v.submitter AND u.queue = v.queue) AS is_known
        FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[])
            AS v(day, submitter, queue, cpu_ms, tasks, failed)),
    days AS (SELECT day, count(*) AS pairs FROM day_usage WHERE day = ANY($1::bigint[]) GROUP BY day),
    placed AS (
        SELECT given.*, coalesce(days.pairs, 0) + row_number() OVER (PARTITION BY given.day, given.is_known
            ORDER BY given.submitter COLLATE \"C\", given.queue COLLATE \"C\") AS place
        FROM given LEFT JOIN days ON days.day = given.day),
    named AS (
        SELECT day, CASE WHEN is_known OR place <= $7::bigint THEN submitter ELSE $8::text END AS submitter,
            CASE WHEN is_known OR place <= $7::bigint THEN queue ELSE $8::text END AS queue, cpu_ms, tasks, failed
        FROM placed)
    INSERT INTO day_usage (day, submitter, queue, cpu_ms, tasks, failed)
    SELECT day, submitter, queue, least(sum(cpu_ms), $9::bigint)::bigint, least(sum(tasks), $9::bigint)::bigint,
        least(sum(failed), $9::bigint)::bigint
    FROM named GROUP BY day, submitter, queue
    ON CONFLICT (day, submitter, queue) DO UPDATE SET
        cpu_ms = least(day_usage.cpu_ms + excluded.cpu_ms, $9::bigint),
        tasks = least(day_usage.tasks + excluded.tasks, $9::bigint),
        failed = least(day_usage.failed + excluded.failed, $9::bigint)";

/// The statement that adds these sums, and its parameters; `None` if there are none.
pub fn added<'a>(sums: BTreeMap<UsageKey, UsageSum>) -> Option<(&'static str, Vec<Column<'a>>)> {
    if sums.is_empty() {
        return None;
    }
    let number = |of: fn(&UsageSum) -> u64| sums.values().map(|sum| int(of(sum))).collect::<Vec<i64>>();
    let (cpu_ms, tasks, failed) =
        (number(|sum| sum.cpu_ms), number(|sum| sum.tasks), number(|sum| sum.failed));
    let days: Vec<i64> = sums.keys().map(|key| int(key.day)).collect();
    let users: Vec<String> = sums.keys().map(|key| text(&key.user).into_owned()).collect();
    let queues: Vec<String> = sums.keys().map(|key| text(&key.queue).into_owned()).collect();
    let columns: Vec<Column<'a>> = vec![
        Box::new(days),
        Box::new(users),
        Box::new(queues),
        Box::new(cpu_ms),
        Box::new(tasks),
        Box::new(failed),
        Box::new(USAGE_PAIRS_MAX as i64),
        Box::new(USAGE_OTHERS),
        Box::new(int(SUM_MAX)),
    ];
    Some((ADD, columns))
}
