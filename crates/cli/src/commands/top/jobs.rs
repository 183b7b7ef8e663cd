//! The jobs that were read: the newest, and as many pages of older ones as the selection came down to.

use crate::commands::top::list::{RowFilter, RowList};
use crate::commands::top::message::{JobsPart, Read};
use crate::commands::top::rows::JobRow;
use windlass_api::client::JobsQuery;
use windlass_api::{Counts, Job, JobState, Page, state_word};

/// Jobs in a page.
pub const PAGE: usize = 200;
/// Jobs that are kept; a filter narrows what is read.
pub const JOBS_MAX: usize = 100_000;
/// Rows before the end from which the next page is read.
const AHEAD: usize = 50;
/// The words of states that are not an end.
const ACTIVE: &str = "pending,running,held";

/// The pages of jobs that were read so far.
#[derive(Default)]
pub struct JobPages {
    /// The rows, newest first unless they are sorted.
    pub list: RowList<JobRow>,
    /// Active jobs alone are read.
    pub active: bool,
    /// Jobs from this id on were read; `None` if all were, or none yet.
    end: Option<u64>,
    is_unsorted: bool,
}

impl JobPages {
    /// The page that holds the newest jobs, or those in the window if it is further down.
    pub fn read(&self) -> Read {
        let list = &self.list;
        let is_deep = list.sort.is_none() && !list.reversed && list.top() >= PAGE;
        // The window is in the middle of the page.
        let above = list.top().saturating_sub(PAGE / 4);
        let before = list.rows().get(above).filter(|_| is_deep && list.len() == list.rows().len());
        Read::Jobs(self.part(before.map(|row| row.id)))
    }

    fn part(&self, before: Option<u64>) -> JobsPart {
        JobsPart { filter: self.list.filter().text.clone(), active: self.active, before }
    }

    /// The next older page, if the selection comes near the end of what was read.
    pub fn read_more(&self) -> Option<Read> {
        let is_near = self.list.place() + AHEAD >= self.list.len();
        let end = self.end?;
        (is_near && self.list.rows().len() < JOBS_MAX).then(|| Read::Jobs(self.part(Some(end))))
    }

    /// True if there are older jobs than those that were read.
    pub fn has_more(&self) -> bool {
        self.end.is_some()
    }

    /// Takes a page in. It replaces what was read before of the same stretch of ids.
    pub fn take(&mut self, part: &JobsPart, page: Page<Job>) {
        if *part != self.part(part.before) {
            // The filter was changed meanwhile.
            return;
        }
        let before = part.before.unwrap_or(u64::MAX);
        // The server examines a limited number of jobs for a page, so a page can be short although older jobs match.
        // Its cursor is the id at which the server stopped.
        let end = page.next.as_ref().and_then(|next| next.parse::<u64>().ok()).filter(|end| *end < before);
        let newest = self.newest();
        // Between this page and what was known there may be jobs that were never read.
        let is_gap = end.is_some_and(|end| newest.is_none_or(|newest| newest < end));
        self.list.change(|rows| {
            let mut all: Vec<JobRow> = rows.extract_if(.., |row| row.id >= before).collect();
            all.extend(page.items.into_iter().map(JobRow::from));
            if let (Some(end), false) = (end, is_gap) {
                all.extend(rows.drain(..).filter(|row| row.id < end));
            }
            all.truncate(JOBS_MAX);
            *rows = all;
        });
        let reaches_further = match (end, self.end) {
            (None, _) | (Some(_), None) => newest.is_none() || end.is_none() || is_gap,
            (Some(end), Some(known)) => is_gap || end < known,
        };
        if reaches_further {
            self.end = end;
        }
    }

    /// Takes in what an event says of a job; false if the job is not known here.
    pub fn note(&mut self, job: u64, state: Option<JobState>, counts: Counts) -> bool {
        // Most events are about jobs at the top, and ids fall.
        let Ok(place) = self.list.rows().binary_search_by(|row| job.cmp(&row.id)) else { return false };
        self.is_unsorted |= self.list.sort.is_some() || !self.list.filter().text.is_empty();
        self.list.put(|rows| {
            let row = &mut rows[place];
            row.counts = counts;
            let has_begun = counts.running + counts.succeeded + counts.failed > 0;
            row.state = state.unwrap_or(match row.state {
                JobState::Pending if has_begun => JobState::Running,
                JobState::Running if !has_begun => JobState::Pending,
                same => same,
            });
        });
        true
    }

    /// Brings the rows into their order again, if events changed what it depends on: a hundred thousand rows are not
    /// sorted for each event.
    pub fn sort_again(&mut self) {
        if std::mem::take(&mut self.is_unsorted) {
            self.list.change(|_| ());
        }
    }

    /// The newest job that is known.
    pub fn newest(&self) -> Option<u64> {
        self.list.rows().first().map(|row| row.id)
    }

    /// Reads from the start, with another filter.
    pub fn restart(&mut self, filter: &str, active: bool) {
        self.active = active;
        self.end = None;
        self.list.change(Vec::clear);
        self.list.set_filter(filter);
        self.list.select_first();
    }
}

/// What the server is asked for a page: the words of the filter that it knows, the others are looked for in what it
/// answers.
pub fn query_of(part: &JobsPart) -> JobsQuery {
    let mut query = JobsQuery {
        state: part.active.then(|| ACTIVE.to_owned()),
        limit: Some(PAGE),
        cursor: part.before.map(|id| id.to_string()),
        ..JobsQuery::default()
    };
    for (key, value) in (RowFilter { text: part.filter.clone() }).words() {
        let value = Some(value.to_owned()).filter(|value| !value.is_empty());
        match key {
            // A list of values and states that the server does not know are for the filter here.
            Some("state") if value.as_deref().is_some_and(is_states) => {
                let words = value.as_deref().unwrap_or_default().split(',').map(state_word);
                query.state = Some(words.collect::<Vec<_>>().join(","));
            }
            Some("queue") if !value.as_deref().unwrap_or_default().contains(',') => query.queue = value,
            Some("user") if !value.as_deref().unwrap_or_default().contains(',') => query.user = value,
            None if query.name.is_none() => query.name = value,
            _ => {}
        }
    }
    query
}

fn is_states(words: &str) -> bool {
    words.split(',').all(|word| JobState::ALL.iter().any(|state| state.as_str() == state_word(word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn job(id: u64) -> Job {
        Job {
            id,
            name: format!("job-{}", id % 3),
            queue: "q".to_owned(),
            user: "ann".to_owned(),
            priority: 0,
            state: JobState::Pending,
            stopped: None,
            reason: None,
            created_ms: id,
            ended_ms: None,
            expected_end_ms: None,
            max_running: None,
            after: Vec::new(),
            after_any: Vec::new(),
            after_not_ok: Vec::new(),
            after_tasks: None,
            on_end: Vec::new(),
            notice_failures: Vec::new(),
            parent: None,
            counts: Counts { total: 1, ready: 1, ..Counts::default() },
            steps: Vec::new(),
        }
    }

    /// The server: jobs `1..=newest`, pages of `size`.
    fn page(newest: u64, before: Option<u64>, size: u64) -> Page<Job> {
        let top = before.map_or(newest, |before| (before - 1).min(newest));
        let items: Vec<Job> = (1..=top).rev().take(size as usize).map(job).collect();
        let next = items.last().filter(|last| last.id > 1).map(|last| last.id.to_string());
        Page { items, next }
    }

    fn ids(pages: &JobPages) -> Vec<u64> {
        pages.list.rows().iter().map(|row| row.id).collect()
    }

    fn take(pages: &mut JobPages, before: Option<u64>, newest: u64) {
        let part = pages.part(before);
        pages.take(&part, page(newest, before, 5));
    }

    #[test]
    fn pages_join_and_new_jobs_come_first() {
        let mut pages = JobPages::default();
        take(&mut pages, None, 12);
        assert_eq!((ids(&pages), pages.has_more()), (vec![12, 11, 10, 9, 8], true));
        take(&mut pages, Some(8), 12);
        take(&mut pages, None, 14);
        assert_eq!(ids(&pages), (3..=14).rev().collect::<Vec<_>>());
        take(&mut pages, Some(3), 14);
        assert_eq!((ids(&pages).len(), pages.has_more()), (14, false));
        // More new jobs than a page: what is below the gap is read again when it is wanted.
        take(&mut pages, None, 30);
        assert_eq!((ids(&pages), pages.has_more()), (vec![30, 29, 28, 27, 26], true));
        let stale = JobsPart { filter: "x".to_owned(), active: false, before: None };
        pages.take(&stale, page(99, None, 5));
        assert_eq!(ids(&pages)[0], 30);
    }

    #[test]
    fn events_change_known_jobs_without_a_read() {
        let mut pages = JobPages::default();
        take(&mut pages, None, 3);
        let counts = Counts { total: 9, running: 4, ..Counts::default() };
        assert!(pages.note(2, None, counts) && !pages.note(7, None, counts));
        assert_eq!((pages.list.rows()[1].counts.running, pages.list.rows()[1].state), (4, JobState::Running));
        assert!(pages.note(2, Some(JobState::Failed), Counts::default()));
        assert_eq!(pages.list.rows()[1].state, JobState::Failed);
    }

    #[test]
    fn the_server_is_asked_for_the_words_that_it_knows() {
        let part = |filter: &str, active| JobsPart { filter: filter.to_owned(), active, before: Some(7) };
        let query = query_of(&part("film queue=q user=a,b state=running,held more", true));
        assert_eq!(
            (query.name.as_deref(), query.queue.as_deref(), query.user),
            (Some("film"), Some("q"), None)
        );
        assert_eq!((query.state.as_deref(), query.cursor.as_deref()), (Some("running,held"), Some("7")));
        let query = query_of(&part("state=odd queue=", true));
        assert_eq!((query.state.as_deref(), query.queue), (Some(ACTIVE), None));
    }

    proptest! {
        #[test]
        fn rows_are_always_a_stretch_without_holes(steps in prop::collection::vec((0_u64..9, any::<bool>()), 1..40)) {
            let (mut pages, mut newest) = (JobPages::default(), 3);
            for (submitted, deeper) in steps {
                newest += submitted;
                let before = pages.list.rows().last().map(|row| row.id).filter(|id| deeper && *id > 1);
                take(&mut pages, before, newest);
                let rows = ids(&pages);
                prop_assert!(rows.windows(2).all(|pair| pair[0] == pair[1] + 1), "{:?}", rows);
                prop_assert_eq!(pages.has_more(), rows.last() != Some(&1));
            }
        }
    }
}
