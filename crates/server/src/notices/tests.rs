use super::address::BadAddress;
use super::*;
use crate::config::NotifyConfig;
use windlass_core::engine::{Event, Settings, Submit};
use windlass_core::job::{End, JobSpec, OnEnd, StepSpec, TaskResult};
use windlass_core::{RequestId, WorkerId};

fn rules(set: impl FnOnce(&mut NotifyConfig)) -> Result<NoticeRules, String> {
    let mut config = NotifyConfig::default();
    set(&mut config);
    NoticeRules::new(&config).map_err(|why| why.to_string())
}

fn told(to: &str) -> OnEnd {
    OnEnd { to: to.to_owned(), only_failures: false }
}

#[test]
fn users_reach_the_own_network_only_where_an_administrator_lists_it() {
    let rules = rules(|config| {
        config.allow =
            vec!["chat.farm.lan:8080".to_owned(), "[::1]:9000".to_owned(), "10.0.0.7:80".to_owned()];
        config.jobs = vec!["http://127.0.0.1:7000/hook".to_owned()];
    })
    .unwrap();
    for inside in ["http://127.0.0.1:7000/other", "http://10.0.0.7:81/", "http://localhost/", "http://[::1]/"]
    {
        let why = rules.check(&[told(inside)]).expect_err(inside);
        assert!(matches!(why, BadAddress::OwnNetwork(_)), "{inside}: {why}");
    }
    for good in [
        "http://chat.farm.lan:8080/a",
        "http://[::1]:9000/a",
        "http://10.0.0.7/a",
        "http://127.0.0.1:7000/hook",
        "https://hooks.example/",
    ] {
        assert_eq!(rules.check(&[told(good)]), Ok(()), "{good}");
    }
    assert_eq!(rules.check(&[told("mailto:ann@post.example")]), Err(BadAddress::NoMail));
    let many = vec![told("https://hooks.example/"); 9];
    assert!(matches!(rules.check(&many), Err(BadAddress::TooMany { is: 9, max: 8 })));
}

#[test]
fn mistakes_of_the_settings_are_named() {
    let refused = |set: fn(&mut NotifyConfig)| rules(set).err().unwrap();
    assert!(refused(|config| config.jobs = vec!["farm".to_owned()]).contains("notify.jobs: 'farm'"));
    let mail = |config: &mut NotifyConfig| {
        config.users = [("ann".to_owned(), vec!["mailto:ann@post.example".to_owned()])].into();
    };
    assert!(refused(mail).contains("notify.users: this server sends no mail"));
    assert!(refused(|config| config.allow = vec!["chat.farm.lan".to_owned()]).contains("notify.allow"));
    assert!(refused(|config| config.allow = vec!["http://chat:80".to_owned()]).contains("notify.allow"));
    assert!(refused(|config| config.url = Some("farm".to_owned())).contains("notify.url"));
    assert!(refused(|config| config.sendmail = Some(" ".to_owned())).contains("notify.sendmail"));
    assert!(refused(|config| config.secret = Some("/no/such".into())).contains("/no/such"));
    let sender = |config: &mut NotifyConfig| {
        (config.sendmail, config.mail_from) = (Some("sendmail".to_owned()), Some("a\nBcc: b".to_owned()));
    };
    assert!(refused(sender).contains("notify.mail_from"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    std::fs::write(&path, "short\n").unwrap();
    let mut config = NotifyConfig { secret: Some(path.clone()), ..NotifyConfig::default() };
    assert!(NoticeRules::new(&config).err().unwrap().to_string().contains("openssl rand"));
    std::fs::write(&path, "0123456789abcdef\n").unwrap();
    config.secret = Some(path);
    assert!(NoticeRules::new(&config).unwrap().key.is_some());
}

#[test]
fn the_settings_name_who_is_told_of_a_user_s_jobs() {
    let list = |to: &str| vec![format!("https://hooks.example/{to}")];
    let rules = rules(|config| {
        (config.jobs, config.failures) = (list("jobs"), list("failures"));
        config.users = [("ann".to_owned(), list("ann"))].into();
        config.user_failures =
            [("ann".to_owned(), list("ann-fails")), ("bob".to_owned(), list("bob"))].into();
    })
    .unwrap();
    let of = |user: &str, failed| {
        let all = rules.of_user(user, failed).chain(rules.of_all(failed));
        all.map(|to| to.rsplit('/').next().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(of("ann", false), ["ann", "jobs"]);
    assert_eq!(of("ann", true), ["ann", "ann-fails", "jobs", "failures"]);
    assert_eq!(of("bob", false), ["jobs"]);
    assert_eq!(of("bob", true), ["bob", "jobs", "failures"]);
}

fn ended() -> JobNotice {
    JobNotice {
        job: 12,
        name: "film".to_owned(),
        user: "ann".to_owned(),
        queue: "night".to_owned(),
        state: JobState::Failed,
        counts: Counts { total: 3, succeeded: 1, failed: 2, ..Counts::default() }.into(),
        submitted_ms: 1,
        started_ms: None,
        ended_ms: 9,
        failure: Some(FailureNotice::of(TaskId { job: JobId(12), index: 1 })),
        url: Some(link("https://farm.example/", JobId(12))),
    }
}

#[test]
fn a_notice_is_kept_and_sent_as_one_object() {
    let mut job = ended();
    let kept = NoticeBody::JobEnded(Box::new(job.clone())).to_text();
    assert_eq!(NoticeBody::from_text(&kept), Some(NoticeBody::JobEnded(Box::new(job.clone()))));
    let result = TaskResult { message: Some("é".repeat(900)), ..TaskResult::bare(End::Exited(4)) };
    job.failure.as_mut().unwrap().tell(&result);
    let sent = NoticeBody::JobEnded(Box::new(job)).to_send("7-1");
    let sent: serde_json::Value = serde_json::from_str(&sent).unwrap();
    assert_eq!((&sent["id"], &sent["event"], &sent["job"]), (&"7-1".into(), &"job_ended".into(), &12.into()));
    assert_eq!((&sent["state"], &sent["counts"]["failed"]), (&"failed".into(), &2.into()));
    let failure = &sent["failure"];
    assert_eq!((&failure["task"], &failure["exit_code"]), (&"12.1".into(), &4.into()));
    assert_eq!(failure["message"].as_str().unwrap().len(), 1_024);
    assert_eq!(sent["url"], "https://farm.example/jobs/12");
    assert_eq!(NoticeBody::from_text("{\"event\":\"of a later release\"}"), None);
    let lost = NoticeBody::WorkerLost(WorkerNotice { worker: "box1".to_owned(), lost_ms: 3 });
    assert_eq!(lost.to_send("7-2"), r#"{"id":"7-2","event":"worker_lost","worker":"box1","lost_ms":3}"#);
}

#[test]
fn people_are_told_in_sentences() {
    let mut job = ended();
    job.failure.as_mut().unwrap().tell(&TaskResult::bare(End::Exited(4)));
    let body = NoticeBody::JobEnded(Box::new(job));
    assert_eq!(body.subject(), "windlass: job 12 (film) failed");
    assert_eq!(
        body.lines(),
        [
            "Job 12 (film) failed.",
            "User ann, queue night.",
            "Of 3 tasks 1 succeeded, 2 failed, 0 were cancelled and 0 skipped.",
            "Task 12.1 failed first: exit code 4",
            "https://farm.example/jobs/12",
        ]
    );
}

/// To whom, and in whose name.
fn addressees(owed: &[NewNotice]) -> Vec<(&str, &str)> {
    owed.iter().map(|notice| (notice.user.as_str(), notice.to.as_str())).collect()
}

#[test]
fn an_end_is_owed_once_to_each_address_that_wants_it() {
    let rules = rules(|config| {
        config.jobs = vec!["https://hooks.example/a".to_owned(), "https://hooks.example/all".to_owned()];
        config.failures = vec!["https://hooks.example/failures".to_owned()];
    });
    let book = NoticeBook::new(rules.unwrap());
    let of_failures = OnEnd { only_failures: true, ..told("https://hooks.example/b") };
    let step = StepSpec { name: "s".to_owned(), tasks: 1, ..StepSpec::default() };
    let spec = JobSpec {
        name: "film".to_owned(),
        user: "ann".to_owned(),
        queue: "q".to_owned(),
        on_end: vec![told("https://hooks.example/a"), of_failures],
        steps: vec![step],
        ..JobSpec::default()
    };
    let mut engine = Engine::new(Settings::default());
    let (now, mut out) = (Time(5_000_000), Outbox::default());
    engine.handle(now, Event::Submit(Box::new(Submit::new(RequestId(1), spec))), &mut out);
    assert!(book.owed(&engine, &out, now).is_empty());
    let job = engine.jobs().next().unwrap().id;
    engine.handle(now, Event::Cancel { request: RequestId(2), job }, &mut out);
    let owed = book.owed(&engine, &out, now);
    assert_eq!(addressees(&owed), [("ann", "https://hooks.example/a"), ("", "https://hooks.example/all")]);
    let Some(NoticeBody::JobEnded(ended)) = NoticeBody::from_text(&owed[0].body) else { panic!("{owed:?}") };
    assert_eq!((ended.job, &*ended.name, ended.state), (job.0, "film", JobState::Canceled));
    assert_eq!((ended.failure, ended.counts.total, ended.ended_ms), (None, 1, 5));
}

#[test]
fn a_worker_is_told_of_when_its_lease_has_run_out() {
    let rules = rules(|config| config.workers = vec!["https://hooks.example/w".to_owned()]);
    let book = NoticeBook::new(rules.unwrap());
    let engine = Engine::new(Settings::default());
    let fact = |what| Fact::Worker { worker: WorkerId(1), name: "box1".to_owned(), what };
    let batch = Outbox { facts: vec![fact("suspect"), fact("expired"), fact("up")], ..Outbox::default() };
    let owed = book.owed(&engine, &batch, Time(7_000_000));
    assert_eq!(addressees(&owed), [("", "https://hooks.example/w")]);
    assert_eq!(owed[0].body, r#"{"event":"worker_lost","worker":"box1","lost_ms":7}"#);
}
