//! Checks of an OpenCue farm for `gateway opencue`: its database, and the Windlass server whose workers are hosts.

use super::check::{Check, weak_transport};
use crate::commands::gateway::{OpencueFarmArgs, dialer};
use windlass_gateway_opencue::scheduler::config::Config;
use windlass_gateway_opencue::{Finding, Severity, check_database, check_workers};
use windlass_store::TlsDialer;

/// Checks the settings, the database, and the Windlass server where the settings name one.
pub async fn checks(args: &OpencueFarmArgs) -> Vec<Check> {
    let path = args.config.display();
    let text = match std::fs::read_to_string(&args.config) {
        Ok(text) => text,
        Err(error) => {
            let advice = "give the file that OpenCue's own scheduler takes";
            return vec![Check::missing("settings", format!("{path}: {error}"), advice)];
        }
    };
    let config = match args.parse(&text) {
        Ok(config) => config,
        Err(error) => {
            let advice = "mend the line; the manual's page on OpenCue lists all keys";
            return vec![Check::missing("settings", format!("{path}: {error}"), advice)];
        }
    };
    let mut checks = vec![Check::ok("settings", path.to_string())];
    if !config.unused.is_empty() {
        let detail = format!("these keys change nothing here: {}", config.unused.join(", "));
        checks.push(Check::note("unused settings", detail, "nothing, unless one of them is misspelt"));
    }
    checks.extend(database(&config).await);
    if let Some(settings) = &config.workers {
        checks.extend(check_workers(settings).await.into_iter().map(Check::from));
    }
    checks
}

async fn database(config: &Config) -> Vec<Check> {
    let dialer = match dialer(&config.database) {
        Ok(dialer) => dialer,
        Err(error) => {
            let advice = "correct 'db_sslmode' and 'db_sslrootcert' in the settings";
            return vec![Check::missing("database", error.to_string(), advice)];
        }
    };
    let mut checks = vec![transport(config)];
    match check_database(config, &dialer).await {
        Ok(findings) => checks.extend(findings.into_iter().map(Check::from)),
        Err(error) => {
            let advice = "correct 'database' in the settings, or start PostgreSQL";
            checks.push(Check::missing("database", error.to_string(), advice));
        }
    }
    checks
}

/// Checks how the way to the database is protected.
fn transport(config: &Config) -> Check {
    let database = &config.database;
    let tls = TlsDialer::of_options(database.tls_mode(), database.tls_root.as_deref());
    // A mode that cannot be used was told before.
    let weakness = tls.ok().and_then(|tls| tls.weakness());
    let advice = "remove 'db_sslmode' from the settings, so that the certificate and its name are checked; \
                  'db_sslrootcert' names the authority that signed it";
    weak_transport(weakness.filter(|_| !database.is_here()), advice)
}

impl From<Finding> for Check {
    fn from(finding: Finding) -> Check {
        let Finding { what, severity, detail, advice } = finding;
        match severity {
            Severity::Ok => Check::ok(what, detail),
            Severity::Note => Check::note(what, detail, advice),
            Severity::Wrong => Check::missing(what, detail, advice),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_to_the_database_that_others_can_read_is_noted_and_a_socket_is_well() {
        let found = |text: &str| transport(&Config::parse(text).unwrap());
        let weak = found("database: {db_host: db.farm}\nwindlass: {db_sslmode: disable}");
        assert!(weak.state == "note" && weak.detail.contains("can read the password"), "{}", weak.detail);
        assert!(weak.advice.is_some_and(|advice| advice.contains("db_sslmode")));
        for well in ["database: {db_host: /run/pg}", "windlass: {db_sslmode: disable}"] {
            assert_eq!(found(well).state, "ok", "{well}");
        }
    }
}
