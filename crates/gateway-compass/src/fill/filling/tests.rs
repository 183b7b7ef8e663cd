//! Fields that are filled in, by the files of a small laboratory.

use super::*;
use crate::record::Reached;
use serde_json::json;
use std::os::unix::fs::symlink;

fn place(memory_gb: u64) -> BookedHost {
    BookedHost {
        host: "h1".to_owned(),
        hw: false,
        dc: false,
        attempt: 1,
        epoch: 1,
        memory: memory_gb << 30,
        token: "secret-token".to_owned(),
        timeout_s: 900,
        reached: Reached { server: "10.0.0.1:7117".to_owned(), ..Reached::default() },
    }
}

fn lab() -> (tempfile::TempDir, LabDir) {
    let dir = tempfile::tempdir().unwrap();
    let put = |path: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "x").unwrap();
    };
    for path in [
        "file-store/boot2os/x86_64/debian@12/vmlinuz-6.1.0-31-amd64",
        "file-store/boot2os/x86_64/debian@12/modules-6.1.0-31-amd64.cgz",
        "file-store/docker2os/x86_64/debian@12.cgz",
        "file-store/busybox/x86_64/busybox-static.cgz",
        "os/openeuler/aarch64/22.03/boot/vmlinuz-5.10",
        "os/openeuler/aarch64/22.03/initrd.lkp",
        "initrd/deps/initramfs/debian/x86_64/12/lkp/lkp.cgz",
        "initrd/deps/initramfs/debian/x86_64/12/iperf/iperf.cgz",
        "initrd/pkg/initramfs/debian/x86_64/12/iperf/latest.cgz",
        "initrd/osimage/debian/x86_64/12/20210609.0.cgz",
    ] {
        put(path);
    }
    let boot = dir.path().join("file-store/boot2os/x86_64/debian@12");
    symlink("vmlinuz-6.1.0-31-amd64", boot.join("vmlinuz")).unwrap();
    symlink("20210609.0.cgz", dir.path().join("initrd/osimage/debian/x86_64/12/current")).unwrap();
    symlink("vmlinuz-5.10", dir.path().join("os/openeuler/aarch64/22.03/boot/vmlinuz")).unwrap();
    let open = LabDir::open(dir.path()).unwrap();
    (dir, open)
}

fn job(more: Value) -> Fields {
    let mut job = json!({"suite": "iperf", "testbox": "vm-2p8g", "os": "debian", "os_version": "12",
        "os_arch": "x86_64", "os_mount": "initramfs"});
    job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    job.as_object().unwrap().clone()
}

fn fill(
    fields: &Fields,
    place: &BookedHost,
    testbox: &Value,
    dir: Option<&LabDir>,
) -> Result<Value, Unfilled> {
    let nothing = Fields::new();
    let testbox = testbox.as_object().unwrap_or(&nothing);
    let filling = Filling { job: JobId(7), fields, place, arch: Some("x86_64"), testbox, dir, url: None };
    filling.fill().map(Value::Object)
}

const S: &str = "http://10.0.0.1:7117/srv";

#[test]
fn a_virtual_machine_gets_all_that_it_boots() {
    let (_dir, lab) = lab();
    let fields = job(json!({"pp": {"iperf-2": {"runtime": 30}, "none": null},
        "need_file_store": ["lkp_src/base/2025-02-28/abc.cgz", "lkp_src/delta/2025-02-28/abc-d.cgz"]}));
    let filled = fill(&fields, &place(8), &Value::Null, Some(&lab)).unwrap();
    let kernel = format!("{S}/file-store/boot2os/x86_64/debian@12/vmlinuz-6.1.0-31-amd64");
    assert_eq!(
        (&filled["kernel_uri"], &filled["kernel_version"]),
        (&json!(kernel), &json!("6.1.0-31-amd64"))
    );
    assert_eq!(filled["modules_uri"][0], kernel.replace("vmlinuz", "modules") + ".cgz");
    let initrds = [
        "initrd/osimage/debian/x86_64/12/20210609.0.cgz",
        "file-store/docker2os/x86_64/debian@12.cgz",
        "file-store/busybox/x86_64/busybox-static.cgz",
        "initrd/deps/initramfs/debian/x86_64/12/lkp/lkp.cgz",
        "initrd/deps/initramfs/debian/x86_64/12/iperf/iperf.cgz",
        "initrd/pkg/initramfs/debian/x86_64/12/iperf/latest.cgz",
        "file-store/lkp_src/base/2025-02-28/abc.cgz",
        "file-store/lkp_src/delta/2025-02-28/abc-d.cgz",
        "scheduler/pending-jobs/7/job.cgz",
    ];
    assert_eq!(filled["initrds_uri"], json!(initrds.map(|path| format!("{S}/{path}"))));
    let params = "user=lkp job=/lkp/scheduled/job.yaml ip=dhcp rootovl ro console=tty0 console=ttyS0,115200";
    assert_eq!(filled["kernel_params"], json!(params.split(' ').collect::<Vec<_>>()));
    assert_eq!((&filled["hw"]["nr_cpu"], &filled["hw"]["memory"]), (&json!("2"), &json!("8192")));
    let services = json!({"sched_host": "10.0.0.1", "sched_port": "7117", "result_host": "10.0.0.1",
        "result_port": "7117"});
    assert_eq!(filled["services"], services);
    assert!(!filled.to_string().contains("secret-token"));
}

#[test]
fn a_machine_gets_its_root_from_the_network_and_its_hardware_from_its_file() {
    let (_dir, lab) = lab();
    let metal = json!({"testbox": "box1", "os": "openeuler", "os_version": "22.03", "os_arch": "aarch64",
        "os_mount": "nfs", "boot_params": {"bp1_quiet": null, "bp_trace": "x", "crash": 1},
        "kernel_custom_params": " a=1  b ", "local_mount_repo_name": "r1", "bootstrap_mount_repo_name": "r2"});
    let file = json!({"nr_cpu": 64, "memory": "256G", "rootfs_disk": ["/dev/sda", "/dev/sdb"], "ipmi_ip": "1.2.3.4"});
    let filled = fill(&job(metal), &place(0), &file, Some(&lab)).unwrap();
    assert_eq!(filled["kernel_uri"], format!("{S}/os/openeuler/aarch64/22.03/boot/vmlinuz-5.10"));
    assert!(filled.get("modules_uri").is_none());
    let initrds = ["os/openeuler/aarch64/22.03/initrd.lkp", "scheduler/pending-jobs/7/job.cgz"];
    assert_eq!(filled["initrds_uri"], json!(initrds.map(|path| format!("{S}/{path}"))));
    let params: Vec<&str> =
        filled["kernel_params"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let root =
        "rootovl ro quiet trace=x crash=1 a=1 b root=10.0.0.1:/srv/os/openeuler/aarch64/22.03 console=tty0";
    assert!(params.join(" ").contains(root), "{params:?}");
    let hw = json!({"nr_cpu": "64", "memory": "256G", "rootfs_disk": "/dev/sda\n/dev/sdb"});
    assert_eq!(
        (&filled["hw"], &filled["crashkernel"], &filled["mount_repo_name"]),
        (&hw, &json!("512M"), &json!("r1 r2"))
    );
}

#[test]
fn what_the_author_wrote_stays() {
    let own = json!({"kernel_uri": "http://os/k", "kernel_params": ["a"], "modules_uri": ["http://os/m"],
        "initrds_uri": ["http://os/i", "http://old/srv/scheduler/pending-jobs/3/job.cgz"], "crashkernel": "1M"});
    let filled = fill(&job(own), &place(8), &json!({"memory": "4G"}), None).unwrap();
    for kept in ["kernel_uri", "modules_uri", "crashkernel"] {
        assert!(filled.get(kept).is_none(), "{kept}");
    }
    assert_eq!(filled["kernel_params"], json!(["a"]));
    assert_eq!(
        filled["initrds_uri"],
        json!(["http://os/i", format!("{S}/scheduler/pending-jobs/7/job.cgz")])
    );
    // A kernel of its packages goes before.
    let built = job(json!({"kernel_uri": "http://os/k", "need_file_store": ["ss/pkgbuild/linux/x/vmlinuz"]}));
    let filled = fill(&built, &place(8), &Value::Null, None).unwrap();
    assert_eq!(filled["kernel_uri"], format!("{S}/file-store/ss/pkgbuild/linux/x/vmlinuz"));
}

#[test]
fn a_host_says_how_it_reaches_the_scheduler() {
    let mut there = place(8);
    let said = [("sched_host", "gate"), ("sched_port", "80"), ("sshr_port", "22")];
    there.reached.services = said.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let container = job(json!({"testbox": "dc-8g", "os_mount": "container"}));
    let filled = fill(&container, &there, &Value::Null, None).unwrap();
    assert_eq!(filled["initrds_uri"], json!(["http://gate:80/srv/scheduler/pending-jobs/7/job.cgz"]));
    assert_eq!(filled["services"]["sshr_port"], "22");
    assert!(filled.get("kernel_params").is_none() && filled.get("kernel_uri").is_none());
    assert_eq!(url_path("a b/%/é@1"), "a%20b/%25/%C3%A9@1");
}

#[test]
fn what_is_missing_is_named() {
    let (_dir, lab) = lab();
    let why = |more: Value, dir| fill(&job(more), &place(8), &Value::Null, dir).unwrap_err().to_string();
    assert!(why(json!({}), None).contains("srv of [compass]"));
    let other = why(json!({"os_version": "13"}), Some(&lab));
    assert!(
        other.contains("file-store/boot2os/x86_64/debian@13/vmlinuz nor os/debian/x86_64/13/boot/vmlinuz"),
        "{other}"
    );
    let version = why(json!({"kernel_version": "7"}), Some(&lab));
    assert!(version.contains("vmlinuz-7 nor"), "{version}");
    let nfs = why(json!({"os_mount": "nfs"}), Some(&lab));
    assert!(nfs.contains("os/debian/x86_64/12/initrd.lkp is not in"), "{nfs}");
    assert!(why(json!({"os": "../../..", "os_version": ".."}), Some(&lab)).contains("no kernel"));
}
