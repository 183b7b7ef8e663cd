//! Commits of an owner: one transaction for a batch, under the owner's epoch. The transaction ends with a change of the
//! owner's row that only the owner of this epoch can make, and only once for each batch. So nothing is committed under
//! an epoch that another server has superseded. After a connection was lost, that row also says whether the batch was
//! committed, and which of its writes were refused.

use super::Postgres;
use super::attempt::{Attempt, Changes, Connection};
use super::owner::{Doubt, Owner, Writer};
use super::trouble::{Remedy, Trouble};
use crate::codes::int;
use crate::error::StoreError;
use crate::notices::Beside;
use crate::ownership::Ownership;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::MutexGuard;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_util::task::AbortOnDropHandle;
use windlass_core::engine::Outbox;

/// How often a batch is tried again that PostgreSQL took back because of another transaction.
const TRIES_MAX: u32 = 10;
/// How long is asked what became of a commit whose connection was lost. Requests wait meanwhile.
const FIND_OUT_MAX: Duration = Duration::from_secs(10);
/// The first pause between attempts to connect. It doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest pause between attempts to connect.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Waits for a transaction that has changed the row and has not ended.
const LOOK: &str = "SELECT owner, epoch, batch, refused FROM shards WHERE id = 0 FOR UPDATE";
/// Takes the next number, so that a transaction that is still on its way finds another one than it expects.
const SETTLE: &str = "UPDATE shards SET batch = batch + 1, refused = '{}', beat = clock_timestamp()
    WHERE id = 0 AND owner = $1 AND epoch = $2 RETURNING batch";

/// The state of the owner's row, as the writer finds it.
enum Fate {
    /// The batch was committed, with these refused writes.
    Committed(Vec<usize>),
    Open,
    /// Another server has the farm.
    Superseded,
}

impl Postgres {
    /// Applies the writes of a batch in one transaction under this handle's epoch. Returns the indexes of the refused
    /// ones.
    pub(crate) async fn commit(&self, batch: Arc<Outbox>, beside: Beside) -> Result<Vec<usize>, StoreError> {
        let owner = self.owner.clone().ok_or(StoreError::NotOwner)?;
        if batch.writes.is_empty() {
            return Ok(Vec::new());
        }
        let mut doubt = Doubt(Some(owner.clone()));
        let postgres = self.clone();
        // The engine's thread goes on with the next batch meanwhile. The commit ends with its caller.
        let running = async move { postgres.commit_here(owner, batch, beside).await };
        let running = AbortOnDropHandle::new(self.database.runtime.spawn(running));
        let outcome = running.await.map_err(|_| StoreError::Closed)?;
        doubt.0 = None;
        outcome
    }

    async fn commit_here(
        &self,
        owner: Arc<Owner>,
        batch: Arc<Outbox>,
        beside: Beside,
    ) -> Result<Vec<usize>, StoreError> {
        let mut writer = self.settled(&owner).await?;
        let mut doubt = Doubt(Some(owner.clone()));
        let mut has_lost_one = false;
        let changes = Changes { writes: &batch.writes, beside: &beside };
        let outcome = self.commit_once(&owner, &mut writer, changes, &mut has_lost_one).await;
        // A transaction whose connection was lost may still be on its way. After a commit or under another epoch it
        // finds another row than it expects.
        let is_known = matches!(outcome, Ok(_) | Err(StoreError::Superseded));
        if is_known || !has_lost_one {
            doubt.0 = None;
        }
        if outcome.is_ok() {
            writer.batch += 1;
        }
        outcome
    }

    /// Tries the batch until its outcome is known. `is_asked` is set where an earlier try may still be on its way: its
    /// connection was lost after the commit was asked for.
    async fn commit_once(
        &self,
        owner: &Owner,
        writer: &mut Writer,
        changes: Changes<'_>,
        is_asked: &mut bool,
    ) -> Result<Vec<usize>, StoreError> {
        let deadline = Instant::now() + FIND_OUT_MAX;
        let (mut tries, mut pause) = (0, PAUSE_MIN);
        loop {
            let mut attempt = Attempt {
                database: &self.database,
                ownership: &owner.ownership,
                batch: writer.batch,
                is_asked: false,
            };
            let failure = match self.attempt(&mut attempt, &mut writer.connection, changes, deadline).await {
                Ok(refused) => return Ok(refused),
                Err(failure) => failure,
            };
            let is_fence = failure.code() == Some(&SqlState::DIVISION_BY_ZERO);
            *is_asked |= is_fence || (attempt.is_asked && failure.remedy() == Remedy::FindOut);
            match failure.remedy() {
                _ if is_fence => {}
                Remedy::TryAgain if tries < TRIES_MAX => {
                    tries += 1;
                    continue;
                }
                Remedy::TryAgain | Remedy::GiveUp => return Err(failure.while_it("committed")),
                Remedy::FindOut if Instant::now() + pause >= deadline => {
                    return Err(self.not_found_out(*is_asked, failure));
                }
                Remedy::FindOut => {
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
            if !*is_asked {
                continue;
            }
            match self.find_out(owner, writer, deadline).await {
                Ok(Fate::Committed(refused)) => return Ok(refused),
                Ok(Fate::Open) if is_fence => {
                    // The row is as it was left and the fence did not hold: another transaction of this owner had it.
                    tries += 1;
                    if tries > TRIES_MAX {
                        return Err(failure.while_it("committed"));
                    }
                }
                Ok(Fate::Open) => {}
                Ok(Fate::Superseded) => return Err(StoreError::Superseded),
                Err(failure) => return Err(self.not_found_out(true, failure)),
            }
        }
    }

    fn not_found_out(&self, is_asked: bool, failure: Trouble) -> StoreError {
        let (database, seconds) = (self.shown().to_owned(), FIND_OUT_MAX.as_secs());
        match (is_asked, failure) {
            // Nothing was asked to be committed, so nothing is.
            (false, Trouble::Store(error)) => error,
            (false, failure) => failure.while_it("committed"),
            (true, failure) => {
                let source = failure.while_it("committed");
                StoreError::Unknown { database, seconds, source: Box::new(source) }
            }
        }
    }

    async fn attempt(
        &self,
        attempt: &mut Attempt<'_>,
        kept: &mut Option<Connection>,
        changes: Changes<'_>,
        deadline: Instant,
    ) -> Result<Vec<usize>, Trouble> {
        let mut connection = match kept.take().filter(|connection| !connection.client.is_closed()) {
            Some(connection) => connection,
            None => Connection::new(&self.database, deadline).await?,
        };
        let result = attempt.run(&mut connection, changes).await;
        let is_good = match &result {
            Ok(_) => true,
            Err(failure) if failure.remedy() == Remedy::FindOut => false,
            Err(_) => connection.client.batch_execute("ROLLBACK").await.is_ok(),
        };
        *kept = is_good.then_some(connection);
        result
    }

    /// What became of the writer's batch.
    async fn find_out(&self, owner: &Owner, writer: &mut Writer, deadline: Instant) -> Result<Fate, Trouble> {
        let mut pause = PAUSE_MIN;
        loop {
            let failure = match self.look(owner, writer, deadline).await {
                Ok(fate) => return Ok(fate),
                Err(failure) => failure,
            };
            writer.connection = None;
            if failure.remedy() == Remedy::GiveUp || Instant::now() + pause >= deadline {
                return Err(failure);
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn look(&self, owner: &Owner, writer: &mut Writer, deadline: Instant) -> Result<Fate, Trouble> {
        let connection = writer.connection(&self.database, deadline).await?;
        let asked = timeout_at(deadline, connection.client.query_opt(LOOK, &[])).await;
        let row = asked.map_err(|_| self.database.did_not_answer())??;
        let Some(row) = row else { return Ok(Fate::Superseded) };
        let (by, epoch): (Option<i64>, i64) = (row.get(0), row.get(1));
        if (by, epoch) != (Some(owner.ownership.server.0), int(owner.ownership.epoch)) {
            return Ok(Fate::Superseded);
        }
        let (batch, refused): (i64, Vec<i64>) = (row.get(2), row.get(3));
        // Only this owner counts up under its epoch, one at a time.
        Ok(match batch == writer.batch {
            true => Fate::Open,
            false => Fate::Committed(refused.into_iter().map(|number| number as usize).collect()),
        })
    }

    /// The writer, once nothing of an earlier commit is unknown.
    async fn settled<'a>(&self, owner: &'a Owner) -> Result<MutexGuard<'a, Writer>, StoreError> {
        let mut writer = owner.writer.lock().await;
        if !owner.unsure.load(Ordering::Acquire) {
            return Ok(writer);
        }
        let deadline = Instant::now() + FIND_OUT_MAX;
        let Ownership { server, epoch, .. } = owner.ownership;
        writer.connection = None;
        let connection = writer.connection(&self.database, deadline).await?;
        let key: [&(dyn ToSql + Sync); 2] = [&server.0, &int(epoch)];
        let asked = timeout_at(deadline, connection.client.query_opt(SETTLE, &key)).await;
        let row = asked.map_err(|_| self.database.did_not_answer())?;
        let row = row.map_err(|e| Trouble::Sql(e).while_it("settled a commit"))?;
        let row = row.ok_or(StoreError::Superseded)?;
        writer.batch = row.get(0);
        owner.unsure.store(false, Ordering::Release);
        Ok(writer)
    }

    /// Settles what an earlier commit left unknown, before the engine reads what is in the store.
    pub(crate) async fn settle(&self) -> Result<(), StoreError> {
        match &self.owner {
            Some(owner) if owner.unsure.load(Ordering::Acquire) => self.settled(owner).await.map(|_| ()),
            _ => Ok(()),
        }
    }
}
