//! `windlass worker wanted`: how many workers of each machine class are wanted, and why.

use crate::client::context::Context;
use crate::commands::view::ViewArgs;
use crate::ui::error::{CliError, Doing};
use crate::ui::message::message;
use crate::ui::output::{Format, count};
use crate::ui::quantity::elapsed;
use crate::ui::table::{Cell, Column, Grid};
use std::cell::RefCell;
use windlass_api::client::scaling;
use windlass_api::{ClassScaling, Scaling, UnrunnableWork};

/// Lists the machine classes. For people it also says what waits and counts for none of them.
pub async fn wanted(context: &Context, view: &ViewArgs) -> Result<(), CliError> {
    let client = context.client().await?;
    let notes = RefCell::new(Vec::new());
    let read = async || -> Result<Vec<ClassScaling>, CliError> {
        let scaling = scaling(&client).await.doing("ask how many workers are wanted")?;
        *notes.borrow_mut() = notes_of(&scaling);
        Ok(scaling.classes)
    };
    view.show(context, None, read, |class| class.name.clone(), classes_grid).await?;
    if context.format == Format::Table {
        notes.borrow().iter().for_each(|note| message!("{note}"));
    }
    Ok(())
}

/// The table of machine classes.
pub fn classes_grid(classes: &[ClassScaling]) -> Grid {
    let row = |class: &ClassScaling| {
        let work = (class.work_ms > 0).then(|| Cell::figure(elapsed(class.work_ms), class.work_ms as f64));
        vec![
            class.name.as_str().into(),
            Cell::number(class.wanted),
            Cell::number(class.here),
            Cell::number(class.busy),
            Cell::number(class.spare),
            Cell::number(class.tasks),
            work.into(),
            class.reason.as_str().into(),
        ]
    };
    Grid {
        columns: vec![
            Column::text("CLASS", 0, 10),
            Column::whole("WANTED", 1),
            Column::whole("HERE", 2),
            Column::whole("BUSY", 4),
            Column::whole("SPARE", 3),
            Column::whole("WAITING", 5),
            Column::whole("WORK", 7),
            Column::text("REASON", 6, 20),
        ],
        rows: classes.iter().map(row).collect(),
        empty: "no workers, and no machine classes in the server's settings",
    }
}

/// What waits although it counts for no class.
fn notes_of(scaling: &Scaling) -> Vec<String> {
    let mut notes = Vec::new();
    let UnrunnableWork { tasks, jobs, .. } = &scaling.none;
    if *tasks > 0 {
        let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
        let of = if jobs.is_empty() { String::new() } else { format!(", of jobs {}", jobs.join(", ")) };
        notes.push(format!("no worker of these classes could run {}{of}", count(*tasks, "task")));
    }
    let others = [
        (scaling.bound_tasks, "which only certain workers could run"),
        (scaling.blocked_tasks, "which a quota, a limit or max_running keeps from starting"),
        (scaling.paused_tasks, "of paused queues or held jobs"),
    ];
    for (tasks, why) in others.into_iter().filter(|(tasks, _)| *tasks > 0) {
        notes.push(format!("more workers would not help {}, {why}", count(tasks, "task")));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_for_no_class_is_said() {
        let none = UnrunnableWork { work_classes: 1, tasks: 7, jobs: vec![3, 4] };
        let scaling = Scaling {
            target_wait_ms: 1,
            classes: Vec::new(),
            none,
            bound_tasks: 1,
            blocked_tasks: 0,
            paused_tasks: 12,
            work_classes_left_out: 0,
        };
        let expected = [
            "no worker of these classes could run 7 tasks, of jobs 3, 4",
            "more workers would not help 1 task, which only certain workers could run",
            "more workers would not help 12 tasks, of paused queues or held jobs",
        ];
        assert_eq!(notes_of(&scaling), expected);
    }
}
