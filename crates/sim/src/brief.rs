//! One-line summaries of events and writes. `scheduler` puts them into transcripts. Their text is part of a
//! transcript's hash, so it never depends on anything but the event or write.

use windlass_core::engine::{Event, Write};

pub fn write(write: &Write) -> String {
    match write {
        Write::Job { id, spec, .. } => format!("job {id} '{}'", spec.name),
        Write::Book { task, attempt, worker, epoch, .. } => {
            format!("booking {task}#{attempt} on worker {worker} epoch {epoch}")
        }
        Write::End { task, attempt, state, result, .. } => {
            format!("end {task}#{attempt} {state:?} {:?}", result.end)
        }
        Write::Requeued { task, attempt, result, .. } => format!("again {task}#{attempt} {:?}", result.end),
        Write::LateResult { task, attempt, result, .. } => format!("late {task}#{attempt} {:?}", result.end),
        Write::Worker(record) => format!("worker {} epoch {}", record.name, record.epoch),
        Write::Lease { .. }
        | Write::History { .. }
        | Write::Queue(_)
        | Write::QueueGone(_)
        | Write::Limit { .. }
        | Write::Turns(_)
        | Write::LicenceBackoffs { .. }
        | Write::SucceededRanges { .. }
        | Write::WorkerGone(_)
        | Write::JobHeld { .. }
        | Write::JobPriority { .. }
        | Write::JobStop { .. }
        | Write::JobEnd { .. }
        | Write::JobRetry { .. }
        | Write::TasksCanceled { .. }
        | Write::FirstSucceeded { .. }
        | Write::Park { .. }
        | Write::Unpark { .. } => {
            format!("{write:?}")
        }
    }
}

pub fn event(event: &Event) -> String {
    match event {
        Event::Submit(submit) => {
            let spec = &submit.spec;
            let steps: Vec<String> =
                spec.steps.iter().map(|step| format!("{}x{}", step.name, step.tasks)).collect();
            let key = spec.key.as_deref().unwrap_or("-");
            let (name, queue, after) = (&spec.name, &spec.queue, &spec.after);
            format!(
                "submit {} '{name}' {queue} key {key} after {after:?} {}",
                submit.request,
                steps.join(" ")
            )
        }
        Event::Retry { request, job } => format!("retry {request} job {job}"),
        Event::RetryTasks { request, job, tasks } => {
            format!("retry {request} job {job} tasks {:?}", tasks.ranges().collect::<Vec<_>>())
        }
        Event::Fetched { number, records } => {
            let ids = records.as_ref().map(|records| records.iter().map(|r| r.id.0).collect::<Vec<_>>());
            format!("read {number}: {ids:?}")
        }
        Event::Hello(hello) => {
            format!("hello {} keeper {} {:?}", hello.name, hello.incarnation, hello.inventory)
        }
        Event::Finished { by, result } => format!("finished {by:?} {:?}", result.end),
        _ => format!("{event:?}"),
    }
}
