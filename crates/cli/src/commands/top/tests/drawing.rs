//! Each screen as it is drawn, in small and in large. `UPDATE_EXPECT=1` writes the files.

use super::{drawn, sample, text};
use crate::commands::top::keys::Key;
use crate::commands::top::message::{Answer, Effect, LogNews, Message, Read};
use crate::commands::top::state::State;
use expect_test::{ExpectFile, expect_file};
use ratatui::style::Color as Tint;

/// A screen after these keys, in both sizes.
fn shows(keys: &[Key], small: ExpectFile, large: ExpectFile) {
    for ((width, height), expected) in [((80, 24), small), ((200, 50), large)] {
        let mut state = sample::state(width, height);
        sample::press(&mut state, keys);
        expected.assert_eq(&text(&drawn(&state, width, height)));
    }
}

fn shows_small(state: &State, expected: ExpectFile) {
    expected.assert_eq(&text(&drawn(state, 80, 24)));
}

#[test]
fn workers() {
    shows(&[], expect_file!["screens/workers-80.txt"], expect_file!["screens/workers-200.txt"]);
}

#[test]
fn jobs() {
    let (small, large) = (expect_file!["screens/jobs-80.txt"], expect_file!["screens/jobs-200.txt"]);
    shows(&[Key::Char('2'), Key::Down], small, large);
}

#[test]
fn queues() {
    let (small, large) = (expect_file!["screens/queues-80.txt"], expect_file!["screens/queues-200.txt"]);
    shows(&[Key::Char('3')], small, large);
}

#[test]
fn why_a_task_waits() {
    let (small, large) = (expect_file!["screens/why-80.txt"], expect_file!["screens/why-200.txt"]);
    shows(&[Key::Char('2'), Key::Char('w')], small, large);
}

#[test]
fn output_of_a_task() {
    let (small, large) = (expect_file!["screens/logs-80.txt"], expect_file!["screens/logs-200.txt"]);
    shows(&[Key::Char('2'), Key::Char('l')], small, large);
}

#[test]
fn a_job_and_its_tasks() {
    let (small, large) = (expect_file!["screens/job-80.txt"], expect_file!["screens/job-200.txt"]);
    shows(&[Key::Char('2'), Key::Enter, Key::Char('G')], small, large);
}

#[test]
fn a_worker_and_its_tasks() {
    let (small, large) = (expect_file!["screens/worker-80.txt"], expect_file!["screens/worker-200.txt"]);
    shows(&[Key::Enter], small, large);
}

#[test]
fn questions_and_help() {
    for (keys, expected) in [
        (&[Key::Char('?')][..], expect_file!["screens/help.txt"]),
        (&[Key::Char('j'), Key::Char('d')], expect_file!["screens/drain.txt"]),
        (&[Key::Char('2'), Key::Char('s'), Key::Char('c')], expect_file!["screens/cancel.txt"]),
        (
            &[Key::Char('3'), Key::Char('p'), Key::Char('!'), Key::Char('\u{9b}')],
            expect_file!["screens/pause.txt"],
        ),
        (&[Key::Char('/'), Key::Char('0'), Key::Char('1')], expect_file!["screens/filter.txt"]),
    ] {
        let mut state = sample::state(80, 24);
        sample::press(&mut state, keys);
        shows_small(&state, expected);
    }
}

#[test]
fn what_is_old_is_called_stale_and_what_holds_the_farm_is_said() {
    let mut state = sample::state(80, 24);
    let Answer::Overview(mut overview) = sample::answer(&Read::Overview) else { panic!() };
    overview.holds.push("no worker takes work: 1 drained".to_owned());
    state.overview = Some(overview);
    state.update(Message::Unheard("the server closed the stream of events".to_owned()), sample::at(2_000));
    state.update(Message::Tick, sample::at(34_000));
    shows_small(&state, expect_file!["screens/stale.txt"]);
}

/// A farm that takes long to read is read seldom on purpose.
#[test]
fn what_took_long_to_read_is_stale_only_after_the_pause_that_follows() {
    let mut state = sample::state(80, 24);
    let effects = state.update(Message::Tick, sample::at(2_000));
    assert!(effects.contains(&Effect::Read(Read::Workers)), "{effects:?}");
    state.update(Message::Answer(Read::Workers, Ok(sample::answer(&Read::Workers))), sample::at(5_000));
    // It took 3 s, so it rests for 27 s, and the next read may take as long.
    for (run_ms, mark) in [(19_000, "● live 14 s"), (46_999, "● live 41 s"), (47_000, "○ stale 42 s")] {
        state.update(Message::Tick, sample::at(run_ms));
        let shown = text(&drawn(&state, 80, 24));
        assert!(shown.lines().next().is_some_and(|title| title.ends_with(mark)), "{mark}:\n{shown}");
    }
}

#[test]
fn a_small_terminal_is_told_what_is_needed() {
    let state = sample::state(40, 10);
    expect_file!["screens/small.txt"].assert_eq(&text(&drawn(&state, 40, 10)));
    assert_eq!(text(&drawn(&state, 7, 1)), "windlas\n");
}

#[test]
fn without_colours_everything_is_said_by_signs() {
    let mut state = sample::state(80, 24);
    let coloured = drawn(&state, 80, 24);
    assert!(coloured.content.iter().any(|cell| cell.fg != Tint::Reset));
    state.colour = false;
    let plain = drawn(&state, 80, 24);
    assert!(plain.content.iter().all(|cell| cell.fg == Tint::Reset && cell.bg == Tint::Reset));
    assert_eq!(text(&plain), text(&coloured));
}

#[test]
fn an_empty_farm_says_what_to_do() {
    let mut state = sample::state(80, 24);
    state.workers.change(Vec::clear);
    assert!(text(&drawn(&state, 80, 24)).contains("no workers; 'windlass worker start'"));
    sample::press(&mut state, &[Key::Char('2')]);
    state.jobs.list.change(Vec::clear);
    assert!(text(&drawn(&state, 80, 24)).contains("no jobs; 'windlass run -- COMMAND' submits one"));
}

#[test]
fn output_is_drawn_without_its_escape_sequences() {
    let mut state = sample::state(80, 24);
    sample::press(&mut state, &[Key::Char('2'), Key::Char('l')]);
    let hostile = b"\x1b]0;title\x07plain \x1b[2J\x9b31m\xe2\x80\xaeend\n".to_vec();
    let number = state.logs.number;
    state.update(Message::Output(number, LogNews::Bytes(false, hostile)), sample::at(10));
    let shown = text(&drawn(&state, 80, 24));
    assert!(shown.contains("plain "), "{shown}");
    assert!(shown.contains("\\u{202e}end") && !shown.contains("title"), "{shown}");
}
