//! What is asked for a command: room, the texts by which its memory is known, and the worktree by which it takes turns.

use crate::node::turn::args::{TurnArgs, TurnMemory};
use crate::node::turn::shape::{CommandShape, cut_to};
use crate::node::turn::worktree::worktree_of;
use std::path::{Path, PathBuf};
use windlass_api::{TURN_TEXT_BYTES_MAX, TURN_WORKTREE_BYTES_MAX, TurnRequest};

/// The variables of a command that has its turn: the turn's number, and the bytes of memory that are booked for it, if
/// any are.
pub const TURN_VARIABLE: &str = "WINDLASS_TURN";
pub const BOOKED_VARIABLE: &str = "WINDLASS_TURN_BOOKED";
/// How long a turn inside a task or another turn waits at most. The outer one keeps its room meanwhile, so all that run on
/// a machine could wait for each other for ever.
const INNER_WAIT_MAX_MS: u64 = 300_000;

/// The room that a command has already, because a task or a turn is around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OuterRoom {
    /// None: it books all that it needs.
    Nothing,
    /// Cpus. If it waited for more of them while it holds some, all cpus could be held by those who wait.
    Cpus,
    /// Cpus and memory, of a turn that booked for all that it starts.
    Whole,
}

impl OuterRoom {
    /// As the variables tell.
    pub fn of(is_set: impl Fn(&str) -> bool) -> OuterRoom {
        if is_set(BOOKED_VARIABLE) {
            OuterRoom::Whole
        } else if is_set(TURN_VARIABLE) || is_set("WINDLASS_TASK") {
            OuterRoom::Cpus
        } else {
            OuterRoom::Nothing
        }
    }
}

/// The request for a command that runs in the directory; `None` if it needs nothing that it does not have.
pub fn request_for(
    args: &TurnArgs,
    shape: &CommandShape,
    outer: OuterRoom,
    directory: &Path,
) -> Option<TurnRequest> {
    let cpus = if outer == OuterRoom::Nothing { args.cpus.unwrap_or(1.0) } else { 0.0 };
    let needs_nothing = cpus == 0.0 && args.memory.is_none() && args.limit.is_empty();
    if needs_nothing || outer == OuterRoom::Whole {
        return None;
    }
    let written = shape.written.iter().map(PathBuf::as_path);
    let worktree = worktree_of(written.chain([directory]).chain(shape.read.as_deref()));
    let command: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
    Some(TurnRequest {
        machine: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        queue: args.queue.clone(),
        cpus: Some(cpus),
        memory: match args.memory {
            Some(TurnMemory::Size(bytes)) => Some(bytes),
            Some(TurnMemory::Auto) | None => None,
        },
        shape: match args.memory {
            Some(TurnMemory::Auto) => shape.texts.clone(),
            Some(TurnMemory::Size(_)) | None => Vec::new(),
        },
        worktree: worktree.map(|root| end_of(&root.to_string_lossy(), TURN_WORKTREE_BYTES_MAX).to_owned()),
        command: Some(cut_to(&command.join(" "), TURN_TEXT_BYTES_MAX).to_owned()),
        wait_max_ms: (outer != OuterRoom::Nothing).then_some(INNER_WAIT_MAX_MS),
        limits: args.limit.iter().cloned().collect(),
        held: None,
    })
}

/// The end of a text, of at most that many bytes. Long paths differ there.
fn end_of(text: &str, bytes_max: usize) -> &str {
    let mut start = text.len().saturating_sub(bytes_max);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(memory: Option<TurnMemory>) -> TurnArgs {
        TurnArgs { memory, command: vec!["cc".into(), "-c".into(), "a.c".into()], ..TurnArgs::default() }
    }

    fn asked(memory: Option<TurnMemory>, outer: OuterRoom) -> Option<TurnRequest> {
        let shape = CommandShape { texts: vec!["cc|compile|a.o".to_owned()], ..CommandShape::default() };
        request_for(&args(memory), &shape, outer, Path::new("/no/such/directory"))
    }

    #[test]
    fn a_command_books_a_cpu_and_the_memory_that_it_was_told_to() {
        let plain = asked(None, OuterRoom::Nothing).unwrap();
        assert_eq!((plain.cpus, plain.memory, plain.shape.len()), (Some(1.0), None, 0));
        assert_eq!((plain.command.as_deref(), plain.worktree), (Some("cc -c a.c"), None));
        assert_eq!(plain.wait_max_ms, None);
        assert!(!plain.machine.is_empty());
        let auto = asked(Some(TurnMemory::Auto), OuterRoom::Nothing).unwrap();
        assert_eq!((auto.memory, auto.shape), (None, vec!["cc|compile|a.o".to_owned()]));
        let sized = asked(Some(TurnMemory::Size(7)), OuterRoom::Nothing).unwrap();
        assert_eq!((sized.memory, sized.shape.len()), (Some(7), 0));
    }

    #[test]
    fn inside_a_task_or_a_turn_it_waits_for_no_cpu_and_not_for_ever() {
        let is = |set: &[&str]| OuterRoom::of(|name| set.contains(&name));
        assert_eq!(is(&["HOME"]), OuterRoom::Nothing);
        assert_eq!(is(&["WINDLASS_TASK"]), OuterRoom::Cpus);
        assert_eq!(is(&[TURN_VARIABLE]), OuterRoom::Cpus);
        assert_eq!(is(&["WINDLASS_TASK", TURN_VARIABLE, BOOKED_VARIABLE]), OuterRoom::Whole);
        assert_eq!(asked(None, OuterRoom::Cpus), None);
        assert_eq!(asked(Some(TurnMemory::Auto), OuterRoom::Whole), None);
        let inner = asked(Some(TurnMemory::Auto), OuterRoom::Cpus).unwrap();
        assert_eq!((inner.cpus, inner.wait_max_ms), (Some(0.0), Some(INNER_WAIT_MAX_MS)));
    }

    #[test]
    fn long_texts_keep_the_end_that_tells_them_apart() {
        assert_eq!(end_of("/a/b", 10), "/a/b");
        assert_eq!(end_of("/a/bäc", 3), "äc");
        assert_eq!(end_of("/a/bäc", 2), "c");
    }
}
