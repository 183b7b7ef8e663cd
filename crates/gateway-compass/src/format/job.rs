//! The fields of a job: known ones are checked, and all are stored.

use super::bad_job::{BadJob, JOB_BYTES_MAX, bad_field, bad_type};
use super::fields::{Fields, has_name, is_variable, scalar, text_of, texts};
use super::names::{BOX, CLUSTER_ROLES, EXECUTOR_NAME, SEALED_SECRETS};
use super::quantity::{parse_memory, parse_seconds};
use super::result_root::{all_params_md5, rootfs};
use super::testbox::{TboxType, Testbox, group_of};
use super::wait::WaitSpec;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use windlass_api::StepBody;
use windlass_core::Resources;
use windlass_core::bounds::{CACHES_PER_STEP_MAX, NAME_BYTES_MAX, NEEDS_PER_STEP_MAX, SHAPE_BYTES_MAX};
use windlass_core::job::{Hints, JobSpec, StepSpec};
use windlass_core::tags::{EXECUTOR, Need};
use windlass_core::worker::Origin;

/// The word for any machine in `target_machines`.
pub const ANY: &str = "ANY";
/// The type of fields whose entries are hashes.
const HASHES: &str = "hash of hash";
/// The types of fields: a whole number, a single value, a list of words, a hash, and a hash of hashes; and the fields of
/// each.
const TYPES: [(&str, &str); 5] = [
    ("integer", "istage ihealth idata_readiness priority timeout_seconds renew_to_utc deadline_utc"),
    (
        "string",
        "suite category os arch os_arch os_version osv os_mount lab tbox_group testbox cluster queue \
         rootfs docker_image kernel_uri my_account my_email my_name my_token job_token runtime timeout \
         commit os_project package tbox_type need_memory memory_minimum max_run nr_cpu nr_nic nr_disk \
         disk_size",
    ),
    (
        "array",
        "my_ssh_pubkey initrds_uri modules_uri need_file_store kernel_params target_machines cache_dirs \
         milestones error_ids",
    ),
    ("hash", "secrets services boot_params on_fail ss_wait_jobs cluster_jobs cluster_spec hw vt matrix"),
    (HASHES, "pp ss setup daemon monitor monitors program pkg_data wait_on wait_options"),
];
/// Required fields. The account is checked separately.
const REQUIRED: [&str; 4] = ["suite", "testbox", "os", "os_version"];
/// Fields that an earlier run left in a job that is submitted again.
const STALE: &str = "id cluster_jobs filled job_id plugins errid stats start_time end_time \
    finish_time job_health job_stage job_state job_data_readiness milestones";
/// Fields that are not stored.
const SECRET: [&str; 4] = ["my_email", "my_name", "my_token", "job_token"];
/// Fields that are stored for the machine, and not shown to users.
const PRIVATE: [&str; 9] = [
    "my_email",
    "my_token",
    "job_token",
    "my_ssh_pubkey",
    "secrets",
    SEALED_SECRETS,
    CLUSTER_ROLES,
    "pkg_data",
    "stats",
];
/// The ways in which a machine gets its system. The first is the default.
const OS_MOUNTS: [&str; 5] = ["initramfs", "nfs", "cifs", "local", "container"];
/// Fields that this server does not support, and what to do instead.
const UNSUPPORTED: [(&str, &str); 4] = [
    ("custom_bootstrap", "is not supported: give initrds_uri, kernel_uri and kernel_params instead"),
    (
        "kernel_rpms_url",
        "is not supported, for the server unpacks no packages: give kernel_uri and modules_uri",
    ),
    (
        "upload_fields",
        "is not supported, for the server builds no packages: give the built one in need_file_store",
    ),
    ("upload_image_dir", "is not supported: a job uploads to its own result_root"),
];
/// Where built packages are in the file store.
const BUILT: &str = "ss/";
/// Seconds that a job may run by default.
const TIMEOUT_S: u64 = 3_600;
/// Most seconds for which a machine may be borrowed.
const BORROW_S_MAX: u64 = 30 * 86_400;

/// A job to be submitted.
#[derive(Clone, PartialEq, Debug)]
pub struct CompassJob {
    /// All fields, without the user's secrets and the fields that an earlier run left.
    pub fields: Fields,
    /// The fields that only the job's machine may read, with the submitter's address.
    pub secrets: Fields,
    /// The account of the submitter.
    pub account: String,
    /// The queue, if the job names one.
    pub queue: Option<String>,
    /// The testbox that it asks for.
    pub testbox: Testbox,
    /// The architecture, if the job names one.
    pub arch: Option<String>,
    /// Names of the only machines that may run it; `None` is any that the testbox allows.
    pub machines: Option<BTreeSet<String>>,
    /// Hardware that the machine must have, all of it.
    pub devices: BTreeSet<String>,
    /// Tags that the machine must have, all of them.
    pub tags: BTreeSet<String>,
    /// Cache directories that it reads.
    pub cache_dirs: BTreeSet<String>,
    /// Bytes of memory that it needs.
    pub memory: u64,
    /// Seconds that it may run.
    pub timeout_s: u64,
    /// The jobs that it waits for.
    pub wait: WaitSpec,
}

impl CompassJob {
    /// Reads the fields of a job.
    pub fn parse(mut fields: Fields) -> Result<CompassJob, BadJob> {
        let bytes = serde_json::to_string(&fields).map_or(0, |text| text.len());
        if bytes > JOB_BYTES_MAX {
            return Err(BadJob::TooLarge(bytes));
        }
        check_types(&fields)?;
        let secrets = secrets_of(&mut fields)?;
        for key in STALE.split_whitespace().chain(SECRET).chain([CLUSTER_ROLES, SEALED_SECRETS]) {
            fields.remove(key);
        }
        // Either field can stand for the other.
        match (text_of(&fields, "testbox"), text_of(&fields, "tbox_group")) {
            (Some(_), _) => {}
            (None, Some(group)) => _ = fields.insert("testbox".to_owned(), group.into()),
            (None, None) => return Err(BadJob::Missing("testbox")),
        }
        let account = word(&fields, "my_account")?.ok_or(BadJob::Missing("my_account"))?;
        for key in REQUIRED {
            if word(&fields, key)?.is_none() {
                return Err(BadJob::Missing(key));
            }
        }
        let testbox = Testbox::parse(&text_of(&fields, "testbox").unwrap_or_default())?;
        let machines = resolve(&testbox, named(&fields, "target_machines")?)?;
        let arch = word(&fields, "arch")?.or(word(&fields, "os_arch")?);
        let (memory, timeout_s) = (memory_of(&fields, &testbox)?, timeout_of(&fields)?);
        fields.insert("tbox_group".to_owned(), testbox.group.clone().into());
        fields.insert("tbox_type".to_owned(), testbox.kind.as_str().into());
        fields.insert("timeout_seconds".to_owned(), timeout_s.into());
        settle_system(&mut fields, testbox.kind)?;
        fields.insert("all_params_md5".to_owned(), all_params_md5(&fields).into());
        Ok(CompassJob {
            account,
            queue: word(&fields, "queue")?,
            machines,
            arch,
            devices: devices_of(&fields)?,
            tags: named(&fields, "tags")?.unwrap_or_default(),
            cache_dirs: cache_dirs_of(&fields)?,
            memory,
            timeout_s,
            wait: WaitSpec::parse(&fields)?,
            testbox,
            fields,
            secrets,
        })
    }

    /// The requirements for a machine, without its size and name.
    pub fn needs(&self) -> Vec<Need> {
        let need =
            |key: &str, value: &str| Need { key: key.to_owned(), any_of: BTreeSet::from([value.to_owned()]) };
        let mut needs = vec![need(EXECUTOR, EXECUTOR_NAME), need("tbox_type", self.testbox.kind.as_str())];
        needs.extend(self.arch.as_deref().map(|arch| need("arch", arch)));
        if self.testbox.machine.is_none() && !self.testbox.is_any() {
            // The group stays a name, so that machines which join it later count.
            needs.push(need("tbox_group", &self.testbox.group));
        }
        needs.extend(self.tags.iter().map(|tag| need("tag", tag)));
        needs.extend(self.devices.iter().map(|device| need("device", device)));
        needs
    }

    /// The resources that it books: a whole bare-metal machine, or a part of a provider's host.
    pub fn request(&self) -> Result<Resources, BadJob> {
        let hw = self.fields.get("hw").and_then(Value::as_object);
        let said = hw.and_then(|hw| text_of(hw, "nr_cpu"));
        let said =
            said.or_else(|| text_of(&self.fields, "nr_cpu")).or_else(|| text_of(&self.fields, "cpu_minimum"));
        let said = match said {
            None => None,
            Some(text) => match text.parse::<u32>() {
                Ok(cpus) if (1..=65_536).contains(&cpus) => Some(cpus),
                _ => {
                    return Err(bad_field("nr_cpu", format!("'{text}' is not a valid number of processors")));
                }
            },
        };
        if self.testbox.kind == TboxType::Hw {
            let custom = BTreeMap::from([(BOX.to_owned(), 1)]);
            return Ok(Resources { cpu: 100, memory: self.memory, custom, ..Resources::default() });
        }
        let cpus = self.testbox.cpus.or(said).unwrap_or(1);
        Ok(Resources::new(cpus * 100, self.memory))
    }

    /// The job for the engine, in this queue. `preferred` are the machines whose caches suit it best.
    pub fn into_spec(self, queue: String, preferred: BTreeSet<String>) -> Result<JobSpec, BadJob> {
        let (needs, request) = (self.needs(), self.request()?);
        let workers = |machines: BTreeSet<String>| -> BTreeSet<String> {
            machines.iter().map(|machine| Origin::Compass.worker_name(machine)).collect()
        };
        let targets = workers(self.machines.unwrap_or_default());
        if needs.len() + targets.len() > NEEDS_PER_STEP_MAX {
            return Err(bad_field(
                "tags",
                format!("tags, devices and machines are more than {NEEDS_PER_STEP_MAX} together"),
            ));
        }
        let priority = match text_of(&self.fields, "priority") {
            None => 0,
            Some(text) => {
                text.parse().map_err(|_| bad_field("priority", format!("'{text}' is not a whole number")))?
            }
        };
        let suite = text_of(&self.fields, "suite").unwrap_or_default();
        let mut shape = format!("{suite} {}", self.testbox.group);
        while shape.len() > SHAPE_BYTES_MAX {
            shape.pop();
        }
        let hints = Hints {
            shape,
            caches: self.cache_dirs.iter().map(|dir| (dir.clone(), None)).collect(),
            prefers: workers(preferred),
            ..Hints::default()
        };
        let body = StepBody {
            command: vec![EXECUTOR_NAME.to_owned(), suite.clone()],
            cwd: "/".to_owned(),
            compass: Some(self.fields),
            ..StepBody::default()
        };
        let body = serde_json::to_vec(&body).expect("strings and maps always serialize");
        let step = StepSpec {
            name: EXECUTOR_NAME.to_owned(),
            tasks: 1,
            request,
            needs,
            targets,
            time_limit_ms: Some(self.timeout_s.saturating_mul(1_000)),
            hints,
            body: body.into(),
            ..StepSpec::default()
        };
        Ok(JobSpec {
            name: suite,
            queue,
            user: self.account,
            priority,
            steps: vec![step],
            ..JobSpec::default()
        })
    }
}

/// The jobs of a cluster's nodes as one for the engine, whose steps start together. The first leads.
pub fn cluster_job(nodes: Vec<(CompassJob, BTreeSet<String>)>, queue: &str) -> Result<JobSpec, BadJob> {
    let mut whole: Option<JobSpec> = None;
    for (node, preferred) in nodes {
        let host = node.testbox.name.clone();
        let mut spec = node.into_spec(queue.to_owned(), preferred)?;
        let Some(whole) = &mut whole else {
            spec.steps.iter_mut().for_each(|step| step.name.clone_from(&host));
            whole = Some(spec);
            continue;
        };
        whole.steps.extend(spec.steps.into_iter().map(|step| StepSpec {
            name: host.clone(),
            with: Some(0),
            ..step
        }));
    }
    whole.ok_or_else(|| bad_field("cluster", "has no nodes"))
}

/// True for a job that was submitted to Compass CI's interface.
pub fn is_compass(spec: &JobSpec) -> bool {
    let asks = |need: &Need| need.key == EXECUTOR && need.any_of.contains(EXECUTOR_NAME);
    !spec.steps.is_empty() && spec.steps.iter().all(|step| step.tasks == 1 && step.needs.iter().any(asks))
}

/// The public fields of a job, all or those that are wanted.
pub fn public_fields(mut fields: Fields, wanted: Option<&BTreeSet<String>>) -> Fields {
    fields.retain(|key, _| {
        !PRIVATE.contains(&key.as_str()) && wanted.is_none_or(|wanted| wanted.contains(key))
    });
    fields
}

/// Takes a job's secrets out of its fields. On the machine each is a variable, so its name must be one.
fn secrets_of(fields: &mut Fields) -> Result<Fields, BadJob> {
    let mut secrets = match fields.remove("secrets") {
        Some(Value::Object(secrets)) => secrets,
        _ => Fields::new(),
    };
    secrets.retain(|_, value| !value.is_null());
    for (name, value) in &secrets {
        let text =
            scalar(value).ok_or_else(|| bad_field(&format!("secrets.{name}"), "must be a single value"))?;
        if !is_variable(name) {
            return Err(bad_field(
                "secrets",
                format!("'{name}' is not the name of a variable; use letters, digits and _"),
            ));
        }
        if text.contains(['\n', '\r', '\0']) {
            return Err(bad_field(
                &format!("secrets.{name}"),
                "must be one line; encode it, such as by base64",
            ));
        }
    }
    if let Some(email) = text_of(fields, "my_email").filter(|email| !email.contains(char::is_control)) {
        secrets.entry("my_email").or_insert_with(|| email.into());
    }
    Ok(secrets)
}

/// Settles the fields of the machine's system: `os_mount`, `os_arch`, `os_version`, `osv` and `rootfs`.
fn settle_system(fields: &mut Fields, kind: TboxType) -> Result<(), BadJob> {
    let mount = match (kind, word(fields, "os_mount")?) {
        (TboxType::Dc, _) => "container".to_owned(),
        (_, None) => OS_MOUNTS[0].to_owned(),
        (_, Some(mount)) if OS_MOUNTS.contains(&mount.as_str()) => mount,
        (_, Some(mount)) => {
            return Err(bad_field("os_mount", format!("'{mount}' is not one of {}", OS_MOUNTS.join(", "))));
        }
    };
    if let Some(arch) = word(fields, "arch")? {
        fields.entry("os_arch").or_insert_with(|| arch.into());
    }
    let mut version = word(fields, "os_version")?.unwrap_or_default();
    if mount == "local" && !version.ends_with("-iso") {
        version.push_str("-iso");
        fields.insert("os_version".to_owned(), version.clone().into());
    }
    let os = word(fields, "os")?.unwrap_or_default();
    fields.insert("os_mount".to_owned(), mount.into());
    fields.insert("osv".to_owned(), format!("{os}@{version}").into());
    fields.insert("rootfs".to_owned(), rootfs(fields).into());
    Ok(())
}

fn check_types(fields: &Fields) -> Result<(), BadJob> {
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let Some(&(expect, _)) = TYPES.iter().find(|(_, names)| has_name(names, name)) else { continue };
        let is_expected = match expect {
            "integer" => value.is_i64() || scalar(value).is_some_and(|text| text.parse::<i64>().is_ok()),
            "string" => scalar(value).is_some(),
            "array" => value.as_array().is_some_and(|all| all.iter().all(|entry| scalar(entry).is_some())),
            "hash" => value.is_object(),
            _ => value.is_object(),
        };
        if !is_expected {
            return Err(bad_type(name, expect, value));
        }
        let mut inner = value.as_object().filter(|_| expect == HASHES).into_iter().flatten();
        if let Some((key, other)) = inner.find(|(_, inner)| !inner.is_null() && !inner.is_object()) {
            return Err(bad_type(&format!("{name}.{key}"), "hash", other));
        }
    }
    for (name, why) in UNSUPPORTED {
        if fields.get(name).is_some_and(|value| !value.is_null()) {
            return Err(bad_field(name, why));
        }
    }
    check_packages(fields)?;
    if fields.contains_key("cache_dir") {
        return Err(bad_field("cache_dir", "is not a field; did you mean cache_dirs?"));
    }
    Ok(())
}

/// Refuses packages that are to be built, unless the job names what was built of them.
fn check_packages(fields: &Fields) -> Result<(), BadJob> {
    let Some(package) = fields.get("ss").and_then(Value::as_object).and_then(|all| all.keys().next()) else {
        return Ok(());
    };
    let files = fields.get("need_file_store").and_then(texts).unwrap_or_default();
    let has_kernel = fields.get("kernel_uri").is_some_and(|uri| !uri.is_null());
    if has_kernel || files.iter().any(|file| file.starts_with(BUILT)) {
        return Ok(());
    }
    let why = format!(
        "is not supported, for the server builds no packages: build {package}, and give its files in \
         need_file_store as {BUILT}pkgbuild/…"
    );
    Err(bad_field("ss", why))
}

/// A field with one word; `None` if it is absent or empty.
fn word(fields: &Fields, key: &str) -> Result<Option<String>, BadJob> {
    let Some(text) = text_of(fields, key).filter(|text| !text.is_empty()) else { return Ok(None) };
    if text.len() > NAME_BYTES_MAX || text.chars().any(char::is_control) {
        return Err(bad_field(key, format!("must be a word of up to {NAME_BYTES_MAX} bytes")));
    }
    Ok(Some(text))
}

/// A field with a list of names; `None` if it is absent or empty.
fn named(fields: &Fields, key: &str) -> Result<Option<BTreeSet<String>>, BadJob> {
    let Some(value) = fields.get(key) else { return Ok(None) };
    let all = texts(value).ok_or_else(|| bad_type(key, "array", value))?;
    let fits =
        |text: &String| (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    if all.len() > NEEDS_PER_STEP_MAX {
        return Err(bad_field(key, format!("has {} entries, more than {NEEDS_PER_STEP_MAX}", all.len())));
    }
    match all.iter().find(|text| !fits(text)) {
        Some(_) => Err(bad_field(key, format!("must be words of up to {NAME_BYTES_MAX} bytes"))),
        None => Ok(Some(all.into_iter().collect()).filter(|all: &BTreeSet<String>| !all.is_empty())),
    }
}

/// The named machines that belong to the testbox; `None` is any machine that it allows.
fn resolve(testbox: &Testbox, named: Option<BTreeSet<String>>) -> Result<Option<BTreeSet<String>>, BadJob> {
    let named = named.filter(|all| !all.contains(ANY));
    let is_testbox = |machine: &String| match &testbox.machine {
        Some(one) => machine == one,
        None => testbox.is_any() || group_of(machine) == testbox.group,
    };
    match (named, &testbox.machine) {
        (None, one) => Ok(one.clone().map(|one| BTreeSet::from([one]))),
        (Some(all), _) => {
            let left: BTreeSet<String> = all.into_iter().filter(is_testbox).collect();
            if left.is_empty() { Err(BadJob::NoMachine(testbox.name.clone())) } else { Ok(Some(left)) }
        }
    }
}

/// Devices by `sched: {devices: […]}`, `sched.devices` or `devices`.
fn devices_of(fields: &Fields) -> Result<BTreeSet<String>, BadJob> {
    let mut all = BTreeSet::new();
    if let Some(sched) = fields.get("sched").and_then(Value::as_object) {
        all.extend(named(sched, "devices")?.unwrap_or_default());
    }
    for key in ["sched.devices", "devices"] {
        all.extend(named(fields, key)?.unwrap_or_default());
    }
    Ok(all)
}

/// The cache directories that it reads: paths whose first character is the depth at which a cache is evicted whole.
fn cache_dirs_of(fields: &Fields) -> Result<BTreeSet<String>, BadJob> {
    let Some(all) = fields.get("cache_dirs").and_then(texts) else { return Ok(BTreeSet::new()) };
    if all.len() > CACHES_PER_STEP_MAX {
        return Err(bad_field(
            "cache_dirs",
            format!("has {} entries, more than {CACHES_PER_STEP_MAX}", all.len()),
        ));
    }
    for dir in &all {
        let mut start = dir.chars();
        let prefix = start.next().is_some_and(|c| c.is_ascii_digit()) && start.next() == Some('-');
        let why = if !prefix {
            "must begin with a prefix in the format '[0-9]-'"
        } else if dir.ends_with('/') {
            "must not end with a '/'"
        } else if dir.contains("..") {
            "must not contain '..'"
        } else if dir.len() > NAME_BYTES_MAX {
            "is too long"
        } else if !dir.chars().all(|c| c.is_ascii_alphanumeric() || "/%@=._-".contains(c)) {
            "is not a valid path name"
        } else {
            continue;
        };
        return Err(bad_field("cache_dirs", format!("'{dir}' {why}")));
    }
    Ok(all.into_iter().collect())
}

/// Bytes of memory: the largest amount in any field. The name of a bare-metal machine is not one of them: it says what
/// the machine has, and not what the job needs.
fn memory_of(fields: &Fields, testbox: &Testbox) -> Result<u64, BadJob> {
    let guest = testbox.kind != TboxType::Hw;
    let mut most = testbox.memory.filter(|_| guest).unwrap_or(0);
    let hw = fields.get("hw").and_then(Value::as_object).filter(|_| guest);
    let said = ["need_memory", "memory_minimum"].map(|key| (key, text_of(fields, key)));
    for (key, text) in said.into_iter().chain([("hw.memory", hw.and_then(|hw| text_of(hw, "memory")))]) {
        let Some(text) = text else { continue };
        let bytes = parse_memory(&text);
        most = most.max(
            bytes.ok_or_else(|| bad_field(key, format!("'{text}' is not an amount such as 8g or 512m")))?,
        );
    }
    Ok(most)
}

/// Seconds that it may run: its timeout, or its run time with some room for setup and upload.
fn timeout_of(fields: &Fields) -> Result<u64, BadJob> {
    let seconds = |key: &str, text: String| {
        parse_seconds(&text)
            .ok_or_else(|| bad_field(key, format!("'{text}' is not a time such as 300, 5m or 2h")))
    };
    let pp = fields.get("pp").and_then(Value::as_object);
    let slept = pp.and_then(|pp| pp.get("sleep")).and_then(Value::as_object);
    let slept = slept.and_then(|sleep| text_of(sleep, "runtime"));
    let slept = slept.map(|text| seconds("pp.sleep.runtime", text)).transpose()?;
    let mut runtime = text_of(fields, "runtime").map(|text| seconds("runtime", text)).transpose()?;
    if runtime.is_none() {
        for (program, params) in pp.into_iter().flatten() {
            let Some(text) = params.as_object().and_then(|params| text_of(params, "runtime")) else {
                continue;
            };
            let more = seconds(&format!("pp.{program}.runtime"), text)?;
            runtime = Some(runtime.unwrap_or(0).saturating_add(more));
        }
    }
    let runtime = runtime.filter(|runtime| *runtime > 0);
    let timeout = text_of(fields, "timeout").map(|text| seconds("timeout", text)).transpose()?;
    let with_room =
        |runtime: u64| runtime.saturating_add((runtime / 8).max(300)).saturating_add(runtime.isqrt());
    let mut longest = u64::MAX;
    if fields.contains_key("ssh_pub_key")
        && let Some(borrowed) = slept.or(runtime).or(timeout)
    {
        if borrowed > BORROW_S_MAX {
            let why = "a machine is borrowed for at most 30 days; then borrow it again";
            return Err(bad_field("runtime", why));
        }
        // Clients add a time limit of twice the run time.
        longest = with_room(borrowed);
    }
    Ok(match (timeout, runtime) {
        (Some(0), _) => return Err(bad_field("timeout", "must be more than 0")),
        (Some(timeout), _) => timeout.min(longest),
        (None, Some(runtime)) => with_room(runtime),
        (None, None) => TIMEOUT_S,
    })
}
