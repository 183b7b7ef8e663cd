//! Hosts under partitions, restarts, and messages that are lost, late or without an answer, from seeds. Scheduler,
//! reports and PostgreSQL are real; hosts are a model of RQD. Time is the age of rows: a minute passes by making all of
//! them older.
//!
//! - At any time no host gives more cores than it has.
//! - When the network is whole and each host has reported once, which takes a minute, each frame runs on one host at
//!   most, and no host runs more than it has cores for.
//! - Some minutes later the tables say what runs, and figures are what a recount gives.

use crate::farm::host::{Host, host, run};
use crate::farm::{Farm, farm};
use crate::rqd::{Answer, Call, STATUS, StatusAnswer};
use axum::Router;
use axum::extract::{Request, State};
use axum::routing::post;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tonic::Status;
use tonic::server::Grpc;
use tonic_prost::ProstCodec;
use windlass_cuebot::generated::report::{HostReport, RenderHost, RunningFrameInfo};
use windlass_cuebot::{Cuebot, Settings};
use windlass_gateway_opencue::rqd::{Empty, KILL, KillRequest, LAUNCH, LaunchRequest};
use windlass_gateway_opencue::scheduler::Instance;
use windlass_gateway_opencue::scheduler::config::Config;

const SEEDS: u64 = 24;
/// Worlds that run beside each other.
const AT_A_TIME: u64 = 4;
/// What happens in a world before the network is whole.
const STEPS: u64 = 16;
const HOSTS: u8 = 3;
const CORES: usize = 2;
const FRAMES: u32 = 12;
/// How long a gateway waits for a host while calls get lost.
const IMPATIENT: &str = "100ms";
/// And when the network is whole. A busy machine makes calls slow, and loses none.
const PATIENT: &str = "12s";
/// Only a hung test waits so long.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Numbers of the generator SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// RQD of a host. It refuses a frame that it runs, as the stock one does, and counts no cores.
struct Model {
    name: String,
    state: Mutex<ModelState>,
}

#[derive(Default)]
struct ModelState {
    /// Frames, and the proc of each.
    running: BTreeMap<String, String>,
    /// Nothing comes to it or leaves it.
    is_cut: bool,
    /// It does what it is told, and its answers are lost.
    loses_answers: bool,
    /// Launches come to it when their caller has given up.
    is_slow: bool,
    slow: Vec<(String, String)>,
    /// Killed commands that have not been reported.
    ended: Vec<(String, String)>,
}

impl Model {
    fn state(&self) -> MutexGuard<'_, ModelState> {
        self.state.lock().unwrap()
    }

    /// Whether the caller hears of it.
    fn launch(&self, frame: String, proc_id: String) -> Result<bool, Status> {
        let mut state = self.state();
        if state.is_cut {
            return Ok(false);
        }
        if state.is_slow {
            state.slow.push((frame, proc_id));
            return Ok(false);
        }
        if state.running.contains_key(&frame) {
            return Err(Status::unknown("Exception calling application: the frame is running"));
        }
        state.running.insert(frame, proc_id);
        Ok(!state.loses_answers)
    }

    /// Whether the caller hears of it.
    fn kill(&self, frame: &str) -> bool {
        let mut state = self.state();
        if state.is_cut {
            return false;
        }
        if let Some(proc_id) = state.running.remove(frame) {
            state.ended.push((frame.to_owned(), proc_id));
        }
        !state.loses_answers
    }

    /// Launches whose callers have given up arrive.
    fn catch_up(&self) {
        let mut state = self.state();
        for (frame, proc_id) in std::mem::take(&mut state.slow) {
            state.running.entry(frame).or_insert(proc_id);
        }
    }

    fn runs(&self) -> Vec<RunningFrameInfo> {
        self.state().running.iter().map(|(frame, proc_id)| run(frame, proc_id)).collect()
    }

    fn describes(&self) -> RenderHost {
        RenderHost { num_procs: CORES as i32, ..host(&self.name) }
    }

    async fn serve(self: Arc<Model>, listener: TcpListener) {
        let routes = Router::new()
            .route(LAUNCH, post(launch))
            .route(KILL, post(kill))
            .route(STATUS, post(status))
            .with_state(self);
        axum::serve(listener, routes).await.unwrap();
    }
}

async fn answer(is_heard: bool) {
    if !is_heard {
        std::future::pending::<()>().await;
    }
}

async fn launch(State(model): State<Arc<Model>>, request: Request) -> Answer {
    let call = Call(move |ask: LaunchRequest| {
        let model = model.clone();
        async move {
            let frame = ask.run_frame.unwrap_or_default();
            answer(model.launch(frame.frame_id, frame.resource_id)?).await;
            Ok::<_, Status>(Empty {})
        }
    });
    Grpc::new(ProstCodec::<Empty, LaunchRequest>::default()).unary(call, request).await
}

async fn kill(State(model): State<Arc<Model>>, request: Request) -> Answer {
    let call = Call(move |ask: KillRequest| {
        let model = model.clone();
        async move {
            answer(model.kill(&ask.frame_id)).await;
            Ok(Empty {})
        }
    });
    Grpc::new(ProstCodec::<Empty, KillRequest>::default()).unary(call, request).await
}

async fn status(State(model): State<Arc<Model>>, request: Request) -> Answer {
    let call = Call(move |_: Empty| {
        let model = model.clone();
        async move {
            let is_cut = model.state().is_cut;
            answer(!is_cut).await;
            Ok(StatusAnswer { host_report: Some(HostReport { frames: model.runs(), ..Default::default() }) })
        }
    });
    Grpc::new(ProstCodec::<StatusAnswer, Empty>::default()).unary(call, request).await
}

/// Models on one port that is free at all their addresses.
async fn models() -> (Vec<Arc<Model>>, u16) {
    loop {
        let mut listeners = Vec::new();
        let mut port = 0;
        for number in 1..=HOSTS {
            let address = Ipv4Addr::new(127, 0, 4, number);
            let Ok(listener) = TcpListener::bind((address, port)).await else { break };
            port = listener.local_addr().unwrap().port();
            listeners.push((address.to_string(), listener));
        }
        if listeners.len() < usize::from(HOSTS) {
            continue;
        }
        let mut models = Vec::new();
        for (name, listener) in listeners {
            let model = Arc::new(Model { name, state: Mutex::default() });
            tokio::spawn(model.clone().serve(listener));
            models.push(model);
        }
        return (models, port);
    }
}

/// What a host tells the gateway.
enum Told {
    Boot,
    Status(Vec<RunningFrameInfo>),
    /// Frame, proc and exit status.
    Ended(String, String, i32),
}

struct World {
    random: Random,
    farm: Farm,
    models: Vec<Arc<Model>>,
    port: u16,
    instance: Instance,
    hosts: Host,
    /// Messages that are on their way, with their hosts.
    late: Vec<(Arc<Model>, Told)>,
}

/// A gateway as after a start: it knows nothing but the tables.
async fn gateway(farm: &mut Farm, port: u16, call_timeout: &str) -> (Instance, Host) {
    let text = format!(
        "rqd: {{grpc_port: {port}}}\nwindlass: {{shows: [testing], rqd_call_timeout: {call_timeout}}}"
    );
    let settings = Config::parse(&text).unwrap().instance;
    let instance = Instance::new(farm.pool.clone(), farm.config.clone(), settings);
    let hosts = Arc::new(instance.launcher());
    farm.cuebot = Arc::new(Cuebot::new(farm.pool.clone(), Settings::default(), hosts));
    let hosts = Host::connect(farm).await;
    (instance, hosts)
}

impl World {
    async fn new(seed: u64) -> Option<World> {
        let mut farm = farm().await?;
        farm.job(&[("a", FRAMES)], 1_000).await;
        farm.run("UPDATE layer SET str_tags = 'general', b_threadable = false").await;
        let (models, port) = models().await;
        let (instance, hosts) = gateway(&mut farm, port, IMPATIENT).await;
        for model in &models {
            hosts.status(model.describes(), Vec::new()).await.unwrap();
        }
        Some(World { random: Random(seed), farm, models, port, instance, hosts, late: Vec::new() })
    }

    fn any_model(&mut self) -> Arc<Model> {
        let number = self.random.below(self.models.len());
        self.models[number].clone()
    }

    async fn restart_gateway(&mut self, call_timeout: &str) {
        (self.instance, self.hosts) = gateway(&mut self.farm, self.port, call_timeout).await;
    }

    /// A message arrives. False if the gateway had no answer.
    async fn deliver(&self, model: &Model, told: &Told) -> bool {
        let answer = match told {
            Told::Boot => self.hosts.boot_as(model.describes()).await,
            Told::Status(runs) => self.hosts.status(model.describes(), runs.clone()).await,
            Told::Ended(frame, proc_id, exit_status) => {
                self.hosts.try_ended(&model.name, (frame, proc_id), *exit_status).await
            }
        };
        answer.is_ok()
    }

    /// A host sends a message, which arrives now, later or never. What ended is never told again.
    async fn tell(&mut self, model: &Arc<Model>, told: Told) {
        if model.state().is_cut {
            return;
        }
        match self.random.below(8) {
            0 => {}
            1 | 2 => self.late.push((model.clone(), told)),
            _ => _ = self.deliver(model, &told).await,
        }
    }

    /// What a host says each minute, and what it has to say of commands that were killed.
    async fn report(&mut self, model: &Arc<Model>) {
        let runs = model.runs();
        self.tell(model, Told::Status(runs)).await;
        let ended = std::mem::take(&mut model.state().ended);
        for (frame, proc_id) in ended {
            self.tell(model, Told::Ended(frame, proc_id, 1)).await;
        }
    }

    /// All rows get older. A transaction of the gateway may be in the way.
    async fn age(&self, seconds: u32) {
        let sql = format!(
            "UPDATE host_stat SET ts_ping = ts_ping - interval '{seconds} s';
             UPDATE proc SET ts_ping = ts_ping - interval '{seconds} s',
                    ts_booked = ts_booked - interval '{seconds} s'"
        );
        while self.farm.pool.get().await.unwrap().batch_execute(&sql).await.is_err() {
            tokio::task::yield_now().await;
        }
    }

    /// What the gateway does by itself. What fails is done the next time.
    async fn upkeep(&self) {
        _ = self.farm.cuebot.clear_silent_hosts().await;
    }

    async fn minutes(&mut self, minutes: u32) {
        for _ in 0..minutes {
            self.age(60).await;
            for model in self.models.clone() {
                self.report(&model).await;
            }
            self.upkeep().await;
        }
    }

    async fn step(&mut self) {
        let model = self.any_model();
        match self.random.below(11) {
            0 | 1 => {
                let mut state = model.state();
                state.is_cut = !state.is_cut;
            }
            2 => {
                let mut state = model.state();
                state.loses_answers = !state.loses_answers;
            }
            3 => {
                let mut state = model.state();
                state.is_slow = !state.is_slow;
            }
            4 => {
                {
                    let mut state = model.state();
                    (state.running, state.slow, state.ended) = Default::default();
                }
                self.tell(&model, Told::Boot).await;
            }
            5 | 6 => {
                let ended = model.state().running.pop_first();
                if let Some((frame, proc_id)) = ended {
                    let exit_status = i32::from(self.random.below(4) > 0);
                    self.tell(&model, Told::Ended(frame, proc_id, exit_status)).await;
                }
            }
            7 => model.catch_up(),
            8 if !self.late.is_empty() => {
                let number = self.random.below(self.late.len());
                let (model, told) = self.late.swap_remove(number);
                self.deliver(&model, &told).await;
            }
            8 | 9 => self.minutes(1).await,
            _ => {
                self.minutes(6).await;
                self.restart_gateway(IMPATIENT).await;
            }
        }
    }

    /// Books and launches. A pass that fails is tried again.
    async fn pass(&mut self) {
        _ = self.instance.pass().await;
        let overbooked = "SELECT string_agg(str_name, ', ') FROM host WHERE int_cores_idle < 0
            OR int_cores < (SELECT sum(int_cores_reserved) FROM proc WHERE proc.pk_host = host.pk_host)";
        assert_eq!(self.farm.value(overbooked).await, "", "these hosts give more than they have");
    }

    /// The network is whole. What was on its way arrives, in any order, and then each host reports once.
    async fn heal(&mut self) {
        for model in &self.models {
            let mut state = model.state();
            (state.is_cut, state.loses_answers, state.is_slow) = (false, false, false);
        }
        self.restart_gateway(PATIENT).await;
        while !self.late.is_empty() {
            let number = self.random.below(self.late.len());
            let (model, told) = self.late.swap_remove(number);
            self.deliver(&model, &told).await;
            self.pass().await;
        }
        for model in self.models.clone() {
            model.catch_up();
            self.report_for_certain(&model).await;
            self.pass().await;
        }
    }

    /// The reports of a host over a whole network.
    async fn report_for_certain(&self, model: &Model) {
        let ended = std::mem::take(&mut model.state().ended);
        for (frame, proc_id) in ended {
            self.deliver_for_certain(model, Told::Ended(frame, proc_id, 1)).await;
        }
        self.deliver_for_certain(model, Told::Status(model.runs())).await;
    }

    /// A message that is told again where the database had no answer.
    async fn deliver_for_certain(&self, model: &Model, told: Told) {
        let began = Instant::now();
        while !self.deliver(model, &told).await {
            assert!(began.elapsed() < WAIT_MAX, "the gateway takes no report of {}", model.name);
        }
    }

    /// Frames that run twice, and hosts that run too much.
    fn doubled(&self) -> Option<String> {
        let mut seen = BTreeMap::new();
        for model in &self.models {
            let state = model.state();
            if state.running.len() > CORES {
                return Some(format!("{} runs {:?}", model.name, state.running));
            }
            for frame in state.running.keys() {
                if let Some(other) = seen.insert(frame.clone(), model.name.clone()) {
                    return Some(format!("{frame} runs on {other} and {}", model.name));
                }
            }
        }
        None
    }

    /// Where the tables and the hosts differ, or figures from a recount.
    async fn differing(&self) -> Option<String> {
        let mut running = BTreeSet::new();
        for model in &self.models {
            let state = model.state();
            running.extend(
                state.running.iter().map(|(frame, proc_id)| format!("{frame} {proc_id} {}", model.name)),
            );
        }
        let sql = "SELECT string_agg(f.pk_frame || ' ' || coalesce(p.pk_proc || ' ' || h.str_name, '-'), ',')
            FROM frame f LEFT JOIN proc p USING (pk_frame) LEFT JOIN host h USING (pk_host)
           WHERE f.str_state = 'RUNNING'";
        let booked = self.farm.value(sql).await;
        let booked: BTreeSet<String> =
            booked.split(',').filter(|text| !text.is_empty()).map(str::to_owned).collect();
        if running != booked {
            return Some(format!("runs: {running:?}; is booked: {booked:?}"));
        }
        let wrong = self.farm.wrong().await;
        (!wrong.is_empty()).then_some(wrong)
    }
}

/// False where PostgreSQL is missing.
async fn live(seed: u64) -> bool {
    let Some(mut world) = World::new(seed).await else { return false };
    for _ in 0..STEPS {
        world.pass().await;
        world.step().await;
    }
    world.heal().await;
    let began = Instant::now();
    while let Some(doubled) = world.doubled() {
        assert!(began.elapsed() < WAIT_MAX, "seed {seed}: {doubled}");
        tokio::task::yield_now().await;
    }
    // Ends that were lost are found when two reports in a row leave the frames out.
    for _ in 0..2 {
        world.age(60).await;
        for model in world.models.clone() {
            world.report_for_certain(&model).await;
        }
        world.upkeep().await;
    }
    while let Some(differing) = world.differing().await {
        assert!(began.elapsed() < WAIT_MAX * 2, "seed {seed}: {differing}");
        for model in world.models.clone() {
            world.report_for_certain(&model).await;
        }
    }
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minute_after_the_network_is_whole_each_frame_runs_on_one_host_and_no_host_is_overbooked() {
    for first in (1..=SEEDS).step_by(AT_A_TIME as usize) {
        let worlds: Vec<_> = (first..first + AT_A_TIME).map(|seed| tokio::spawn(live(seed))).collect();
        for world in worlds {
            if !world.await.unwrap() {
                return;
            }
        }
    }
}
