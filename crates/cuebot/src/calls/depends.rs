//! Dependencies between rows of the tables: lists, and how people change them.

use super::fields::{Answer, ROWS_MAX, id};
use crate::cuebot::Cuebot;
use crate::depends::{self, End};
use crate::generated::depend::*;
use crate::generated::job::*;
use crate::locks::lock_jobs;
use crate::routes::{Routes, unary};
use crate::trouble::CallError;
use deadpool_postgres::Transaction;
use std::sync::Arc;
use tokio_postgres::Row;

/// A call that lists the dependencies of the job, layer or frame that its request names.
macro_rules! listed {
    ($ask:ty => $answer:ident, $of:ident, $which:expr) => {{
        async fn call(cuebot: Arc<Cuebot>, ask: $ask) -> Answer<$answer> {
            let key = id(stringify!($of), ask.$of.as_ref().map(|of| &of.id))?;
            Ok($answer { depends: Some(list(&cuebot, $which, key).await?) })
        }
        unary(call)
    }};
}

/// A call that adds a dependency: the sides, and the request's field with each.
macro_rules! creates {
    ($ask:ty => $answer:ident, $from:ident $waits:ident, $on:ident $awaited:ident) => {{
        async fn call(cuebot: Arc<Cuebot>, ask: $ask) -> Answer<$answer> {
            let from = Side::$from(id(stringify!($waits), ask.$waits.as_ref().map(|of| &of.id))?.to_owned());
            let on = Side::$on(id(stringify!($awaited), ask.$awaited.as_ref().map(|of| &of.id))?.to_owned());
            let kind = kind(&from, &on);
            Ok($answer { depend: Some(create(&cuebot, (from, on), (kind, false)).await?) })
        }
        unary(call)
    }};
}

/// A call that closes the dependencies of a job, a layer or a frame.
macro_rules! drops {
    ($ask:ty, $of:ident, $which:expr) => {{
        async fn call(cuebot: Arc<Cuebot>, ask: $ask) -> Answer<()> {
            let key = id(stringify!($of), ask.$of.as_ref().map(|of| &of.id))?;
            drop_those(&cuebot, $which, key, ask.target).await
        }
        unary(call)
    }};
}

pub(super) fn routes(routes: Routes) -> Routes {
    changes(answers(routes))
        .route("/depend.DependInterface/Unsatisfy", unary(unsatisfy))
        .route("/job.JobInterface/GetDepends",
            listed!(JobGetDependsRequest => JobGetDependsResponse, job, ALL_OF_JOB))
        .route("/job.JobInterface/GetWhatDependsOnThis",
            listed!(JobGetWhatDependsOnThisRequest => JobGetWhatDependsOnThisResponse, job, ON_JOB))
        .route("/job.JobInterface/GetWhatThisDependsOn",
            listed!(JobGetWhatThisDependsOnRequest => JobGetWhatThisDependsOnResponse, job, OF_JOB))
        .route("/job.LayerInterface/GetWhatDependsOnThis",
            listed!(LayerGetWhatDependsOnThisRequest => LayerGetWhatDependsOnThisResponse, layer, ON_LAYER))
        .route("/job.LayerInterface/GetWhatThisDependsOn",
            listed!(LayerGetWhatThisDependsOnRequest => LayerGetWhatThisDependsOnResponse, layer, OF_LAYER))
        .route("/job.FrameInterface/GetWhatDependsOnThis",
            listed!(FrameGetWhatDependsOnThisRequest => FrameGetWhatDependsOnThisResponse, frame, ON_FRAME))
        .route("/job.FrameInterface/GetWhatThisDependsOn",
            listed!(FrameGetWhatThisDependsOnRequest => FrameGetWhatThisDependsOnResponse, frame, OF_FRAME))
        .route("/job.JobInterface/CreateDependencyOnJob",
            creates!(JobCreateDependencyOnJobRequest => JobCreateDependencyOnJobResponse, Job job, Job on_job))
        .route("/job.JobInterface/CreateDependencyOnLayer",
            creates!(JobCreateDependencyOnLayerRequest => JobCreateDependencyOnLayerResponse, Job job, Layer layer))
        .route("/job.JobInterface/CreateDependencyOnFrame",
            creates!(JobCreateDependencyOnFrameRequest => JobCreateDependencyOnFrameResponse, Job job, Frame frame))
        .route("/job.LayerInterface/CreateDependencyOnJob",
            creates!(LayerCreateDependOnJobRequest => LayerCreateDependOnJobResponse, Layer layer, Job job))
        .route("/job.LayerInterface/CreateDependencyOnLayer",
            creates!(LayerCreateDependOnLayerRequest => LayerCreateDependOnLayerResponse, Layer layer, Layer depend_on_layer))
        .route("/job.LayerInterface/CreateDependencyOnFrame",
            creates!(LayerCreateDependOnFrameRequest => LayerCreateDependOnFrameResponse, Layer layer, Frame frame))
        .route("/job.LayerInterface/CreateFrameByFrameDependency", unary(frame_by_frame))
        .route("/job.FrameInterface/CreateDependencyOnJob",
            creates!(FrameCreateDependencyOnJobRequest => FrameCreateDependencyOnJobResponse, Frame frame, Job job))
        .route("/job.FrameInterface/CreateDependencyOnLayer",
            creates!(FrameCreateDependencyOnLayerRequest => FrameCreateDependencyOnLayerResponse, Frame frame, Layer layer))
        .route("/job.FrameInterface/CreateDependencyOnFrame",
            creates!(FrameCreateDependencyOnFrameRequest => FrameCreateDependencyOnFrameResponse, Frame frame, Frame depend_on_frame))
        .route("/job.JobInterface/DropDepends", drops!(JobDropDependsRequest, job, "pk_job_depend_er = $1"))
        .route("/job.LayerInterface/DropDepends",
            drops!(LayerDropDependsRequest, layer, "pk_layer_depend_er = $1"))
        .route("/job.FrameInterface/DropDepends",
            drops!(FrameDropDependsRequest, frame, "pk_frame_depend_er = $1"))
}

/// Dependencies with the names of both sides. A condition is appended.
const DEPENDS: &str = "
SELECT depend.pk_depend, upper(depend.str_type) AS kind, upper(str_target) AS target, b_any, b_active,
       ej.str_name AS er_job, coalesce(el.str_name, '') AS er_layer, coalesce(ef.str_name, '') AS er_frame,
       oj.str_name AS on_job, coalesce(ol.str_name, '') AS on_layer, coalesce(om.str_name, '') AS on_frame
  FROM depend JOIN job ej ON ej.pk_job = pk_job_depend_er JOIN job oj ON oj.pk_job = pk_job_depend_on
  LEFT JOIN layer el ON el.pk_layer = pk_layer_depend_er LEFT JOIN layer ol ON ol.pk_layer = pk_layer_depend_on
  LEFT JOIN frame ef ON ef.pk_frame = pk_frame_depend_er LEFT JOIN frame om ON om.pk_frame = pk_frame_depend_on";

const ALL_OF_JOB: &str = "pk_job_depend_er = $1 AND pk_parent IS NULL";
const ON_JOB: &str = "pk_job_depend_on = $1 AND pk_layer_depend_on IS NULL AND pk_frame_depend_on IS NULL";
const OF_JOB: &str = "pk_job_depend_er = $1 AND pk_layer_depend_er IS NULL AND pk_frame_depend_er IS NULL";
const ON_LAYER: &str = "pk_layer_depend_on = $1 AND pk_frame_depend_on IS NULL";
const OF_LAYER: &str = "pk_layer_depend_er = $1 AND pk_frame_depend_er IS NULL";
const ON_FRAME: &str = "pk_frame_depend_on = $1";
/// A frame also waits for what its layer and its job wait for.
const OF_FRAME: &str =
    "NOT b_composite AND (pk_frame_depend_er = $1 OR pk_frame_depend_er IS NULL AND EXISTS (
    SELECT 1 FROM frame own WHERE own.pk_frame = $1 AND own.pk_job = pk_job_depend_er
       AND (pk_layer_depend_er IS NULL OR pk_layer_depend_er = own.pk_layer)))";

fn depend(row: &Row) -> Depend {
    let kind = DependType::from_str_name(row.get("kind")).unwrap_or(DependType::JobOnJob);
    let target = DependTarget::from_str_name(row.get("target")).unwrap_or(DependTarget::Internal);
    Depend {
        id: row.get("pk_depend"),
        r#type: kind.into(),
        target: target.into(),
        any_frame: row.get("b_any"),
        active: row.get("b_active"),
        depend_er_job: row.get("er_job"),
        depend_er_layer: row.get("er_layer"),
        depend_er_frame: row.get("er_frame"),
        depend_on_job: row.get("on_job"),
        depend_on_layer: row.get("on_layer"),
        depend_on_frame: row.get("on_frame"),
    }
}

async fn list(cuebot: &Cuebot, which: &'static str, key: &str) -> Result<DependSeq, CallError> {
    let statement = format!("{DEPENDS} WHERE {which} ORDER BY ts_created, depend.pk_depend LIMIT {ROWS_MAX}");
    let rows = cuebot.pool.get().await?.query(&statement, &[&key]).await?;
    Ok(DependSeq { depends: rows.iter().map(depend).collect() })
}

async fn one(cuebot: &Cuebot, key: &str) -> Result<Depend, CallError> {
    let found = list(cuebot, "depend.pk_depend = $1", key).await?.depends.into_iter().next();
    found.ok_or_else(|| CallError::Missing { what: "dependency", name: key.to_owned() })
}

answers! { |cuebot, ask|
    "/depend.DependInterface/GetDepend": DependGetDependRequest => DependGetDependResponse {
        depend: Some(one(&cuebot, &ask.id).await?)
    };
}

/// One side of a new dependency, by its key.
enum Side {
    Job(String),
    Layer(String),
    Frame(String),
}

async fn end(tx: &Transaction<'_>, side: &Side) -> Result<End, CallError> {
    let (what, key, statement) = match side {
        Side::Job(key) => ("job", key, "SELECT pk_job, NULL::text, NULL::text FROM job WHERE pk_job = $1"),
        Side::Layer(key) => {
            ("layer", key, "SELECT pk_job, pk_layer, NULL::text FROM layer WHERE pk_layer = $1")
        }
        Side::Frame(key) => {
            ("frame", key, "SELECT pk_job, pk_layer, pk_frame FROM frame WHERE pk_frame = $1")
        }
    };
    let row = tx.query_opt(statement, &[key]).await?;
    let row = row.ok_or_else(|| CallError::Missing { what, name: key.clone() })?;
    Ok(End { job: row.get(0), layer: row.get(1), frame: row.get(2) })
}

fn kind(from: &Side, on: &Side) -> DependType {
    match (from, on) {
        (Side::Job(_), Side::Job(_)) => DependType::JobOnJob,
        (Side::Job(_), Side::Layer(_)) => DependType::JobOnLayer,
        (Side::Job(_), Side::Frame(_)) => DependType::JobOnFrame,
        (Side::Layer(_), Side::Job(_)) => DependType::LayerOnJob,
        (Side::Layer(_), Side::Layer(_)) => DependType::LayerOnLayer,
        (Side::Layer(_), Side::Frame(_)) => DependType::LayerOnFrame,
        (Side::Frame(_), Side::Job(_)) => DependType::FrameOnJob,
        (Side::Frame(_), Side::Layer(_)) => DependType::FrameOnLayer,
        (Side::Frame(_), Side::Frame(_)) => DependType::FrameOnFrame,
    }
}

/// Adds a dependency whose waiting side is in a pending job.
async fn create(
    cuebot: &Cuebot,
    sides: (Side, Side),
    (kind, any_frame): (DependType, bool),
) -> Result<Depend, CallError> {
    let made = cuebot
        .transact(sides, move |tx, (from, on)| {
            Box::pin(async move {
                let (from, on) = (end(tx, from).await?, end(tx, on).await?);
                lock_jobs(tx, "SELECT unnest(ARRAY[$1, $2]::text[])", &[&from.job, &on.job]).await?;
                if (&from.job, &from.layer, &from.frame) == (&on.job, &on.layer, &on.frame) {
                    return Err(CallError::Value("nothing can wait for itself".to_owned()));
                }
                let pending = "SELECT 1 FROM job WHERE pk_job = $1 AND str_state = 'PENDING'";
                if tx.query_opt(pending, &[&from.job]).await?.is_none() {
                    return Err(CallError::Missing { what: "pending job", name: from.job });
                }
                let made = depends::make(tx, &from, &on, (kind, any_frame)).await?;
                made.ok_or_else(|| CallError::Exists { what: "dependency of", name: from.job })
            })
        })
        .await?;
    one(cuebot, &made).await
}

/// Adds a dependency of each frame of a layer on the frame of the same number in another. With `any_frame` one of
/// them is enough.
async fn frame_by_frame(
    cuebot: Arc<Cuebot>,
    ask: LayerCreateFrameByFrameDependRequest,
) -> Answer<LayerCreateFrameByFrameDependResponse> {
    let from = Side::Layer(key!(ask.layer)?.to_owned());
    let on = Side::Layer(id("layer", ask.depend_layer.as_ref().map(|layer| &layer.id))?.to_owned());
    let kind = if ask.any_frame { DependType::LayerOnLayer } else { DependType::FrameByFrame };
    let depend = create(&cuebot, (from, on), (kind, ask.any_frame)).await?;
    Ok(LayerCreateFrameByFrameDependResponse { depend: Some(depend) })
}

async fn drop_those(cuebot: &Cuebot, which: &'static str, key: &str, target: i32) -> Result<(), CallError> {
    // `None` is both.
    let target = match DependTarget::try_from(target) {
        Ok(DependTarget::AnyTarget) | Err(_) => None,
        Ok(target) => Some(target.as_str_name()),
    };
    cuebot
        .transact((key, target), move |tx, (key, target)| {
            Box::pin(async move {
                let which = format!("{which} AND ($2::text IS NULL OR upper(str_target) = $2::text)");
                let waiting = format!("SELECT pk_job_depend_er FROM depend WHERE b_active AND ({which})");
                lock_jobs(tx, &waiting, &[key, target]).await?;
                depends::close(tx, &which, &[key, target]).await?;
                Ok(())
            })
        })
        .await
}

changes! { |cuebot, ask|
    // Closes one dependency, and those between its frames.
    "/depend.DependInterface/Satisfy": DependSatisfyRequest => {
        let key = id("dependency", ask.depend.as_ref().map(|depend| &depend.id))?;
        drop_those(&cuebot, "(pk_depend = $1 OR pk_parent = $1)", key, DependTarget::AnyTarget.into()).await
    };
}

/// Opens one dependency again.
async fn unsatisfy(cuebot: Arc<Cuebot>, ask: DependUnsatisfyRequest) -> Answer<()> {
    let key = id("dependency", ask.depend.as_ref().map(|depend| &depend.id))?;
    if !cuebot.transact(key, |tx, key| Box::pin(depends::open(tx, key))).await? {
        let why = format!(
            "dependency '{key}' is open, unknown, or one between the frames of layers; open those between frames"
        );
        return Err(CallError::Value(why));
    }
    Ok(())
}
