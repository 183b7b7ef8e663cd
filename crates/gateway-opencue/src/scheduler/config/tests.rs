//! The file that OpenCue's own scheduler comes with is read, and says what it does not do here.

use super::{BoardSettings, Config, ConfigError, CountsSettings, CuebotSettings};
use crate::scheduler::order::{JobOrder, Order};
use proptest::prelude::*;
use std::time::Duration;
use tokio_postgres::config::SslMode;
use windlass_core::worker::Saturation;

const STOCK: &str = "
logging:
  level: debug
queue:
  monitor_interval: 5s
  dispatch_frames_per_layer_limit: 20
  memory_stranded_threshold: 1GiB
  selfish_services: [katana, arnold]
  empty_job_cycles_before_quiting: 20
  stream:
    cluster_buffer_size: 3
  host_booking_strategy:
    type: saturation
    core_saturation: false
    memory_saturation: true
database:
  pool_size: 7
  db_host: '%2Frun%2Fpg'
  db_name: farm
  db_user: cue
  db_pass: secret words
  db_port: 5433
rqd:
  grpc_port: 8445
  dry_run_mode: true
host_cache:
  host_staleness_threshold: 2m
scheduler:
  facility: lax
  ignore_tags: [broken]
  alloc_tags:
    - {show: film, tag: general}
  manual_tags: [gpu]
  colour: green
";

#[test]
fn the_stock_file_is_read_and_says_what_is_not_used() {
    let config = Config::parse(STOCK).unwrap();
    let database = &config.database;
    assert_eq!((database.host.as_str(), database.port, database.connections_max), ("/run/pg", 5433, 7));
    let instance = &config.instance;
    assert_eq!(config.log.as_deref(), Some("debug"));
    assert_eq!(instance.rules.amounts.stranded_mem_kib, 1 << 20);
    assert_eq!(instance.rules.amounts.selfish_services, ["katana", "arnold"]);
    assert_eq!(instance.rules.saturation, Saturation { cores: false, memory: true });
    assert_eq!(instance.rules.order, Order { is_strict: false, jobs: JobOrder::Priority });
    assert_eq!(instance.rules.layer_frames_max, Some(20));
    assert_eq!((instance.rqd_port, instance.is_dry, instance.idle_passes_max), (8445, true, Some(20)));
    let scope = &instance.scope;
    assert_eq!((scope.facility.as_deref(), scope.host_stale_s), (Some("lax"), 120.0));
    assert_eq!(scope.alloc_tags, [("film".to_owned(), "general".to_owned())]);
    assert_eq!(
        (&scope.ignore_tags[..], &scope.manual_tags[..]),
        (&["broken".to_owned()][..], &["gpu".to_owned()][..])
    );
    let unused = [
        "queue.host_booking_strategy.type",
        "queue.monitor_interval",
        "queue.stream.cluster_buffer_size",
        "scheduler.colour (unknown)",
    ];
    assert_eq!(config.unused, unused);
    assert!(!format!("{config:?}").contains("secret"), "the password is shown nowhere");
}

#[test]
fn levels_of_the_log_are_read_as_the_stock_scheduler_reads_them() {
    for (text, expected) in [
        ("INFO", "info"),
        ("warning", "warn"),
        ("debug:sqlx=info", "debug,sqlx=info"),
        ("scheduler::cluster=trace, sqlx=WARN", "scheduler::cluster=trace,sqlx=warn"),
    ] {
        let config = Config::parse(&format!("logging: {{level: '{text}'}}")).unwrap();
        assert_eq!(config.log.as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn an_empty_file_is_the_defaults() {
    let config = Config::parse("").unwrap();
    assert_eq!((config.database.host.as_str(), config.cuebot), ("localhost", None));
    assert_eq!(config.instance.rules.amounts.stranded_mem_kib, 2 << 20);
    assert_eq!(config.instance.look_time, Duration::from_secs(1));
    assert_eq!((config.log, config.board), (None, None));
}

#[test]
fn counts_are_served_at_the_stock_port_of_this_machine_or_as_the_file_says() {
    let served = |text: &str| {
        let settings = Config::parse(text).unwrap().metrics;
        settings.map(|CountsSettings { listen, is_asked }| (listen.to_string(), is_asked))
    };
    assert_eq!(served(""), Some(("127.0.0.1:9090".to_owned(), false)));
    assert_eq!(served("queue: {metrics_port: 9191}"), Some(("127.0.0.1:9191".to_owned(), true)));
    let listen = "windlass: {metrics_listen: '10.0.0.5:9090'}";
    assert_eq!(served(listen), Some(("10.0.0.5:9090".to_owned(), true)));
    assert_eq!(served("queue: {metrics_port: 0}"), None);
}

#[test]
fn a_board_is_at_an_address_or_at_a_port_of_this_machine() {
    let text = "windlass:
  board: {listen: '10.0.0.5:8448', token_file: /etc/windlass/board-token, hosts: [farm.example]}";
    let config = Config::parse(text).unwrap();
    let board = BoardSettings {
        listen: "10.0.0.5:8448".parse().unwrap(),
        token_file: Some("/etc/windlass/board-token".into()),
        hosts: vec!["farm.example".to_owned()],
    };
    assert_eq!((config.board, config.unused), (Some(board), Vec::new()));
    let here = Config::parse("windlass: {board: {listen: 8448}}").unwrap().board.unwrap();
    assert_eq!((here.listen, here.token_file), ("127.0.0.1:8448".parse().unwrap(), None));
}

#[test]
fn the_section_of_windlass_is_read() {
    let text = "windlass:
  shows: [film]
  shows_by: strict
  jobs_by: balanced
  cuebot: {listen: '127.0.0.1:8443', log_root: /mnt/logs, retries_max: 3}
  metrics_listen: '[::1]:9090'";
    let config = Config::parse(text).unwrap();
    let cuebot = CuebotSettings {
        listen: "127.0.0.1:8443".parse().unwrap(),
        clients: None,
        log_root: Some("/mnt/logs".to_owned()),
        retries_max: Some(3),
    };
    assert_eq!(config.cuebot, Some(cuebot));
    assert_eq!(config.instance.scope.shows, Some(vec!["film".to_owned()]));
    assert_eq!(config.instance.rules.order, Order { is_strict: true, jobs: JobOrder::Balanced });
    assert_eq!(config.unused, Vec::<String>::new());
}

#[test]
fn workers_are_read_with_their_server() {
    let text = "windlass:
  cuebot: {listen: '127.0.0.1:8443'}
  workers: {server: 'http://farm:7117', token_file: /etc/token, tag: 'pool=film', allocation: local.general, tags: [a]}";
    let workers = Config::parse(text).unwrap().workers.unwrap();
    assert_eq!(workers.server.to_string(), "http://farm:7117");
    assert_eq!(workers.token_file.as_deref(), Some(std::path::Path::new("/etc/token")));
    assert_eq!((workers.tag.to_string().as_str(), workers.queue.as_str()), ("pool=film", "opencue"));
    assert_eq!((workers.allocation.as_deref(), workers.tags.len()), (Some("local.general"), 1));
    assert_eq!((workers.os.as_str(), workers.ca_file), ("Linux", None));
    assert_eq!(workers.users, None);
    let without = Config::parse("windlass: {workers: {tag: film}}").unwrap();
    assert_eq!((without.workers, without.unused), (None, vec!["windlass.workers.tag (unknown)".to_owned()]));
}

#[test]
fn frames_run_on_workers_where_it_is_said_who_may_call() {
    let parse = |cuebot: &str, workers: &str| {
        Config::parse(&format!(
            "windlass:\n  cuebot: {{{cuebot}}}\n  workers: {{server: 'farm:7117'{workers}}}"
        ))
    };
    assert!(parse("listen: '127.0.0.1:8443'", "").is_ok() && parse("listen: '[::1]:8443'", "").is_ok());
    for listen in ["10.0.0.5:8443", "0.0.0.0:8443", "[::]:8443"] {
        let said = parse(&format!("listen: '{listen}'"), "").unwrap_err().to_string();
        assert!(
            said.contains("windlass.cuebot.listen") && said.contains("windlass.cuebot.clients"),
            "{said}"
        );
    }
    let both = "listen: '10.0.0.5:8443', clients: ['10.0.0.0/24', '127.0.0.1']";
    let config = parse(both, ", users: [ann, 'film-*']").unwrap();
    let clients = config.cuebot.unwrap().clients.unwrap();
    let may_call = |ip: &str| clients.iter().any(|network| network.contains(ip.parse().unwrap()));
    assert_eq!(["10.0.0.9", "127.0.0.1", "10.0.1.9"].map(may_call), [true, true, false]);
    let users = vec!["ann".to_owned(), "film-*".to_owned()];
    assert_eq!(config.workers.unwrap().users.as_ref(), Some(&users));
    assert_eq!(config.instance.scope.worker_users, Some(users));
    assert_eq!(config.unused, Vec::<String>::new());
    // RQD runs as whom its own settings say: without workers nothing is asked.
    assert!(Config::parse("windlass: {cuebot: {listen: '10.0.0.5:8443'}}").is_ok());
}

#[test]
fn a_value_of_another_kind_is_refused_by_name() {
    let cases = [
        ("database: {db_port: seven}", "database.db_port = \"seven\": this must be a number in its range"),
        ("database: {db_pass: [1]}", "database.db_pass = (hidden): this must be a text"),
        ("logging: {level: shout}", "a level ('off', 'error'"),
        ("logging: {level: 'scheduler=loud'}", "levels of parts as in 'scheduler=debug,sqlx=warn'"),
        ("queue: {memory_stranded_threshold: much}", "a size such as 512MiB or 2GiB"),
        ("windlass: {jobs_by: luck}", "'priority_only', 'fifo' or 'balanced'"),
        ("scheduler: {alloc_tags: [general]}", "a list of mappings with 'show' and 'tag'"),
        ("windlass: {cuebot: {listen: here}}", "ADDRESS:PORT"),
        ("windlass: {cuebot: {listen: '127.0.0.1:1', clients: []}}", "networks such as '10.1.0.0/16'"),
        ("windlass: {cuebot: {listen: '127.0.0.1:1', clients: [farm]}}", "networks such as '10.1.0.0/16'"),
        ("windlass: {workers: {server: a, users: []}}", "names of users"),
        ("windlass: {workers: {server: a, users: ['a b']}}", "names of users"),
        ("windlass: {workers: {server: [a]}}", "a socket's path"),
        ("windlass: {workers: {server: 'farm:7117'}}", "beside 'windlass.cuebot.listen'"),
        ("windlass: {board: {listen: 70000}}", "ADDRESS:PORT, or a port of this machine"),
    ];
    for (text, why) in cases {
        let error = Config::parse(text).unwrap_err();
        assert!(
            matches!(error, ConfigError::Value { .. }) && error.to_string().contains(why),
            "{text}: {error}"
        );
    }
    assert!(matches!(Config::parse("- a\n- b"), Err(ConfigError::Yaml(_))));
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(?s).{0,200}") {
        let _ = Config::parse(&text);
    }

    #[test]
    fn any_value_is_read_or_refused(value in "\\PC{0,30}", key in prop::sample::select(&KEYS)) {
        let (section, key) = key.split_once('.').unwrap();
        let _ = Config::parse(&format!("{section}:\n  {key}: {value}"));
    }
}

const KEYS: [&str; 5] = [
    "windlass.board",
    "database.db_port",
    "queue.memory_stranded_threshold",
    "host_cache.host_staleness_threshold",
    "windlass.shows",
];

#[test]
fn a_database_is_encrypted_as_the_file_says_and_a_socket_is_not() {
    let mode = |text: &str| Config::parse(text).map(|config| config.database.tls_mode());
    assert_eq!(mode("database: {db_host: db.farm}").unwrap(), "verify-full");
    assert_eq!(mode("database: {db_host: 10.0.0.7}").unwrap(), "verify-full");
    assert_eq!(mode("database: {db_host: 127.0.0.1}").unwrap(), "prefer");
    assert_eq!(mode("database: {db_host: '::1'}").unwrap(), "prefer");
    assert_eq!(mode("").unwrap(), "prefer", "localhost");
    assert_eq!(mode("database: {db_host: db.farm}\nwindlass: {db_sslmode: allow}").unwrap(), "prefer");
    assert_eq!(mode("windlass: {db_sslmode: verify-full, db_sslrootcert: /ca.pem}").unwrap(), "verify-full");
    assert_eq!(mode("database: {db_host: /run/pg}\nwindlass: {db_sslmode: require}").unwrap(), "disable");
    assert!(mode("windlass: {db_sslmode: always}").is_err());
    let driver_mode = |database: &str, mode: &str| {
        let config =
            Config::parse(&format!("database: {{{database}}}\nwindlass: {{db_sslmode: {mode}}}")).unwrap();
        config.database.connection().unwrap().get_ssl_mode()
    };
    assert_eq!(driver_mode("db_host: localhost", "verify-ca"), SslMode::Require);
    assert_eq!(driver_mode("db_host: localhost, db_pass: x", "prefer"), SslMode::Prefer);
    assert_eq!(driver_mode("db_host: db.farm, db_pass: x", "prefer"), SslMode::Require);
    assert_eq!(driver_mode("db_host: db.farm, db_pass: x", "disable"), SslMode::Disable);
}
