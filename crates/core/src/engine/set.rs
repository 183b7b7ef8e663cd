//! Queues and limits as somebody sets them. They come into force with their commit, so that a failed one
//! leaves nothing to take back.

use super::{Answer, Engine, Outbox, Refusal, Write};
use crate::ids::RequestId;
use crate::limits::LIMITS_MAX;
use crate::queues::{QueueRecord, check_name};

impl Engine {
    pub(super) fn set_queue(&mut self, request: RequestId, queue: QueueRecord, out: &mut Outbox) {
        let checked = queue.check().map_err(Refusal::from);
        answer(request, checked.map(|()| Write::Queue(queue)), out);
    }

    pub(super) fn set_limit(&mut self, request: RequestId, name: String, max: Option<u32>, out: &mut Outbox) {
        let checked = self.check_limit(&name, max);
        answer(request, checked.map(|()| Write::Limit { name, max }), out);
    }

    fn check_limit(&self, name: &str, max: Option<u32>) -> Result<(), Refusal> {
        let known = self.limits.contains_key(name);
        if max.is_none() {
            return if known { Ok(()) } else { Err(Refusal::NoLimit(name.to_owned())) };
        }
        check_name("the name of the limit", name)?;
        if !known && self.limits.len() >= LIMITS_MAX {
            let (is, max) = (LIMITS_MAX as u64 + 1, LIMITS_MAX as u64);
            return Err(Refusal::TooMany { what: "limits of the farm", is, max });
        }
        Ok(())
    }

    /// Takes in what is durable now.
    pub(super) fn come_into_force(&mut self, writes: &[Write]) {
        for write in writes {
            match write {
                Write::Queue(queue) => self.queues.set(queue),
                Write::Limit { name, max: Some(max) } => _ = self.limits.insert(name.clone(), *max),
                Write::Limit { name, max: None } => _ = self.limits.remove(name),
                _ => continue,
            }
            self.dirty = true;
        }
    }
}

fn answer(request: RequestId, done: Result<Write, Refusal>, out: &mut Outbox) {
    let answer = match done {
        Ok(write) => {
            out.writes.push(write);
            Answer::Done
        }
        Err(refusal) => Answer::Refused(refusal),
    };
    out.answers.push((request, answer));
}
