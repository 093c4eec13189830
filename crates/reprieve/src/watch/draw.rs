//! Draws the state of the screen. The answer is on top; below it are rows on one axis of time, a column a second.
//!
//! | lines | hold |
//! |---|---|
//! | 2 | the verdict |
//! | 2 | what it cost, what to do, what would settle it |
//! | 1 | the second that is looked at |
//! | 1 | the axis, with a `v` above that second |
//! | the rest but one | rows |
//! | 1 | keys |
//!
//! Invariant: all text goes through `put`, which escapes what a terminal would obey.

mod rows;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use reprieve_hindsight::day;
use reprieve_policy::sample::beats_per_second;
use reprieve_study::{shown, units};

use super::model::{Model, Source};
use super::moment::{Moment, VcpuMoment};
use super::scale::{Look, Scale};
use super::verdict::{Kind, Told};
use rows::{Row, VcpuRows};

/// The smallest screen with rows, in columns and lines.
const LEAST: (u16, u16) = (60, 16);
/// Columns left of the rows: name, scale, a bar.
const LEFT: u16 = 21;
/// Columns of the name.
const NAME: usize = 12;
/// Columns right of the rows: a bar, a value.
const RIGHT: u16 = 11;
const ANSWER_LINES: u16 = 2;
const DETAIL_LINES: u16 = 2;
/// Seconds between two labels of the axis.
const LABEL_S: usize = 10;
/// From this height on a column is alarming.
const ALARMING: u8 = 6;
const KEYS: &str = "q quit  space pause  arrows 1 s  PgUp/PgDn 10 s  n/p incident  v vCPU  ? help";

const HELP: [&str; 14] = [
    "q, Ctrl-C       end",
    "space           stand still, or go on; plays a record",
    "left, right     a second back, or on (also h, l)",
    "PgUp, PgDn      10 seconds back, or on",
    "Home, End       the oldest second; the newest, and on with it",
    "p, n            the previous, or next, second in which trouble begins",
    "v, up, down     one vCPU: first the one that is off most, then the others",
    "0 to 9          the vCPU of this number",
    "Esc             all vCPUs",
    "",
    "Each column is a second. Heights are on the fixed scale left of the row:",
    "log: eight steps, of about 2 up to 2 s, of 4 up to 4 GiB; others linear.",
    ". none   ? not measured   / time is missing before this second",
    "slab growth: unreclaimable slabs above their least of the last minute",
];

/// Draws the whole screen.
pub fn draw(model: &Model, look: Look, area: Rect, buffer: &mut Buffer) {
    let mut canvas = Canvas { buffer, area, look };
    let answer_end = canvas.answer(model);
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let (columns, lines) = (area.width, area.height);
        let text = format!("The timeline needs 80x24; this terminal has {columns}x{lines}. q quits.");
        let from = answer_end.min(area.height.saturating_sub(2));
        canvas.wrapped(from, area.height.saturating_sub(from), &text, Style::new());
        return;
    }
    let footer = area.height - 1;
    canvas.put(0, footer, KEYS, Style::new());
    if model.is_help() {
        for (y, text) in (answer_end + 1..footer).zip(HELP) {
            canvas.put(2, y, text, Style::new());
        }
        return;
    }
    canvas.put(0, answer_end, &status(model), Style::new().add_modifier(Modifier::BOLD));
    canvas.rows(model, answer_end + 1, footer);
}

/// Which second is looked at, and how.
fn status(model: &Model) -> String {
    let Some(moment) = model.moment() else { return "The first second is being looked at.".into() };
    let behind = model.moments().len() - 1 - model.at();
    let source = match model.source() {
        Source::Live if model.is_following() => "live".into(),
        Source::Live => format!("paused, {behind} s back"),
        Source::Record(host) if model.is_playing() => {
            format!("record of {host}, plays, {behind} s to its end")
        }
        Source::Record(host) => format!("record of {host}, {behind} s before its end"),
    };
    let look = if moment.is_close() {
        "close look".into()
    } else {
        format!("{} beats/s", beats_per_second(moment.beat_ns))
    };
    format!("{}  {}, {look}  {source}", day::text(moment.day_ns), moment.tier.name())
}

struct Canvas<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    look: Look,
}

impl Canvas<'_> {
    /// Puts a text there, cut at the edge.
    fn put(&mut self, x: u16, y: u16, text: &str, style: Style) {
        if x < self.area.width && y < self.area.height {
            let (left, top) = (self.area.x + x, self.area.y + y);
            self.buffer.set_stringn(left, top, shown::line(text), (self.area.width - x).into(), style);
        }
    }

    /// Puts a text into so many lines.
    fn wrapped(&mut self, from: u16, lines: u16, text: &str, style: Style) {
        let cut = if self.look.unicode { "…" } else { "..." };
        let wrapped = wrap(&shown::line(text), self.area.width.into(), lines.into(), cut);
        (from..).zip(wrapped).for_each(|(y, line)| self.put(0, y, &line, style));
    }

    fn colour(&self, colour: Color) -> Style {
        if self.look.colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// The verdict, on top. Returns the line below it.
    fn answer(&mut self, model: &Model) -> u16 {
        let nothing =
            Told { headline: "Looking at this VM; the first second is not over.".into(), ..Told::default() };
        let (told, after) = model.told().unwrap_or((&nothing, 0));
        let colour = match told.kind {
            Kind::Quiet => Color::Green,
            Kind::Looking | Kind::Unknown => Color::Yellow,
            Kind::Known => Color::Red,
        };
        let style = self.colour(colour).add_modifier(Modifier::BOLD);
        let found = if after > 0 { format!("Found {after} s later: ") } else { String::new() };
        let headline = format!("{found}{}", told.headline);
        self.wrapped(0, ANSWER_LINES, &headline, style);
        self.wrapped(ANSWER_LINES, DETAIL_LINES, &told.detail, Style::new());
        ANSWER_LINES + DETAIL_LINES
    }

    fn rows(&mut self, model: &Model, axis: u16, end: u16) {
        let width = usize::from(self.area.width - LEFT - RIGHT);
        let window = model.window(width);
        self.axis(model, axis, window, width);
        let mark = model.at().checked_sub(window.0);
        let of_vm = rows::of_vm(model, window);
        let lines = usize::from(end - axis - 1).saturating_sub(of_vm.len());
        let mut y = axis + 1;
        match model.chosen() {
            Some(chosen) => {
                self.row(y, &rows::of_vcpu(model, window, chosen), width, mark);
                let vcpu = model.moment().and_then(|moment| Some((moment, moment.vcpu(chosen)?)));
                let below = (y + 1..y + lines as u16).collect::<Vec<_>>();
                if let Some((moment, vcpu)) = vcpu {
                    self.chosen(&below, moment, vcpu, width);
                }
                y += lines as u16;
            }
            None => {
                let VcpuRows { rows, others } = rows::of_vcpus(model, window, lines);
                for row in &rows {
                    self.row(y, row, width, mark);
                    y += 1;
                }
                if let Some((count, most)) = others {
                    let most = Scale::Share.words(most);
                    self.put(
                        0,
                        y,
                        &format!("and {count} more, off for at most {most} now (v, up, down)"),
                        Style::new(),
                    );
                    y += 1;
                }
            }
        }
        for row in &of_vm {
            self.row(y, row, width, mark);
            y += 1;
        }
    }

    /// Labels in seconds before the right edge, a mark at the second that is looked at, and where time is missing.
    fn axis(&mut self, model: &Model, y: u16, (first, end): (usize, usize), width: usize) {
        let begin = width - (end - first);
        let x = |at: usize| LEFT + (begin + at - first) as u16;
        for before in (0..width).step_by(LABEL_S) {
            let label = if before == 0 { String::new() } else { format!("-{before}s") };
            // It ends at its second.
            if let Some(left) = (width - before).checked_sub(label.len()) {
                self.put(LEFT + left as u16, y, &label, Style::new());
            }
        }
        for at in (first..end).filter(|at| model.moments()[*at].is_after_gap) {
            self.put(x(at), y, "/", Style::new());
        }
        if end > first {
            self.put(x(model.at()), y, "v", Style::new().add_modifier(Modifier::BOLD));
        }
    }

    /// A row: the name, its scale, the heights, and the value in the second that is looked at.
    fn row(&mut self, y: u16, row: &Row, width: usize, mark: Option<usize>) {
        let now = row.now.map_or("-".into(), |now| row.scale.words(now));
        self.put(0, y, &format!("{:<NAME$.NAME$} {:>7}|", row.name, row.scale.top()), Style::new());
        let begin = width - row.values.len().min(width);
        for (at, value) in row.values.iter().enumerate() {
            let height = value.map(|value| row.scale.height(value));
            let mut style = match height {
                Some(ALARMING..) => self.colour(Color::Red),
                Some(1..) => self.colour(Color::Yellow),
                _ => Style::new(),
            };
            if mark == Some(at) {
                style = style.add_modifier(Modifier::REVERSED);
            }
            self.put(LEFT + (begin + at) as u16, y, &self.look.letter(height).to_string(), style);
        }
        self.put(LEFT + width as u16, y, &format!("|{now:>10}"), Style::new());
    }

    /// The chosen vCPU in the second that is looked at.
    fn chosen(&mut self, lines: &[u16], moment: &Moment, vcpu: &VcpuMoment, width: usize) {
        let time = |ns: u64| units::duration(ns as f64);
        let parts = super::moment::PARTS;
        let about = if moment.is_close() { "" } else { "about " };
        let known = |what: &str, ns: Option<u64>| ns.map(|ns| format!("{what} {}", time(ns)));
        let kept = known("kept by the VM's own tasks for", Some(vcpu.kept_ns));
        let more = [kept, known("idle for", vcpu.idle_ns), known("steal", vcpu.steal_ns)];
        let mut texts = vec![
            String::new(),
            format!("This second, {} a column:", time(moment.span_ns / parts as u64)),
            String::new(),
            format!(
                "Off {} times, for {about}{}, {} at the longest",
                vcpu.offs,
                time(vcpu.off_ns),
                time(vcpu.longest_ns)
            ),
        ];
        texts.push(more.into_iter().flatten().collect::<Vec<_>>().join(", "));
        texts.extend(listed(moment, vcpu));
        for (y, text) in lines.iter().zip(&texts) {
            self.put(1, *y, text, Style::new());
        }
        if let Some(y) = lines.get(2) {
            let none = vec![0; parts];
            let values = vcpu.fine.as_ref().map_or(&none, |fine| &fine.parts);
            let values: Vec<Option<u64>> =
                values.iter().take(width).map(|part| Some((*part).into())).collect();
            let name = "off".into();
            self.row(
                *y,
                &Row { name, scale: Scale::Share, values, now: Some(vcpu.off_permille) },
                parts.min(width),
                None,
            );
        }
    }
}

/// The longest times off.
fn listed(moment: &Moment, vcpu: &VcpuMoment) -> Vec<String> {
    let time = |ns: u64| units::duration(ns as f64);
    if !moment.is_close() {
        let beats = beats_per_second(moment.beat_ns);
        return vec![format!("{beats} beats a second show what part of the time it was off, not when")];
    }
    let Some(fine) = &vcpu.fine else { return Vec::new() };
    let each: Vec<String> =
        fine.longest.iter().map(|(since_ns, ns)| format!("{} from {}", time(*ns), time(*since_ns))).collect();
    let title = if vcpu.offs as usize > each.len() { "The longest: " } else { "" };
    let mut lines: Vec<String> = each.chunks(3).map(|some| some.join(", ")).collect();
    if let Some(first) = lines.first_mut() {
        first.insert_str(0, title);
    }
    lines
}

/// Breaks a text at spaces into so many lines of so many letters; what does not fit is cut.
fn wrap(text: &str, width: usize, lines: usize, cut: &str) -> Vec<String> {
    let mut wrapped: Vec<String> = vec![String::new()];
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let line = wrapped.last_mut().expect("it begins with one");
        let length = line.chars().count();
        if length > 0 && length + 1 + word.chars().count() > width {
            wrapped.push(word.into());
        } else {
            line.push_str(if length > 0 { " " } else { "" });
            line.push_str(word);
        }
    }
    if wrapped.len() > lines {
        wrapped.truncate(lines);
        if let Some(last) = wrapped.last_mut() {
            let room = width.saturating_sub(cut.chars().count());
            *last = last.chars().take(room).chain(cut.chars()).collect();
        }
    }
    wrapped
}

#[cfg(test)]
mod tests;
