//! Patterns of paths, of inputs and of outputs.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::error::TreeError;
use super::names::depth_of;

/// Patterns of one task's outputs.
pub const GLOBS_MAX: usize = 1_000;
/// Bytes of one pattern.
pub const PATTERN_BYTES_MAX: usize = 4_096;

/// The characters that make a text a pattern.
pub(super) const META: [char; 4] = ['*', '?', '[', '{'];

/// Patterns of paths below a directory. `*` and `?` stop at slashes, `**` does not, and names that begin with a dot are
/// names like others.
#[derive(Clone, Debug)]
pub struct PathGlobs {
    set: GlobSet,
    patterns: Vec<GlobReach>,
}

/// How far a pattern reaches, by which directories are left out that have no match of it.
#[derive(Clone, Debug)]
struct GlobReach {
    /// The pattern without `./` before and `/` behind it. Empty: the directory itself.
    pattern: String,
    /// The names with which all matches begin.
    literal: Vec<String>,
    /// The number of names of the longest match. `None`: any number.
    depth_max: Option<usize>,
}

impl PathGlobs {
    /// Reads patterns of paths that are relative and lead down. `.` means the directory itself.
    pub fn parse(patterns: &[String]) -> Result<PathGlobs, TreeError> {
        if patterns.len() > GLOBS_MAX {
            return Err(TreeError::ManyPatterns { is: patterns.len(), max: GLOBS_MAX });
        }
        let mut globs = GlobSetBuilder::new();
        let mut reaches = Vec::with_capacity(patterns.len());
        for pattern in patterns {
            let reach = GlobReach::parse(pattern)?;
            let glob = GlobBuilder::new(&reach.pattern).literal_separator(true).build();
            globs.add(glob.map_err(|error| refused(pattern, &error.kind().to_string()))?);
            reaches.push(reach);
        }
        // The compiled patterns have a bound of their own inside globset.
        let set = globs.build();
        let set =
            set.map_err(|error| refused(error.glob().unwrap_or_default(), &error.kind().to_string()))?;
        Ok(PathGlobs { set, patterns: reaches })
    }

    /// The numbers of the patterns that match a path.
    pub fn matching(&self, path: &str) -> Vec<usize> {
        self.set.matches(path)
    }

    /// The numbers of the patterns that mean the directory itself.
    pub fn of_the_directory(&self) -> impl Iterator<Item = usize> {
        self.patterns.iter().enumerate().filter(|(_, reach)| reach.pattern.is_empty()).map(|(at, _)| at)
    }

    /// False if nothing below this directory can match.
    pub fn may_reach(&self, directory: &str) -> bool {
        let depth = depth_of(directory);
        self.patterns.iter().any(|reach| {
            reach.depth_max.is_none_or(|max| depth < max)
                && reach.literal.iter().zip(directory.split('/').take(depth)).all(|(name, is)| name == is)
        })
    }

    /// The texts of the patterns by their numbers, without `./` before and `/` behind them.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.patterns.iter().map(|reach| if reach.pattern.is_empty() { "." } else { reach.pattern.as_str() })
    }
}

impl GlobReach {
    fn parse(text: &str) -> Result<GlobReach, TreeError> {
        if text.is_empty() {
            return Err(refused(text, "it is empty"));
        }
        if text.len() > PATTERN_BYTES_MAX {
            let start: String = text.chars().take(80).collect();
            return Err(refused(
                &format!("{start}…"),
                &format!("it has more than {PATTERN_BYTES_MAX} bytes"),
            ));
        }
        if text.starts_with('/') {
            return Err(refused(text, "it begins with '/'; write it from the task's directory"));
        }
        if text.contains('\0') {
            return Err(refused(text, "it has a NUL byte in it"));
        }
        let names: Vec<&str> = text.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
        if names.contains(&"..") {
            return Err(refused(text, "'..' would lead out of the directory"));
        }
        let is_plain = |name: &&&str| !name.contains(META) && !name.contains(['\\', ']', '}']);
        let literal = names.iter().take_while(is_plain).map(|name| (*name).to_owned()).collect();
        // `**` passes over slashes, and so does a class like `[!a]`.
        let depth_max = (!text.contains("**") && !text.contains('[')).then_some(names.len());
        Ok(GlobReach { pattern: names.join("/"), literal, depth_max })
    }
}

fn refused(pattern: &str, why: &str) -> TreeError {
    TreeError::Pattern { pattern: pattern.to_owned(), why: why.to_owned() }
}
