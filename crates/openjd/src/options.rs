//! The syntax of a template, and the options of its submission.

use std::collections::BTreeMap;
use windlass_api::PathRule;

/// Bytes of a template, or of a file of parameters.
pub const TEMPLATE_BYTES_MAX: usize = 4 << 20;

/// Syntax of a template's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A text in YAML.
    Yaml,
    /// A text in JSON.
    Json,
}

/// The options of a submission besides the template and its parameters.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Name of the template in messages.
    pub file: String,
    /// Absolute directory of the template, to which defaults of PATH parameters are relative.
    pub template_dir: String,
    /// Absolute directory of the caller, to which given values of PATH parameters are relative.
    pub current_dir: String,
    /// Environment variables of all actions and tasks.
    pub env: BTreeMap<String, String>,
    /// Where the workers have paths that other machines name differently.
    pub path_mapping: Vec<PathRule>,
}
