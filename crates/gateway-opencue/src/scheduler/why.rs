//! Why frames of a job wait, from the tables and by the planner's own predicates.

use super::held;
use super::launcher::Launcher;
use super::planning::{Planning, PlanningRules};
use super::snapshot::{self, Scope, Snapshot};
use crate::dial::Dialer;
use crate::faults::HeldLayer;
use std::collections::BTreeMap;
use std::time::Instant;
use tokio_postgres::{Client, Error, Row};
use windlass_cuebot::names::words;

/// The reasons why one layer of a job waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerReasons {
    /// The name of the layer.
    pub layer: String,
    /// The frames of the layer by state, as `3 waiting, 1 running`.
    pub frames: String,
    /// Sentences, the most telling one first. None where nothing waits.
    pub reasons: Vec<String>,
}

const LAYERS: &str = "SELECT l.pk_layer, l.str_name, j.str_state, j.b_paused, w.str_name, ({owned}), w.b_active,
        w.b_paused, w.b_booking_enabled, to_char(l.ts_start_after, 'YYYY-MM-DD HH24:MI:SS TZ'),
        coalesce(l.ts_start_after > now(), false), s.int_waiting_count, s.int_running_count, s.int_depend_count,
        s.int_dead_count, s.int_succeeded_count, s.int_eaten_count, l.str_tags,
        ARRAY(SELECT a.str_tag::text FROM subscription b JOIN alloc a USING (pk_alloc)
            WHERE b.pk_show = w.pk_show AND b.int_burst > 0)
    FROM job j JOIN show w USING (pk_show) JOIN layer l USING (pk_job) JOIN layer_stat s USING (pk_layer)
    WHERE (j.str_name = $2 OR j.pk_job = $2) AND j.pk_job = (SELECT pk_job FROM job
            WHERE str_name = $2 OR pk_job = $2 ORDER BY str_state = 'PENDING' DESC, ts_started DESC LIMIT 1)
        AND ($3::text IS NULL OR l.str_name = $3
            OR EXISTS (SELECT FROM frame f WHERE f.pk_layer = l.pk_layer AND f.str_name = $3))
    ORDER BY l.int_dispatch_order";
const FRAME: &str = "SELECT f.str_state, f.str_host, f.int_depend_count, f.int_exit_status, f.int_retries
    FROM frame f WHERE f.pk_layer = $1 AND f.str_name = $2";

/// Explains waiting frames, with the settings of an instance and beside it.
#[derive(Clone)]
pub struct Reasons {
    pub(super) dialer: Dialer,
    pub(super) config: tokio_postgres::Config,
    pub(super) scope: Scope,
    pub(super) rules: PlanningRules,
    pub(super) launcher: Launcher,
}

impl Reasons {
    /// What layers of a job wait for: all, or those of the name `part`, or with a frame of that name. Layers that
    /// this instance or a running one leaves out are included. Empty if the job or the part does not exist.
    pub async fn of(
        &self,
        client: &Client,
        job: &str,
        part: Option<&str>,
    ) -> Result<Vec<LayerReasons>, Error> {
        let mut held = self.launcher.faults().held_layers(Instant::now());
        let of_others = held::ask(&self.dialer, &self.config).await?;
        held.extend(of_others);
        why(client, &self.scope, &self.rules, &held, (job, part)).await
    }
}

async fn why(
    client: &Client,
    scope: &Scope,
    rules: &PlanningRules,
    held: &[HeldLayer],
    (job, part): (&str, Option<&str>),
) -> Result<Vec<LayerReasons>, Error> {
    let statement = LAYERS.replace("{owned}", scope.owned());
    let rows = client.query(&statement, &[&scope.shows, &job, &part]).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let mut frames = Vec::new();
    for row in &rows {
        let (id, layer): (String, String) = (row.get(0), row.get(1));
        let mut reason = None;
        if let Some(name) = part.filter(|part| **part != *layer)
            && let Some(frame) = client.query_opt(FRAME, &[&id, &name]).await?
        {
            reason = Some(frame_reason(name, &frame));
        }
        frames.push(reason);
    }
    let snapshot = snapshot::read(client, scope, false).await?;
    Ok(explain(scope, rules, held, &snapshot, rows.iter().zip(frames)))
}

/// Explains layers on a snapshot, each with what is said of its frame that was asked for.
fn explain<'a>(
    scope: &Scope,
    rules: &PlanningRules,
    held: &[HeldLayer],
    snapshot: &Snapshot,
    layers: impl Iterator<Item = (&'a Row, Option<String>)>,
) -> Vec<LayerReasons> {
    let mut planning = Planning::new(rules.clone());
    let mut placed: BTreeMap<String, usize> = BTreeMap::new();
    for placement in planning.pass(snapshot) {
        *placed.entry(placement.layer).or_default() += 1;
    }
    let mut found = Vec::new();
    for (row, frame) in layers {
        let (id, layer): (String, String) = (row.get(0), row.get(1));
        let mut reasons: Vec<String> = frame.into_iter().collect();
        let of_tables = table_reasons(row, scope);
        if of_tables.is_empty() && row.get::<_, i64>(11) > 0 {
            let longest = held.iter().filter(|held| held.layer == id).max_by_key(|held| held.left);
            if let Some(HeldLayer { reason, left, .. }) = longest {
                reasons.push(format!("it is left out for {} s more: {reason}", left.as_secs() + 1));
            } else if let Some(frames) = placed.get(&id) {
                reasons.push(format!("{frames} of its frames fit now: the next pass books them"));
            }
            reasons.extend(planning.explain(&id));
        }
        reasons.extend(of_tables);
        found.push(LayerReasons { layer, frames: counts(row), reasons });
    }
    found
}

fn counts(row: &Row) -> String {
    let states =
        [(11, "waiting"), (12, "running"), (13, "dependent"), (14, "dead"), (15, "succeeded"), (16, "eaten")];
    let counts = states.map(|(column, state)| (row.get::<_, i64>(column), state));
    let some: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, state)| format!("{count} {state}"))
        .collect();
    if some.is_empty() { "no frames".to_owned() } else { some.join(", ") }
}

fn frame_reason(name: &str, row: &Row) -> String {
    let (state, host): (String, Option<String>) = (row.get(0), row.get(1));
    let (depends, exit, retries): (i64, i64, i64) = (row.get(2), row.get(3), row.get(4));
    match state.as_str() {
        "RUNNING" => format!("frame {name} runs on {}", host.unwrap_or_default()),
        "DEPEND" => format!("frame {name} waits for {depends} others that it depends on"),
        "DEAD" => format!("frame {name} is dead after {retries} retries, with exit status {exit}"),
        state => format!("frame {name} is {}", state.to_lowercase()),
    }
}

/// Reasons in the tables by which no pass looks at a layer, whatever hosts there are.
fn table_reasons(row: &Row, scope: &Scope) -> Vec<String> {
    let show: String = row.get(4);
    let tags: String = row.get(17);
    let (waiting, depend): (i64, i64) = (row.get(11), row.get(13));
    let is = |column: usize| row.get::<_, bool>(column);
    let state: String = row.get(2);
    let when: Option<String> = row.get(9);
    let allocations: Vec<Option<String>> = row.get(18);
    let opens = |tag: &Option<String>| scope.opens_allocation(&show, tag.as_deref());
    let all = [
        (state != "PENDING", format!("the job is {}", state.to_lowercase())),
        (
            !is(5),
            format!(
                "the show {show} is not scheduled here: 'cueadmin -scheduler-managed {show} on' changes that"
            ),
        ),
        (!is(6), format!("the show {show} is not active")),
        (is(7) || !is(8), format!("the show {show} is paused, or its booking is switched off")),
        (allocations.is_empty(), format!("the show {show} has no subscription with a burst")),
        (
            !allocations.is_empty() && !allocations.iter().any(opens),
            format!(
                "the gateway books the show {show} on none of its allocations: 'alloc_tags', or the flag, names \
                 others"
            ),
        ),
        (is(3), "the job is paused".to_owned()),
        (is(10), format!("the layer starts after {}", when.unwrap_or_default())),
        (tags.trim().is_empty(), "the layer has no tags, and so suits no host".to_owned()),
        (
            !tags.trim().is_empty() && !words(&tags, &['|']).any(|tag| scope.books_by(&show, &tag)),
            "the gateway books by none of the layer's tags: 'manual_tags' and 'alloc_tags', or the flags, say by which"
                .to_owned(),
        ),
        (waiting == 0 && depend > 0, format!("{depend} of its frames wait for others that they depend on")),
    ];
    all.into_iter().filter(|(holds, _)| *holds).map(|(_, reason)| reason).collect()
}
