//! Messages for people, on standard error.

use std::fmt::Arguments;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

/// True where no person reads messages, such as while a shell completes a line.
static SILENT: AtomicBool = AtomicBool::new(false);

/// Prints no message from now on.
pub fn silence() {
    SILENT.store(true, Ordering::Relaxed);
}

/// Prints a message on standard error; [`message!`] is shorter.
pub fn print_message(what: Arguments<'_>) {
    if SILENT.load(Ordering::Relaxed) {
        return;
    }
    // If standard error is closed, the failure cannot be reported.
    let _ = writeln!(anstream::stderr().lock(), "{what}");
}

/// Prints a message on standard error.
macro_rules! message {
    ($($what:tt)*) => { $crate::ui::message::print_message(format_args!($($what)*)) };
}
pub(crate) use message;
