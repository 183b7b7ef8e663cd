//! The header: the server, totals, their changes over time, and the names of the screens.

use crate::commands::top::areas::Areas;
use crate::commands::top::clean::clean;
use crate::commands::top::draw::paint::{Tone, line, put, sign_of, style};
use crate::commands::top::keys::Screen;
use crate::commands::top::state::{Link, State};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::Span;
use windlass_api::figures::{FarmCpus, FarmSeries, Overview};

/// Columns of the bar of cpus.
const BAR: usize = 12;
/// Columns from which the amounts of cpus have all their words.
const WIDE: u16 = 120;
/// The heights of a line of the recent past.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws the server, the totals and the names of the screens.
pub fn draw(buffer: &mut Buffer, state: &State, areas: &Areas) {
    title(buffer, state, line(areas.header, 0));
    if let Some(overview) = &state.overview {
        totals(buffer, state, overview, line(areas.header, 1));
        meters(buffer, state, overview, line(areas.header, 2));
        if let Some(hold) = overview.holds.first() {
            let loud = style(state, Tone::Held).add_modifier(Modifier::REVERSED);
            put(buffer, areas.holds, 0, &format!(" Held: {hold} "), loud);
        }
    }
    tabs(buffer, state, line(areas.header, 3));
}

fn title(buffer: &mut Buffer, state: &State, area: Rect) {
    let (text, tone) = freshness(state);
    let width = Span::raw(clean(&text)).width() as u16;
    let x = put(buffer, area, 0, "Windlass ", style(state, Tone::Strong));
    let rest = Rect { width: area.width.saturating_sub(width + 1), ..area };
    put(buffer, rest, x, &state.server, style(state, Tone::Plain));
    put(buffer, area, area.width.saturating_sub(width), &text, style(state, tone));
}

/// Whether what is shown is live, and how old it is.
pub fn freshness(state: &State) -> (String, Tone) {
    let age_ms = state.read_ms.map(|read| state.now.run_ms.saturating_sub(read));
    let age = age_ms.map_or_else(String::new, |age| format!(" {} s", age / 1000));
    match &state.link {
        Link::Opening => (format!("○ connecting{age}"), Tone::Held),
        Link::Live if age_ms.is_some_and(|age| age >= state.stale_ms()) => {
            (format!("○ stale{age}"), Tone::Held)
        }
        Link::Live => (format!("● live{age}"), Tone::Good),
        Link::Lost { since_ms, .. } => {
            let gone = state.now.run_ms.saturating_sub(*since_ms) / 1000;
            (format!("○ stale{age}, no events for {gone} s"), Tone::Bad)
        }
    }
}

fn totals(buffer: &mut Buffer, state: &State, overview: &Overview, area: Rect) {
    let workers = &overview.workers;
    let plain = style(state, Tone::Plain);
    let mut x = put(buffer, area, 0, &format!("workers {}/{} up", workers.online, workers.total), plain);
    let ailing = [
        (workers.draining, "draining", Tone::Held),
        (workers.suspect, "suspect", Tone::Bad),
        (workers.lost, "lost", Tone::Bad),
        (workers.pressed, "pressed", Tone::Held),
        (workers.low_space, "low on space", Tone::Held),
        (workers.left_out, "in quarantine", Tone::Bad),
        (workers.vetoed, "held by a rule", Tone::Held),
    ];
    for (number, what, tone) in ailing.into_iter().filter(|(number, ..)| *number > 0) {
        x = put(buffer, area, x, &format!(", {number} {what}"), style(state, tone));
    }
    let minute = overview.per_minute;
    let ended = format!("   {:.0} ended a minute", minute.succeeded + minute.failed);
    x = put(buffer, area, x, &ended, style(state, Tone::Faint));
    if minute.failed > 0.0 {
        put(buffer, area, x, &format!(", {:.0} failed", minute.failed), style(state, Tone::Bad));
    }
}

/// Cpus, running tasks and waiting tasks, each with its recent past.
fn meters(buffer: &mut Buffer, state: &State, overview: &Overview, area: Rect) {
    let (cpus, tasks) = (&overview.cpus, &overview.tasks);
    let past =
        |of: fn(&FarmSeries) -> &Vec<Option<f64>>| state.series.as_ref().map_or(&[][..], |series| of(series));
    let plain = style(state, Tone::Plain);
    let mut x = put(buffer, area, 0, "cpus [", plain);
    let mut filled = 0;
    for holds in &cpus.by_queue {
        let part =
            (holds.cpus / cpus.total.max(cpus.booked).max(f64::MIN_POSITIVE) * BAR as f64).round() as usize;
        let part = part.min(BAR - filled);
        filled += part;
        let place = state.queue_signs.iter().position(|queue| *queue == holds.queue).unwrap_or_default();
        let text = sign_of(place).to_string().repeat(part);
        x = put(buffer, area, x, &text, style(state, Tone::Queue(place)));
    }
    x = put(buffer, area, x, &"-".repeat(BAR - filled), style(state, Tone::Faint));
    x = put(buffer, area, x, &format!("] {} ", amounts(cpus, area.width >= WIDE)), plain);
    // The past takes what is left, in three equal parts.
    let texts = [format!("  running {} ", tasks.running), format!("  waiting {} ", tasks.ready)];
    let taken = usize::from(x) + texts.iter().map(|text| text.chars().count()).sum::<usize>();
    let width = usize::from(area.width).saturating_sub(taken) / 3;
    let busy = style(state, Tone::Busy);
    x = put(
        buffer,
        area,
        x,
        &spark(past(|series| &series.busy_cpus), Some(cpus.booked), cpus.total, width),
        busy,
    );
    x = put(buffer, area, x, &texts[0], plain);
    let running = Some(f64::from(tasks.running));
    x = put(buffer, area, x, &spark(past(|series| &series.running), running, 0.0, width), busy);
    x = put(buffer, area, x, &texts[1], plain);
    let waiting = Some(f64::from(tasks.ready));
    put(
        buffer,
        area,
        x,
        &spark(past(|series| &series.waiting), waiting, 0.0, width),
        style(state, Tone::Held),
    );
}

/// Cpus that are booked, of those of the workers that are up, and how many of the free ones take work and take none.
fn amounts(cpus: &FarmCpus, is_wide: bool) -> String {
    let mut text = format!("{}/{}", number(cpus.booked), number(cpus.total));
    // A server of an earlier release tells neither.
    let is_told = cpus.usable + cpus.out_of_service > 0.0 || cpus.booked >= cpus.total;
    if is_wide && is_told {
        text.push_str(&format!(", {} usable", number(cpus.usable)));
    }
    if cpus.out_of_service > 0.0 {
        let what = if is_wide { "out of service" } else { "out" };
        text.push_str(&format!(", {} {what}", number(cpus.out_of_service)));
    }
    text
}

/// Cpus without needless digits.
pub fn number(of: f64) -> String {
    let rounded = (of * 10.0).round() / 10.0;
    if rounded.fract() == 0.0 { format!("{rounded:.0}") } else { format!("{rounded:.1}") }
}

/// The past and what is now as one line, with blanks where it is not known: each character is the mean of its part of the past. The highest of all, or
/// `least` if that is more, is as high as a line.
pub fn spark(past: &[Option<f64>], now: Option<f64>, least: f64, width: usize) -> String {
    if width == 0 {
        return String::new();
    }
    let part = past.len().div_ceil((width - 1).max(1)).max(1);
    let first = past.len().saturating_sub(part * (width - 1));
    let mean = |values: &[Option<f64>]| {
        let known: Vec<f64> = values.iter().flatten().copied().collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    let past = if width > 1 { &past[first..] } else { &[] };
    let values: Vec<Option<f64>> = past.chunks(part).map(mean).chain([now]).collect();
    let most = values.iter().flatten().copied().fold(least, f64::max);
    let height = |value: Option<f64>| match value {
        None => ' ',
        Some(value) if most > 0.0 && value > 0.0 => {
            let step = (value / most * (HEIGHTS.len() - 1) as f64).round() as usize;
            HEIGHTS[step.min(HEIGHTS.len() - 1)]
        }
        Some(_) => HEIGHTS[0],
    };
    let blank = std::iter::repeat_n(' ', width.saturating_sub(values.len()));
    blank.chain(values.iter().map(|value| height(*value))).collect()
}

fn tabs(buffer: &mut Buffer, state: &State, area: Rect) {
    let mut x = 0;
    for (n, screen) in Screen::ALL.into_iter().enumerate() {
        let text = format!(" {} {} ", n + 1, screen.title());
        let mut of_tab = style(state, Tone::Plain);
        if screen == state.screen {
            of_tab = style(state, Tone::Strong).add_modifier(Modifier::REVERSED);
        }
        x = put(buffer, area, x, &text, of_tab);
    }
    if let Some(overview) = &state.overview {
        let jobs = &overview.jobs;
        let held = if jobs.held > 0 { format!(", {} held", jobs.held) } else { String::new() };
        let text = format!("jobs {} running, {} waiting{held}", jobs.running, jobs.waiting);
        let room = area.width.saturating_sub(x + 1);
        let from = area.width - (text.chars().count() as u16).min(room);
        put(buffer, area, from, &text, style(state, Tone::Plain));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_past_is_drawn_in_parts() {
        let past: Vec<Option<f64>> = [0.0, 2.0, 4.0, 8.0].map(Some).to_vec();
        assert_eq!(spark(&past, Some(8.0), 0.0, 5), "▁▃▅██");
        assert_eq!(spark(&past, Some(8.0), 0.0, 3), "▂▆█");
        assert_eq!(spark(&[None, Some(1.0)], Some(1.0), 7.0, 6), "   \u{20}▂▂");
        assert_eq!(spark(&[], Some(0.0), 0.0, 2), " ▁");
        assert_eq!(
            (spark(&past, Some(1.0), 0.0, 0).as_str(), spark(&past, Some(1.0), 0.0, 1).as_str()),
            ("", "█")
        );
    }

    #[test]
    fn cpus_have_few_digits() {
        assert_eq!([number(4.0), number(2.55), number(0.04)], ["4", "2.6", "0"]);
    }

    #[test]
    fn free_cpus_take_work_or_are_out() {
        let cpus =
            FarmCpus { total: 8.0, booked: 4.5, usable: 1.5, out_of_service: 3.0, ..FarmCpus::default() };
        assert_eq!(amounts(&cpus, true), "4.5/8, 1.5 usable, 3 out of service");
        assert_eq!(amounts(&cpus, false), "4.5/8, 3 out");
        let earlier = FarmCpus { usable: 0.0, out_of_service: 0.0, ..cpus };
        assert_eq!(amounts(&earlier, true), "4.5/8");
        assert_eq!(amounts(&FarmCpus { booked: 8.0, ..earlier }, true), "8/8, 0 usable");
    }
}
