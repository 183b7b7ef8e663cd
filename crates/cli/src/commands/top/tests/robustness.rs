//! Nothing that is typed, answered or written breaks it.

use super::{drawn, sample};
use crate::commands::top::keys::Key;
use crate::commands::top::message::{Answer, Effect, LogNews, Message};
use crate::commands::top::state::State;
use proptest::prelude::*;
use windlass_api::{Counts, JobEvent, JobState, ServerEvent};

const SPECIAL: [Key; 14] = [
    Key::Enter,
    Key::Esc,
    Key::Tab,
    Key::BackTab,
    Key::Up,
    Key::Down,
    Key::Left,
    Key::Right,
    Key::PageUp,
    Key::PageDown,
    Key::Home,
    Key::End,
    Key::Backspace,
    Key::Ctrl('f'),
];

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![
        4 => prop::sample::select("12345jkgGlwdcpsrayn?/q ".chars().collect::<Vec<_>>()).prop_map(Key::Char),
        1 => any::<char>().prop_map(Key::Char),
        4 => prop::sample::select(SPECIAL.to_vec()),
    ]
}

#[derive(Clone, Debug)]
enum Happens {
    Key(Key),
    Size(u16, u16),
    Passes(u64),
    Fails,
    Lost,
    Listening,
    Job(u64, u32),
    Output(Vec<u8>),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        12 => key().prop_map(Happens::Key),
        2 => (1_u16..=300, 1_u16..=100).prop_map(|(width, height)| Happens::Size(width, height)),
        2 => (1_u64..20_000).prop_map(Happens::Passes),
        1 => Just(Happens::Fails),
        1 => Just(Happens::Lost),
        1 => Just(Happens::Listening),
        2 => (1_u64..500, 0_u32..100).prop_map(|(job, running)| Happens::Job(job, running)),
        1 => prop::collection::vec(any::<u8>(), 0..200).prop_map(Happens::Output),
    ]
}

/// Takes in what happens; reads are answered, or refused.
fn happen(state: &mut State, what: Happens) {
    let run_ms = state.now.run_ms;
    let message = match what {
        Happens::Key(key) => Message::Key(key),
        Happens::Size(width, height) => Message::Size(width, height),
        Happens::Passes(ms) => return drop(answered(state, Message::Tick, run_ms + ms, false)),
        Happens::Fails => return drop(answered(state, Message::Tick, run_ms + 3_000, true)),
        Happens::Lost => Message::Unheard("gone".to_owned()),
        Happens::Listening => Message::Listening,
        Happens::Job(job, running) => {
            let counts = Counts { total: 100, running, ready: 100 - running, ..Counts::default() };
            Message::Event(ServerEvent::Job(JobEvent { job, state: JobState::Running, counts }))
        }
        Happens::Output(bytes) => {
            Message::Output(state.logs.number, LogNews::Bytes(bytes.len() % 2 == 0, bytes))
        }
    };
    answered(state, message, run_ms, false);
}

fn answered(state: &mut State, message: Message, run_ms: u64, fails: bool) -> Vec<Effect> {
    let effects = state.update(message, sample::at(run_ms));
    if !fails {
        return sample::answer_all(state, effects, run_ms);
    }
    for effect in effects {
        if let Effect::Read(read) = effect {
            state.update(Message::Answer(read, Err("refused".to_owned())), sample::at(run_ms));
        }
    }
    Vec::new()
}

fn has_control(state: &State, width: u16, height: u16) -> bool {
    let buffer = drawn(state, width, height);
    buffer.content.iter().any(|cell| cell.symbol().chars().any(|c| c.is_control() || c == '\u{202e}'))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_keys_and_no_sizes_break_it(
        width in 1_u16..=300,
        height in 1_u16..=100,
        history in prop::collection::vec(happens(), 0..40),
        other in (1_u16..=300, 1_u16..=100),
    ) {
        let mut state = sample::state(width, height);
        for what in history {
            if let Happens::Size(..) = what {
                // A drawing may come before the news that the size changed.
                drawn(&state, other.0, other.1);
            }
            happen(&mut state, what);
        }
        let (width, height) = state.size;
        prop_assert!(!has_control(&state, width, height));
    }

    #[test]
    fn no_name_reaches_the_terminal_raw(name in any::<String>(), hostile in "[\u{1b}\u{9b}\u{202e}\r\n\t\u{7}a-z]{1,12}", screen in 0_usize..8) {
        let keys = ["", "\n", "w", "2", "2\n", "2w", "3", "3p"][screen];
        for name in [name, hostile] {
            let mut state = sample::state(120, 30);
            state.server.clone_from(&name);
            state.update(Message::Acted(crate::commands::top::message::Deed::Drain(name.clone(), name.clone()), Ok(())), sample::at(1));
            for key in keys.chars() {
                let key = if key == '\n' { Key::Enter } else { Key::Char(key) };
                let effects = state.update(Message::Key(key), sample::at(1));
                for effect in effects {
                    if let Effect::Read(read) = effect {
                        let answer = renamed(sample::answer(&read), &name);
                        state.update(Message::Answer(read, Ok(answer)), sample::at(1));
                    }
                }
            }
            state.workers.change(|rows| rows.iter_mut().for_each(|row| {
                row.seen.name.clone_from(&name);
                row.reason = Some(name.clone());
            }));
            if let Some(overview) = &mut state.overview {
                overview.holds = vec![name.clone()];
                overview.cpus.by_queue.iter_mut().for_each(|holds| holds.queue.clone_from(&name));
            }
            state.queue_signs = vec![name.clone()];
            state.failure = Some(name.clone());
            prop_assert!(!has_control(&state, 120, 30));
            let prompt = if screen % 2 == 0 { Key::Char('d') } else { Key::Char('c') };
            state.update(Message::Key(prompt), sample::at(1));
            prop_assert!(!has_control(&state, 120, 30));
        }
    }
}

/// An answer in which people chose that name for everything.
fn renamed(mut answer: Answer, name: &str) -> Answer {
    let put = |text: &mut String| name.clone_into(text);
    match &mut answer {
        Answer::Jobs(page) => page.items.iter_mut().for_each(|job| {
            put(&mut job.name);
            put(&mut job.queue);
            put(&mut job.user);
        }),
        Answer::Job(job, tasks, _) => {
            put(&mut job.name);
            job.stopped = Some(name.to_owned());
            tasks.iter_mut().for_each(|task| {
                put(&mut task.what);
                put(&mut task.progress);
                task.worker = Some(name.to_owned());
            });
        }
        Answer::Queues(rows) => rows.iter_mut().for_each(|row| {
            put(&mut row.0.name);
            row.0.paused = Some(name.to_owned());
        }),
        Answer::Worker(worker, _) => {
            put(&mut worker.name);
            worker.version = Some(name.to_owned());
        }
        Answer::TaskWhy(why, job) => {
            put(&mut why.message);
            put(&mut job.name);
            why.changes.iter_mut().for_each(|change| change.steps = vec![name.to_owned()]);
        }
        Answer::WorkerWhy(why) => put(&mut why.message),
        _ => {}
    }
    answer
}

#[test]
fn ten_thousand_workers_and_a_hundred_thousand_jobs_are_only_laid_out_where_they_are_seen() {
    let mut state = sample::state(80, 24);
    state.workers.change(|rows| *rows = sample::workers(10_000));
    sample::press(&mut state, &[Key::End, Key::Char('s'), Key::Char('s'), Key::Char('r')]);
    assert_eq!(state.workers.window(state.height()).count(), state.height());
    sample::press(&mut state, &[Key::Char('2')]);
    state.jobs.list.change(|rows| {
        rows.clear();
        rows.extend((1..=100_000).rev().map(|id| sample::job(id).into()));
    });
    state.update(Message::Key(Key::Home), sample::at(1));
    let shown = super::text(&drawn(&state, 80, 24));
    assert!(shown.contains("100000"), "{shown}");
}
