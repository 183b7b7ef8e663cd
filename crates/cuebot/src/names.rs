//! Names as OpenCue makes them from what a client gives. They become parts of the paths of logs, so no valid name has
//! a slash, or is `.` or `..`.

/// Bytes that the column of each kind of name holds. A longer name is refused before it is sent to PostgreSQL.
pub mod width {
    /// Bytes that `job.str_name` holds.
    pub const JOB: usize = 255;
    /// Bytes that `layer.str_name` holds.
    pub const LAYER: usize = 256;
    /// Bytes that `job.str_shot` holds.
    pub const SHOT: usize = 64;
    /// Bytes that `show.str_name` holds.
    pub const SHOW: usize = 512;
    /// Bytes that `job.str_user` holds.
    pub const USER: usize = 32;
    /// Bytes that `facility.str_name` holds.
    pub const FACILITY: usize = 36;
    /// Bytes that `host_tag.str_tag` holds.
    pub const TAG: usize = 45;
    /// Bytes that `host.str_name` holds.
    pub const HOST: usize = 45;
    /// The keys of all rows, such as `frame.pk_frame`.
    pub const KEY: usize = 36;
}

/// A name that is refused.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    #[error("'{name}' is not a valid {what}; use letters, digits, dots and underscores")]
    Characters { what: &'static str, name: String },
    #[error("the {what} '{name}' has fewer than 3 characters; OpenCue needs at least 3")]
    Short { what: &'static str, name: String },
    #[error("the {what} has {length} bytes; at most {max} fit")]
    Long { what: &'static str, length: usize, max: usize },
}

/// A name that is used as it was given: show, user, facility, tag. `least` is its least length.
pub fn plain(what: &'static str, name: &str, least: usize, max: usize) -> Result<String, NameError> {
    if name.len() > max {
        return Err(NameError::Long { what, length: name.len(), max });
    }
    let mut bytes = name.bytes();
    let is_plain = bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'));
    if !is_plain || (!name.is_empty() && name.bytes().all(|byte| byte == b'.')) {
        return Err(NameError::Characters { what, name: name.to_owned() });
    }
    if name.len() < least {
        return Err(NameError::Short { what, name: name.to_owned() });
    }
    Ok(name.to_owned())
}

/// A name of a shot or a layer: in lower case, with underscores for dashes.
pub fn conformed(what: &'static str, name: &str, max: usize) -> Result<String, NameError> {
    plain(what, &name.replace('-', "_").to_ascii_lowercase(), 3, max)
}

/// The name of a job: `show-shot-user_rest`, in lower case. A name that has the prefix keeps it once.
pub fn job(show: &str, shot: &str, user: &str, name: &str) -> Result<String, NameError> {
    let prefix = format!("{show}-{shot}-{user}");
    let rest = match name.strip_prefix(&prefix) {
        Some(rest) if rest.starts_with('_') => rest,
        _ => name,
    };
    let mut suffix = String::new();
    for letter in rest.to_ascii_lowercase().chars() {
        // OpenCue joins underscores before it replaces dashes, so `a--b` keeps two.
        if !(letter == '_' && suffix.ends_with('_')) {
            suffix.push(letter);
        }
    }
    let suffix = plain("job name", &suffix.replace('-', "_"), 3, width::JOB)?;
    let prefix = prefix.trim_end_matches('_');
    let whole = format!("{prefix}_{}", suffix.trim_start_matches('_')).to_ascii_lowercase();
    plain("job name", &whole, 3, width::JOB)
}

/// The words of a list that is kept in one column, trimmed. Empty ones are left out.
pub fn words(list: &str, separators: &[char]) -> impl Iterator<Item = String> {
    list.split(separators).map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned)
}

/// The name of a frame: its number with at least four digits, a dash, its layer.
pub fn frame(name: &str) -> Result<String, NameError> {
    let refused = || NameError::Characters { what: "frame name", name: name.chars().take(60).collect() };
    let (number, layer) = name.split_once('-').ok_or_else(refused)?;
    if !(4..=6).contains(&number.len()) || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refused());
    }
    let number: u32 = number.parse().map_err(|_| refused())?;
    Ok(format!("{number:04}-{}", conformed("layer name", layer, width::LAYER)?))
}
