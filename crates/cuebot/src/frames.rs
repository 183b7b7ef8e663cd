//! Frame ranges as OpenCue writes them: `1-10`, `10-1`, `1-10x3`, `1-10y3`, `1-10:4`, joined by commas.
//!
//! - The order of the text is the order of dispatch.
//! - A range is counted before it is expanded, so that a short text cannot ask for much memory.

use std::collections::HashSet;

/// Frames that one range may name, repeated ones included. OpenCue refuses jobs with more, too.
pub const FRAMES_MAX: usize = 100_000;

/// Why a range is refused.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RangeError {
    #[error("'{0}' is not a valid frame range; give sections such as 1-10, 1-10x2, 1-10y2 or 1-10:4")]
    Syntax(String),
    #[error("the step of frame range '{0}' never reaches its end; a falling range needs a negative step")]
    Step(String),
    #[error("frame range '{0}' has more than {FRAMES_MAX} frames; split the job")]
    TooMany(String),
}

/// The frame numbers that a range names, in its order, each as often as the range names it.
pub fn parse(range: &str) -> Result<Vec<i32>, RangeError> {
    let mut frames = Vec::new();
    for section in range.split(',') {
        let section = section.trim();
        let numbers = expand(section)?;
        if frames.len() + numbers.len() > FRAMES_MAX {
            return Err(RangeError::TooMany(shorten(range)));
        }
        frames.extend(numbers);
    }
    Ok(frames)
}

/// The first frame of each chunk, in order: the frames that a layer gets. A frame that is named twice
/// counts once.
pub fn chunk_starts(range: &str, chunk_size: usize) -> Result<Vec<i32>, RangeError> {
    let mut seen = HashSet::new();
    let distinct = parse(range)?.into_iter().filter(|frame| seen.insert(*frame));
    Ok(distinct.step_by(chunk_size.max(1)).collect())
}

/// One section between commas.
fn expand(section: &str) -> Result<Vec<i32>, RangeError> {
    let syntax = || RangeError::Syntax(shorten(section));
    let (first, rest) = number(section).ok_or_else(syntax)?;
    if rest.is_empty() {
        return Ok(vec![first]);
    }
    let (last, rest) = rest.strip_prefix('-').and_then(number).ok_or_else(syntax)?;
    let span = (i64::from(last) - i64::from(first)).unsigned_abs() as usize + 1;
    if span > FRAMES_MAX {
        return Err(RangeError::TooMany(shorten(section)));
    }
    if rest.is_empty() {
        return Ok(stepped(first, last, if last < first { -1 } else { 1 }));
    }
    let mode = rest.chars().next().ok_or_else(syntax)?;
    let (step, rest) = number(&rest[mode.len_utf8()..]).ok_or_else(syntax)?;
    if !rest.is_empty() {
        return Err(syntax());
    }
    if step == 0 || (step > 0 && last < first) || (step < 0 && last >= first) {
        return Err(RangeError::Step(shorten(section)));
    }
    match mode {
        'x' => Ok(stepped(first, last, step)),
        'y' => {
            let left_out: HashSet<i32> = stepped(first, last, step).into_iter().collect();
            let mut all = stepped(first, last, step.signum());
            all.retain(|frame| !left_out.contains(frame));
            Ok(all)
        }
        ':' => Ok(interleaved(first, last, step)),
        _ => Err(syntax()),
    }
}

/// The frames from `first` on, `step` apart, not beyond `last`. The sign of `step` leads to `last`.
fn stepped(first: i32, last: i32, step: i32) -> Vec<i32> {
    let mut frames = Vec::new();
    let mut frame = i64::from(first);
    while if step > 0 { frame <= i64::from(last) } else { frame >= i64::from(last) } {
        frames.push(frame as i32);
        frame += i64::from(step);
    }
    frames
}

/// Coarse frames first, then those between them: the step is halved until it is 1.
fn interleaved(first: i32, last: i32, step: i32) -> Vec<i32> {
    let (mut frames, mut seen) = (Vec::new(), HashSet::new());
    let mut step = step;
    while step != 0 {
        frames.extend(stepped(first, last, step).into_iter().filter(|frame| seen.insert(*frame)));
        step /= 2;
    }
    frames
}

/// A number with an optional minus at the start of a text, and what follows it.
fn number(text: &str) -> Option<(i32, &str)> {
    let sign = usize::from(text.starts_with('-'));
    let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(sign + digits);
    // `parse` refuses a lone minus and what does not fit.
    Some((number.parse().ok()?, rest))
}

/// A range in a message; a hostile one may be long.
fn shorten(text: &str) -> String {
    const SHOWN: usize = 60;
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
