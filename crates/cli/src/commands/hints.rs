//! Flags of `run` and `submit` for limits and placement hints.

use clap::{Args, ValueEnum};
use windlass_api::quantity::{parse_cpus, parse_duration, parse_size};
use windlass_api::{Kind, StepRequest};

/// Limits and hints of a step.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Placement")]
pub struct HintArgs {
    /// Hold one of this limit, such as a licence, while the task runs; may be repeated
    #[arg(long, value_name = "NAME")]
    pub limit: Vec<String>,
    /// Accept a --limit that is not set, which holds nothing back until it is
    #[arg(long)]
    pub limit_unset_ok: bool,
    /// Prefer workers whose cache holds this key; SIZE is its size, if known; may be repeated
    #[arg(long, value_name = "KEY[=SIZE]", value_parser = parse_cache)]
    pub cache: Vec<(String, Option<u64>)>,
    /// The task mostly waits for the network: prefer workers with a fast one
    #[arg(long)]
    pub network_bound: bool,
    /// The task is short: prefer the worker that has its inputs
    #[arg(long)]
    pub prefer_local: bool,
    /// Require a worker with the tag fetch
    #[arg(long)]
    pub fetches: bool,
    /// Target queueing delay, such as 30s or 10m: how long a ready task should wait at most
    #[arg(long = "max-wait", alias = "deadline", value_name = "TIME", value_parser = parse_duration)]
    pub deadline: Option<u64>,
    /// Kind of work: build, or evaluation, which only finds out what to build
    #[arg(long, value_name = "KIND")]
    pub kind: Option<KindArg>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum KindArg {
    /// It builds something, such as a package.
    Build,
    /// Finds out what to build.
    Evaluation,
}

impl HintArgs {
    /// Adds them to what a step has.
    pub fn put_on(&self, step: &mut StepRequest) {
        step.limits.extend(self.limit.iter().cloned());
        step.caches.extend(self.cache.iter().cloned());
        step.network_bound |= self.network_bound;
        step.prefer_local |= self.prefer_local;
        step.fetches |= self.fetches;
        step.deadline_ms = self.deadline.or(step.deadline_ms);
        let kind = self.kind.map(|kind| match kind {
            KindArg::Build => Kind::Build,
            KindArg::Evaluation => Kind::Evaluation,
        });
        step.kind = kind.or(step.kind);
    }
}

/// Cpus of a task.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum CpusArg {
    Cores(f64),
    /// At least the first number, and up to the second of what is idle.
    Range(f64, f64),
    /// One at first, then as many as earlier tasks of the profile used.
    Auto,
}

/// A number of cpus, two with `-` between them, or `auto`.
pub fn parse_cpus_or_auto(text: &str) -> Result<CpusArg, String> {
    if let Some((least, most)) = text.split_once('-').filter(|(least, _)| !least.is_empty()) {
        let (least, most) = (parse_cpus(least)?, parse_cpus(most)?);
        if least > most {
            return Err(format!("'{text}': the first number is the least, and {most} is less than {least}"));
        }
        return Ok(CpusArg::Range(least, most));
    }
    match text {
        "auto" => Ok(CpusArg::Auto),
        _ => parse_cpus(text).map(CpusArg::Cores).map_err(|e| format!("{e} (or 2-16, or auto)")),
    }
}

/// `KEY` or `KEY=SIZE`; a key may hold `=` itself where a size follows.
fn parse_cache(text: &str) -> Result<(String, Option<u64>), String> {
    let (key, size) = match text.rsplit_once('=') {
        Some((key, size)) => (key, Some(parse_size(size)?)),
        None => (text, None),
    };
    if key.is_empty() {
        return Err("the cache key is empty; write KEY or KEY=SIZE".to_owned());
    }
    Ok((key.to_owned(), size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_have_a_key_and_perhaps_a_size() {
        assert_eq!(parse_cache("toolchain"), Ok(("toolchain".to_owned(), None)));
        assert_eq!(parse_cache("toolchain=2GiB"), Ok(("toolchain".to_owned(), Some(2 << 30))));
        assert_eq!(parse_cache("a=b=1k"), Ok(("a=b".to_owned(), Some(1024))));
        for bad in ["", "=1", "a=", "a=b", "a=-1"] {
            assert!(parse_cache(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn cpus_are_a_number_or_found_out() {
        assert_eq!(parse_cpus_or_auto("auto"), Ok(CpusArg::Auto));
        assert_eq!(parse_cpus_or_auto("0.5"), Ok(CpusArg::Cores(0.5)));
        assert_eq!(parse_cpus_or_auto("2-16"), Ok(CpusArg::Range(2.0, 16.0)));
        for bad in ["16-2", "2-", "-2", "2-auto", "1-2-3"] {
            assert!(parse_cpus_or_auto(bad).is_err(), "{bad}");
        }
        assert!(parse_cpus_or_auto("many").unwrap_err().contains("auto"));
    }
}
