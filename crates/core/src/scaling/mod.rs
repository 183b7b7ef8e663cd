//! How many workers of each class of machines the farm wants, so that another program can start and stop them.
//!
//! - `machine_class`: workers that are alike, and classes that an operator declares although none of them runs yet.
//! - `waiting`, `running`: how many tasks at a time, by what they hold of a worker.
//! - `packing`: how many workers that takes.
//! - [`survey()`]: the answer, by class, and [`ClassScaling::reason`] in words.
//!
//! Properties:
//! - With as many workers as are wanted, all tasks that wait now have started within the target, if predictions are right.
//!   Of tasks that share a number of slots, the last one starts before all slots together have worked off the tasks. So the
//!   work divided by the target is enough slots; a task that is longer than the target, or of unknown length, has its own.
//! - No worker that runs something is beyond the number that is wanted.
//! - Work that more workers would not start wants none: behind a quota, a limit or a cap, held, or for workers that it
//!   names.
//! - A busy worker that gets no more for now, because of pressure or a veto, has no room for what waits.
//! - The cost follows workers and classes of work, up to the bounds that the files name. It does not follow the backlog.
//! - The same state gives the same answer.

mod machine_class;
mod packing;
mod reason;
mod running;
mod settings;
mod survey;
mod waiting;

pub use machine_class::startable_machines;
pub use settings::{DeclaredClass, MACHINE_CLASSES_MAX, NO_CLASS, OTHER_CLASS, ScalingSettings};
pub use survey::{ClassScaling, Scaling, UnrunnableWork, survey};
