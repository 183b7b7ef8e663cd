//! The order to run a frame: its command, its variables and its limits.

use super::snapshot::Scope;
use crate::rqd::RunFrame;
use std::collections::{BTreeMap, HashMap};
use tokio_postgres::{Client, Error, Row};
use windlass_cuebot::{Amounts, frames};

/// Factors of the reserved memory at which a frame is ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryFactors {
    /// Beyond this factor the frame is asked to end.
    pub soft: f64,
    /// Beyond this factor the frame is killed.
    pub hard: f64,
}

impl Default for MemoryFactors {
    fn default() -> MemoryFactors {
        // These are OpenCue's own values.
        MemoryFactors { soft: 1.6, hard: 2.0 }
    }
}

/// What all frames of a layer have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerCommand {
    layer: String,
    name: String,
    command: String,
    range: String,
    chunk_size: usize,
    is_threadable: bool,
    job: String,
    job_name: String,
    show: String,
    shot: String,
    user: String,
    uid: Option<i64>,
    log_dir: String,
    os: Option<String>,
    loki_url: Option<String>,
    environment: HashMap<String, String>,
}

/// A frame that waits for a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingFrame {
    /// The key of the frame.
    pub id: String,
    /// The name of the frame, as `NNNN-layer`.
    pub name: String,
    /// The number of the frame in its layer.
    pub number: i64,
    /// The version of its row, which each writer raises.
    pub version: i32,
    /// Milliseconds since it became ready to run, by the database's clock.
    pub waited_ms: i64,
}

/// A frame that waits again after it ran, or after others that it depends on, was changed then.
const FRAMES: &str = "SELECT w.layer, f.pk_frame, f.str_name, f.int_number, f.int_version, f.waited_ms
    FROM unnest($1::text[], $2::bigint[]) AS w(layer, count) CROSS JOIN LATERAL (
        SELECT pk_frame, str_name, int_number, int_version,
            (extract(epoch FROM now() - greatest(ts_eligible, ts_updated)) * 1e3)::bigint AS waited_ms
        FROM frame
        WHERE pk_layer = w.layer AND str_state = 'WAITING' AND int_depend_count = 0
        ORDER BY int_dispatch_order, int_layer_order LIMIT w.count) f";
/// Variables of the layer go before those of the job.
const COMMANDS: &str = "SELECT l.pk_layer, l.str_name, l.str_cmd, l.str_range, l.int_chunk_size, l.b_threadable,
        j.pk_job, j.str_name, w.str_name, j.str_shot, j.str_user, j.int_uid, j.str_log_dir, j.str_os, j.str_loki_url,
        ARRAY(SELECT str_key::text FROM job_env e WHERE e.pk_job = j.pk_job AND str_key IS NOT NULL
            ORDER BY pk_job_env),
        ARRAY(SELECT coalesce(str_value, '')::text FROM job_env e WHERE e.pk_job = j.pk_job AND str_key IS NOT NULL
            ORDER BY pk_job_env),
        ARRAY(SELECT str_key::text FROM layer_env e WHERE e.pk_layer = l.pk_layer AND str_key IS NOT NULL
            ORDER BY pk_layer_env),
        ARRAY(SELECT coalesce(str_value, '')::text FROM layer_env e WHERE e.pk_layer = l.pk_layer
            AND str_key IS NOT NULL ORDER BY pk_layer_env)
    FROM layer l JOIN job j USING (pk_job) JOIN show w USING (pk_show) WHERE l.pk_layer = ANY($2::text[]) AND ";

/// The first waiting frames of layers in their order, for each layer the number in `counts`.
pub async fn waiting_frames(
    client: &Client,
    counts: &BTreeMap<String, i64>,
) -> Result<BTreeMap<String, Vec<WaitingFrame>>, Error> {
    let (layers, counts): (Vec<&String>, Vec<i64>) = counts.iter().unzip();
    let mut found: BTreeMap<String, Vec<WaitingFrame>> = BTreeMap::new();
    for row in client.query(FRAMES, &[&layers, &counts]).await? {
        let frame = WaitingFrame {
            id: row.get(1),
            name: row.get(2),
            number: row.get(3),
            version: row.get::<_, Option<i32>>(4).unwrap_or(0),
            waited_ms: row.get::<_, Option<i64>>(5).unwrap_or(0),
        };
        found.entry(row.get(0)).or_default().push(frame);
    }
    Ok(found)
}

/// The commands of these layers. A layer of a show that is not in scope is left out.
pub async fn commands(
    client: &Client,
    scope: &Scope,
    layers: &[&String],
) -> Result<BTreeMap<String, LayerCommand>, Error> {
    let rows = client.query(&format!("{COMMANDS}{}", scope.owned()), &[&scope.shows, &layers]).await?;
    Ok(rows.iter().map(|row| (row.get(0), command(row))).collect())
}

fn command(row: &Row) -> LayerCommand {
    let mut environment = HashMap::new();
    for keys in [15, 17] {
        let (keys, values): (Vec<String>, Vec<String>) = (row.get(keys), row.get(keys + 1));
        environment.extend(keys.into_iter().zip(values));
    }
    LayerCommand {
        layer: row.get(0),
        name: row.get(1),
        command: row.get(2),
        range: row.get(3),
        chunk_size: usize::try_from(row.get::<_, i64>(4)).unwrap_or(1).max(1),
        is_threadable: row.get(5),
        job: row.get(6),
        job_name: row.get(7),
        show: row.get(8),
        shot: row.get(9),
        user: row.get(10),
        uid: row.get(11),
        log_dir: row.get(12),
        os: row.get(13),
        loki_url: row.get(14),
        environment,
    }
}

impl LayerCommand {
    /// The names of job and layer, for messages.
    pub fn title(&self) -> String {
        format!("{}/{}", self.job_name, self.name)
    }

    /// The name of its show.
    pub fn show(&self) -> &str {
        &self.show
    }

    /// The order to run one frame in a proc with these amounts. `start_ms` is Unix time in milliseconds.
    pub fn run_frame(
        &self,
        frame: &WaitingFrame,
        (proc_id, given): (&str, Amounts),
        factors: MemoryFactors,
        start_ms: i64,
    ) -> RunFrame {
        let chunk = self.chunk(frame.number);
        let limit = |factor: f64| (given.mem_kib as f64 * factor) as i64;
        RunFrame {
            resource_id: proc_id.to_owned(),
            job_id: self.job.clone(),
            job_name: self.job_name.clone(),
            frame_id: frame.id.clone(),
            frame_name: frame.name.clone(),
            layer_id: self.layer.clone(),
            command: self.with_tokens(frame, &chunk),
            user_name: self.user.clone(),
            log_dir: self.log_dir.clone(),
            show: self.show.clone(),
            shot: self.shot.clone(),
            start_time: start_ms,
            uid: self.uid.and_then(|uid| i32::try_from(uid).ok()),
            num_cores: i32::try_from(given.cores).unwrap_or(i32::MAX),
            ignore_nimby: false,
            environment: self.environment_of(frame, given),
            num_gpus: i32::try_from(given.gpus).unwrap_or(i32::MAX),
            os: self.os.clone().unwrap_or_default(),
            soft_memory_limit: limit(factors.soft),
            hard_memory_limit: limit(factors.hard),
            loki_url: self.loki_url.clone().unwrap_or_default(),
        }
    }

    /// The frames that a frame of this number renders: itself, and with chunks those after it in the layer's range.
    fn chunk(&self, number: i64) -> Vec<i64> {
        if self.chunk_size == 1 {
            return vec![number];
        }
        let all = frames::parse(&self.range).unwrap_or_default();
        let from = all.iter().position(|frame| i64::from(*frame) == number);
        let chunk = from
            .map(|from| all[from..].iter().take(self.chunk_size).map(|frame| i64::from(*frame)).collect());
        chunk.unwrap_or_else(|| vec![number])
    }

    fn with_tokens(&self, frame: &WaitingFrame, chunk: &[i64]) -> String {
        let (first, last) = (chunk.first().unwrap_or(&frame.number), chunk.last().unwrap_or(&frame.number));
        let tokens = [
            ("#ZFRAME#", format!("{:04}", frame.number)),
            ("#IFRAME#", frame.number.to_string()),
            ("#FRAME_START#", first.to_string()),
            ("#FRAME_END#", last.to_string()),
            ("#FRAME_CHUNK#", self.chunk_size.to_string()),
            ("#FRAMESPEC#", frame_spec(chunk)),
            ("#LAYER#", self.name.clone()),
            ("#JOB#", self.job_name.clone()),
            ("#FRAME#", frame.name.clone()),
        ];
        tokens.iter().fold(self.command.clone(), |command, (token, value)| command.replace(token, value))
    }

    fn environment_of(&self, frame: &WaitingFrame, given: Amounts) -> HashMap<String, String> {
        let mut all = self.environment.clone();
        let own = [
            ("CUE3", "1".to_owned()),
            ("CUE_THREADS", (given.cores / 100).max(1).to_string()),
            ("CUE_MEMORY", given.mem_kib.to_string()),
            ("CUE_GPUS", given.gpus.to_string()),
            ("CUE_GPU_MEMORY", given.gpu_mem_kib.to_string()),
            ("CUE_LOG_PATH", self.log_dir.clone()),
            ("CUE_RANGE", self.range.clone()),
            ("CUE_CHUNK", self.chunk_size.to_string()),
            ("CUE_IFRAME", frame.number.to_string()),
            ("CUE_LAYER", self.name.clone()),
            ("CUE_JOB", self.job_name.clone()),
            ("CUE_FRAME", frame.name.clone()),
            ("CUE_SHOW", self.show.clone()),
            ("CUE_SHOT", self.shot.clone()),
            ("CUE_USER", self.user.clone()),
            ("CUE_JOB_ID", self.job.clone()),
            ("CUE_LAYER_ID", self.layer.clone()),
            ("CUE_FRAME_ID", frame.id.clone()),
            ("CUE_THREADABLE", u8::from(self.is_threadable).to_string()),
        ];
        all.extend(own.into_iter().map(|(name, value)| (name.to_owned(), value)));
        all
    }
}

/// Frames as a range: `7`, `1-10`, or `1-10x3` where each is as far from the last; else all, with commas.
fn frame_spec(frames: &[i64]) -> String {
    let list = || frames.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let [first, second, ..] = frames else { return list() };
    let step = second - first;
    let is_even = frames.windows(2).all(|pair| pair[1] - pair[0] == step);
    let last = frames[frames.len() - 1];
    match step {
        1 if is_even => format!("{first}-{last}"),
        2.. if is_even => format!("{first}-{last}x{step}"),
        _ => list(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(range: &str, chunk_size: usize) -> LayerCommand {
        let environment =
            HashMap::from([("SCENE".to_owned(), "a".to_owned()), ("CUE3".to_owned(), "0".to_owned())]);
        let command = "render #ZFRAME# #IFRAME# #FRAME_START#-#FRAME_END# #FRAMESPEC# #FRAME_CHUNK# #LAYER# #JOB# #FRAME#";
        LayerCommand {
            name: "beauty".to_owned(),
            command: command.to_owned(),
            range: range.to_owned(),
            chunk_size,
            job_name: "show-shot-user_j".to_owned(),
            uid: Some(1000),
            environment,
            ..LayerCommand::default()
        }
    }

    fn command(range: &str, chunk_size: usize, number: i64) -> String {
        let frame = WaitingFrame {
            id: "f".to_owned(),
            name: format!("{number:04}-beauty"),
            number,
            version: 0,
            waited_ms: 0,
        };
        let given = Amounts { cores: 250, mem_kib: 1_000, gpus: 1, gpu_mem_kib: 2 };
        let run = layer(range, chunk_size).run_frame(&frame, ("p", given), MemoryFactors::default(), 5);
        assert_eq!((run.num_cores, run.soft_memory_limit, run.hard_memory_limit), (250, 1_600, 2_000));
        assert_eq!((run.environment["CUE_THREADS"].as_str(), run.environment["SCENE"].as_str()), ("2", "a"));
        assert_eq!(run.environment["CUE3"], "1", "a job cannot say what the farm says");
        run.command
    }

    #[test]
    fn tokens_name_the_frame_and_its_chunk() {
        let end = "beauty show-shot-user_j";
        assert_eq!(command("1-10", 1, 3), format!("render 0003 3 3-3 3 1 {end} 0003-beauty"));
        assert_eq!(command("1-10", 4, 5), format!("render 0005 5 5-8 5-8 4 {end} 0005-beauty"));
        assert_eq!(command("1-10", 4, 9), format!("render 0009 9 9-10 9-10 4 {end} 0009-beauty"));
        assert_eq!(command("1-20x5", 3, 1), format!("render 0001 1 1-11 1-11x5 3 {end} 0001-beauty"));
        assert_eq!(command("1,2,9", 3, 1), format!("render 0001 1 1-9 1,2,9 3 {end} 0001-beauty"));
    }
}
