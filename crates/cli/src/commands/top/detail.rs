//! The detail that Enter opens on top of a list: a job with its tasks, or a worker with its tasks.

use crate::commands::top::list::RowList;
use crate::commands::top::message::{Answer, Read};
use crate::commands::top::rows::TaskRow;
use windlass_api::figures::WorkerSeries;
use windlass_api::{Job, Worker};

/// Tasks that are kept of a job.
pub const TASKS_MAX: usize = 100_000;
/// Rows before the end from which the next page is read.
const AHEAD: usize = 50;

/// Lines of what is known of a job, and of a worker.
const JOB_LINES: u16 = 4;
const WORKER_LINES: u16 = 7;

/// The job or worker that the user opened.
pub enum Opened {
    /// A job by its id, and the job itself once it is read.
    Job(u64, Option<Box<Job>>),
    /// A worker by its name, with its state and its series once they are read.
    Worker(String, Option<(Box<Worker>, Box<WorkerSeries>)>),
}

/// The job or worker that is open, and its tasks.
pub struct Detail {
    /// The job or worker that is shown.
    pub opened: Opened,
    pub tasks: RowList<TaskRow>,
    /// True if there are tasks behind those that were read.
    pub more: bool,
}

impl Detail {
    /// Nothing was read of it yet.
    pub fn new(opened: Opened) -> Self {
        Detail { opened, tasks: RowList::default(), more: false }
    }

    /// Lines that the summary takes.
    pub fn summary_height(&self) -> u16 {
        match self.opened {
            Opened::Job(..) => JOB_LINES,
            Opened::Worker(..) => WORKER_LINES,
        }
    }

    /// Reads the part that is shown.
    pub fn read(&self) -> Read {
        match &self.opened {
            Opened::Job(id, _) => Read::Job(*id, self.cursor()),
            Opened::Worker(name, _) => Read::Worker(name.clone()),
        }
    }

    /// The last task before the part that is shown. Pages begin behind a row, because the server counts by index.
    fn cursor(&self) -> Option<String> {
        let first = self.tasks.top().min(self.tasks.rows().len());
        if self.tasks.sort.is_some() || self.tasks.reversed {
            return None;
        }
        Some(self.tasks.rows().get(first)?.index).filter(|index| *index > 0).map(|index| index.to_string())
    }

    /// The next tasks, if the selection comes near the end of those that were read.
    pub fn read_more(&self) -> Option<Read> {
        let Opened::Job(id, _) = &self.opened else { return None };
        let is_near = self.tasks.place() + AHEAD >= self.tasks.len();
        let next = self.tasks.rows().last()?.index + 1;
        let is_wanted = self.more && is_near && self.tasks.rows().len() < TASKS_MAX;
        is_wanted.then(|| Read::Job(*id, Some(next.to_string())))
    }

    /// Takes an answer in, if it is about this.
    pub fn take(&mut self, read: &Read, answer: Answer) {
        match (&mut self.opened, read, answer) {
            (Opened::Job(id, known), Read::Job(of, cursor), Answer::Job(job, page, next)) if of == id => {
                *known = Some(job);
                let from = cursor.as_ref().and_then(|cursor| cursor.parse().ok()).unwrap_or(0_u32);
                let end = next.as_ref().and_then(|next| next.parse::<u32>().ok());
                let behind =
                    self.tasks.rows().last().is_some_and(|last| end.is_some_and(|end| last.index >= end));
                self.tasks.change(|rows| {
                    rows.retain(|row| row.index < from || end.is_some_and(|end| row.index >= end));
                    let place = rows.partition_point(|row| row.index < from);
                    rows.splice(place..place, page);
                    rows.truncate(TASKS_MAX);
                });
                if !behind {
                    self.more = end.is_some();
                }
            }
            (Opened::Worker(name, known), Read::Worker(of), Answer::Worker(worker, series)) if of == name => {
                let ids = worker.tasks.clone().unwrap_or_default();
                *known = Some((worker, series));
                self.tasks.change(|rows| *rows = ids.into_iter().map(TaskRow::named).collect());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::tests::sample;

    fn page(from: u32, tasks: u32, total: u32) -> Answer {
        let rows = (from..total.min(from + tasks))
            .map(|index| TaskRow { index, ..TaskRow::named(format!("1.{index}")) });
        let next = (from + tasks < total).then(|| (from + tasks).to_string());
        Answer::Job(Box::new(sample::job(1)), rows.collect(), next)
    }

    #[test]
    fn pages_of_tasks_join() {
        let mut detail = Detail::new(Opened::Job(1, None));
        let take = |detail: &mut Detail, from: Option<&str>, tasks, total| {
            let from = from.map(str::to_owned);
            let start = from.as_ref().map_or(0, |from| from.parse().unwrap());
            detail.take(&Read::Job(1, from), page(start, tasks, total));
        };
        take(&mut detail, None, 100, 250);
        assert_eq!((detail.tasks.len(), detail.more), (100, true));
        assert_eq!(detail.read_more(), None);
        detail.tasks.step(isize::MAX);
        assert_eq!(detail.read_more(), Some(Read::Job(1, Some("100".to_owned()))));
        take(&mut detail, Some("100"), 100, 250);
        take(&mut detail, Some("150"), 10, 250);
        assert_eq!((detail.tasks.len(), detail.more), (200, true));
        take(&mut detail, Some("200"), 100, 250);
        assert_eq!((detail.tasks.len(), detail.more, detail.read_more()), (250, false, None));
        assert!(detail.tasks.rows().iter().enumerate().all(|(n, row)| row.index == n as u32));
        detail.take(&Read::Job(2, None), page(0, 1, 1));
        assert_eq!(detail.tasks.len(), 250);
    }
}
