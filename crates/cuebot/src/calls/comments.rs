//! Comments on jobs and hosts.

use super::fields::{Answer, ROWS_MAX, id, name, text};
use crate::cuebot::Cuebot;
use crate::generated::comment::*;
use crate::generated::host::{HostAddCommentRequest, HostGetCommentsRequest, HostGetCommentsResponse};
use crate::generated::job::{JobAddCommentRequest, JobGetCommentsRequest, JobGetCommentsResponse};
use crate::routes::{Routes, unary};
use crate::trouble::CallError;
use std::sync::Arc;
use tokio_postgres::Row;

/// Characters of the user's name, of the subject and of the message: their columns.
const WIDTHS: (usize, usize, usize) = (36, 128, 4_000);

pub(super) fn routes(routes: Routes) -> Routes {
    changes(answers(routes))
        .route("/comment.CommentInterface/Save", unary(save))
        .route("/comment.CommentInterface/Delete", unary(delete))
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
    (what, key): (&'static str, &str),
    comment: Option<Comment>,
) -> Result<(), CallError> {
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

answers! { |cuebot, ask|
    "/job.JobInterface/GetComments": JobGetCommentsRequest => JobGetCommentsResponse {
        comments: Some(list(&cuebot, "pk_job = $1", key!(ask.job)?).await?)
    };
    "/host.HostInterface/GetComments": HostGetCommentsRequest => HostGetCommentsResponse {
        comments: Some(list(&cuebot, "pk_host = $1", key!(ask.host)?).await?)
    };
}

changes! { |cuebot, ask|
    "/job.JobInterface/AddComment": JobAddCommentRequest =>
        add(&cuebot, ADD_TO_JOB, ("job", key!(ask.job)?), ask.new_comment).await;
    "/host.HostInterface/AddComment": HostAddCommentRequest =>
        add(&cuebot, ADD_TO_HOST, ("host", key!(ask.host)?), ask.new_comment).await;
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
    let key = key!(ask.comment)?;
    if cuebot.pool.get().await?.query_opt(DELETE, &[&key]).await?.is_none() {
        return Err(CallError::Missing { what: "comment", name: key.to_owned() });
    }
    Ok(())
}
