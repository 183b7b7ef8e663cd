//! Dependencies between rows of the tables: lists, and how people change them.

use super::{ROWS_MAX, id};
use crate::cuebot::Cuebot;
use crate::depends::{self, End};
use crate::generated::depend::{
    Depend, DependGetDependRequest, DependGetDependResponse, DependSatisfyRequest, DependSatisfyResponse,
    DependSeq, DependTarget, DependType, DependUnsatisfyRequest, DependUnsatisfyResponse,
};
use crate::generated::job as wire;
use crate::routes::{Routes, unary};
use crate::spec::DependKind;
use crate::trouble::CallError;
use std::sync::Arc;
use tokio_postgres::{Row, Transaction};

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .route("/depend.DependInterface/GetDepend", unary(get))
        .route("/depend.DependInterface/Satisfy", unary(satisfy))
        .route("/depend.DependInterface/Unsatisfy", unary(unsatisfy))
        .route("/job.JobInterface/GetDepends", unary(all_of_job))
        .route("/job.JobInterface/GetWhatDependsOnThis", unary(on_job))
        .route("/job.JobInterface/GetWhatThisDependsOn", unary(of_job))
        .route("/job.LayerInterface/GetWhatDependsOnThis", unary(on_layer))
        .route("/job.LayerInterface/GetWhatThisDependsOn", unary(of_layer))
        .route("/job.FrameInterface/GetWhatDependsOnThis", unary(on_frame))
        .route("/job.FrameInterface/GetWhatThisDependsOn", unary(of_frame))
        .route("/job.JobInterface/CreateDependencyOnJob", unary(job_on_job))
        .route("/job.JobInterface/CreateDependencyOnLayer", unary(job_on_layer))
        .route("/job.JobInterface/CreateDependencyOnFrame", unary(job_on_frame))
        .route("/job.LayerInterface/CreateDependencyOnJob", unary(layer_on_job))
        .route("/job.LayerInterface/CreateDependencyOnLayer", unary(layer_on_layer))
        .route("/job.LayerInterface/CreateDependencyOnFrame", unary(layer_on_frame))
        .route("/job.LayerInterface/CreateFrameByFrameDependency", unary(frame_by_frame))
        .route("/job.FrameInterface/CreateDependencyOnJob", unary(frame_on_job))
        .route("/job.FrameInterface/CreateDependencyOnLayer", unary(frame_on_layer))
        .route("/job.FrameInterface/CreateDependencyOnFrame", unary(frame_on_frame))
        .route("/job.JobInterface/DropDepends", unary(drop_of_job))
        .route("/job.LayerInterface/DropDepends", unary(drop_of_layer))
        .route("/job.FrameInterface/DropDepends", unary(drop_of_frame))
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

pub(crate) async fn get(
    cuebot: Arc<Cuebot>,
    ask: DependGetDependRequest,
) -> Result<DependGetDependResponse, CallError> {
    Ok(DependGetDependResponse { depend: Some(one(&cuebot, &ask.id).await?) })
}

/// A call that lists the dependencies of what its request names.
macro_rules! listed {
    ($call:ident: $ask:ident => $answer:ident, $of:ident, $which:expr) => {
        pub(crate) async fn $call(cuebot: Arc<Cuebot>, ask: wire::$ask) -> Result<wire::$answer, CallError> {
            let key = id(stringify!($of), ask.$of.as_ref().map(|of| &of.id))?;
            Ok(wire::$answer { depends: Some(list(&cuebot, $which, key).await?) })
        }
    };
}

listed!(all_of_job: JobGetDependsRequest => JobGetDependsResponse, job, ALL_OF_JOB);
listed!(on_job: JobGetWhatDependsOnThisRequest => JobGetWhatDependsOnThisResponse, job, ON_JOB);
listed!(of_job: JobGetWhatThisDependsOnRequest => JobGetWhatThisDependsOnResponse, job, OF_JOB);
listed!(on_layer: LayerGetWhatDependsOnThisRequest => LayerGetWhatDependsOnThisResponse, layer, ON_LAYER);
listed!(of_layer: LayerGetWhatThisDependsOnRequest => LayerGetWhatThisDependsOnResponse, layer, OF_LAYER);
listed!(on_frame: FrameGetWhatDependsOnThisRequest => FrameGetWhatDependsOnThisResponse, frame, ON_FRAME);
listed!(of_frame: FrameGetWhatThisDependsOnRequest => FrameGetWhatThisDependsOnResponse, frame, OF_FRAME);

/// One side of a new dependency, by its key.
#[derive(Clone)]
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

fn kind(from: &Side, on: &Side) -> DependKind {
    match (from, on) {
        (Side::Job(_), Side::Job(_)) => DependKind::JobOnJob,
        (Side::Job(_), Side::Layer(_)) => DependKind::JobOnLayer,
        (Side::Job(_), Side::Frame(_)) => DependKind::JobOnFrame,
        (Side::Layer(_), Side::Job(_)) => DependKind::LayerOnJob,
        (Side::Layer(_), Side::Layer(_)) => DependKind::LayerOnLayer,
        (Side::Layer(_), Side::Frame(_)) => DependKind::LayerOnFrame,
        (Side::Frame(_), Side::Job(_)) => DependKind::FrameOnJob,
        (Side::Frame(_), Side::Layer(_)) => DependKind::FrameOnLayer,
        (Side::Frame(_), Side::Frame(_)) => DependKind::FrameOnFrame,
    }
}

/// Adds a dependency whose waiting side is in a pending job.
async fn create(
    cuebot: &Cuebot,
    sides: (Side, Side),
    (kind, any_frame): (DependKind, bool),
) -> Result<Depend, CallError> {
    let sides = Arc::new(sides);
    let made = cuebot
        .transact(move |tx| {
            let sides = sides.clone();
            Box::pin(async move {
                let (from, on) = (end(tx, &sides.0).await?, end(tx, &sides.1).await?);
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

/// A call that adds a dependency: the sides, and the request's field with each.
macro_rules! creates {
    ($call:ident: $ask:ident => $answer:ident, $from:ident $waits:ident, $on:ident $awaited:ident) => {
        pub(crate) async fn $call(cuebot: Arc<Cuebot>, ask: wire::$ask) -> Result<wire::$answer, CallError> {
            let from = Side::$from(id(stringify!($waits), ask.$waits.as_ref().map(|of| &of.id))?.to_owned());
            let on = Side::$on(id(stringify!($awaited), ask.$awaited.as_ref().map(|of| &of.id))?.to_owned());
            let kind = kind(&from, &on);
            Ok(wire::$answer { depend: Some(create(&cuebot, (from, on), (kind, false)).await?) })
        }
    };
}

creates!(job_on_job: JobCreateDependencyOnJobRequest => JobCreateDependencyOnJobResponse, Job job, Job on_job);
creates!(job_on_layer: JobCreateDependencyOnLayerRequest => JobCreateDependencyOnLayerResponse, Job job, Layer layer);
creates!(job_on_frame: JobCreateDependencyOnFrameRequest => JobCreateDependencyOnFrameResponse, Job job, Frame frame);
creates!(layer_on_job: LayerCreateDependOnJobRequest => LayerCreateDependOnJobResponse, Layer layer, Job job);
creates!(layer_on_layer: LayerCreateDependOnLayerRequest => LayerCreateDependOnLayerResponse,
    Layer layer, Layer depend_on_layer);
creates!(layer_on_frame: LayerCreateDependOnFrameRequest => LayerCreateDependOnFrameResponse,
    Layer layer, Frame frame);
creates!(frame_on_job: FrameCreateDependencyOnJobRequest => FrameCreateDependencyOnJobResponse, Frame frame, Job job);
creates!(frame_on_layer: FrameCreateDependencyOnLayerRequest => FrameCreateDependencyOnLayerResponse,
    Frame frame, Layer layer);
creates!(frame_on_frame: FrameCreateDependencyOnFrameRequest => FrameCreateDependencyOnFrameResponse,
    Frame frame, Frame depend_on_frame);

/// Adds a dependency of each frame of a layer on the frame of the same number in another. With `any_frame` one of
/// them is enough.
pub(crate) async fn frame_by_frame(
    cuebot: Arc<Cuebot>,
    ask: wire::LayerCreateFrameByFrameDependRequest,
) -> Result<wire::LayerCreateFrameByFrameDependResponse, CallError> {
    let from = Side::Layer(id("layer", ask.layer.as_ref().map(|layer| &layer.id))?.to_owned());
    let on = Side::Layer(id("layer", ask.depend_layer.as_ref().map(|layer| &layer.id))?.to_owned());
    let kind = if ask.any_frame { DependKind::LayerOnLayer } else { DependKind::FrameByFrame };
    let depend = create(&cuebot, (from, on), (kind, ask.any_frame)).await?;
    Ok(wire::LayerCreateFrameByFrameDependResponse { depend: Some(depend) })
}

async fn drop_those(cuebot: &Cuebot, which: &'static str, key: &str, target: i32) -> Result<(), CallError> {
    // `None` is both.
    let target = match DependTarget::try_from(target) {
        Ok(DependTarget::AnyTarget) | Err(_) => None,
        Ok(target) => Some(target.as_str_name()),
    };
    let given = Arc::new((key.to_owned(), target));
    cuebot
        .transact(move |tx| {
            let given = given.clone();
            Box::pin(async move {
                let which = format!("{which} AND ($2::text IS NULL OR upper(str_target) = $2::text)");
                depends::close(tx, &which, &[&given.0, &given.1]).await?;
                Ok(())
            })
        })
        .await
}

/// A call that closes the dependencies of a job, a layer or a frame.
macro_rules! drops {
    ($call:ident: $ask:ident => $answer:ident, $of:ident, $which:expr) => {
        pub(crate) async fn $call(cuebot: Arc<Cuebot>, ask: wire::$ask) -> Result<wire::$answer, CallError> {
            let key = id(stringify!($of), ask.$of.as_ref().map(|of| &of.id))?;
            drop_those(&cuebot, $which, key, ask.target).await?;
            Ok(wire::$answer {})
        }
    };
}

drops!(drop_of_job: JobDropDependsRequest => JobDropDependsResponse, job, "pk_job_depend_er = $1");
drops!(drop_of_layer: LayerDropDependsRequest => LayerDropDependsResponse, layer, "pk_layer_depend_er = $1");
drops!(drop_of_frame: FrameDropDependsRequest => FrameDropDependsResponse, frame, "pk_frame_depend_er = $1");

/// Closes one dependency, and those between its frames.
pub(crate) async fn satisfy(
    cuebot: Arc<Cuebot>,
    ask: DependSatisfyRequest,
) -> Result<DependSatisfyResponse, CallError> {
    let key = id("dependency", ask.depend.as_ref().map(|depend| &depend.id))?;
    drop_those(&cuebot, "(pk_depend = $1 OR pk_parent = $1)", key, DependTarget::AnyTarget.into()).await?;
    Ok(DependSatisfyResponse {})
}

/// Opens one dependency again.
pub(crate) async fn unsatisfy(
    cuebot: Arc<Cuebot>,
    ask: DependUnsatisfyRequest,
) -> Result<DependUnsatisfyResponse, CallError> {
    let key = Arc::new(id("dependency", ask.depend.as_ref().map(|depend| &depend.id))?.to_owned());
    let opened = key.clone();
    let is_open = cuebot
        .transact(move |tx| {
            let key = opened.clone();
            Box::pin(async move { depends::open(tx, &key).await })
        })
        .await?;
    if !is_open {
        let why = format!(
            "dependency '{key}' is open, unknown, or one between the frames of layers; open those between frames"
        );
        return Err(CallError::Value(why));
    }
    Ok(DependUnsatisfyResponse {})
}
