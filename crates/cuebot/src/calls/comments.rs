//! Comments on jobs and hosts.

use super::fields::{Answer, ROWS_MAX, id, name, text};
use crate::cuebot::Cuebot;
use crate::generated::comment::*;
use crate::generated::{host, job};
use crate::routes::{Routes, unary};
use crate::trouble::CallError;
use std::sync::Arc;
use tokio_postgres::Row;

/// Characters of the user's name, of the subject and of the message: their columns.
const WIDTHS: (usize, usize, usize) = (36, 128, 4_000);

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .route("/comment.CommentInterface/Save", unary(save))
        .route("/comment.CommentInterface/Delete", unary(delete))
        .route("/job.JobInterface/AddComment", unary(add_to_job))
        .route("/job.JobInterface/GetComments", unary(of_job))
        .route("/host.HostInterface/AddComment", unary(add_to_host))
        .route("/host.HostInterface/GetComments", unary(of_host))
}

/// A comment is added in one statement with the mark that tells of it. No row is returned where the job is missing.
const ADD_TO_JOB: &str = "
WITH marked AS (UPDATE job SET b_comment = true WHERE pk_job = $1 RETURNING pk_job)
INSERT INTO comments (pk_comment, pk_job, str_user, str_subject, str_message)
SELECT gen_random_uuid()::text, pk_job, $2::text, $3::text, $4::text FROM marked";
const ADD_TO_HOST: &str = "
WITH marked AS (UPDATE host SET b_comment = true WHERE pk_host = $1 RETURNING pk_host)
INSERT INTO comments (pk_comment, pk_host, str_user, str_subject, str_message)
SELECT gen_random_uuid()::text, pk_host, $2::text, $3::text, $4::text FROM marked";
/// The mark of the job or host goes with its last comment.
const DELETE: &str = "
WITH gone AS (DELETE FROM comments WHERE pk_comment = $1 RETURNING pk_comment, pk_job, pk_host),
j AS (UPDATE job SET b_comment = false FROM gone WHERE job.pk_job = gone.pk_job AND NOT EXISTS (
    SELECT 1 FROM comments c WHERE c.pk_job = gone.pk_job AND c.pk_comment <> gone.pk_comment)),
h AS (UPDATE host SET b_comment = false FROM gone WHERE host.pk_host = gone.pk_host AND NOT EXISTS (
    SELECT 1 FROM comments c WHERE c.pk_host = gone.pk_host AND c.pk_comment <> gone.pk_comment))
SELECT 1 FROM gone";

fn check(comment: &Comment) -> Result<(), CallError> {
    name("user of the comment", &comment.user, WIDTHS.0)?;
    text("subject of the comment", &comment.subject, WIDTHS.1)?;
    text("message of the comment", &comment.message, WIDTHS.2)
}

async fn add(
    cuebot: &Cuebot,
    statement: &'static str,
    (what, key): (&'static str, Option<&String>),
    comment: Option<Comment>,
) -> Result<(), CallError> {
    let key = id(what, key)?;
    let comment = comment.unwrap_or_default();
    check(&comment)?;
    let client = cuebot.pool.get().await?;
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
        [&key, &comment.user, &comment.subject, &comment.message];
    CallError::unless_found(client.execute(statement, &values).await?, what, key)
}

async fn list(cuebot: &Cuebot, which: &'static str, key: &str) -> Result<CommentSeq, CallError> {
    let statement = format!(
        "SELECT pk_comment, floor(extract(epoch FROM ts_created::timestamptz))::int AS created, str_user,
                str_subject, str_message FROM comments WHERE {which} ORDER BY ts_created, pk_comment LIMIT {ROWS_MAX}"
    );
    let rows = cuebot.pool.get().await?.query(&statement, &[&key]).await?;
    Ok(CommentSeq { comments: rows.iter().map(comment).collect() })
}

fn comment(row: &Row) -> Comment {
    Comment {
        id: row.get("pk_comment"),
        timestamp: row.get("created"),
        user: row.get("str_user"),
        subject: row.get("str_subject"),
        message: row.get("str_message"),
    }
}

async fn add_to_job(cuebot: Arc<Cuebot>, ask: job::JobAddCommentRequest) -> Answer<()> {
    add(&cuebot, ADD_TO_JOB, ("job", ask.job.as_ref().map(|job| &job.id)), ask.new_comment).await
}

async fn add_to_host(cuebot: Arc<Cuebot>, ask: host::HostAddCommentRequest) -> Answer<()> {
    add(&cuebot, ADD_TO_HOST, ("host", ask.host.as_ref().map(|host| &host.id)), ask.new_comment).await
}

async fn of_job(cuebot: Arc<Cuebot>, ask: job::JobGetCommentsRequest) -> Answer<job::JobGetCommentsResponse> {
    let key = id("job", ask.job.as_ref().map(|job| &job.id))?;
    Ok(job::JobGetCommentsResponse { comments: Some(list(&cuebot, "pk_job = $1", key).await?) })
}

async fn of_host(
    cuebot: Arc<Cuebot>,
    ask: host::HostGetCommentsRequest,
) -> Answer<host::HostGetCommentsResponse> {
    let key = id("host", ask.host.as_ref().map(|host| &host.id))?;
    Ok(host::HostGetCommentsResponse { comments: Some(list(&cuebot, "pk_host = $1", key).await?) })
}

/// Changes what a comment says.
async fn save(cuebot: Arc<Cuebot>, ask: CommentSaveRequest) -> Answer<()> {
    let comment = ask.comment.unwrap_or_default();
    let key = id("comment", Some(&comment.id))?;
    check(&comment)?;
    let statement = "UPDATE comments SET str_subject = $2, str_message = $3 WHERE pk_comment = $1";
    let client = cuebot.pool.get().await?;
    let changed = client.execute(statement, &[&key, &comment.subject, &comment.message]).await?;
    CallError::unless_found(changed, "comment", key)
}

async fn delete(cuebot: Arc<Cuebot>, ask: CommentDeleteRequest) -> Answer<()> {
    let key = id("comment", ask.comment.as_ref().map(|comment| &comment.id))?;
    if cuebot.pool.get().await?.query_opt(DELETE, &[&key]).await?.is_none() {
        return Err(CallError::Missing { what: "comment", name: key.to_owned() });
    }
    Ok(())
}
