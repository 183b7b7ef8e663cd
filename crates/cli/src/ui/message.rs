//! Messages for people, on standard error.

use std::fmt::Arguments;
use std::io::Write as _;

/// Prints a message on standard error; [`message!`] is shorter.
pub fn print_message(what: Arguments<'_>) {
    // If standard error is closed, the failure cannot be reported.
    let _ = writeln!(anstream::stderr().lock(), "{what}");
}

/// Prints a message on standard error.
macro_rules! message {
    ($($what:tt)*) => { $crate::ui::message::print_message(format_args!($($what)*)) };
}
pub(crate) use message;
