//! Flags of `run` and `submit` for addresses that are told of the job's end.

use clap::Args;
use windlass_api::OnEnd;

/// Who is told of the job's end.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Notices")]
pub struct OnEndArgs {
    /// Tell this address when the job has ended: https://HOST/PATH, or mailto:NAME@HOST; may be repeated
    #[arg(long, value_name = "URL")]
    pub on_end: Vec<String>,
    /// Tell this address if the job fails; may be repeated
    #[arg(long, value_name = "URL")]
    pub on_failure: Vec<String>,
}

impl OnEndArgs {
    /// All addresses, as a submission names them.
    pub fn addresses(&self) -> Vec<OnEnd> {
        let told = |urls: &[String], only_failures| {
            urls.iter().map(|url| OnEnd { url: url.clone(), only_failures }).collect::<Vec<_>>()
        };
        [told(&self.on_end, false), told(&self.on_failure, true)].concat()
    }
}
