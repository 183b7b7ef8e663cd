//! What keys do, one after the other; and that the manual says the same.

use super::{drawn, sample, text};
use crate::commands::top::keys::{BINDINGS, Key, Screen};
use crate::commands::top::message::{Deed, Effect, LogNews, Message, Read, Subject, TaskVerb};
use crate::commands::top::state::{Link, Overlay, State};
use windlass_api::{Counts, JobEvent, JobState, ServerEvent, WorkerEvent};
use windlass_core::{JobId, TaskId};

fn chars(text: &str) -> Vec<Key> {
    text.chars().map(Key::Char).collect()
}

fn pressed(keys: &str) -> (State, Vec<Effect>) {
    let mut state = sample::state(80, 24);
    let effects = sample::press(&mut state, &chars(keys));
    (state, effects)
}

#[test]
fn changes_are_made_only_after_a_yes() {
    for (keys, deed) in [
        ("dy", Deed::ResumeWorker("box00".to_owned())),
        ("2jjjjjcy", Deed::Cancel(445)),
        ("2jjjty", Deed::Retry(447)),
        ("2hy", Deed::Hold(450)),
        ("2jjhy", Deed::Release(448)),
        ("3jjpy", Deed::ResumeQueue("nightly".to_owned())),
    ] {
        assert_eq!(pressed(keys).1, [Effect::Act(deed)], "{keys}");
        let no = keys.replace('y', "n");
        assert_eq!(pressed(&no).1, [], "{no}");
        assert!(pressed(&no).0.overlay.is_none(), "{no}");
        assert_eq!(pressed(&keys.replace('y', "x")).1, [], "{keys} with another key");
    }
    let (mut state, _) = pressed("3pq, disk");
    let effects = sample::press(&mut state, &[Key::Backspace, Key::Enter]);
    assert_eq!(effects, [Effect::Act(Deed::Pause("ann".to_owned(), "q, dis".to_owned()))]);
    let (mut state, _) = pressed("jdold");
    let drained = Deed::Drain("box01".to_owned(), "old".to_owned());
    assert_eq!(sample::press(&mut state, &[Key::Enter]), [Effect::Act(drained)]);
    let (mut state, _) = pressed("3pnote");
    assert_eq!(sample::press(&mut state, &[Key::Esc]), []);
}

#[test]
fn a_task_of_an_open_job_is_cancelled_and_retried_by_itself() {
    let task = |index| TaskId { job: JobId(450), index };
    for (keys, deed) in [
        ("jjjty", Deed::Task(task(3), TaskVerb::Retry)),
        ("jjjjcy", Deed::Task(task(4), TaskVerb::Cancel)),
        ("hy", Deed::Hold(450)),
    ] {
        let (mut state, _) = pressed("2");
        sample::press(&mut state, &[Key::Enter]);
        let effects = sample::press(&mut state, &chars(keys));
        assert!(effects.contains(&Effect::Act(deed)), "{keys}: {effects:?}");
    }
    let (mut state, _) = pressed("2");
    sample::press(&mut state, &[Key::Enter]);
    sample::press(&mut state, &chars("c"));
    assert!(state.overlay.is_none() && state.notice.unwrap().text.contains("task 450.0 has ended already"));
}

#[test]
fn what_has_ended_is_not_cancelled() {
    let (state, effects) = pressed("2jc");
    assert!(effects.is_empty() && state.overlay.is_none());
    assert!(state.notice.unwrap().text.contains("job 449 has ended already"));
}

#[test]
fn the_answer_to_a_change_is_said_for_a_while() {
    let (mut state, _) = pressed("");
    let refused = Err("'eve' may not do it".to_owned());
    state.update(Message::Acted(Deed::Cancel(3), refused), sample::at(100));
    assert!(text(&drawn(&state, 80, 24)).contains("cannot cancel job 3: 'eve' may not do it"));
    state.update(Message::Tick, sample::at(9_000));
    assert!(state.notice.is_none());
}

#[test]
fn back_leads_where_one_came_from_and_out_at_the_end() {
    let (mut state, _) = pressed("2w");
    assert_eq!((state.screen, state.why.subject.clone()), (Screen::Why, Some(Subject::Job(450))));
    assert_eq!(sample::press(&mut state, &[Key::Esc]), []);
    sample::press(&mut state, &[Key::Enter, Key::Enter]);
    assert_eq!((state.screen, state.logs.task.as_deref()), (Screen::Logs, Some("450.0")));
    sample::press(&mut state, &chars("w"));
    assert_eq!(state.why.subject, Some(Subject::Task("450.0".to_owned())));
    let (mut state, _) = pressed("3");
    sample::press(&mut state, &[Key::Enter]);
    assert_eq!((state.screen, state.filter()), (Screen::Jobs, "queue=ann"));
    sample::press(&mut state, &chars("q"));
    assert_eq!((state.screen, state.jobs.list.filter().text.as_str()), (Screen::Queues, ""));
    assert_eq!(sample::press(&mut state, &chars("q")), [Effect::Quit(0)]);
    let (mut state, _) = pressed("/box");
    assert_eq!(sample::press(&mut state, &[Key::Enter]), []);
    assert_eq!(sample::press(&mut state, &chars("q")), []);
    assert_eq!(state.filter(), "");
    assert_eq!(sample::press(&mut state, &[Key::Esc]), [Effect::Quit(0)]);
    assert_eq!(pressed("?").0.overlay, Some(Overlay::Help(0)));
    assert_eq!(sample::press(&mut pressed("3p").0, &[Key::Ctrl('c')]), [Effect::Quit(130)]);
}

#[test]
fn a_filter_is_seen_while_it_is_written_and_taken_back_by_esc() {
    let (mut state, _) = pressed("/13");
    assert_eq!((state.workers.len(), state.filter()), (1, "13"));
    sample::press(&mut state, &[Key::Esc]);
    assert_eq!(state.workers.len(), 14);
    // The server is asked when the text is complete.
    let (mut state, _) = pressed("2/film");
    let effects = state.update(Message::Key(Key::Enter), sample::at(0));
    assert!(matches!(&effects[0], Effect::Read(Read::Jobs(part)) if part.filter == "film"), "{effects:?}");
}

#[test]
fn the_list_of_jobs_is_read_page_by_page() {
    let (mut state, _) = pressed("2");
    assert_eq!(state.jobs.list.rows().len(), 200);
    sample::press(&mut state, &chars("GGG"));
    assert_eq!((state.jobs.list.rows().len(), state.jobs.list.selected().unwrap().id), (450, 1));
    sample::press(&mut state, &[Key::PageUp, Key::Home]);
    assert_eq!(state.jobs.list.selected().unwrap().id, 450);
}

#[test]
fn events_are_shown_without_a_read_and_new_jobs_are_read() {
    let (mut state, _) = pressed("2");
    let event = |job| {
        let counts = Counts { total: 100, succeeded: 100, ..Counts::default() };
        Message::Event(ServerEvent::Job(JobEvent { job, state: JobState::Succeeded, counts }))
    };
    let effects = state.update(event(449), sample::at(1));
    assert_eq!((effects.len(), state.jobs.list.rows()[1].state), (0, JobState::Succeeded));
    state.update(event(451), sample::at(2));
    assert!(state.update(Message::Tick, sample::at(200)).is_empty());
    let effects = state.update(Message::Tick, sample::at(300));
    assert!(matches!(&effects[0], Effect::Read(Read::Jobs(part)) if part.before.is_none()), "{effects:?}");
}

#[test]
fn a_stream_that_ends_is_opened_again_with_longer_and_longer_pauses() {
    let (mut state, _) = pressed("");
    let lost = |state: &mut State| state.update(Message::Unheard("gone".to_owned()), sample::at(1));
    let pauses: Vec<Effect> = (0..7).flat_map(|_| lost(&mut state)).collect();
    assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000].map(Effect::Listen));
    let effects = state.update(Message::Listening, sample::at(5_000));
    assert_eq!((state.link.clone(), effects.len()), (Link::Live, 1));
    assert_eq!(lost(&mut state).pop_front(), Some(Effect::Listen(500)));
    let worker = WorkerEvent { worker: "box1".to_owned(), what: "drained".to_owned() };
    state.update(Message::Event(ServerEvent::Worker(worker)), sample::at(5_001));
}

#[test]
fn output_is_followed_again_at_the_next_server() {
    for end in [None, Some("gone".to_owned())] {
        let (mut state, _) = pressed("3");
        state.logs.begin("450.0".to_owned());
        let number = state.logs.number;
        state.update(Message::Output(number, LogNews::End(end)), sample::at(1));
        state.update(Message::Unheard("gone".to_owned()), sample::at(2));
        let effects = state.update(Message::Listening, sample::at(5_000));
        assert!(effects.contains(&Effect::Follow(number + 1, "450.0".to_owned())), "{effects:?}");
        assert_eq!(state.screen, Screen::Queues, "a person stays where they are");
    }
}

#[test]
fn a_failed_read_is_said_and_does_not_hide_what_was_known() {
    let (mut state, _) = pressed("3");
    let effects = state.update(Message::Tick, sample::at(2_000));
    assert_eq!(effects, [Effect::Read(Read::Queues)]);
    state.update(Message::Answer(Read::Queues, Err("no answer".to_owned())), sample::at(2_100));
    let shown = text(&drawn(&state, 80, 24));
    assert!(shown.contains("cannot read: no answer") && shown.contains("nightly"), "{shown}");
}

/// The table of keys as the manual has it.
fn table() -> String {
    let row = |binding: &crate::commands::top::keys::Binding| {
        let on: Vec<&str> = binding.on.iter().map(|screen| screen.title()).collect();
        let on = if on.is_empty() { "all".to_owned() } else { on.join(", ") };
        let keys: Vec<String> = binding.shown.split(' ').map(|key| format!("`{key}`")).collect();
        format!("| {} | {} | {on} |\n", keys.join(" "), binding.text)
    };
    let rows: String = BINDINGS.iter().map(row).collect();
    format!("| keys | what they do | screens |\n|---|---|---|\n{rows}")
}

#[test]
fn the_manual_lists_the_keys() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/top.md");
    let manual = std::fs::read_to_string(path).unwrap_or_default();
    assert!(manual.contains(&table()), "docs/src/top.md has not this table of keys:\n{}", table());
}
