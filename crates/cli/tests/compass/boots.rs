//! Machines that boot and run jobs by what the scheduler tells them alone: no job here names a kernel or an archive.

use super::lab::{Lab, Provider};
use crate::support::wait_until;
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::Command;

const NOTHING: Value = Value::Null;
const SECRET: &str = "open-sesame-4711";
const KERNEL: &str = "file-store/boot2os/aarch64/debian@12/vmlinuz-6.1.0-31-arm64";
const MODULES: &str = "file-store/boot2os/aarch64/debian@12/modules-6.1.0-31-arm64.cgz";
const IMAGE: &str = "file-store/docker2os/aarch64/debian@12.cgz";
const TOOLS: &str = "file-store/busybox/aarch64/busybox-static.cgz";
const LKP: &str = "file-store/lkp_src/base/2025-02-28/abc.cgz";
const FILES: [&str; 7] = [
    KERNEL,
    MODULES,
    IMAGE,
    TOOLS,
    LKP,
    "os/openeuler/aarch64/22.03/boot/vmlinuz",
    "os/openeuler/aarch64/22.03/initrd.lkp",
];

/// A laboratory with the files of two systems.
fn lab() -> Lab {
    let lab = Lab::with_files("", &FILES);
    let link = lab.farm.path().join("srv/file-store/boot2os/aarch64/debian@12/vmlinuz");
    std::os::unix::fs::symlink("vmlinuz-6.1.0-31-arm64", link).unwrap();
    lab
}

/// A job as clients submit it.
fn plain_job(testbox: &str, more: &Value) -> Value {
    let mut job = json!({
        "suite": "iperf", "testbox": testbox, "os": "debian", "os_version": "12", "os_arch": "aarch64",
        "my_account": "ann", "my_email": "ann@example.org", "my_token": "t", "docker_image": "debian:12",
        "need_file_store": ["lkp_src/base/2025-02-28/abc.cgz"], "secrets": {"password": SECRET},
        "pp": {"iperf": {"protocol": "tcp"}},
        "program": {"zeta": {"protocol": "tcp"}, "iperf": {"if": "[ \"$suite\" = iperf ]", "protocol": "udp"}},
        "section_order": {"program": ["zeta", "iperf"]},
    });
    job.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    job
}

/// The path of a URL of this server.
fn path_of<'a>(lab: &Lab, url: &'a str) -> &'a str {
    url.strip_prefix(&format!("http://{}", lab.address)).unwrap_or_else(|| panic!("{url} is elsewhere"))
}

/// Fetches as a boot loader does, which shows nothing.
fn fetch(lab: &Lab, url: &str) -> Vec<u8> {
    let (status, head, body) = lab.ask_bytes("GET", path_of(lab, url), "", b"");
    assert_eq!(status, 200, "{url}: {}", String::from_utf8_lossy(&body));
    assert!(!head.to_ascii_lowercase().contains("last-modified"), "{head}");
    body
}

/// Names and contents of an archive in the format newc.
fn unpack(compressed: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let (mut bytes, mut at, mut found) = (Vec::new(), 0, BTreeMap::new());
    GzDecoder::new(compressed).read_to_end(&mut bytes).unwrap();
    loop {
        let number = |n: usize| {
            let digits = std::str::from_utf8(&bytes[at + 6 + 8 * n..at + 14 + 8 * n]).unwrap();
            usize::from_str_radix(digits, 16).unwrap()
        };
        let (size, name_size) = (number(6), number(11));
        let name = String::from_utf8(bytes[at + 110..at + 109 + name_size].to_vec()).unwrap();
        let contents = (at + 110 + name_size).next_multiple_of(4);
        if name == "TRAILER!!!" {
            return found;
        }
        at = (contents + size).next_multiple_of(4);
        found.insert(name, bytes[contents..contents + size].to_vec());
    }
}

/// The fields that a machine reads.
fn yaml_of(files: &BTreeMap<String, Vec<u8>>) -> Value {
    serde_saphyr::from_str(std::str::from_utf8(&files["lkp/scheduled/job.yaml"]).unwrap()).unwrap()
}

/// Runs `job.sh run_job` with programs that do nothing but tell; returns what they say.
fn run_job(dir: &Path, files: &BTreeMap<String, Vec<u8>>) -> String {
    let lib = dir.join("src/lib");
    std::fs::create_dir_all(&lib).unwrap();
    let script = dir.join("job.sh");
    std::fs::write(&script, &files["lkp/scheduled/job.sh"]).unwrap();
    std::fs::write(lib.join("http.sh"), "").unwrap();
    std::fs::write(lib.join("job.sh"), "read_job_vars\n").unwrap();
    let env = "run_program() { echo \"$1 $protocol $job_id $result_root $sched_port $job_token\"; }\n";
    std::fs::write(lib.join("env.sh"), env).unwrap();
    let mut shell = Command::new("sh");
    shell.arg(&script).arg("run_job").env("LKP_SRC", dir.join("src")).env("TMP", dir);
    let output = shell.output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Uploads as a machine does; returns the status and the answer.
fn upload(lab: &Lab, job: &Value, path: &str, body: &[u8]) -> (u16, String) {
    let (id, token) = (job["job_id"].as_str().unwrap(), job["job_token"].as_str().unwrap());
    let (status, _, said) = lab.ask_bytes(
        "POST",
        &format!("{path}?job_id={id}&job_token={token}"),
        "Expect: 100-continue\r\n",
        body,
    );
    (status, String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_virtual_machine_boots_and_runs_a_job_that_names_no_kernel() {
    let mut lab = lab();
    let id = lab.submit(&plain_job("vm-2p8g", &NOTHING));
    let mut provider = Provider::open(&lab, "h1", 32_000, &NOTHING);
    let boot = provider.boot();
    assert_eq!((&boot["job_id"], &boot["tbox_type"]), (&json!(id), &json!("vm")));
    let script = boot["ipxe_script"].as_str().unwrap();
    let initrds: Vec<&str> = script.lines().filter_map(|line| line.strip_prefix("initrd ")).collect();
    let kernel = script.lines().find_map(|line| line.strip_prefix("kernel ")).unwrap();
    let (kernel, params) = kernel.split_once(' ').unwrap();
    assert_eq!(fetch(&lab, kernel), KERNEL.as_bytes());
    for (url, file) in initrds.iter().zip([IMAGE, MODULES, TOOLS, LKP]) {
        assert_eq!(fetch(&lab, url), file.as_bytes());
        assert!(params.contains(&format!("initrd={}", file.rsplit('/').next().unwrap())), "{params}");
    }
    assert!(
        params.starts_with("user=lkp job=/lkp/scheduled/job.yaml ip=dhcp rootovl ro console=tty0"),
        "{params}"
    );
    assert!(params.ends_with(" initrd=job.cgz"), "{params}");
    assert_eq!(lab.job(&id)["job_stage"], "dispatch");
    // What it fetches last is there after a restart of the server, too, and puts the job into the next stage.
    lab.crash();
    let files = unpack(&fetch(&lab, initrds[4]));
    lab.wait_for(&id, "boot");
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    let expected = [
        "lkp",
        "lkp/scheduled",
        "lkp/scheduled/job.sh",
        "lkp/scheduled/job.yaml",
        "lkp/scheduled/secrets.yaml",
    ];
    assert_eq!(names, expected);
    let secrets = String::from_utf8(files["lkp/scheduled/secrets.yaml"].clone()).unwrap();
    assert_eq!(secrets, format!("---\nmy_email: ann@example.org\npassword: {SECRET}\n"));
    let yaml: Value = yaml_of(&files);
    assert_eq!(
        (&yaml["hw"]["memory"], &yaml["services"]["sched_host"]),
        (&json!("8192"), &json!("127.0.0.1"))
    );
    assert!(yaml.get("secrets").is_none() && yaml.get("sealed_secrets").is_none());
    let (root, token) = (boot["result_root"].as_str().unwrap(), boot["job_token"].as_str().unwrap());
    let port = lab.address.rsplit(':').next().unwrap().to_owned();
    let said = run_job(&lab.farm.work(), &files);
    let lines = ["zeta tcp", "iperf udp"].map(|first| format!("{first} {id} {root} {port} {token}\n"));
    assert_eq!(said, lines.concat());
    finish(&lab, &boot);
}

/// Results come in, are read, and the job ends with them.
fn finish(lab: &Lab, boot: &Value) {
    let (id, root) = (boot["job_id"].as_str().unwrap(), boot["result_root"].as_str().unwrap());
    let big = "x".repeat(3 << 20);
    assert_eq!(upload(lab, boot, &format!("{root}/a%20dir/output"), big.as_bytes()).0, 200);
    assert_eq!(lab.get(&format!("/srv{root}/a%20dir/output")), (200, big));
    let (status, head, body) = lab.ask_bytes("HEAD", &format!("/srv{root}/a%20dir/output"), "", b"");
    assert!(
        status == 200 && body.is_empty() && head.to_ascii_lowercase().contains("content-length: 3145728"),
        "{head}"
    );
    let token = boot["job_token"].as_str().unwrap();
    assert_eq!(lab.update(id, &format!("job_stage=finish&job_health=success&job_token={token}")).0, 200);
    assert_eq!(lab.update(id, &format!("job_data_readiness=uploaded&job_token={token}")).0, 200);
    let late = upload(lab, boot, &format!("{root}/late"), b"x");
    assert_eq!(late, (423, "Job data already uploaded".to_owned()));
    // A provider brings the console when its guest is gone.
    assert_eq!(upload(lab, boot, &format!("{root}/console.log"), b"boot").0, 200);
    assert_eq!(upload(lab, boot, &format!("{root}/console.log"), b"other").0, 409);
    lab.wait_for_state(id, "succeeded");
    let archive = format!("/srv/scheduler/pending-jobs/{id}/{token}/job.cgz");
    assert_eq!(lab.get(&archive).0, 423, "its secrets are given to nobody any more");
}

#[test]
fn a_container_gets_whole_gibibytes_and_its_archives() {
    let lab = lab();
    lab.submit(&plain_job("dc-8g", &json!({"hw": {"nr_cpu": 4}, "os_version": "any"})));
    let services = json!({"services": {"sched_host": "127.0.0.1", "sched_port": lab.address.rsplit(':').next(),
        "result_host": "results"}});
    let mut provider = Provider::open(&lab, "h1", 32_000, &services);
    let boot = provider.boot();
    assert_eq!(
        (&boot["memory"], &boot["nr_cpu"], &boot["docker_image"]),
        (&json!("8"), &json!("4"), &json!("debian:12"))
    );
    let initrds: Vec<String> = serde_json::from_str(boot["initrds"].as_str().unwrap()).unwrap();
    assert_eq!(fetch(&lab, &initrds[0]), LKP.as_bytes());
    let files = unpack(&fetch(&lab, &initrds[1]));
    let script = String::from_utf8(files["lkp/scheduled/job.sh"].clone()).unwrap();
    assert!(script.contains("set_job_var result_host 'results'\n"), "{script}");
    assert_eq!(initrds.len(), 2);
    finish(&lab, &boot);
}

#[test]
fn bare_metal_is_known_by_its_address_or_its_name() {
    let lab = lab();
    lab.register(&json!({"hostname": "box1", "arch": "aarch64", "ip": "10.1.2.3", "memory": "64G",
        "mac_addr": ["aa-bb-cc-dd-ee-01"], "rootfs_disk": ["/dev/sda", "/dev/sdb"]}));
    let (status, text) = lab.get("/scheduler/v1/jobs/dispatch?hostname=box2&ip=10.9.9.9");
    assert!(status == 404 && text.contains("this machine is not registered"), "{text}");
    let more = json!({"os": "openeuler", "os_version": "22.03", "os_mount": "nfs"});
    for path in [
        "/boot.ipxe/mac/aa:bb:cc:dd:ee:01?arch=arm64",
        "/scheduler/v1/jobs/dispatch?mac=00-00-00-00-00-00&hostname=box1",
        "/boot.ipxe/ip/10.1.2.3",
    ] {
        let id = lab.submit(&plain_job("box1", &more));
        let (status, script) = lab.get(path);
        assert_eq!(status, 200, "{path}: {script}");
        let kernel = script.lines().find(|line| line.starts_with("kernel ")).unwrap();
        assert!(kernel.contains("root=127.0.0.1:/srv/os/openeuler/aarch64/22.03 "), "{kernel}");
        assert!(kernel.ends_with("rootfs_disk=/dev/sda./dev/sdb crashkernel=512M"), "{kernel}");
        let urls: Vec<&str> = script.lines().filter_map(|line| line.strip_prefix("initrd ")).collect();
        assert_eq!(fetch(&lab, urls[0]), b"os/openeuler/aarch64/22.03/initrd.lkp");
        // Its address alone is not enough, unless that is set.
        assert_eq!(lab.get(&format!("/srv/scheduler/pending-jobs/{id}/job.cgz")).0, 401);
        let files = unpack(&fetch(&lab, urls[2]));
        let yaml: Value = yaml_of(&files);
        let boot = json!({"job_id": id, "job_token": yaml["job_token"], "result_root": yaml["result_root"]});
        assert_eq!(urls.len(), 3);
        finish(&lab, &boot);
    }
    let id = lab.submit(&plain_job("box1", &more));
    let (_, text) = lab.get("/boot.native/mac/aa-bb-cc-dd-ee-01");
    let native: Value = serde_json::from_str(&text).unwrap();
    assert!(
        native["job_id"] == json!(id) && native["initrds"].as_str().unwrap().contains("/job.cgz"),
        "{text}"
    );
    let (_, text) = lab.get("/boot.libvirt/mac/aa-bb-cc-dd-ee-01");
    let libvirt: Value = serde_json::from_str(&text).unwrap();
    assert!(libvirt["job_id"] == json!(id) && libvirt["LKP_SERVER"] == "127.0.0.1", "{text}");
}

#[test]
fn where_tokens_are_asked_for_a_bare_machine_is_known_by_its_address() {
    let lab =
        Lab::with_files_and_flags("trust_addresses = true", &FILES, &["--auth", "--insecure-plaintext"]);
    let socket = format!("unix:{}", lab.farm.state().join("admin.sock").display());
    let token = |flags: &[&str]| {
        lab.farm.ok(&[&["--server", &socket, "token", "create"], flags].concat()).trim().to_owned()
    };
    let (ann, box1) =
        (token(&["--role", "user", "--user", "ann"]), token(&["--role", "worker", "--worker", "box1"]));
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let host = json!({"hostname": "box1", "arch": "aarch64", "mac_addr": ["aa-bb-cc-dd-ee-01"]});
    assert_eq!(lab.ask("POST", "/scheduler/v1/hosts/box1", &bearer(&box1), &host.to_string()).0, 200);
    let more = json!({"os": "openeuler", "os_version": "22.03", "os_mount": "nfs", "my_token": ann});
    let id = lab.submit(&plain_job("box1", &more));
    let (status, script) = lab.ask("GET", "/boot.ipxe/mac/aa-bb-cc-dd-ee-01", &bearer(&box1), "");
    assert_eq!(status, 200, "{script}");
    // Nothing that follows shows a token of the server, as neither boot loaders nor scripts have one.
    let urls: Vec<&str> = script.lines().filter_map(|line| line.strip_prefix("initrd ")).collect();
    assert_eq!(fetch(&lab, urls[0]), b"os/openeuler/aarch64/22.03/initrd.lkp");
    let (status, _, archive) =
        lab.ask_bytes("GET", &format!("/srv/scheduler/pending-jobs/{id}/job.cgz"), "", b"");
    assert_eq!(status, 200);
    let yaml = yaml_of(&unpack(&archive));
    let root = yaml["result_root"].as_str().unwrap();
    assert_eq!(lab.update(&id, "job_stage=running"), (200, String::new()));
    assert_eq!(lab.ask("POST", &format!("{root}/out?job_id={id}"), "", "result").0, 200);
    // Results are for those who may look.
    let out = format!("/srv{root}/out");
    assert_eq!(lab.get(&out).0, 401);
    assert_eq!(
        lab.get(&format!("{out}?job_id={id}&job_token={}", yaml["job_token"].as_str().unwrap())).0,
        200
    );
    assert_eq!(lab.ask("GET", &out, &bearer(&ann), ""), (200, "result".to_owned()));
    assert_eq!(lab.get(&format!("/srv/result/other?job_id={id}")).0, 401);
    assert_eq!(lab.update(&id, "job_stage=finish&job_data_readiness=uploaded"), (200, String::new()));
    assert_eq!(lab.update(&id, "job_step=x").0, 423);
}

#[test]
fn a_job_without_a_kernel_says_what_is_missing() {
    let lab = Lab::with_files("", &[]);
    let id = lab.submit(&plain_job("vm-2p8g", &json!({"need_file_store": []})));
    let _provider = Provider::open(&lab, "h1", 32_000, &NOTHING);
    lab.wait_for(&id, "finish");
    let seen = lab.job(&id);
    assert_eq!(seen["job_health"], "abort_invalid");
    let why = seen["job_error"].as_str().unwrap();
    assert!(
        why.contains("file-store/boot2os/aarch64/debian@12/vmlinuz nor os/debian/aarch64/12/boot/vmlinuz"),
        "{why}"
    );
    lab.wait_for_state(&id, "failed");
    let without = Lab::open(&[]);
    let (status, why) = without.refused(&plain_job("vm-2p8g", &json!({"need_file_store": []})));
    assert!(status == 400 && why.contains("set srv of [compass]"), "{why}");
}

#[test]
fn secrets_are_nowhere_but_in_the_archive() {
    let lab = lab();
    let id = lab.submit(&plain_job("vm-2p8g", &NOTHING));
    let mut provider = Provider::open(&lab, "h1", 32_000, &NOTHING);
    let boot = provider.boot();
    let token = boot["job_token"].as_str().unwrap();
    let plain = format!("/srv/scheduler/pending-jobs/{id}/job.cgz");
    // A provider's guests come from its address, so that is not enough; neither is another token.
    for path in [
        plain.clone(),
        format!("{plain}?job_token=wrong"),
        plain.replace(&id, "4711"),
        plain.replace(&id, "x"),
    ] {
        assert_eq!(lab.get(&path).0, 401, "{path}");
    }
    for path in [plain.replace("/job.cgz", "/secrets.yaml"), format!("/{id}/secrets.yaml")] {
        assert_eq!(lab.get(&path).0, 404, "{path}");
    }
    for path in
        [format!("{plain}?job_token={token}"), format!("/job_initrd_tmpfs/{id}/job.cgz?job_token={token}")]
    {
        let (status, _, archive) = lab.ask_bytes("GET", &path, "", b"");
        assert_eq!(status, 200, "{path}");
        let secrets = unpack(&archive).remove("lkp/scheduled/secrets.yaml").unwrap();
        assert!(String::from_utf8(secrets).unwrap().contains(SECRET));
    }
    let shown = [
        boot.to_string(),
        lab.job(&id).to_string(),
        lab.windlass(&["job", "show", &id, "-o", "json"]),
        lab.get("/scheduler/v1/dashboard/jobs/running?output=json").1,
        lab.get("/scheduler/v1/debug/dispatch").1,
        lab.log(),
    ];
    for text in shown {
        assert!(!text.contains(SECRET) && !text.contains("sealed_secrets"), "{text}");
    }
    let mut open = vec![lab.farm.path().to_owned()];
    let mut searched = 0;
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().flatten().map(|entry| entry.path()));
        } else if let Ok(bytes) = std::fs::read(&path) {
            searched += 1;
            let found = bytes.windows(SECRET.len()).any(|word| word == SECRET.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
    assert!(searched > 3 && lab.farm.state().join("compass.key").is_file());
    let mode =
        std::os::unix::fs::MetadataExt::mode(&lab.farm.state().join("compass.key").metadata().unwrap());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_laboratory_is_imported_as_often_as_one_likes() {
    let lab = lab();
    let dir = lab.farm.work().join("lab-z9");
    for (file, text) in [
        ("hosts/box1", "nr_cpu: 64\nmemory: 256G\narch: aarch64\nmac_addr: aa:bb:cc:dd:ee:01\n"),
        ("hosts/box2", "mac_addr: [aa-bb-cc-dd-ee-01]\n"),
        ("hosts/vm-2p8g", "provider: qemu\nnr_cpu: 2\nmemory: 8G\nhdd_partitions: /dev/vdb\n"),
        ("hosts/bad", "a: [\n"),
        ("cluster/cs-s1-c2", "ip0: 1\n"),
    ] {
        std::fs::create_dir_all(dir.join(file).parent().unwrap()).unwrap();
        std::fs::write(dir.join(file), text).unwrap();
    }
    for _ in 0..2 {
        let all = lab.windlass_json(&["compass", "import", &dir.display().to_string()]);
        let told: BTreeMap<&str, String> = all
            .as_array()
            .unwrap()
            .iter()
            .map(|one| {
                (one["file"].as_str().unwrap(), one["why"].as_str().unwrap_or("registered").to_owned())
            })
            .collect();
        assert_eq!(
            (told["hosts/box1"].as_str(), told["hosts/vm-2p8g"].as_str()),
            ("registered", "registered")
        );
        assert!(told["hosts/box2"].contains("is the one of host 'box1'"), "{told:?}");
        assert!(
            told["hosts/bad"].contains("not YAML") && told["cluster/cs-s1-c2"].contains("it has no nodes"),
            "{told:?}"
        );
    }
    let hosts = lab.get("/scheduler/v1/dashboard/hosts?output=text&fields=hostname,nr_cpu").1;
    assert!(hosts.contains("box1") && !hosts.contains("vm-2p8g"), "{hosts}");
    // A guest has what its size's file says.
    lab.submit(&plain_job("vm-2p8g", &NOTHING));
    let mut provider = Provider::open(&lab, "h1", 32_000, &NOTHING);
    let id = provider.boots();
    wait_until("the job is filled in", || lab.job(&id)["hw"]["hdd_partitions"] == "/dev/vdb");
}
