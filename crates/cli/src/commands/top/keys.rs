//! The keys: which key does what on which screen. The help, the manual and the program read the same table.

use Does::{
    Active, Back, Cancel, Drain, Filter, First, Help, Hold, Interrupt, Last, Left, Logs, NextScreen, Open,
    PageDown, PageUp, Pause, PreviousScreen, Retry, Reverse, Right, Sort, StepDown, StepUp, Why,
};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// One of the screens that a number key selects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Screen {
    #[default]
    Workers,
    Jobs,
    Queues,
    /// Why a task or a worker is where it is.
    Why,
    /// The output of a task.
    Logs,
}

impl Screen {
    /// All, in the order of their numbers.
    pub const ALL: [Screen; 5] = [Screen::Workers, Screen::Jobs, Screen::Queues, Screen::Why, Screen::Logs];

    /// The name in the row of screens.
    pub fn title(self) -> &'static str {
        match self {
            Screen::Workers => "Workers",
            Screen::Jobs => "Jobs",
            Screen::Queues => "Queues",
            Screen::Why => "Why",
            Screen::Logs => "Logs",
        }
    }

    /// The one that is `steps` further, in a circle.
    pub fn further(self, steps: usize) -> Screen {
        Screen::ALL[(self as usize + steps) % Screen::ALL.len()]
    }
}

/// A key as the terminal reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// A key that types this character.
    Char(char),
    /// A letter with Ctrl.
    Ctrl(char),
    Enter,
    Esc,
    Tab,
    BackTab,
    Up,
    Down,
    /// The arrow to the left.
    Left,
    /// The arrow to the right.
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Backspace,
}

impl Key {
    /// The key of a terminal's event; `None` for those without a use here.
    pub fn of(event: KeyEvent) -> Option<Key> {
        if event.kind == KeyEventKind::Release {
            return None;
        }
        let with_ctrl = event.modifiers.contains(KeyModifiers::CONTROL);
        Some(match event.code {
            KeyCode::Char(letter) if with_ctrl => Key::Ctrl(letter.to_ascii_lowercase()),
            KeyCode::Char(character) => Key::Char(character),
            KeyCode::Enter => Key::Enter,
            KeyCode::Esc => Key::Esc,
            KeyCode::Tab => Key::Tab,
            KeyCode::BackTab => Key::BackTab,
            KeyCode::Up => Key::Up,
            KeyCode::Down => Key::Down,
            KeyCode::Left => Key::Left,
            KeyCode::Right => Key::Right,
            KeyCode::PageUp => Key::PageUp,
            KeyCode::PageDown => Key::PageDown,
            KeyCode::Home => Key::Home,
            KeyCode::End => Key::End,
            KeyCode::Backspace => Key::Backspace,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Does {
    /// Goes to a screen.
    Go(Screen),
    NextScreen,
    PreviousScreen,
    /// Starts typing a filter for the list.
    Filter,
    /// Moves the selection one row down.
    StepDown,
    /// Moves the selection one row up.
    StepUp,
    PageDown,
    PageUp,
    /// Selects the first row of the list.
    First,
    /// Selects the last row of the list.
    Last,
    /// Output to the left.
    Left,
    /// Output to the right.
    Right,
    Open,
    Logs,
    Why,
    Drain,
    /// Cancels the selected job or task, after a question.
    Cancel,
    /// Runs what failed of the selected job again, or the selected task, after a question.
    Retry,
    /// Holds the selected job, or releases it, after a question.
    Hold,
    /// Pauses or resumes a queue.
    Pause,
    Sort,
    /// Reverses the order of the list.
    Reverse,
    /// Shows active jobs alone, or all.
    Active,
    /// Shows the list of keys.
    Help,
    /// Goes back, and ends at the first screen.
    Back,
    /// Ends the program as Ctrl-C does.
    Interrupt,
}

/// A line of the table of keys.
pub struct Binding {
    /// The keys that have the same effect.
    pub keys: &'static [Key],
    /// The keys as they are written.
    pub shown: &'static str,
    /// The effect of each of these keys.
    pub does: Does,
    /// The screens on which they do it; empty is all.
    pub on: &'static [Screen],
    /// The effect, in words for people.
    pub text: &'static str,
}

const LISTS: &[Screen] = &[Screen::Workers, Screen::Jobs, Screen::Queues];
const FILTERED: &[Screen] = &[Screen::Workers, Screen::Jobs, Screen::Queues, Screen::Logs];
const EXPLAINED: &[Screen] = &[Screen::Workers, Screen::Jobs, Screen::Logs];
const WITH_TASKS: &[Screen] = &[Screen::Workers, Screen::Jobs, Screen::Why];

const fn bind(
    keys: &'static [Key],
    shown: &'static str,
    does: Does,
    on: &'static [Screen],
    text: &'static str,
) -> Binding {
    Binding { keys, shown, does, on, text }
}

pub const BINDINGS: &[Binding] = &[
    bind(&[Key::Char('1')], "1", Does::Go(Screen::Workers), &[], "workers"),
    bind(&[Key::Char('2')], "2", Does::Go(Screen::Jobs), &[], "jobs"),
    bind(&[Key::Char('3')], "3", Does::Go(Screen::Queues), &[], "queues"),
    bind(&[Key::Char('4')], "4", Does::Go(Screen::Why), &[], "why, of what is selected"),
    bind(&[Key::Char('5')], "5", Does::Go(Screen::Logs), &[], "output of the task that is selected"),
    bind(&[Key::Tab], "Tab", NextScreen, &[], "next screen"),
    bind(&[Key::BackTab], "Shift-Tab", PreviousScreen, &[], "screen before"),
    bind(&[Key::Char('j'), Key::Down], "j ↓", StepDown, &[], "down"),
    bind(&[Key::Char('k'), Key::Up], "k ↑", StepUp, &[], "up"),
    bind(&[Key::PageDown, Key::Ctrl('f'), Key::Char(' ')], "PgDn Ctrl-F Space", PageDown, &[], "page down"),
    bind(&[Key::PageUp, Key::Ctrl('b')], "PgUp Ctrl-B", PageUp, &[], "page up"),
    bind(&[Key::Char('g'), Key::Home], "g Home", First, &[], "first line"),
    bind(&[Key::Char('G'), Key::End], "G End", Last, &[], "last line; of output: follow it again"),
    bind(&[Key::Left], "←", Left, &[Screen::Logs], "output to the left"),
    bind(&[Key::Right], "→", Right, &[Screen::Logs], "output to the right"),
    bind(&[Key::Enter], "Enter", Open, LISTS, "open: a worker, a job, a queue's jobs, a task's output"),
    bind(&[Key::Char('l')], "l", Logs, WITH_TASKS, "output of the selected task, or of a task of the job"),
    bind(&[Key::Char('w')], "w", Why, EXPLAINED, "why the selected task, job or worker is where it is"),
    bind(&[Key::Char('d')], "d", Drain, &[Screen::Workers], "drain the worker with a note, or resume it"),
    bind(&[Key::Char('c')], "c", Cancel, &[Screen::Jobs], "cancel the job, or the task of an open job"),
    bind(&[Key::Char('t')], "t", Retry, &[Screen::Jobs], "retry the job, or the task of an open job"),
    bind(&[Key::Char('h')], "h", Hold, &[Screen::Jobs], "hold the job, or release it"),
    bind(&[Key::Char('p')], "p", Pause, &[Screen::Queues], "pause the queue with a note, or resume it"),
    bind(&[Key::Char('/')], "/", Filter, FILTERED, "filter: text, or KEY=VALUE such as state=running"),
    bind(&[Key::Char('a')], "a", Active, &[Screen::Jobs], "active jobs alone, or all"),
    bind(&[Key::Char('s')], "s", Sort, LISTS, "sort by the next column"),
    bind(&[Key::Char('r')], "r", Reverse, LISTS, "reverse the order"),
    bind(&[Key::Char('?')], "?", Help, &[], "this help"),
    bind(&[Key::Char('q'), Key::Esc], "q Esc", Back, &[], "back; on a first screen: end"),
    bind(&[Key::Ctrl('c')], "Ctrl-C", Interrupt, &[], "end at once"),
];

/// The effect of a key on a screen.
pub fn lookup(key: Key, screen: Screen) -> Option<Does> {
    let is_on = |binding: &&Binding| binding.on.is_empty() || binding.on.contains(&screen);
    BINDINGS.iter().filter(is_on).find(|binding| binding.keys.contains(&key)).map(|binding| binding.does)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_does_two_things_on_one_screen() {
        for screen in Screen::ALL {
            let on = BINDINGS.iter().filter(|binding| binding.on.is_empty() || binding.on.contains(&screen));
            let mut seen: Vec<Key> = Vec::new();
            for key in on.flat_map(|binding| binding.keys) {
                assert!(!seen.contains(key), "{key:?} on {screen:?}");
                seen.push(*key);
            }
        }
    }

    #[test]
    fn keys_of_a_screen_do_nothing_elsewhere() {
        assert_eq!(lookup(Key::Char('d'), Screen::Workers), Some(Drain));
        assert_eq!(lookup(Key::Char('d'), Screen::Jobs), None);
        assert_eq!(lookup(Key::Char('c'), Screen::Workers), None);
        assert_eq!(lookup(Key::Ctrl('c'), Screen::Workers), Some(Interrupt));
        assert_eq!(Screen::Logs.further(1), Screen::Workers);
    }

    #[test]
    fn events_of_the_terminal_become_keys() {
        let key = |code, modifiers| Key::of(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('C'), KeyModifiers::CONTROL), Some(Key::Ctrl('c')));
        assert_eq!(key(KeyCode::Char('G'), KeyModifiers::SHIFT), Some(Key::Char('G')));
        assert_eq!(key(KeyCode::F(5), KeyModifiers::NONE), None);
    }
}
