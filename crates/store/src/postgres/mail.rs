//! Rows of messages between shards, and of the tasks that these move.

use super::columns::Column;
use super::rows::number_at;
use super::trouble::Trouble;
use super::{Postgres, int};
use crate::StoreError;
use crate::mail::{
    LastNumbers, MAIL_BYTES_MAX, MAIL_ROWS_MAX, Mail, MailPage, MailPlace, PageBuilder, with_guest,
};
use crate::message::{message_from_json, message_to_json};
use crate::spec::{ranges_from_json, ranges_to_json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Transaction};
use windlass_core::JobId;
use windlass_core::engine::Write;
use windlass_core::ids::ShardId;
use windlass_core::ranges::RangeSet;
use windlass_core::shards::Message;

/// No message has the number of an earlier one.
pub const TELL: &str = "INSERT INTO messages (sender, receiver, number, body)
    SELECT v.sender, v.receiver, v.number, v.body
    FROM unnest($1::integer[], $2::integer[], $3::bigint[], $4::text[]) AS v(sender, receiver, number, body)
    WHERE NOT EXISTS (SELECT 1 FROM messages_heard AS h
        WHERE h.sender = v.sender AND h.receiver = v.receiver AND h.number >= v.number)
    ON CONFLICT DO NOTHING RETURNING receiver::bigint, number";

pub const HEARD: &str = "WITH gone AS (DELETE FROM messages USING unnest($1::integer[], $2::integer[], $3::bigint[])
            AS v(sender, receiver, number)
        WHERE messages.sender = v.sender AND messages.receiver = v.receiver AND messages.number = v.number
        RETURNING messages.sender, messages.receiver, messages.number),
    last AS (INSERT INTO messages_heard (sender, receiver, number)
        SELECT sender, receiver, max(number) FROM gone GROUP BY sender, receiver
        ON CONFLICT (receiver, sender) DO UPDATE SET number = greatest(messages_heard.number, excluded.number))
    SELECT sender::bigint, number FROM gone";

/// A row without tasks is deleted.
pub const DELEGATED: &str = "WITH v AS (SELECT * FROM unnest($1::bigint[], $2::integer[], $3::text[])
            AS v(job, shard, tasks)),
    gone AS (DELETE FROM delegated AS d USING v WHERE d.job = v.job AND d.shard = v.shard AND v.tasks = '[]')
    INSERT INTO delegated (job, shard, tasks) SELECT job, shard, tasks FROM v WHERE tasks <> '[]'
    ON CONFLICT (job, shard) DO UPDATE SET tasks = excluded.tasks";

pub fn tell<'a>(shard: ShardId, writes: &[&'a Write]) -> Vec<Column<'a>> {
    let (mut receivers, mut numbers, mut bodies) = (vec![], vec![], vec![]);
    for write in writes {
        let Write::Tell { to, number, message } = write else { continue };
        receivers.push(to.0 as i32);
        numbers.push(int(*number));
        bodies.push(message_to_json(message));
    }
    let senders = vec![shard.0 as i32; receivers.len()];
    vec![Box::new(senders), Box::new(receivers), Box::new(numbers), Box::new(bodies)]
}

pub fn heard<'a>(shard: ShardId, writes: &[&'a Write]) -> Vec<Column<'a>> {
    let (mut senders, mut numbers) = (vec![], vec![]);
    for write in writes {
        let Write::Heard { from, number, .. } = write else { continue };
        senders.push(from.0 as i32);
        numbers.push(int(*number));
    }
    let receivers = vec![shard.0 as i32; senders.len()];
    vec![Box::new(senders), Box::new(receivers), Box::new(numbers)]
}

pub fn delegated<'a>(writes: &[&'a Write]) -> Vec<Column<'a>> {
    let (mut jobs, mut shards, mut all) = (vec![], vec![], vec![]);
    for write in writes {
        let Write::Delegated { job, shard, tasks } = write else { continue };
        jobs.push(int(job.0));
        shards.push(shard.0 as i32);
        all.push(ranges_to_json(tasks));
    }
    vec![Box::new(jobs), Box::new(shards), Box::new(all)]
}

/// What of jobs is with which shard, by job.
pub async fn delegated_of(
    at: &Transaction<'_>,
    jobs: &[i64],
) -> Result<BTreeMap<JobId, BTreeMap<ShardId, RangeSet>>, Trouble> {
    let sql = "SELECT job, shard, tasks FROM delegated WHERE job = ANY($1::bigint[])";
    let mut found: BTreeMap<JobId, BTreeMap<ShardId, RangeSet>> = BTreeMap::new();
    for row in at.query(sql, &[&jobs]).await? {
        let tasks = ranges_from_json(row.get(2))?;
        found.entry(JobId(number_at(&row, 0))).or_default().insert(shard_at(&row, 1), tasks);
    }
    Ok(found)
}

/// All messages from or to a shard that were not heard, with their senders and receivers.
pub async fn unheard(
    at: &Transaction<'_>,
    shard: ShardId,
) -> Result<Vec<(ShardId, ShardId, Message)>, Trouble> {
    let sql = "SELECT sender, receiver, body FROM messages WHERE sender = $1 OR receiver = $1";
    let rows = at.query(sql, &[&(shard.0 as i32)]).await?;
    rows.iter().map(|row| Ok((shard_at(row, 0), shard_at(row, 1), message_from_json(row.get(2))?))).collect()
}

/// The tasks of a job of another shard that a shard has.
pub fn guest(job: JobId, home: ShardId, away: RangeSet, unheard: &[(ShardId, ShardId, Message)]) -> RangeSet {
    let between = unheard.iter().filter(|(from, to, _)| *from == home || *to == home);
    with_guest(job, away, between.map(|(.., message)| message))
}

/// The jobs of other shards of which a shard has tasks, or gets them.
pub async fn guests(at: &Transaction<'_>, shard: ShardId) -> Result<BTreeSet<JobId>, Trouble> {
    let rows = at.query("SELECT job FROM delegated WHERE shard = $1", &[&(shard.0 as i32)]).await?;
    Ok(rows.iter().map(|row| JobId(number_at(row, 0))).collect())
}

/// The numbers of the last messages from a shard, and of those to it that were heard.
pub async fn last_numbers(at: &Transaction<'_>, shard: ShardId) -> Result<LastNumbers, Trouble> {
    let by_shard = |rows: Vec<Row>| rows.iter().map(|row| (shard_at(row, 0), number_at(row, 1))).collect();
    let sent = "SELECT receiver, max(number) FROM
            (SELECT receiver, number FROM messages WHERE sender = $1
             UNION ALL SELECT receiver, number FROM messages_heard WHERE sender = $1) AS n GROUP BY receiver";
    let heard = "SELECT sender, number FROM messages_heard WHERE receiver = $1";
    let sent: BTreeMap<ShardId, u64> = by_shard(at.query(sent, &[&(shard.0 as i32)]).await?);
    Ok((sent, by_shard(at.query(heard, &[&(shard.0 as i32)]).await?)))
}

/// All shards of the farm but one.
pub async fn peers(at: &Transaction<'_>, shard: ShardId) -> Result<BTreeSet<ShardId>, Trouble> {
    let rows = at.query("SELECT id FROM farm_shards WHERE id <> $1", &[&(shard.0 as i32)]).await?;
    Ok(rows.iter().map(|row| shard_at(row, 0)).collect())
}

/// A page of the messages to a shard. The bodies that are behind its end do not leave the database.
pub async fn mail(at: &Transaction<'_>, shard: ShardId, after: MailPlace) -> Result<MailPage, Trouble> {
    let sql = "SELECT sender, number, body FROM (
            SELECT sender, number, body,
                sum(octet_length(body)) OVER (ORDER BY sender, number) - octet_length(body) AS ahead
            FROM (SELECT sender, number, body FROM messages
                WHERE receiver = $1 AND (sender, number) > ($2::integer, $3::bigint)
                ORDER BY sender, number LIMIT $4::bigint) AS page) AS sized
        WHERE ahead < $5::bigint ORDER BY sender, number";
    let values: [&(dyn ToSql + Sync); 5] = [
        &(shard.0 as i32),
        &(after.from.0 as i32),
        &int(after.number),
        &(MAIL_ROWS_MAX as i64),
        &(MAIL_BYTES_MAX as i64),
    ];
    let mut page = PageBuilder::default();
    for row in at.query(sql, &values).await? {
        let body: &str = row.get(2);
        let message = message_from_json(body)?;
        page.add(Mail { from: shard_at(&row, 0), number: number_at(&row, 1), message }, body.len());
    }
    Ok(page.finish())
}

fn shard_at(row: &Row, column: usize) -> ShardId {
    ShardId(row.get::<_, i32>(column) as u32)
}

impl Postgres {
    pub(crate) async fn set_shards(&self, shards: &BTreeSet<ShardId>) -> Result<(), StoreError> {
        let ids: Vec<i32> = shards.iter().map(|shard| shard.0 as i32).collect();
        let sql = "WITH gone AS (DELETE FROM farm_shards WHERE NOT id = ANY($1::integer[]))
            INSERT INTO farm_shards (id) SELECT unnest($1::integer[]) ON CONFLICT DO NOTHING";
        let set = self.client().await?.execute(sql, &[&ids]).await;
        set.map(|_| ()).map_err(|e| Trouble::from(e).while_it("set the shards"))
    }

    pub(crate) async fn lease_numbers(&self, count: u64) -> Result<(Range<u64>, Range<u64>), StoreError> {
        let sql = "INSERT INTO meta (key, value)
                VALUES ('next_job', 1 + $1::bigint),
                    ('next_worker', (SELECT coalesce(max(id), 0) FROM workers) + 1 + $1::bigint)
            ON CONFLICT (key) DO UPDATE
                SET value = greatest(meta.value, excluded.value - $1::bigint) + $1::bigint
            RETURNING key, value";
        let rows = self.client().await?.query(sql, &[&int(count)]).await;
        let rows = rows.map_err(|e| Trouble::from(e).while_it("leased numbers"))?;
        let block = |key: &str| {
            let row = rows.iter().find(|row| row.get::<_, &str>(0) == key);
            let behind = row.map_or(count + 1, |row| number_at(row, 1));
            behind - count..behind
        };
        Ok((block("next_job"), block("next_worker")))
    }
}
