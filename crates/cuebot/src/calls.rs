//! The calls of clients.
//!
//! - A call writes the rows that its client names, and the figures that follow from them; never those of another show.
//! - Each call is one query, or one short transaction that counts frames, cores and procs as all others do.
//! - Lists and texts have bounds, and a text fits its column before it is sent to PostgreSQL.

/// The calls of an interface that set one value of the row that their requests name in one field. Each has its name,
/// its request, the value, and a statement with the row's key as `$1` and the value as `$2`.
macro_rules! setters {
    ($interface:literal, $row:ident { $($call:literal: $ask:ty, |$given:ident| $value:expr, $statement:expr;)* }) => {
        fn setters(routes: $crate::routes::Routes) -> $crate::routes::Routes {
            routes$(.route(
                concat!("/", $interface, "/", $call),
                {
                    async fn call(
                        cuebot: std::sync::Arc<$crate::cuebot::Cuebot>,
                        $given: $ask,
                    ) -> $crate::calls::fields::Answer<()> {
                        let value = $value;
                        let key = $given.$row.as_ref().map(|row| &row.id);
                        $crate::calls::fields::set(&cuebot, $statement, stringify!($row), key, &value).await
                    }
                    $crate::routes::unary(call)
                },
            ))*
        }
    };
}

/// Calls whose answers are one expression. Each row has the path, the request, and the answer.
macro_rules! answers {
    (|$cuebot:ident, $ask:ident| $($path:literal: $request:ty => $answer:ident { $($field:ident: $value:expr),* };)*) => {
        fn answers(routes: $crate::routes::Routes) -> $crate::routes::Routes {
            routes$(.route($path, {
                #[allow(unused_variables, reason = "some requests have no fields")]
                async fn call(
                    $cuebot: std::sync::Arc<$crate::cuebot::Cuebot>,
                    $ask: $request,
                ) -> $crate::calls::fields::Answer<$answer> {
                    Ok($answer { $($field: $value),* })
                }
                $crate::routes::unary(call)
            }))*
        }
    };
}

/// Calls that change something by one expression, and answer with nothing. Each row has the path, the request, and what
/// is done.
macro_rules! changes {
    (|$cuebot:ident, $ask:ident| $($path:literal: $request:ty => $done:expr;)*) => {
        fn changes(routes: $crate::routes::Routes) -> $crate::routes::Routes {
            routes$(.route($path, {
                async fn call(
                    $cuebot: std::sync::Arc<$crate::cuebot::Cuebot>,
                    $ask: $request,
                ) -> $crate::calls::fields::Answer<()> {
                    $done
                }
                $crate::routes::unary(call)
            }))*
        }
    };
}

/// The key of the row that a request names in one of its fields, which has the name of the row's kind.
macro_rules! key {
    ($ask:ident.$row:ident) => {
        $crate::calls::fields::id(stringify!($row), $ask.$row.as_ref().map(|row| &row.id))
    };
}

/// A message that repeats most fields of another: those that both have, and its own.
macro_rules! repeated {
    ($repeated:ident of $message:ident { $($same:ident),* } and { $($own:ident: $value:expr),* }) => {
        $repeated { $($same: $message.$same,)* $($own: $value),* }
    };
}

/// Fills the figures that jobs and layers have in common from a row, and the fields of one of them from the columns
/// that are named.
macro_rules! frame_stats {
    ($stats:ident of $row:ident { $($field:ident: $column:literal),* }) => {{
        let (waiting, depend): (i32, i32) = ($row.get("waiting"), $row.get("depend"));
        let (rendered, done_s): (i64, i64) = ($row.get("rendered"), $row.get("int_core_time_success"));
        let (lost_s, clock_s): (i64, i64) = ($row.get("int_core_time_fail"), $row.get("clock_s"));
        let (gpu_s, gpu_lost_s): (i64, i64) = ($row.get("int_gpu_time_success"), $row.get("int_gpu_time_fail"));
        let core_mean_s = done_s.checked_div(rendered).unwrap_or(0);
        $crate::generated::job::$stats {
            waiting_frames: waiting,
            running_frames: $row.get("running"),
            dead_frames: $row.get("dead"),
            eaten_frames: $row.get("eaten"),
            depend_frames: depend,
            succeeded_frames: $row.get("succeeded"),
            pending_frames: waiting + depend,
            avg_frame_sec: clock_s.checked_div(rendered).unwrap_or(0) as i32,
            high_frame_sec: $row.get("int_clock_time_high"),
            avg_core_sec: core_mean_s as i32,
            rendered_frame_count: rendered,
            failed_frame_count: $row.get("failed"),
            remaining_core_sec: i64::from(waiting + depend) * core_mean_s,
            total_core_sec: done_s + lost_s,
            rendered_core_sec: done_s,
            failed_core_sec: lost_s,
            max_rss: $row.get("int_max_rss"),
            reserved_cores: $row.get::<_, i32>("cores") as f32 / 100.0,
            total_gpu_sec: gpu_s + gpu_lost_s,
            rendered_gpu_sec: gpu_s,
            failed_gpu_sec: gpu_lost_s,
            reserved_gpus: $row.get::<_, i32>("gpus") as f32,
            max_gpu_memory: $row.get("int_gpu_mem_max"),
            max_pss: $row.get("int_max_pss"),
            $($field: $row.get($column)),*
        }
    }};
}

mod allocations;
mod comments;
mod depends;
mod fields;
mod frames;
mod groups;
mod hosts;
mod jobs;
mod layers;
mod limits;
mod order;
mod procs;
mod services;
mod shows;
mod submit;
mod subscriptions;
mod system;
mod whiteboard;

use crate::routes::Routes;

/// Adds the calls of clients to the table of paths.
pub(crate) fn routes(routes: Routes) -> Routes {
    let tables: [fn(Routes) -> Routes; 16] = [
        system::routes,
        submit::routes,
        jobs::routes,
        layers::routes,
        frames::routes,
        order::routes,
        depends::routes,
        comments::routes,
        groups::routes,
        shows::routes,
        whiteboard::routes,
        subscriptions::routes,
        allocations::routes,
        hosts::routes,
        procs::routes,
        limits::routes,
    ];
    tables.iter().fold(services::routes(routes), |routes, table| table(routes))
}

/// Why a call is not served, and what its user can do instead.
pub(crate) fn why_unserved(name: &str) -> &'static str {
    let (interface, call) = name.split_once('/').unwrap_or((name, ""));
    let is_redirect = call.contains("Redirect") || call.starts_with("UnbookTo");
    let is_local = call.contains("RenderPart") || interface == "renderPartition.RenderPartitionInterface";
    let is_of_owners = call.contains("Deed") || call.contains("Owner");
    match interface {
        _ if is_redirect => "a plan decides where each frame runs; set priorities, caps and subscriptions",
        _ if is_local => "it books no frames for desktops alone; submit the job to the farm",
        _ if call.contains("ServiceOverride") => {
            "it lists and sets no services of one show; their rows in OpenCue's table show_service count"
        }
        "show.ShowInterface" if call.contains("Archive") => {
            "it archives no shows; 'cueadmin -disable-show' hides one"
        }
        "host.OwnerInterface" | "host.DeedInterface" => "it keeps no owners of desktops; use tags of hosts",
        _ if is_of_owners => "it keeps no owners of desktops; use tags of hosts",
        "host.HostInterface" => {
            "it restarts no machine and no RQD; lock the host, and use the farm's own tools"
        }
        "filter.FilterInterface" | "filter.ActionInterface" | "filter.MatcherInterface" => {
            "it runs no filters on new jobs; set groups, priorities and tags in the job spec"
        }
        "department.DepartmentInterface" | "task.TaskInterface" => {
            "it manages no cores by department; use groups and subscriptions"
        }
        "monitoring.MonitoringInterface" => {
            "it keeps no archive of ended jobs; read OpenCue's tables of history"
        }
        "rqd.RqdInterface" | "rqd.RunningFrame" => "RQD serves it on each host",
        _ => {
            "it serves what hosts report, and calls that submit, list and change jobs, groups, shows and hosts"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_not_served_says_what_to_do_instead() {
        for (call, hint) in [
            ("host.HostInterface/RebootWhenIdle", "restarts no machine"),
            ("host.ProcInterface/RedirectToJob", "priorities"),
            ("show.ShowInterface/CreateOwner", "owners"),
            ("show.ShowInterface/GetServiceOverrides", "show_service"),
            ("show.ShowInterface/Archive", "disable-show"),
            ("filter.FilterInterface/Delete", "job spec"),
            ("job.JobInterface/RunFilters", "it serves"),
            ("job.LayerInterface/AddRenderPartition", "desktops alone"),
        ] {
            assert!(why_unserved(call).contains(hint), "{call}: {}", why_unserved(call));
        }
    }
}
