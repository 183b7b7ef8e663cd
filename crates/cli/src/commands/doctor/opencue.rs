//! Checks of an OpenCue farm for `gateway opencue`: its database, and the Windlass server whose workers are hosts.

use super::Check;
use crate::commands::gateway::{OpencueArgs, dialer};
use windlass_gateway_opencue::scheduler::config::Config;
use windlass_gateway_opencue::{Finding, Severity, check_database, check_workers};

/// Checks the settings, the database, and the Windlass server where the settings name one.
pub async fn checks(args: &OpencueArgs) -> Vec<Check> {
    let path = args.config.display();
    let text = match std::fs::read_to_string(&args.config) {
        Ok(text) => text,
        Err(error) => {
            let advice = "give the file that OpenCue's own scheduler takes";
            return vec![Check::missing("settings", format!("{path}: {error}"), advice)];
        }
    };
    let config = match Config::parse(&text) {
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
    match check_database(config, &dialer).await {
        Ok(findings) => findings.into_iter().map(Check::from).collect(),
        Err(error) => {
            let advice = "correct 'database' in the settings, or start PostgreSQL";
            vec![Check::missing("database", error.to_string(), advice)]
        }
    }
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
