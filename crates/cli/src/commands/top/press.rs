//! The effect of each key.

use crate::commands::top::detail::{Detail, Opened};
use crate::commands::top::keys::{Does, Key, Screen, lookup};
use crate::commands::top::message::{Deed, Effect, Effects, Read, Subject};
use crate::commands::top::state::{Overlay, State};
use crate::ui::error::INTERRUPTED;
use crate::ui::output::count;
use windlass_api::WorkerState;

/// Characters of a text that is typed.
const TYPED_MAX: usize = 200;

impl State {
    pub(super) fn press(&mut self, key: Key, effects: &mut Effects) {
        if key == Key::Ctrl('c') {
            effects.push_back(Effect::Quit(INTERRUPTED));
            return;
        }
        match self.overlay.take() {
            None => {
                if let Some(does) = lookup(key, self.screen) {
                    self.notice = None;
                    self.perform(does, effects);
                }
            }
            Some(Overlay::Help(top)) => self.overlay = help_after(top, key),
            Some(Overlay::Confirm(question, deed)) => match key {
                Key::Char('y' | 'Y') => effects.push_back(Effect::Act(deed)),
                Key::Char('n' | 'N' | 'q') | Key::Esc => {}
                _ => self.overlay = Some(Overlay::Confirm(question, deed)),
            },
            Some(Overlay::Note(question, mut deed)) => match key {
                Key::Enter => effects.push_back(Effect::Act(deed)),
                Key::Esc => {}
                key => {
                    deed.note().into_iter().for_each(|note| type_into(note, key));
                    self.overlay = Some(Overlay::Note(question, deed));
                }
            },
            Some(Overlay::Filter(text, before)) => self.type_filter(key, text, before),
        }
    }

    fn type_filter(&mut self, key: Key, mut text: String, before: String) {
        match key {
            Key::Esc => self.apply_filter(&before),
            Key::Enter if self.screen == Screen::Jobs && self.shown_detail().is_none() => {
                let active = self.jobs.active;
                self.jobs.restart(&text, active);
                self.show();
            }
            Key::Enter => {}
            key => {
                type_into(&mut text, key);
                self.apply_filter(&text);
                self.overlay = Some(Overlay::Filter(text, before));
            }
        }
    }

    /// Shows the rows, or the lines, that a filter lets through.
    fn apply_filter(&mut self, text: &str) {
        if let Some(detail) = self.shown_detail_mut() {
            return detail.tasks.set_filter(text);
        }
        match self.screen {
            Screen::Workers => self.workers.set_filter(text),
            Screen::Jobs => self.jobs.list.set_filter(text),
            Screen::Queues => self.queues.set_filter(text),
            Screen::Logs => self.logs.set_filter(text),
            Screen::Why => {}
        }
    }

    /// The filter of what is shown.
    pub fn filter(&self) -> &str {
        if let Some(detail) = self.shown_detail() {
            return &detail.tasks.filter().text;
        }
        match self.screen {
            Screen::Workers => &self.workers.filter().text,
            Screen::Jobs => &self.jobs.list.filter().text,
            Screen::Queues => &self.queues.filter().text,
            Screen::Logs => self.logs.filter(),
            Screen::Why => "",
        }
    }

    fn perform(&mut self, does: Does, effects: &mut Effects) {
        let page = self.height().saturating_sub(1).max(1).cast_signed();
        match does {
            Does::Go(screen) => self.go(screen, effects),
            Does::NextScreen => self.go(self.screen.further(1), effects),
            Does::PreviousScreen => self.go(self.screen.further(Screen::ALL.len() - 1), effects),
            Does::Filter => {
                let text = self.filter().to_owned();
                self.overlay = Some(Overlay::Filter(text.clone(), text));
            }
            Does::StepDown => self.step(1),
            Does::StepUp => self.step(-1),
            Does::PageDown => self.step(page),
            Does::PageUp => self.step(-page),
            Does::First => self.step(isize::MIN + 1),
            Does::Last if self.screen == Screen::Logs => self.logs.follow_end(),
            Does::Last => self.step(isize::MAX),
            Does::Left => self.logs.shift_by(false),
            Does::Right => self.logs.shift_by(true),
            Does::Open => self.open(effects),
            Does::Logs => self.follow_selected(effects),
            Does::Why => self.explain_selected(),
            Does::Drain => self.ask_drain(),
            Does::Cancel => self.ask_cancel(),
            Does::Retry => self.ask_retry(),
            Does::Hold => self.ask_hold(),
            Does::Pause => self.ask_pause(),
            Does::Sort => self.sort(false),
            Does::Reverse => self.sort(true),
            Does::Active => {
                let (filter, active) = (self.jobs.list.filter().text.clone(), !self.jobs.active);
                self.jobs.restart(&filter, active);
                self.show();
            }
            Does::Help => self.overlay = Some(Overlay::Help(0)),
            Does::Back => self.back(effects),
            Does::Interrupt => effects.push_back(Effect::Quit(INTERRUPTED)),
        }
    }

    fn go(&mut self, screen: Screen, effects: &mut Effects) {
        match screen {
            Screen::Why if self.subject().is_some() => return self.explain_selected(),
            Screen::Logs if self.task().is_some() => return self.follow_selected(effects),
            _ => {}
        }
        if screen == self.screen {
            // Its own number leads from what was opened to the list.
            self.detail = None;
        }
        (self.screen, self.origin) = (screen, None);
        self.show();
    }

    fn step(&mut self, rows: isize) {
        let height = self.height();
        if let Some(detail) = self.shown_detail_mut() {
            return detail.tasks.step(rows);
        }
        match self.screen {
            Screen::Workers => self.workers.step(rows),
            Screen::Jobs => self.jobs.list.step(rows),
            Screen::Queues => self.queues.step(rows),
            // The last page stays where it is; drawing knows how many lines there are after wrapping.
            Screen::Why => {
                let most = crate::commands::top::draw::why_height(self).saturating_sub(height);
                self.why.top = self.why.top.saturating_add_signed(rows).min(most);
            }
            Screen::Logs if rows == isize::MIN + 1 => self.logs.rewind(height),
            Screen::Logs => self.logs.step(rows, height),
        }
    }

    fn sort(&mut self, reverse: bool) {
        macro_rules! on {
            ($list:expr) => {
                if reverse { $list.reverse() } else { $list.sort_further() }
            };
        }
        if let Some(detail) = self.shown_detail_mut() {
            on!(detail.tasks);
            return;
        }
        match self.screen {
            Screen::Workers => on!(self.workers),
            Screen::Jobs => on!(self.jobs.list),
            Screen::Queues => on!(self.queues),
            Screen::Why | Screen::Logs => {}
        }
    }

    fn open(&mut self, effects: &mut Effects) {
        if self.shown_detail().is_some() {
            return self.follow_selected(effects);
        }
        let opened = match self.screen {
            Screen::Workers => self.workers.selected().map(|row| Opened::Worker(row.seen.name.clone(), None)),
            Screen::Jobs => self.jobs.list.selected().map(|row| Opened::Job(row.id, None)),
            Screen::Queues => {
                let Some(queue) = self.queues.selected() else { return };
                self.jobs.restart(&format!("queue={}", queue.0.name), false);
                self.detail = None;
                return self.lead_to(Screen::Jobs);
            }
            Screen::Why | Screen::Logs => None,
        };
        if let Some(opened) = opened {
            self.detail = Some(Detail::new(opened));
            self.show();
        }
    }

    fn back(&mut self, effects: &mut Effects) {
        if self.shown_detail().is_some() {
            self.detail = None;
            return self.show();
        }
        if let Some(origin) = self.origin.take() {
            if self.screen == Screen::Jobs {
                self.jobs.restart("", self.jobs.active);
            }
            self.screen = origin;
            return self.show();
        }
        if !self.filter().is_empty() {
            if self.screen == Screen::Jobs {
                self.jobs.restart("", self.jobs.active);
                self.show();
            }
            return self.apply_filter("");
        }
        effects.push_back(Effect::Quit(0));
    }

    fn task(&self) -> Option<String> {
        if let Some(detail) = self.shown_detail() {
            return detail.tasks.selected().map(|task| task.id.clone());
        }
        match self.screen {
            Screen::Why => self.why.task.clone(),
            Screen::Logs => self.logs.task.clone(),
            _ => None,
        }
    }

    /// The selected task or worker, if it can be explained.
    fn subject(&self) -> Option<Subject> {
        if let Some(task) = self.task() {
            return Some(Subject::Task(task));
        }
        match (self.screen, self.shown_detail().map(|detail| &detail.opened)) {
            (_, Some(Opened::Job(job, _))) => Some(Subject::Job(*job)),
            (_, Some(Opened::Worker(worker, _))) => Some(Subject::Worker(worker.clone())),
            (Screen::Workers, None) => {
                self.workers.selected().map(|row| Subject::Worker(row.seen.name.clone()))
            }
            (Screen::Jobs, None) => self.jobs.list.selected().map(|row| Subject::Job(row.id)),
            _ => None,
        }
    }

    fn explain_selected(&mut self) {
        if let Some(subject) = self.subject() {
            self.explain(subject);
        }
    }

    fn follow_selected(&mut self, effects: &mut Effects) {
        let selected = self.jobs.list.selected().filter(|_| self.screen == Screen::Jobs).map(|row| row.id);
        match (self.task(), &self.detail, selected) {
            (Some(task), ..) => {
                if self.logs.task.as_ref() == Some(&task) && self.screen == Screen::Logs {
                    return;
                }
                self.follow(task, effects);
            }
            (None, None, Some(job)) => self.refresh.ask(Read::LogTask(job)),
            _ => self.say("open a worker or a job with Enter, and choose a task".to_owned()),
        }
    }

    fn ask_drain(&mut self) {
        let name = match self.shown_detail().map(|detail| &detail.opened) {
            Some(Opened::Worker(name, _)) => Some(name.clone()),
            _ => None,
        };
        let named = |name: String| self.workers.rows().iter().find(|row| row.seen.name == name);
        let Some(row) = name.map_or_else(|| self.workers.selected(), named) else { return };
        let (name, tasks) = (row.seen.name.clone(), count(row.seen.assigned_jobs as u64, "task"));
        self.overlay = Some(if row.seen.state == WorkerState::Draining {
            let question = vec![format!("Resume worker {name}?"), "It gets work again.".to_owned()];
            Overlay::Confirm(question, Deed::ResumeWorker(name))
        } else {
            let says = format!("It gets no new work. {tasks} that it has will end there.");
            Overlay::Note(vec![format!("Drain worker {name}?"), says], Deed::Drain(name, String::new()))
        });
    }

    fn ask_pause(&mut self) {
        let Some(queue) = self.queues.selected() else { return };
        let name = queue.0.name.clone();
        self.overlay = Some(match &queue.0.paused {
            None => {
                let says = "It starts no task; running tasks go on.".to_owned();
                Overlay::Note(vec![format!("Pause queue {name}?"), says], Deed::Pause(name, String::new()))
            }
            Some(note) => {
                let question = vec![format!("Resume queue {name}?"), format!("It was paused: {note}")];
                Overlay::Confirm(question, Deed::ResumeQueue(name))
            }
        });
    }
}

fn help_after(top: usize, key: Key) -> Option<Overlay> {
    match key {
        Key::Down | Key::Char('j') => Some(Overlay::Help(top + 1)),
        Key::PageDown | Key::Char(' ') => Some(Overlay::Help(top + 10)),
        Key::Up | Key::Char('k') => Some(Overlay::Help(top.saturating_sub(1))),
        Key::PageUp => Some(Overlay::Help(top.saturating_sub(10))),
        _ => None,
    }
}

fn type_into(text: &mut String, key: Key) {
    match key {
        Key::Char(character) if text.chars().count() < TYPED_MAX => text.push(character),
        Key::Backspace => _ = text.pop(),
        Key::Ctrl('u') => text.clear(),
        _ => {}
    }
}
