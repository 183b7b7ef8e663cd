//! Answers of which every shard has a part: lists of workers, of what waits and runs there, and what came of attempts. The
//! owner of the first shard asks the others the same, in the caller's name, and joins the answers.

use super::across::{WORKERS_PATTERN, value_of};
use super::forward::unanswered;
use super::others::{FIGURES_PATIENCE, name_missing};
use super::packed::RequestHead;
use super::postbox::Postbox;
use crate::http::{ApiError, App};
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use windlass_api::board::{
    Board, BoardDecision, BoardWorker, Column, DispatchedJobs, GroupLoad, PendingJobs, RuleSummary,
    ScoringSummary, ServerLoads, WorkersLoad,
};
use windlass_api::figures::{FailureCause, History};
use windlass_api::{ErrorCode, Page, Worker};
use windlass_core::TaskId;

/// How long the list of a shard's workers may take, a takeover of that shard included.
const LIST_PATIENCE: Duration = Duration::from_secs(20);
/// Entries of a list where the caller does not say.
const PAGE_DEFAULT: usize = 100;

/// Makes one body of the bodies of several shards, that of the first one first. The number is the most entries.
type Join = fn(&[Bytes], usize) -> serde_json::Result<Vec<u8>>;

/// A request that all shards answer.
pub(super) struct Joined {
    pub pattern: &'static str,
    /// The most entries where the query does not say.
    most: usize,
    join: Join,
}

/// All of them. Of the list of workers none may be lacking: commands act on what it says. The others are looked at, and are
/// given without a shard that does not answer in time.
pub(super) static JOINED: [Joined; 9] = [
    Joined { pattern: WORKERS_PATTERN, most: PAGE_DEFAULT, join: workers },
    Joined { pattern: "/api/v1/board/workers", most: 10_000, join: board_workers },
    Joined { pattern: "/api/v1/board/workers/load", most: 200, join: workers_load },
    Joined { pattern: "/api/v1/board/jobs/pending", most: 500, join: pending },
    Joined { pattern: "/api/v1/board/jobs/dispatched", most: 500, join: dispatched },
    Joined { pattern: "/api/v1/board/jobs/decisions", most: PAGE_DEFAULT, join: decisions },
    Joined { pattern: "/api/v1/board/scoring/summary", most: 2_000, join: summary },
    Joined { pattern: "/api/v1/board/history", most: 0, join: history },
    Joined { pattern: "/api/v1/scheduler/server_loads", most: 10_000, join: server_loads },
];

impl Joined {
    /// Answers a request with what all shards have.
    pub async fn answer(
        &self,
        app: &App,
        across: &Arc<Postbox>,
        head: &RequestHead,
        request: Request,
        next: Next,
    ) -> Response {
        let limit = request.uri().query().and_then(|query| value_of(query, "limit")?.parse().ok());
        let own = next.run(request).await;
        if !own.status().is_success() {
            return own;
        }
        let is_strict = self.pattern == WORKERS_PATTERN;
        let patience = if is_strict { LIST_PATIENCE } else { FIGURES_PATIENCE };
        let own = axum::body::to_bytes(own.into_body(), usize::MAX).await;
        let (mut parts, mut missing): (Vec<Bytes>, Vec<_>) = (own.into_iter().collect(), Vec::new());
        let others = app.shards().others();
        // A database that does not answer is not waited for longer than a shard.
        let asked =
            others.iter().map(|shard| timeout(patience, across.ask_shard(*shard, head, b"", patience)));
        for (shard, answer) in others.iter().zip(join_all(asked).await) {
            match answer {
                Ok(Ok(answer)) if answer.status().is_success() => parts.push(answer.into_body()),
                Ok(Ok(other)) if is_strict => return other.map(Body::from).into_response(),
                Ok(Err(why)) if is_strict => return unanswered(why).into_response(),
                Err(_) if is_strict => {
                    let why = format!("shard {shard} has not answered for {} s", patience.as_secs());
                    return ApiError::new(ErrorCode::Unavailable, why).into_response();
                }
                _ => missing.push(*shard),
            }
        }
        match (self.join)(&parts, limit.unwrap_or(self.most)) {
            Ok(body) => {
                let answer = ([(header::CONTENT_TYPE, "application/json")], body).into_response();
                name_missing(answer, &missing)
            }
            Err(error) => {
                let why = format!("the answer of another server is not understood: {error}");
                ApiError::new(ErrorCode::Internal, why).into_response()
            }
        }
    }
}

fn join_with<T: DeserializeOwned + Serialize>(
    parts: &[Bytes],
    join: impl FnOnce(Vec<T>) -> T,
) -> serde_json::Result<Vec<u8>> {
    let parts = parts.iter().map(|part| serde_json::from_slice(part));
    serde_json::to_vec(&join(parts.collect::<serde_json::Result<Vec<T>>>()?))
}

/// The same for answers in the board's envelope.
fn join_board<T: DeserializeOwned + Serialize>(
    parts: &[Bytes],
    join: impl FnOnce(Vec<T>) -> T,
) -> serde_json::Result<Vec<u8>> {
    join_with(parts, |parts: Vec<Board<T>>| {
        Board::new(join(parts.into_iter().map(|part| part.message).collect()))
    })
}

/// One page of several, each of which has the first workers of its shard.
fn workers(parts: &[Bytes], limit: usize) -> serde_json::Result<Vec<u8>> {
    join_with(parts, |pages: Vec<Page<Worker>>| {
        let (mut items, mut has_more) = (Vec::new(), false);
        for page in pages {
            has_more |= page.next.is_some();
            items.extend(page.items);
        }
        items.sort_by_key(|worker| worker.id);
        has_more |= items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| has_more).map(|worker| worker.id.to_string());
        Page { items, next }
    })
}

fn server_loads(parts: &[Bytes], limit: usize) -> serde_json::Result<Vec<u8>> {
    join_with(parts, |pages: Vec<ServerLoads>| {
        let (mut all, mut has_more) = (Vec::new(), false);
        for page in pages {
            has_more |= page.next.is_some();
            all.extend(page.ids.into_iter().zip(page.servers));
        }
        all.sort_by_key(|(id, _)| *id);
        has_more |= all.len() > limit;
        all.truncate(limit);
        let next = all.last().filter(|_| has_more).map(|(id, _)| *id);
        let (ids, servers) = all.into_iter().unzip();
        ServerLoads { servers, ids, next }
    })
}

fn board_workers(parts: &[Bytes], limit: usize) -> serde_json::Result<Vec<u8>> {
    join_board(parts, |lists: Vec<Vec<BoardWorker>>| {
        let mut all: Vec<BoardWorker> = lists.into_iter().flatten().collect();
        all.sort_by_key(|worker| worker.id);
        all.truncate(limit);
        all
    })
}

fn workers_load(parts: &[Bytes], limit: usize) -> serde_json::Result<Vec<u8>> {
    join_board(parts, |loads: Vec<WorkersLoad>| {
        let (mut capabilities, mut architectures, mut features) = (Vec::new(), Vec::new(), Vec::new());
        for load in loads {
            capabilities.extend(load.by_capability);
            architectures.extend(load.by_architecture);
            features.extend(load.by_feature);
        }
        WorkersLoad {
            by_capability: groups(capabilities, limit),
            by_architecture: groups(architectures, limit),
            by_feature: groups(features, limit),
        }
    })
}

/// Each group once, the one with most workers first.
fn groups(parts: Vec<GroupLoad>, limit: usize) -> Vec<GroupLoad> {
    let mut all = BTreeMap::<String, GroupLoad>::new();
    for part in parts {
        match all.get_mut(&part.key) {
            None => _ = all.insert(part.key.clone(), part),
            Some(group) => {
                group.in_flight += part.in_flight;
                group.booked_cpus += part.booked_cpus;
                group.capacity += part.capacity;
                group.workers += part.workers;
            }
        }
    }
    let mut groups: Vec<GroupLoad> = all.into_values().collect();
    groups.sort_by(|a, b| b.workers.cmp(&a.workers).then_with(|| a.key.cmp(&b.key)));
    groups.truncate(limit);
    groups
}

/// Those of the first shard come first. Between shards there are no turns.
fn pending(parts: &[Bytes], limit: usize) -> serde_json::Result<Vec<u8>> {
    join_board(parts, |lists: Vec<PendingJobs>| {
        let mut other_pending: u64 = lists.iter().map(|list| list.other_pending).sum();
        let mut jobs: Vec<_> = lists.into_iter().flat_map(|list| list.jobs).collect();
        other_pending += jobs.iter().skip(limit).map(|job| u64::from(job.tasks)).sum::<u64>();
        jobs.truncate(limit);
        PendingJobs { jobs, other_pending }
    })
}

fn dispatched(parts: &[Bytes], limit: usize) -> serde_json::Result<Vec<u8>> {
    join_board(parts, |lists: Vec<DispatchedJobs>| {
        let other_running: usize = lists.iter().map(|list| list.other_running).sum();
        let mut jobs: Vec<_> = lists.into_iter().flat_map(|list| list.jobs).collect();
        jobs.sort_by_key(|job| Reverse(job.id.parse::<TaskId>().ok()));
        let other_running = other_running + jobs.len().saturating_sub(limit);
        jobs.truncate(limit);
        DispatchedJobs { jobs, other_running }
    })
}

fn decisions(parts: &[Bytes], limit: usize) -> serde_json::Result<Vec<u8>> {
    join_board(parts, |lists: Vec<Vec<BoardDecision>>| {
        let mut all: Vec<BoardDecision> = lists.into_iter().flatten().collect();
        all.sort_by_key(|decision| Reverse(decision.at));
        all.truncate(limit);
        all
    })
}

/// Each shard's sample counts by its size. Columns are made again over the whole spread: what was in a column is counted where
/// its middle lies.
fn summary(parts: &[Bytes], _: usize) -> serde_json::Result<Vec<u8>> {
    join_board(parts, |mut parts: Vec<ScoringSummary>| {
        parts.retain(|part| part.sample_size > 0);
        let sample_size: usize = parts.iter().map(|part| part.sample_size).sum();
        let least = parts.iter().filter_map(|part| part.score_min).reduce(f64::min);
        let most = parts.iter().filter_map(|part| part.score_max).reduce(f64::max);
        let sum =
            parts.iter().filter_map(|part| Some(part.score_avg? * part.sample_size as f64)).sum::<f64>();
        let columns = parts.iter().flat_map(|part| &part.histogram);
        let histogram = match (least, most, parts.first()) {
            (Some(least), Some(most), Some(first)) => spread(columns, (least, most), first.histogram.len()),
            _ => Vec::new(),
        };
        let mut rules = rules(&parts);
        // Stable: rules with equal means stay by name.
        rules.sort_by(|a, b| b.avg.abs().total_cmp(&a.avg.abs()));
        let score_avg = (sample_size > 0).then(|| sum / sample_size as f64);
        ScoringSummary { sample_size, score_min: least, score_max: most, score_avg, histogram, rules }
    })
}

fn spread<'a>(
    parts: impl Iterator<Item = &'a Column>,
    (least, most): (f64, f64),
    count: usize,
) -> Vec<Column> {
    let whole = if most > least { most - least } else { 1.0 };
    let width = whole / count.max(1) as f64;
    let at = |n: usize| least + width * n as f64;
    let mut columns: Vec<Column> =
        (0..count).map(|n| Column { lo: at(n), hi: at(n + 1), count: 0 }).collect();
    for part in parts {
        let place = (((part.lo + part.hi) / 2.0 - least) / width).max(0.0) as usize;
        if let Some(column) = columns.get_mut(place.min(count.saturating_sub(1))) {
            column.count += part.count;
        }
    }
    columns
}

/// The rules of all parts, by name.
fn rules(parts: &[ScoringSummary]) -> Vec<RuleSummary> {
    let mut all = BTreeMap::<&str, (RuleSummary, f64)>::new();
    for part in parts {
        for rule in &part.rules {
            let weight = part.sample_size as f64;
            let (known, weights) = all.entry(&rule.rule).or_insert_with(|| (rule.clone(), 0.0));
            known.avg = (known.avg * *weights + rule.avg * weight) / (*weights + weight);
            (known.min, known.max) = (known.min.min(rule.min), known.max.max(rule.max));
            *weights += weight;
        }
    }
    all.into_values().map(|(rule, _)| rule).collect()
}

/// Causes, workers and tasks of an answer, as one shard tells them.
const CAUSES_MAX: usize = 20;
const WORKERS_MAX: usize = 20;
const EXPENSIVE_MAX: usize = 50;

/// All is known since the time since which each shard knows its part.
fn history(parts: &[Bytes], _: usize) -> serde_json::Result<Vec<u8>> {
    let parts = parts.iter().map(|part| serde_json::from_slice(part));
    let mut parts = parts.collect::<serde_json::Result<Vec<History>>>()?.into_iter();
    // Nothing is joined before the first shard has answered.
    let Some(mut all) = parts.next() else { return Ok(Vec::new()) };
    let mut causes = BTreeMap::<String, u64>::new();
    let mut add_causes = |failures: Vec<FailureCause>| {
        for FailureCause { cause, tasks } in failures {
            *causes.entry(cause).or_default() += tasks;
        }
    };
    add_causes(std::mem::take(&mut all.failures));
    for part in parts {
        all.since_ms = all.since_ms.max(part.since_ms);
        all.tasks += part.tasks;
        all.succeeded += part.succeeded;
        all.failed += part.failed;
        all.canceled += part.canceled;
        add_causes(part.failures);
        all.workers.extend(part.workers);
        all.expensive.extend(part.expensive);
        if part.durations.bounds_ms == all.durations.bounds_ms {
            for (tasks, more) in all.durations.tasks.iter_mut().zip(part.durations.tasks) {
                *tasks += more;
            }
        }
    }
    all.failures = causes.into_iter().map(|(cause, tasks)| FailureCause { cause, tasks }).collect();
    all.failures.sort_by_key(|cause| Reverse(cause.tasks));
    all.failures.truncate(CAUSES_MAX);
    all.workers
        .sort_by(|a, b| (b.failed, b.tasks).cmp(&(a.failed, a.tasks)).then_with(|| a.worker.cmp(&b.worker)));
    all.workers.truncate(WORKERS_MAX);
    all.expensive.sort_by(|a, b| (b.cpus * b.ms as f64).total_cmp(&(a.cpus * a.ms as f64)));
    all.expensive.truncate(EXPENSIVE_MAX);
    serde_json::to_vec(&all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn joined(pattern: &str, limit: usize, parts: &[Value]) -> Value {
        let parts: Vec<Bytes> = parts.iter().map(|part| Bytes::from(part.to_string())).collect();
        let joined = JOINED.iter().find(|joined| joined.pattern == pattern).unwrap();
        serde_json::from_slice(&(joined.join)(&parts, limit).unwrap()).unwrap()
    }

    fn board(message: Value) -> Value {
        json!({ "error": false, "message": message })
    }

    #[test]
    fn the_paths_are_in_the_table_of_requests() {
        let document: Value = serde_json::from_str(&crate::http::openapi()).unwrap();
        for Joined { pattern, .. } in &JOINED {
            assert!(document["paths"].get(*pattern).is_some(), "{pattern}");
        }
    }

    #[test]
    fn a_page_of_workers_goes_on_where_any_shard_has_more() {
        let load = |id: u64| {
            json!({ "server_id": format!("w{id}"), "num_cpus": 2.0, "jobs_assigned": 0,
                "job_load": 0.0, "cpu_pressure": null, "memory_pressure": null, "io_pressure": null,
                "network_use": null, "state_free_bytes": null, "session_free_bytes": null,
                "cache_free_bytes": null, "effective_load": 0.5, "accepting_jobs": true })
        };
        let path = "/api/v1/scheduler/server_loads";
        let one = json!({ "servers": [load(1), load(9)], "ids": [1, 9] });
        let two = json!({ "servers": [load(3)], "ids": [3], "next": 3 });
        let page = joined(path, 2, &[one.clone(), two.clone()]);
        assert_eq!((&page["servers"][1]["server_id"], &page["next"]), (&json!("w3"), &json!(3)));
        let all = joined(path, 3, &[one, json!({ "servers": [load(3)], "ids": [3] })]);
        assert_eq!((all["servers"].as_array().unwrap().len(), all.get("next")), (3, None));
    }

    #[test]
    fn groups_of_workers_are_of_all_shards() {
        let group = |key: &str, workers: u64| json!({ "key": key, "in_flight": 1, "booked_cpus": 1.0, "capacity": 8.0, "workers": workers });
        let load = |features: Value| {
            board(
                json!({ "by_capability": [group("build", 2)], "by_architecture": [], "by_feature": features }),
            )
        };
        let parts = [load(json!([group("ssd", 1)])), load(json!([group("fast", 2), group("ssd", 2)]))];
        let all = joined("/api/v1/board/workers/load", 200, &parts);
        assert_eq!(all["message"]["by_capability"][0]["workers"], json!(4));
        let features: Vec<&Value> =
            all["message"]["by_feature"].as_array().unwrap().iter().map(|group| &group["key"]).collect();
        assert_eq!(features, ["ssd", "fast"]);
    }

    #[test]
    fn what_is_left_out_of_a_list_is_counted() {
        let step = |job: u64, tasks: u64| {
            json!({ "kind": "build", "queue": "q", "job_id": job, "name": "s", "task_id": format!("{job}.0"),
                "tasks": tasks, "queued_at": 1, "dependency_count": 0, "dependents": 0.0, "reason": "capacity" })
        };
        let list = |jobs: Value, other: u64| board(json!({ "jobs": jobs, "other_pending": other }));
        let parts = [list(json!([step(1, 5)]), 2), list(json!([step(1, 7), step(2, 1)]), 10)];
        let all = joined("/api/v1/board/jobs/pending", 2, &parts)["message"].clone();
        assert_eq!((all["jobs"].as_array().unwrap().len(), &all["other_pending"]), (2, &json!(13)));
        let task = |id: &str| {
            json!({ "id": id, "kind": "build", "queue": "q", "worker_id": 1, "worker": "w", "score": null,
                "dispatched_at": 1, "job_id": 1, "step": "s" })
        };
        let list = |jobs: Value, other: u64| board(json!({ "jobs": jobs, "other_running": other }));
        let parts = [list(json!([task("10.2"), task("9.0")]), 1), list(json!([task("10.10")]), 0)];
        let all = joined("/api/v1/board/jobs/dispatched", 2, &parts)["message"].clone();
        assert_eq!((&all["jobs"][0]["id"], &all["jobs"][1]["id"]), (&json!("10.10"), &json!("10.2")));
        assert_eq!(all["other_running"], json!(2));
    }

    #[test]
    fn a_summary_weighs_each_shard_by_its_sample() {
        let part = |size: u64, least: f64, most: f64, avg: f64| {
            let width = (most - least) / 2.0;
            board(json!({ "sample_size": size, "score_min": least, "score_max": most, "score_avg": avg,
                "histogram": [{ "lo": least, "hi": least + width, "count": 1 },
                    { "lo": least + width, "hi": most, "count": size - 1 }],
                "rules": [{ "rule": "a", "avg": avg, "min": least, "max": most }] }))
        };
        let none = board(json!({ "sample_size": 0, "score_min": null, "score_max": null, "score_avg": null,
            "histogram": [], "rules": [] }));
        let path = "/api/v1/board/scoring/summary";
        let all = joined(path, 0, &[none.clone(), part(3, 0.0, 4.0, 1.0), part(1, 4.0, 8.0, 5.0)]);
        let all = &all["message"];
        assert_eq!((&all["sample_size"], &all["score_avg"]), (&json!(4), &json!(2.0)));
        assert_eq!((&all["score_min"], &all["score_max"]), (&json!(0.0), &json!(8.0)));
        assert_eq!(all["rules"][0], json!({ "rule": "a", "avg": 2.0, "min": 0.0, "max": 8.0 }));
        let counts: Vec<&Value> =
            all["histogram"].as_array().unwrap().iter().map(|column| &column["count"]).collect();
        assert_eq!(counts, [&json!(3), &json!(1)]);
        assert_eq!(joined(path, 0, &[none.clone(), none])["message"]["score_avg"], Value::Null);
    }

    #[test]
    fn what_came_of_attempts_in_all_shards_is_counted_and_the_dearest_is_named() {
        let part = |since: u64, failed: u64, cause: &str, worker: &str, ms: u64| {
            json!({ "since_ms": since, "tasks": failed + 1, "succeeded": 1, "failed": failed, "canceled": 0,
                "failures": [{ "cause": cause, "tasks": failed }, { "cause": "oom", "tasks": 0 }],
                "workers": [{ "worker": worker, "failed": failed, "tasks": failed + 1 }],
                "durations": { "bounds_ms": [10], "tasks": [failed, 1] },
                "expensive": [{ "job": 1, "task": "1.0", "step": "s", "queue": "q", "worker": worker, "ms": ms,
                    "cpus": 2.0, "peak_bytes": null }] })
        };
        let parts = [part(5, 2, "exit 1", "w1", 10), part(9, 3, "lost", "w2", 40)];
        let all = joined("/api/v1/board/history", 0, &parts);
        assert_eq!((&all["since_ms"], &all["tasks"], &all["failed"]), (&json!(9), &json!(7), &json!(5)));
        assert_eq!(all["failures"][0], json!({ "cause": "lost", "tasks": 3 }));
        assert_eq!((&all["workers"][0]["worker"], &all["expensive"][0]["ms"]), (&json!("w2"), &json!(40)));
        assert_eq!(all["durations"]["tasks"], json!([5, 2]));
    }
}
