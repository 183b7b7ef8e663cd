//! The state of the program, and its change by each message. It uses no clock, terminal or network: each message
//! carries the time, and effects are returned to the caller.

use crate::commands::top::areas::Areas;
use crate::commands::top::detail::{Detail, Opened};
use crate::commands::top::jobs::JobPages;
use crate::commands::top::keys::Screen;
use crate::commands::top::list::RowList;
use crate::commands::top::log::LogView;
use crate::commands::top::message::{Answer, Deed, Effect, Effects, Message, Moment, Read, Subject};
use crate::commands::top::refresh::{GAP_MS, Need, Refresh};
use crate::commands::top::rows::{QueueRow, WorkerRow};
use crate::commands::top::why::{WhyView, task_lines, worker_why_lines};
use windlass_api::ServerEvent;
use windlass_api::figures::{FarmSeries, Overview};

/// How long a notice is shown.
const NOTICE_MS: u64 = 8_000;
/// The first pause before the stream of events is opened again, and the longest.
const LISTEN_PAUSE_MS: u64 = 500;
const LISTEN_PAUSE_MAX_MS: u64 = 10_000;
/// The age from which what is shown is called stale, besides the pause after a read that took long.
const STALE_MS: u64 = 15_000;

/// Queues with a sign of their own.
const SIGNS_MAX: usize = 50;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Link {
    /// It is being opened for the first time.
    #[default]
    Opening,
    /// Events come as things happen.
    Live,
    /// It ended, or cannot be opened, and is tried again.
    Lost {
        /// Since when, by the program's own time.
        since_ms: u64,
        /// Attempts to open it.
        tries: u32,
        /// The reason, for the header.
        why: String,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Overlay {
    /// The keys; the number of lines above the window.
    Help(usize),
    /// Whether to do it: the question, and what comes of it.
    Confirm(Vec<String>, Deed),
    /// The note of what is done then: the question, and what comes of it.
    Note(Vec<String>, Deed),
    /// A filter, and the one before it.
    Filter(String, String),
}

/// A line that is shown for a while.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// The text that has been typed so far.
    pub text: String,
    /// True if something failed.
    pub is_bad: bool,
    until_ms: u64,
}

/// All that the program knows of the farm and of its screen.
#[derive(Default)]
pub struct State {
    /// The moment of the last message.
    pub now: Moment,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    pub server: String,
    /// False if nothing is to be told by colour alone, nor with colours at all.
    pub colour: bool,
    /// Queues in the order in which they were first seen. A queue's place gives it its sign and its colour.
    pub queue_signs: Vec<String>,
    pub screen: Screen,
    /// The screen from which a key led here; back goes there.
    pub origin: Option<Screen>,
    /// The farm at a glance; `None` before it was read.
    pub overview: Option<Box<Overview>>,
    /// The farm over the last hour.
    pub series: Option<Box<FarmSeries>>,
    pub workers: RowList<WorkerRow>,
    pub jobs: JobPages,
    pub queues: RowList<QueueRow>,
    /// The detail that Enter opened. It is shown on the screen of its kind.
    pub detail: Option<Detail>,
    pub why: WhyView,
    pub logs: LogView,
    pub overlay: Option<Overlay>,
    pub notice: Option<Notice>,
    pub link: Link,
    /// When what is shown was last read, by the program's own time; `None` if it was not.
    pub read_ms: Option<u64>,
    /// Why the last read of what is shown failed.
    pub failure: Option<String>,
    pub(super) refresh: Refresh,
}

impl State {
    /// Nothing was read yet.
    pub fn new(server: String, size: (u16, u16), colour: bool) -> Self {
        State { size, server, colour, ..State::default() }
    }

    /// Takes a message in; answers what is to be done.
    pub fn update(&mut self, message: Message, now: Moment) -> Effects {
        self.now = now;
        let mut effects = Effects::new();
        match message {
            Message::Key(key) => self.press(key, &mut effects),
            Message::Size(width, height) => self.size = (width, height),
            Message::Tick => self.jobs.sort_again(),
            Message::At(server) => self.server = server,
            Message::Listening => self.listening(&mut effects),
            Message::Unheard(why) => self.unheard(why, &mut effects),
            Message::Event(event) => self.note(event),
            Message::Answer(read, answer) => self.answer(read, answer, &mut effects),
            Message::Output(number, news) if number == self.logs.number => self.logs.take(news),
            Message::Output(..) => {}
            Message::Acted(deed, Ok(())) => {
                self.refresh.outdated();
                self.say(deed.done());
            }
            Message::Acted(deed, Err(why)) => self.complain(format!("cannot {}: {why}", deed.doing())),
        }
        if self.notice.as_ref().is_some_and(|notice| notice.until_ms <= now.run_ms) {
            self.notice = None;
        }
        self.settle();
        if let Some(read) = self.read_more() {
            self.refresh.ask(read);
        }
        let shown = self.shown_read();
        effects.extend(self.refresh.next(now.run_ms, shown.as_ref()).map(Effect::Read));
        effects
    }

    fn listening(&mut self, effects: &mut Effects) {
        self.link = Link::Live;
        // What happened before the stream was open was missed.
        self.refresh.missed();
        // A server that ends in good order ends the output of tasks that run as if they had ended.
        if let (Some(task), Some(_)) = (self.logs.task.clone(), &self.logs.ended) {
            self.logs.begin(task.clone());
            effects.push_back(Effect::Follow(self.logs.number, task));
        }
    }

    fn unheard(&mut self, why: String, effects: &mut Effects) {
        let (since_ms, tries) = match self.link {
            Link::Lost { since_ms, tries, .. } => (since_ms, tries.saturating_add(1)),
            _ => (self.now.run_ms, 1),
        };
        self.link = Link::Lost { since_ms, tries, why };
        let doubled = LISTEN_PAUSE_MS << (tries - 1).min(8);
        effects.push_back(Effect::Listen(doubled.min(LISTEN_PAUSE_MAX_MS)));
    }

    /// Takes an event in. What it says is put into the rows at once; the rest is read again.
    fn note(&mut self, event: ServerEvent) {
        let (job, state, counts) = match event {
            ServerEvent::Lagged => return self.refresh.missed(),
            ServerEvent::Worker(_) => {
                self.refresh.changed(Need::Overview);
                return self.refresh.changed(Need::Shown);
            }
            ServerEvent::Job(event) => (event.job, Some(event.state), event.counts),
            ServerEvent::Tasks(event) => (event.job, None, event.counts),
        };
        let is_new =
            !self.jobs.note(job, state, counts) && self.jobs.newest().is_none_or(|newest| job > newest);
        self.refresh.changed(Need::Overview);
        let matters = match (self.screen, self.shown_detail().map(|detail| &detail.opened)) {
            (Screen::Jobs, Some(Opened::Job(shown, _))) => *shown == job,
            (Screen::Jobs, _) => is_new,
            (Screen::Logs, _) => false,
            _ => true,
        };
        if matters {
            self.refresh.changed(Need::Shown);
        }
    }

    fn answer(&mut self, read: Read, answer: Result<Answer, String>, effects: &mut Effects) {
        if !self.refresh.ended(&read, self.now.run_ms, answer.is_err()) {
            return;
        }
        let is_shown = !matches!(read, Read::Overview | Read::Series | Read::LogTask(_));
        let answer = match answer {
            Ok(answer) => answer,
            Err(why) => {
                if let Read::LogTask(job) = read {
                    self.complain(format!("cannot find the output of job {job}: {why}"));
                } else if is_shown {
                    self.failure = Some(why);
                }
                return;
            }
        };
        if is_shown {
            (self.failure, self.read_ms) = (None, Some(self.now.run_ms));
        }
        match answer {
            Answer::Overview(overview) => {
                overview.cpus.by_queue.iter().for_each(|holds| self.sign(&holds.queue));
                self.overview = Some(overview);
            }
            Answer::Series(series) => self.series = Some(series),
            Answer::Workers(rows) => {
                rows.iter().flat_map(|row| &row.seen.queues).for_each(|holds| self.sign(&holds.queue));
                self.workers.change(|known| *known = rows);
            }
            Answer::Queues(rows) => self.queues.change(|known| *known = rows),
            Answer::Jobs(page) => {
                if let Read::Jobs(part) = &read {
                    self.jobs.take(part, page);
                }
            }
            Answer::LogTask(None) => self.complain("no task of the job has output yet".to_owned()),
            Answer::LogTask(Some(task)) => self.follow(task, effects),
            answer @ (Answer::Job(..) | Answer::Worker(..)) => {
                if let Some(detail) = &mut self.detail {
                    detail.take(&read, answer);
                }
            }
            Answer::TaskWhy(why, job) if self.is_explained(&read) => {
                let holds = self.overview.as_ref().map_or(&[][..], |overview| &overview.holds);
                self.why.lines = task_lines(&why, &job, holds, self.now.wall_ms);
                self.why.task = Some(why.task);
            }
            Answer::WorkerWhy(why) if self.is_explained(&read) => {
                self.why.lines = worker_why_lines(&why, self.now.wall_ms);
            }
            Answer::TaskWhy(..) | Answer::WorkerWhy(_) => {}
        }
    }

    fn sign(&mut self, queue: &str) {
        if self.queue_signs.len() < SIGNS_MAX && !self.queue_signs.iter().any(|known| known == queue) {
            self.queue_signs.push(queue.to_owned());
        }
    }

    fn is_explained(&self, read: &Read) -> bool {
        matches!((read, &self.why.subject), (Read::Why(read), Some(subject)) if read == subject)
    }

    /// The detail that is open on this screen.
    pub fn shown_detail(&self) -> Option<&Detail> {
        let is_here = |detail: &&Detail| {
            matches!(
                (&detail.opened, self.screen),
                (Opened::Job(..), Screen::Jobs) | (Opened::Worker(..), Screen::Workers)
            )
        };
        self.detail.as_ref().filter(is_here)
    }

    /// The same, to change it.
    pub fn shown_detail_mut(&mut self) -> Option<&mut Detail> {
        if self.shown_detail().is_some() { self.detail.as_mut() } else { None }
    }

    /// The read for the shown screen. While a filter is written, the jobs wait for its end.
    fn shown_read(&self) -> Option<Read> {
        if let Some(detail) = self.shown_detail() {
            return Some(detail.read());
        }
        match self.screen {
            Screen::Workers => Some(Read::Workers),
            Screen::Jobs if matches!(self.overlay, Some(Overlay::Filter(..))) => None,
            Screen::Jobs => Some(self.jobs.read()),
            Screen::Queues => Some(Read::Queues),
            Screen::Why => self.why.subject.clone().map(Read::Why),
            Screen::Logs => None,
        }
    }

    fn read_more(&self) -> Option<Read> {
        match self.shown_detail() {
            Some(detail) => detail.read_more(),
            None if self.screen == Screen::Jobs && self.overlay.is_none() => self.jobs.read_more(),
            None => None,
        }
    }

    /// Something else is shown now.
    pub(super) fn show(&mut self) {
        let is_detail = self.shown_detail().is_some();
        let (least_ms, most_ms) = match self.screen {
            Screen::Workers if is_detail => (1_000, 2_000),
            Screen::Workers | Screen::Queues => (2 * GAP_MS, 2_000),
            Screen::Jobs if is_detail => (GAP_MS, 5_000),
            // Events bring most of what changes there.
            Screen::Jobs => (GAP_MS, 10_000),
            Screen::Why | Screen::Logs => (1_000, 2_000),
        };
        self.refresh.show(least_ms, most_ms);
        (self.read_ms, self.failure) = (None, None);
    }

    pub(super) fn explain(&mut self, subject: Subject) {
        if self.why.subject.as_ref() != Some(&subject) {
            self.why.begin(subject);
        }
        self.lead_to(Screen::Why);
    }

    pub(super) fn follow(&mut self, task: String, effects: &mut Effects) {
        self.logs.begin(task.clone());
        effects.push_back(Effect::Follow(self.logs.number, task));
        self.lead_to(Screen::Logs);
    }

    /// Goes to a screen from which back leads here again.
    pub(super) fn lead_to(&mut self, screen: Screen) {
        if self.screen != screen {
            self.origin = Some(self.screen);
            self.screen = screen;
        }
        self.show();
    }

    /// Says something for a while.
    pub(super) fn say(&mut self, text: String) {
        self.notice = Some(Notice { text, is_bad: false, until_ms: self.now.run_ms + NOTICE_MS });
    }

    /// Says for a while what failed.
    pub(super) fn complain(&mut self, text: String) {
        self.notice = Some(Notice { text, is_bad: true, until_ms: self.now.run_ms + NOTICE_MS });
    }

    /// The age from which what is shown is called stale. What takes long to read is read seldom on purpose.
    pub fn stale_ms(&self) -> u64 {
        STALE_MS.saturating_add(self.refresh.rest_ms())
    }

    /// Where the parts of the screen are.
    pub fn areas(&self) -> Areas {
        let is_held = self.overview.as_ref().is_some_and(|overview| !overview.holds.is_empty());
        let summary = self.shown_detail().map_or(0, Detail::summary_height);
        let has_heads = !matches!(self.screen, Screen::Why | Screen::Logs);
        Areas::of(self.size, u16::from(is_held), summary, u16::from(has_heads))
    }

    /// Rows of the list, or lines of the text, that are shown.
    pub fn height(&self) -> usize {
        usize::from(self.areas().rows.height)
    }

    fn settle(&mut self) {
        let height = self.height();
        match self.shown_detail_mut() {
            Some(detail) => detail.tasks.settle(height),
            None => {
                self.workers.settle(height);
                self.jobs.list.settle(height);
                self.queues.settle(height);
            }
        }
    }
}
