//! What the screen shows: the seconds that are known, the one that is looked at, and what a key changes. It knows no terminal and
//! no clock.
//!
//! Invariants: at most [`MOST_LIVE`] seconds are kept of a VM that is watched, however long; the chosen second is always among
//! those that are kept.

use std::collections::VecDeque;

use super::moment::{Moment, VcpuMoment};
use super::verdict::{Kind, Told};

/// Seconds that are kept of a VM that is watched: 15 minutes.
pub const MOST_LIVE: usize = 900;
/// A verdict follows within so many seconds of what it is about.
pub const VERDICT_S: usize = 10;

/// Where seconds come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// This VM, now.
    Live,
    /// A record of this machine.
    Record(String),
}

/// What a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// End.
    Quit,
    /// Stand still, or go on.
    Pause,
    /// So many seconds on, or back.
    Step(i64),
    /// To the oldest second.
    First,
    /// To the newest second, and on with it.
    Last,
    /// To the next second in which trouble begins, or the one before.
    Incident(i64),
    /// A digit of a vCPU's number.
    Digit(u8),
    /// The next vCPU, or the one before; the one that is off most if none is chosen.
    Vcpu(i64),
    /// Back to all vCPUs.
    All,
    /// Show or hide the keys.
    Help,
}

/// The state of the screen.
#[derive(Debug)]
pub struct Model {
    source: Source,
    moments: VecDeque<Moment>,
    /// Seconds that were forgotten: the number of the first one kept.
    forgotten: u64,
    /// The number of the second that is looked at; the newest if none.
    cursor: Option<u64>,
    /// The number of the second at the right edge when it began to stand still.
    right: u64,
    is_playing: bool,
    chosen: Option<usize>,
    /// Whether the vCPU was chosen by the digit just before.
    is_typing: bool,
    is_help: bool,
}

impl Model {
    /// Without a second yet.
    pub fn new(source: Source) -> Model {
        Model {
            source,
            moments: VecDeque::new(),
            forgotten: 0,
            cursor: None,
            right: 0,
            is_playing: false,
            chosen: None,
            is_typing: false,
            is_help: false,
        }
    }

    /// Takes in the next second. Of a VM that is watched, the oldest one is forgotten for it.
    pub fn push(&mut self, moment: Moment) {
        self.moments.push_back(moment);
        if self.source == Source::Live && self.moments.len() > MOST_LIVE {
            self.moments.pop_front();
            self.forgotten += 1;
        }
        self.cursor = self.cursor.map(|cursor| cursor.max(self.forgotten));
    }

    /// A second has gone by: a record that plays goes on by one.
    pub fn tick(&mut self) {
        if self.is_playing {
            self.step(1);
            self.is_playing = self.cursor.is_some();
        }
    }

    /// Does what a key means; whether to go on.
    pub fn press(&mut self, key: Key) -> bool {
        let was_typing = std::mem::take(&mut self.is_typing);
        // Any key but that for all vCPUs hides the help, and does its work.
        let was_help = self.is_help;
        self.is_help = key == Key::Help && !was_help;
        match key {
            Key::Quit => return false,
            Key::Help => {}
            Key::Pause => self.pause(),
            Key::Step(seconds) => self.step(seconds),
            Key::First => self.go(0),
            Key::Last => self.follow(),
            Key::Incident(way) => self.incident(way),
            Key::Digit(digit) => self.digit(digit.into(), was_typing),
            Key::Vcpu(way) => self.next_vcpu(way),
            Key::All if was_help => {}
            Key::All => self.chosen = None,
        }
        true
    }

    fn pause(&mut self) {
        match (&self.source, self.cursor) {
            (Source::Record(_), None) => {}
            (Source::Record(_), Some(_)) => self.is_playing = !self.is_playing,
            (Source::Live, Some(_)) => self.follow(),
            (Source::Live, None) => self.go(self.last()),
        }
    }

    fn follow(&mut self) {
        (self.cursor, self.is_playing) = (None, false);
    }

    /// To this second, counted from the oldest that is kept.
    fn go(&mut self, at: usize) {
        if self.cursor.is_none() {
            self.right = self.forgotten + self.last() as u64;
        }
        self.cursor = (!self.moments.is_empty()).then(|| self.forgotten + at as u64);
    }

    fn step(&mut self, seconds: i64) {
        let to = self.at() as i64 + seconds;
        if to >= self.last() as i64 && seconds > 0 {
            return self.follow();
        }
        self.go(to.max(0) as usize);
    }

    fn incident(&mut self, way: i64) {
        let begins = |at: usize| {
            let is_wrong = |at: usize| self.moments[at].symptom.is_some();
            is_wrong(at) && !(at.saturating_sub(VERDICT_S)..at).any(is_wrong)
        };
        let found = match way > 0 {
            true => (self.at() + 1..self.moments.len()).find(|at| begins(*at)),
            false => (0..self.at()).rev().find(|at| begins(*at)),
        };
        if let Some(at) = found {
            self.go(at);
        }
    }

    fn digit(&mut self, digit: usize, is_next: bool) {
        let Some(moment) = self.moment() else { return };
        let longer =
            self.chosen.filter(|_| is_next).and_then(|chosen| chosen.checked_mul(10)?.checked_add(digit));
        let found = [longer, Some(digit)].into_iter().flatten().find(|number| moment.vcpu(*number).is_some());
        if let Some(found) = found {
            (self.chosen, self.is_typing) = (Some(found), true);
        }
    }

    fn next_vcpu(&mut self, way: i64) {
        let Some(moment) = self.moment() else { return };
        let vcpus = &moment.vcpus;
        let most =
            |a: &&VcpuMoment, b: &&VcpuMoment| a.off_permille.cmp(&b.off_permille).then(b.vcpu.cmp(&a.vcpu));
        let at = self.chosen.and_then(|chosen| vcpus.iter().position(|vcpu| vcpu.vcpu == chosen));
        let next = match at {
            Some(at) => vcpus.get((at as i64 + way).rem_euclid(vcpus.len() as i64) as usize),
            None => vcpus.iter().max_by(most),
        };
        self.chosen = next.map(|vcpu| vcpu.vcpu);
    }

    fn last(&self) -> usize {
        self.moments.len().saturating_sub(1)
    }

    /// The second that is looked at, counted from the oldest that is kept.
    pub fn at(&self) -> usize {
        self.cursor.map_or(self.last(), |cursor| (cursor - self.forgotten) as usize)
    }

    /// The same.
    pub fn moment(&self) -> Option<&Moment> {
        self.moments.get(self.at())
    }

    /// The newest second.
    pub fn newest(&self) -> Option<&Moment> {
        self.moments.back()
    }

    /// All that are kept.
    pub fn moments(&self) -> &VecDeque<Moment> {
        &self.moments
    }

    /// Says what is told of a second.
    pub fn tell(&mut self, at: usize, told: Told) {
        if let Some(moment) = self.moments.get_mut(at) {
            moment.told = Some(told);
        }
    }

    /// Looks at the second in which this time of the day is, or at the first one after it; whether there is one.
    pub fn seek(&mut self, day_ns: u64) -> bool {
        let found = self.moments.iter().position(|moment| moment.day_ns >= day_ns);
        let found = found.filter(|at| {
            let begin_ns = self.moments[*at].day_ns.saturating_sub(self.moments[*at].span_ns);
            *at > 0 || begin_ns <= day_ns
        });
        found.inspect(|at| self.go(*at)).is_some()
    }

    /// What is said of the second that is looked at. Where a cause was found only later, that, and how much later.
    pub fn told(&self) -> Option<(&Told, usize)> {
        let told = self.moment()?.told.as_ref()?;
        if told.kind != Kind::Looking {
            return Some((told, 0));
        }
        let later = self.moments.iter().skip(self.at()).take(VERDICT_S + 1).enumerate();
        let known = later
            .take_while(|(after, moment)| *after == 0 || !moment.is_after_gap)
            .filter_map(|(after, moment)| Some((moment.told.as_ref()?, after)))
            .find(|(told, _)| told.kind == Kind::Known);
        Some(known.unwrap_or((told, 0)))
    }

    /// The seconds in so many columns: the first one, and the one after the last.
    pub fn window(&self, width: usize) -> (usize, usize) {
        let at = self.at();
        let kept = self.right.saturating_sub(self.forgotten) as usize;
        let right = if self.cursor.is_none() { self.last() } else { kept.min(self.last()).max(at) };
        // What is looked at stays in sight.
        let right = right.min(at + width.saturating_sub(1)).max(width.saturating_sub(1).min(self.last()));
        ((right + 1).saturating_sub(width), (right + 1).min(self.moments.len()))
    }

    /// Where seconds come from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Whether the newest second is looked at, and will be.
    pub fn is_following(&self) -> bool {
        self.cursor.is_none()
    }

    /// Whether a record plays.
    pub fn is_playing(&self) -> bool {
        self.is_playing
    }

    /// The chosen vCPU.
    pub fn chosen(&self) -> Option<usize> {
        self.chosen
    }

    /// Whether the keys are shown.
    pub fn is_help(&self) -> bool {
        self.is_help
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{live, quiet, quota};
    use super::*;

    fn pressed(model: &mut Model, keys: &[Key]) -> usize {
        keys.iter().for_each(|key| assert!(model.press(*key)));
        model.at()
    }

    #[test]
    fn memory_is_bounded_and_the_chosen_second_stays_among_those_kept() {
        let mut model = live((1..=30).map(quiet));
        assert_eq!(pressed(&mut model, &[Key::First]), 0);
        let last = Moment::of(&quiet(31), None);
        (0..2 * MOST_LIVE).for_each(|_| model.push(last.clone()));
        assert_eq!((model.moments().len(), model.at()), (MOST_LIVE, 0));
        assert_eq!(model.window(50), (0, 50));
    }

    #[test]
    fn a_pause_stands_still_and_the_end_follows_again() {
        let mut model = live((1..=100).map(quiet));
        assert_eq!((model.at(), model.window(48)), (99, (52, 100)));
        assert_eq!(pressed(&mut model, &[Key::Pause]), 99);
        model.push(Moment::of(&quiet(101), None));
        assert_eq!((model.at(), model.window(48), model.is_following()), (99, (52, 100), false));
        assert_eq!(pressed(&mut model, &[Key::Step(-10), Key::Step(-1), Key::Step(2)]), 90);
        assert_eq!(model.window(48), (52, 100), "the view does not move");
        assert_eq!(pressed(&mut model, &[Key::Step(-80)]), 10);
        assert_eq!(model.window(48), (10, 58), "what is looked at stays in sight");
        assert_eq!(pressed(&mut model, &[Key::Step(-80)]), 0);
        assert_eq!(pressed(&mut model, &[Key::Last]), 100);
        assert!(model.is_following());
        assert_eq!(pressed(&mut model, &[Key::Step(-1), Key::Step(1)]), 100);
        assert!(model.is_following() && !model.press(Key::Quit));
    }

    #[test]
    fn a_record_plays_to_its_end() {
        let mut model = Model::new(Source::Record("test".into()));
        (1..=5).for_each(|at| model.push(Moment::of(&quiet(at), None)));
        assert_eq!(pressed(&mut model, &[Key::First, Key::Pause]), 0);
        model.tick();
        assert!(model.is_playing() && model.at() == 1);
        (0..9).for_each(|_| model.tick());
        assert!(!model.is_playing() && model.at() == 4);
        assert!(model.seek(super::super::testing::DAY_NS + 2_500_000_000) && model.at() == 2);
        assert!(!model.seek(u64::MAX) && !model.seek(1));
    }

    #[test]
    fn one_vcpu_is_chosen_by_its_number_or_because_it_is_off_most() {
        let mut model = live((1..=5).map(|at| quota(at, true)));
        pressed(&mut model, &[Key::Vcpu(1)]);
        assert_eq!(model.chosen(), Some(1));
        pressed(&mut model, &[Key::Vcpu(1)]);
        assert_eq!(model.chosen(), Some(0));
        pressed(&mut model, &[Key::Vcpu(-1)]);
        assert_eq!(model.chosen(), Some(1));
        pressed(&mut model, &[Key::Digit(0)]);
        assert_eq!(model.chosen(), Some(0));
        pressed(&mut model, &[Key::Digit(7)]);
        assert_eq!(model.chosen(), Some(0), "there is no vCPU 7");
        pressed(&mut model, &[Key::Help, Key::All]);
        assert!(!model.is_help() && model.chosen() == Some(0));
        pressed(&mut model, &[Key::All]);
        assert_eq!(model.chosen(), None);
    }

    #[test]
    fn two_digits_are_one_number_if_there_is_such_a_vcpu() {
        let mut sample = quiet(1);
        sample.vcpus =
            (0..13).map(|vcpu| reprieve_policy::sample::VcpuSample { vcpu, ..Default::default() }).collect();
        let mut model = live([sample].into_iter());
        pressed(&mut model, &[Key::Digit(1), Key::Digit(2)]);
        assert_eq!(model.chosen(), Some(12));
        pressed(&mut model, &[Key::Step(-1), Key::Digit(1), Key::Digit(9)]);
        assert_eq!(model.chosen(), Some(9));
    }

    #[test]
    fn incidents_are_found_and_what_was_found_later_is_told() {
        let samples =
            (1..=20).map(quiet).chain((21..=40).map(|at| quota(at, at > 21))).chain((41..=60).map(quiet));
        let mut model = live(samples);
        assert_eq!(pressed(&mut model, &[Key::Incident(-1)]), 20);
        let (told, after) = model.told().unwrap();
        assert_eq!((told.kind, after), (Kind::Known, 4), "{told:?}");
        assert_eq!(pressed(&mut model, &[Key::Incident(-1), Key::Incident(1)]), 20);
        assert_eq!(pressed(&mut model, &[Key::Step(-1)]), 19);
        assert_eq!(model.told().unwrap().0.kind, Kind::Quiet);
    }
}
