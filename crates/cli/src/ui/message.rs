//! Messages for people, on standard error.

use std::fmt::Arguments;
use std::io::Write as _;

/// Prints a message on standard error; [`talk!`] is shorter.
pub fn say(what: Arguments<'_>) {
    // If standard error is closed, the failure cannot be reported.
    let _ = writeln!(anstream::stderr().lock(), "{what}");
}

/// Prints a message on standard error.
macro_rules! talk {
    ($($what:tt)*) => { $crate::ui::message::say(format_args!($($what)*)) };
}
pub(crate) use talk;
