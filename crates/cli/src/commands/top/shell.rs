//! The loop of `top`: it reads messages, carries out effects, and draws at intervals.

use crate::commands::top::draw;
use crate::commands::top::keys::Key;
use crate::commands::top::message::{Effect, Message, Moment};
use crate::commands::top::reader::Reader;
use crate::commands::top::state::State;
use crate::commands::top::terminal::TakenTerminal;
use crate::system::StopSignals;
use crate::ui::error::CliError;
use crate::ui::quantity::now_ms;
use ratatui::crossterm::event::{self, Event};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use windlass_api::client::Client;

/// Messages that wait to be taken in.
const INBOX_MAX: usize = 1_024;
/// Messages that are taken in before the next drawing.
const BATCH_MAX: usize = 1_024;
/// The least time between two drawings, but after a key.
const DRAWING: Duration = Duration::from_millis(100);
/// How often time is told.
const TICK: Duration = Duration::from_millis(250);
/// How long a drawing may be old, even if only ages changed.
const OLD: Duration = Duration::from_secs(1);

/// Runs until the person ends it, or a signal does.
pub async fn run(client: Client, is_own: bool, colour: bool) -> Result<(), CliError> {
    let failed = |error: std::io::Error| anyhow::Error::new(error).context("cannot draw on the terminal");
    let (sender, inbox) = mpsc::channel(INBOX_MAX);
    let mut taken = TakenTerminal::take().map_err(failed)?;
    let size = taken.terminal.size().map_err(failed)?;
    let server = client.address().to_string();
    let mut shell = Shell {
        state: State::new(server, (size.width, size.height), colour),
        reader: Reader::new(client, is_own, sender.clone()),
        started: Instant::now(),
    };
    read_keys(sender);
    let ended = shell.work(&mut taken, inbox).await;
    drop(taken);
    match ended.map_err(failed)? {
        0 => Ok(()),
        code => Err(CliError::Exit(code)),
    }
}

/// Reads the terminal on a thread of its own, which ends with the process.
fn read_keys(sender: mpsc::Sender<Message>) {
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let message = match event {
                Event::Key(key) => Key::of(key).map(Message::Key),
                Event::Resize(width, height) => Some(Message::Size(width, height)),
                _ => None,
            };
            if message.is_some_and(|message| sender.blocking_send(message).is_err()) {
                return;
            }
        }
    });
}

struct Shell {
    state: State,
    reader: Reader,
    started: Instant,
}

impl Shell {
    /// Answers the exit code.
    async fn work(
        &mut self,
        taken: &mut TakenTerminal,
        mut inbox: mpsc::Receiver<Message>,
    ) -> std::io::Result<i32> {
        let mut signals = StopSignals::catch()?;
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut drawn: Option<Instant> = None;
        let mut is_old = true;
        self.reader.listen(0);
        loop {
            let due = drawn.map_or_else(Instant::now, |drawn| drawn + DRAWING);
            let message = tokio::select! {
                message = inbox.recv() => message.unwrap_or(Message::Tick),
                _ = ticks.tick() => Message::Tick,
                () = tokio::time::sleep_until(due.into()), if is_old => Message::Tick,
                code = signals.next() => return Ok(code),
            };
            let (mut batch, mut at_once) = (Some(message), false);
            for _ in 0..BATCH_MAX {
                let Some(message) = batch.take().or_else(|| inbox.try_recv().ok()) else { break };
                at_once |= matches!(message, Message::Key(_) | Message::Size(..));
                is_old |= !matches!(message, Message::Tick);
                if let Some(code) = self.take(message) {
                    return Ok(code);
                }
            }
            let since = drawn.map_or(OLD, |drawn| drawn.elapsed());
            if at_once || (is_old && since >= DRAWING) || since >= OLD {
                taken.terminal.draw(|frame| draw::draw(frame, &self.state))?;
                (drawn, is_old) = (Some(Instant::now()), false);
            }
        }
    }

    /// Takes a message in, and does what comes of it; the exit code if that is to end.
    fn take(&mut self, message: Message) -> Option<i32> {
        let now = Moment { wall_ms: now_ms(), run_ms: self.started.elapsed().as_millis() as u64 };
        for effect in self.state.update(message, now) {
            match effect {
                Effect::Read(read) => self.reader.read(read),
                Effect::Listen(after_ms) => self.reader.listen(after_ms),
                Effect::Follow(number, task) => self.reader.follow(number, task),
                Effect::Act(deed) => self.reader.act(deed),
                Effect::Quit(code) => return Some(code),
            }
        }
        None
    }
}
