//! `windlass turns`: the commands that wait for their turn on a machine, and those that run in one.

use crate::client::context::Context;
use crate::commands::view::ViewArgs;
use crate::ui::error::{CliError, Doing as _};
use crate::ui::message::message;
use crate::ui::quantity::{elapsed, now_ms};
use crate::ui::table::{Cell, Column, Grid};
use windlass_api::client::turns;
use windlass_api::{ClientTurn, TurnState};
use windlass_core::resources::Bytes;

/// Runs the command `windlass turns`.
pub async fn list(context: &Context, view: &ViewArgs) -> Result<(), CliError> {
    let client = context.client().await?;
    let read = async || -> Result<Vec<ClientTurn>, CliError> {
        let list = turns::list(&client).await.doing("list the turns")?;
        if list.more > 0 && view.watch.is_none() {
            message!("note: {} more are not listed", list.more);
        }
        Ok(list.turns)
    };
    view.show(context, None, read, |turn| turn.turn.to_string(), turns_grid).await
}

/// The table of turns.
pub fn turns_grid(turns: &[ClientTurn]) -> Grid {
    let row = |turn: &ClientTurn| {
        let since = now_ms().saturating_sub(turn.since_ms);
        vec![
            Cell::number(turn.turn),
            state(turn.state).into(),
            turn.user.as_str().into(),
            turn.queue.as_str().into(),
            Cell::figure(elapsed(since), since as f64),
            Cell::figure(turn.cpus.to_string(), turn.cpus),
            size(turn.memory),
            size(turn.held_memory),
            turn.machine.as_str().into(),
            turn.worktree.as_deref().into(),
            turn.command.as_deref().into(),
            turn.why.as_deref().into(),
        ]
    };
    Grid {
        columns: vec![
            Column::whole("TURN", 0).right(),
            Column::whole("STATE", 0),
            Column::text("USER", 5, 8),
            Column::text("QUEUE", 6, 8),
            Column::whole("FOR", 1).right(),
            Column::whole("CPUS", 7).right(),
            Column::whole("MEMORY", 4).right(),
            Column::whole("HELD", 9).right(),
            Column::text("MACHINE", 8, 8),
            Column::text("WORKTREE", 3, 12),
            Column::text("COMMAND", 1, 12),
            Column::text("WHY", 2, 16),
        ],
        rows: turns.iter().map(row).collect(),
        empty: "no turns wait or run; 'windlass turn -- COMMAND' asks for one",
    }
}

fn size(bytes: Option<u64>) -> Cell {
    bytes.map(|bytes| Cell::figure(Bytes(bytes).to_string(), bytes as f64)).into()
}

fn state(state: TurnState) -> &'static str {
    match state {
        TurnState::Waits => "waiting",
        TurnState::Runs => "running",
        TurnState::Refused => "refused",
    }
}
