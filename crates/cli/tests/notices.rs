//! Notices of jobs that end: webhooks and mail, from the command line to their receivers.

use crate::support::receiver::Receiver;
use crate::support::{Farm, names, wait_until};
use sha2::{Digest, Sha256};

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

/// A server in this directory with settings.
fn server(dir: tempfile::TempDir, settings: &[String]) -> Farm {
    let mut options = vec!["--cpus".to_owned(), "2".to_owned()];
    options.extend(settings.iter().flat_map(|setting| ["--set".to_owned(), setting.clone()]));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    Farm::in_dir(dir, &options)
}

/// HMAC with SHA-256 (RFC 2104), for keys of up to 64 bytes.
fn hmac(key: &[u8], text: &str) -> String {
    let pad = |with: u8| -> Vec<u8> {
        (0..64).map(|place| key.get(place).copied().unwrap_or_default() ^ with).collect()
    };
    let inner: [u8; 32] = Sha256::digest([&pad(0x36)[..], text.as_bytes()].concat()).into();
    let outer: [u8; 32] = Sha256::digest([&pad(0x5c)[..], &inner[..]].concat()).into();
    outer.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_webhook_is_called_after_a_kill_too_and_with_a_signature() {
    let receiver = Receiver::hanging();
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    let settings = [
        format!("notify.allow={}", receiver.host),
        format!("notify.secret={}", secret.display()),
        "notify.url=https://farm.example".to_owned(),
    ];
    let mut farm = server(dir, &settings);
    let url = format!("http://{}/hook", receiver.host);
    farm.ok(&["submit", "--name", "film", "--on-end", &url, "--", "true"]);
    farm.ok(&["submit", "--on-failure", &url, "--", "true"]);
    farm.ok(&["submit", "--on-failure", &url, "--", "sh", "-c", "exit 4"]);
    farm.ok(&["job", "wait", "1"]);
    farm.ok(&["job", "wait", "2"]);
    farm.fails(4, &["job", "wait", "3"]);
    wait_until("the first is tried", || receiver.requests() > 0);
    farm.kill_server();
    receiver.answer();
    farm.start();
    let jobs = || {
        let mut jobs: Vec<u64> =
            receiver.taken().iter().map(|taken| taken.json()["job"].as_u64().unwrap()).collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    };
    wait_until("both are delivered", || jobs().len() == 2);
    assert_eq!(jobs(), [1, 3], "the second did not fail");
    for taken in receiver.taken() {
        let signed = format!("{}.{}", taken.header("windlass-timestamp").unwrap(), taken.body);
        let signature = format!("v1={}", hmac(SECRET, &signed));
        assert_eq!(taken.header("windlass-signature"), Some(signature.as_str()));
        assert_eq!(taken.head[0], "post /hook http/1.1");
        assert_eq!(taken.header("windlass-notice"), taken.json()["id"].as_str());
    }
    let of =
        |job: u64| receiver.taken().iter().map(|taken| taken.json()).find(|json| json["job"] == job).unwrap();
    let film = of(1);
    assert_eq!((film["event"].as_str(), film["name"].as_str()), (Some("job_ended"), Some("film")));
    assert_eq!((film["state"].as_str(), film["counts"]["succeeded"].as_u64()), (Some("succeeded"), Some(1)));
    assert_eq!(film["url"], "https://farm.example/jobs/1");
    assert!(
        film["started_ms"].is_u64() && film["submitted_ms"].as_u64() <= film["ended_ms"].as_u64(),
        "{film}"
    );
    let failed = of(3);
    assert_eq!((failed["state"].as_str(), failed["failure"]["task"].as_str()), (Some("failed"), Some("3.0")));
    assert_eq!(failed["failure"]["exit_code"], 4);
    let shown = farm.json(&["job", "show", "1"]);
    let shown = if shown.is_array() { shown[0].clone() } else { shown };
    assert_eq!(shown["on_end"][0]["url"], url);
}

#[test]
fn the_settings_tell_of_a_user_s_jobs_and_of_all_that_fail() {
    let (of_user, of_failures) = (Receiver::answering(), Receiver::answering());
    let user = own_user();
    let settings = [
        format!("notify.users={user}=http://{}/u", of_user.host),
        format!("notify.failures=http://{}/f", of_failures.host),
    ];
    let farm = server(tempfile::tempdir().unwrap(), &settings);
    farm.ok(&["run", "--", "true"]);
    farm.fails(3, &["run", "--", "sh", "-c", "exit 3"]);
    wait_until("all are told", || (of_user.count(), of_failures.count()) == (2, 1));
    assert_eq!(of_failures.taken()[0].json()["job"], 2);
    assert!(of_user.taken()[0].header("windlass-signature").is_none(), "there is no secret");
}

/// The name of this process's user, as the server knows its own clients.
fn own_user() -> String {
    let output = std::process::Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_mail_is_given_to_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let (script, mails) = (dir.path().join("sendmail"), dir.path().join("mails"));
    std::fs::create_dir(&mails).unwrap();
    let text = format!(
        "echo \"$@\" > {0}/$$.part; cat >> {0}/$$.part; mv {0}/$$.part {0}/$$.mail\n",
        mails.display()
    );
    std::fs::write(&script, text).unwrap();
    let settings = [
        format!("notify.sendmail=/bin/sh {} -t -i", script.display()),
        "notify.mail_from=farm@example.org".to_owned(),
    ];
    let farm = server(dir, &settings);
    let is_sent = || names(&mails).iter().any(|name| name.ends_with(".mail"));
    farm.ok(&["submit", "--name", "film", "--on-end", "mailto:ann@example.org", "--", "true"]);
    wait_until("the mail is there", is_sent);
    farm.ok(&["job", "wait", "last"]);
    let all = names(&mails);
    assert_eq!(all.len(), 1, "{all:?}");
    let mail = std::fs::read_to_string(mails.join(&all[0])).unwrap();
    let headers: Vec<&str> = mail.lines().skip(1).take_while(|line| !line.is_empty()).collect();
    assert_eq!(mail.lines().next(), Some("-t -i"));
    assert!(
        headers.contains(&"To: ann@example.org") && headers.contains(&"From: farm@example.org"),
        "{mail}"
    );
    assert!(headers.contains(&"Subject: windlass: job 1 (film) succeeded"), "{mail}");
}

#[test]
fn a_notice_that_fails_is_told_with_its_job() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let farm = server(tempfile::tempdir().unwrap(), &[format!("notify.allow={nobody}")]);
    let url = format!("http://{nobody}/hook?token=secret");
    farm.ok(&["submit", "--on-end", &url, "--", "true"]);
    farm.ok(&["job", "wait", "1"]);
    let why = || farm.json(&["job", "show", "1"])["notice_failures"][0]["why"].clone();
    wait_until("its failure is told", || why().is_string());
    assert!(why().as_str().unwrap().contains(&format!("'{nobody}' could not be asked")), "{}", why());
    let text = farm.ok(&["job", "show", "1"]);
    assert!(text.contains("not told") && text.contains("could not be asked"), "{text}");
    let log = farm.server_log();
    assert!(log.contains(&nobody) && !log.contains("secret"), "{log}");
}

#[test]
fn an_address_of_the_own_network_and_mail_without_a_command_are_refused() {
    let farm = server(tempfile::tempdir().unwrap(), &[]);
    for (address, why) in [
        ("http://127.0.0.1:9/", "notify.allow"),
        ("http://169.254.169.254/latest/meta-data", "notify.allow"),
        ("http://[::1]/", "notify.allow"),
        ("https://ann:secret@hooks.example/", "a user or a password"),
        ("mailto:ann@example.org", "notify.sendmail"),
        ("ftp://hooks.example/", "neither"),
    ] {
        let output = farm.run(&["submit", "--on-end", address, "--", "true"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{address}: {said}");
        assert!(!said.contains("ann:secret"), "{said}");
    }
    let listed = farm.json(&["jobs"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(0), "{listed}");
}
