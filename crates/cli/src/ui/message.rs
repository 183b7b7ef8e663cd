//! Messages for people, on standard error.

use indicatif::ProgressBar;
use std::fmt::Arguments;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The bar that is drawn on standard error now, if there is one.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Keeps messages clear of this bar from now on: it is hidden while one is printed. A message in the bar's own line
/// would be cut, or leave a part of the bar behind.
pub fn keep_clear_of(bar: Option<ProgressBar>) {
    *BAR.lock().unwrap_or_else(PoisonError::into_inner) = bar;
}

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
    let print = || {
        // If standard error is closed, the failure cannot be reported.
        let _ = writeln!(anstream::stderr().lock(), "{what}");
    };
    let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

/// Prints a message on standard error.
macro_rules! message {
    ($($what:tt)*) => { $crate::ui::message::print_message(format_args!($($what)*)) };
}
pub(crate) use message;
