//! Shows: lists, new ones, and what operators switch.

use super::fields::{Answer, ROWS_MAX, fitting, hundredths};
use super::jobs;
use crate::cuebot::Cuebot;
use crate::generated::job::JobSeq;
use crate::generated::show::*;
use crate::names;
use crate::routes::{Routes, unary};
use crate::trouble::CallError;
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

/// Characters of a show's name: the column of its first group, which has the same name.
const NAME_CHARS_MAX: usize = 36;
/// Characters of the address that comments are sent to: its column.
const EMAIL_CHARS_MAX: usize = 1_024;

pub(super) fn routes(routes: Routes) -> Routes {
    setters(answers(routes))
        .route("/show.ShowInterface/FindShow", unary(find_show))
        .route("/show.ShowInterface/CreateShow", unary(create))
        .route("/show.ShowInterface/Delete", unary(delete))
}

const SHOWS: &str = "
SELECT w.pk_show, w.str_name, w.int_default_min_cores, w.int_default_max_cores, coalesce(w.str_comment_email, '') AS email,
       w.b_booking_enabled, w.b_dispatch_enabled, w.b_active, w.int_default_min_gpus, w.int_default_max_gpus,
       w.b_scheduler_managed, coalesce(c.running, 0) AS running, coalesce(c.dead, 0) AS dead,
       coalesce(c.pending, 0) AS pending, coalesce(c.jobs, 0) AS jobs, coalesce(p.cores, 0) AS cores,
       coalesce(p.gpus, 0) AS gpus, coalesce(t.int_job_insert_count, 0)::bigint AS job_inserts,
       coalesce(t.int_frame_insert_count, 0)::bigint AS frame_inserts,
       coalesce(t.int_frame_success_count, 0)::bigint AS frame_successes,
       coalesce(t.int_frame_fail_count, 0)::bigint AS frame_failures
  FROM show w
  LEFT JOIN (SELECT pk_show, count(*)::int AS jobs, sum(int_running_count)::int AS running,
                    sum(int_dead_count)::int AS dead, sum(int_waiting_count + int_depend_count)::int AS pending
               FROM job JOIN job_stat USING (pk_job) WHERE str_state = 'PENDING' GROUP BY 1) c USING (pk_show)
  LEFT JOIN (SELECT pk_show, sum(int_cores)::int AS cores, sum(int_gpus)::int AS gpus FROM subscription GROUP BY 1) p
    USING (pk_show) LEFT JOIN show_stats t USING (pk_show)";

fn show_of(row: &Row) -> Show {
    Show {
        id: row.get("pk_show"),
        name: row.get("str_name"),
        default_min_cores: row.get::<_, i32>("int_default_min_cores") as f32 / 100.0,
        default_max_cores: row.get::<_, i32>("int_default_max_cores") as f32 / 100.0,
        comment_email: row.get("email"),
        booking_enabled: row.get("b_booking_enabled"),
        dispatch_enabled: row.get("b_dispatch_enabled"),
        active: row.get("b_active"),
        show_stats: Some(ShowStats {
            running_frames: row.get("running"),
            dead_frames: row.get("dead"),
            pending_frames: row.get("pending"),
            pending_jobs: row.get("jobs"),
            reserved_cores: row.get::<_, i32>("cores") as f32 / 100.0,
            reserved_gpus: row.get::<_, i32>("gpus") as f32,
            created_job_count: row.get("job_inserts"),
            created_frame_count: row.get("frame_inserts"),
            rendered_frame_count: row.get("frame_successes"),
            failed_frame_count: row.get("frame_failures"),
        }),
        default_min_gpus: row.get::<_, i32>("int_default_min_gpus") as f32,
        default_max_gpus: row.get::<_, i32>("int_default_max_gpus") as f32,
        scheduler_managed: row.get("b_scheduler_managed"),
    }
}

async fn shows(cuebot: &Cuebot, is_active: Option<bool>, name: Option<&str>) -> Result<Vec<Show>, CallError> {
    let statement = format!(
        "{SHOWS} WHERE ($1::bool IS NULL OR w.b_active = $1) AND ($2::text IS NULL OR w.str_name = $2)
         ORDER BY w.str_name LIMIT {ROWS_MAX}"
    );
    let rows = cuebot.pool.get().await?.query(&statement, &[&is_active, &name]).await?;
    Ok(rows.iter().map(show_of).collect())
}

answers! { |cuebot, ask|
    "/show.ShowInterface/GetShows": ShowGetShowsRequest => ShowGetShowsResponse {
        shows: Some(ShowSeq { shows: shows(&cuebot, None, None).await? })
    };
    "/show.ShowInterface/GetActiveShows": ShowGetActiveShowsRequest => ShowGetActiveShowsResponse {
        shows: Some(ShowSeq { shows: shows(&cuebot, Some(true), None).await? })
    };
    "/show.ShowInterface/GetJobs": ShowGetJobsRequest => ShowGetJobsResponse {
        jobs: Some(JobSeq { jobs: jobs::pending_jobs(&cuebot, "job.pk_show = $1", key!(ask.show)?).await? })
    };
}

async fn find_show(cuebot: Arc<Cuebot>, ask: ShowFindShowRequest) -> Answer<ShowFindShowResponse> {
    let found = shows(&cuebot, None, Some(&ask.name)).await?.into_iter().next();
    let missing = CallError::Missing { what: "show", name: ask.name };
    Ok(ShowFindShowResponse { show: Some(found.ok_or(missing)?) })
}

/// A show with its counts, its first group, and the figures of its department. The schema's triggers make the rest.
const CREATE: &str = "
WITH made AS (
    INSERT INTO show (pk_show, str_name) SELECT gen_random_uuid()::text, $1::text
     WHERE NOT EXISTS (SELECT 1 FROM show WHERE str_name = $1::text)
    RETURNING pk_show
), counted AS (
    INSERT INTO show_stats (pk_show, int_frame_insert_count, int_job_insert_count, int_frame_success_count,
           int_frame_fail_count) SELECT pk_show, 0, 0, 0, 0 FROM made
), usual AS (
    SELECT pk_dept FROM dept ORDER BY b_default DESC, str_name LIMIT 1
), grouped AS (
    INSERT INTO folder (pk_folder, pk_show, str_name, pk_dept, b_default)
    SELECT gen_random_uuid()::text, pk_show, $1::text, pk_dept, true FROM made CROSS JOIN usual
), pointed AS (
    INSERT INTO point (pk_point, pk_dept, pk_show)
    SELECT gen_random_uuid()::text, pk_dept, pk_show FROM made CROSS JOIN usual
)
SELECT pk_show, (SELECT count(*) FROM usual) FROM made";

/// Adds a show. It is not scheduled until an operator marks it as managed.
async fn create(cuebot: Arc<Cuebot>, ask: ShowCreateShowRequest) -> Answer<ShowCreateShowResponse> {
    let name = names::plain("show name", &ask.name, 1, NAME_CHARS_MAX)?;
    cuebot
        .transact(name.as_str(), |tx, name| {
            Box::pin(async move {
                let made = tx.query_opt(CREATE, &[name]).await?;
                let made = made.ok_or_else(|| CallError::Exists { what: "show", name: name.to_string() })?;
                if made.get::<_, i64>(1) == 0 {
                    return Err(CallError::Missing { what: "department for show", name: name.to_string() });
                }
                Ok(())
            })
        })
        .await?;
    let found = find_show(cuebot, ShowFindShowRequest { name }).await?;
    Ok(ShowCreateShowResponse { show: found.show })
}

/// What belongs to a show alone, in the order in which all transactions lock, and then the show.
const DELETE: [&str; 7] = [
    "DELETE FROM subscription WHERE pk_show = $1",
    "DELETE FROM folder_level WHERE pk_folder IN (SELECT pk_folder FROM folder WHERE pk_show = $1)",
    "DELETE FROM folder_resource WHERE pk_folder IN (SELECT pk_folder FROM folder WHERE pk_show = $1)",
    "DELETE FROM folder WHERE pk_show = $1",
    "DELETE FROM point WHERE pk_show = $1",
    "DELETE FROM show_stats WHERE pk_show = $1",
    "DELETE FROM show WHERE pk_show = $1",
];

/// Deletes a show that never had a job, such as one with a mistyped name.
async fn delete(cuebot: Arc<Cuebot>, ask: ShowDeleteRequest) -> Answer<()> {
    let key = key!(ask.show)?;
    cuebot
        .transact(key, |tx, key| {
            Box::pin(async move {
                let mut rows = 0;
                for statement in DELETE {
                    rows = tx.execute(statement, &[key]).await.map_err(used)?;
                }
                CallError::unless_found(rows, "show", key)
            })
        })
        .await
}

/// The error of a statement that deletes from a show. Rows of other tables, such as jobs, keep it.
fn used(error: tokio_postgres::Error) -> CallError {
    let table = match error.as_db_error() {
        Some(why) if *why.code() == SqlState::FOREIGN_KEY_VIOLATION => {
            why.table().unwrap_or_default().to_owned()
        }
        _ => return CallError::Database(error),
    };
    CallError::Value(format!(
        "the show has rows in the table '{table}', as each one that had jobs, and stays; \
         'cueadmin -disable-show' hides it"
    ))
}

setters!("show.ShowInterface", show {
    "SetSchedulerManaged": ShowSetSchedulerManagedRequest, |ask| ask.enabled,
        "UPDATE show SET b_scheduler_managed = $2 WHERE pk_show = $1";
    "SetActive": ShowSetActiveRequest, |ask| ask.value, "UPDATE show SET b_active = $2 WHERE pk_show = $1";
    "EnableBooking": ShowEnableBookingRequest, |ask| ask.enabled,
        "UPDATE show SET b_booking_enabled = $2 WHERE pk_show = $1";
    "EnableDispatching": ShowEnableDispatchingRequest, |ask| ask.enabled,
        "UPDATE show SET b_dispatch_enabled = $2 WHERE pk_show = $1";
    "SetCommentEmail": ShowSetCommentEmailRequest, |ask| fitting("address", &ask.email, EMAIL_CHARS_MAX)?,
        "UPDATE show SET str_comment_email = $2 WHERE pk_show = $1";
    "SetDefaultMinCores": ShowSetDefaultMinCoresRequest, |ask| hundredths(ask.min_cores)?,
        "UPDATE show SET int_default_min_cores = $2 WHERE pk_show = $1";
    "SetDefaultMaxCores": ShowSetDefaultMaxCoresRequest, |ask| hundredths(ask.max_cores)?,
        "UPDATE show SET int_default_max_cores = $2 WHERE pk_show = $1";
    "SetDefaultMinGpus": ShowSetDefaultMinGpusRequest, |ask| ask.min_gpus.max(0),
        "UPDATE show SET int_default_min_gpus = $2 WHERE pk_show = $1";
    "SetDefaultMaxGpus": ShowSetDefaultMaxGpusRequest, |ask| ask.max_gpus.max(0),
        "UPDATE show SET int_default_max_gpus = $2 WHERE pk_show = $1";
});
