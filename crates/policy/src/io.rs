//! Detects I/O tasks by their *I/O fraction*: the share of time with I/O outstanding.
//!
//! With events (an I/O begins, an I/O ends) it recognizes an I/O task within one period of 1 ms, as soon as outstanding
//! time reaches the required share. Without events it samples a counter of outstanding time: delay accounting, or the
//! task's state at each look. One sample is often all or nothing, so samples are smoothed, and recognition takes
//! several. To remain an I/O task needs a smaller fraction than to become one, and a task must fall short of it for
//! longer than a vCPU stays off, since a task that cannot run issues no I/O.
//!
//! Source: the task detector of Jia et al., USENIX ATC 2018: I/O fraction = time with I/O outstanding / period, at the
//! block layer.

/// When a task counts as an I/O task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoSettings {
    /// The period over which the fraction is taken, ns.
    pub period_ns: u64,
    /// A task becomes an I/O task at this fraction of one period, in thousandths.
    pub enter_permille: u64,
    /// It ceases to be one when its smoothed fraction is below this, in thousandths...
    pub leave_permille: u64,
    /// ... for this long, ns.
    pub hold_ns: u64,
}

impl Default for IoSettings {
    /// A period of 1 ms. A task becomes an I/O task at a half, and ceases to be one after 300 ms under a tenth.
    fn default() -> IoSettings {
        IoSettings { period_ns: 1_000_000, enter_permille: 500, leave_permille: 100, hold_ns: 300_000_000 }
    }
}

/// The weight of the latest period in the smoothed fraction is 1 / this.
const SMOOTHING: u64 = 16;
/// The weight of a sample in the smoothed fraction is 1 / this. With 3, two full samples make an I/O task; one cannot.
const SAMPLES: u64 = 3;
/// A smoothed fraction decays to 0 within this many empty periods.
const FORGOTTEN_PERIODS: u64 = 256;

/// Meters the I/O of one task.
#[derive(Clone, Copy, Debug)]
pub struct IoMeter {
    settings: IoSettings,
    outstanding: u32,
    /// Outstanding time is counted up to here, ns.
    booked_ns: u64,
    period_began_ns: u64,
    busy_ns: u64,
    smooth_permille: u64,
    is_io: bool,
    /// Since when the smoothed fraction has been too low for an I/O task, ns.
    low_since_ns: Option<u64>,
    /// Time and value of the last sample, ns.
    sampled: Option<(u64, u64)>,
}

impl IoMeter {
    /// Starts at `now_ns` with a task that has done no I/O yet.
    pub fn new(settings: IoSettings, now_ns: u64) -> IoMeter {
        IoMeter {
            settings: IoSettings { period_ns: settings.period_ns.max(1), ..settings },
            outstanding: 0,
            booked_ns: now_ns,
            period_began_ns: now_ns,
            busy_ns: 0,
            smooth_permille: 0,
            is_io: false,
            low_since_ns: None,
            sampled: None,
        }
    }

    /// An I/O of the task was issued.
    pub fn begin(&mut self, at_ns: u64) {
        self.advance(at_ns);
        self.outstanding = self.outstanding.saturating_add(1);
    }

    /// An I/O of the task has ended. Ignored if its beginning was not seen (it was issued before the meter started).
    pub fn end(&mut self, at_ns: u64) {
        self.advance(at_ns);
        self.outstanding = self.outstanding.saturating_sub(1);
    }

    /// Takes in a reading of the task's total time with I/O outstanding, ns. The first reading is only a base for the
    /// next, and so is a lower one than before (another task has the number now). Call it at roughly regular intervals,
    /// and never together with events.
    pub fn sampled(&mut self, at_ns: u64, total_ns: u64) {
        let former = self.sampled.replace((at_ns, total_ns));
        let Some((before_ns, before_total_ns)) = former else { return };
        if at_ns <= before_ns || total_ns < before_total_ns {
            return;
        }
        let span_ns = at_ns - before_ns;
        let busy_ns = (total_ns - before_total_ns).min(span_ns);
        let permille = (u128::from(busy_ns) * 1000 / u128::from(span_ns)) as u64;
        self.smooth_permille = (self.smooth_permille * (SAMPLES - 1) + permille) / SAMPLES;
        self.enter_if(self.smooth_permille);
        self.booked_ns = at_ns;
        self.leave_if(at_ns);
    }

    /// Counts time up to now. Call it about once a period, so that a task that stops doing I/O is noticed.
    pub fn advance(&mut self, now_ns: u64) {
        if self.sampled.is_some() || now_ns <= self.booked_ns {
            return;
        }
        let period_ns = self.settings.period_ns;
        let end_ns = self.period_began_ns.saturating_add(period_ns);
        if now_ns < end_ns {
            self.book(now_ns);
        } else {
            self.book(end_ns);
            self.smooth(self.busy_ns * 1000 / period_ns, 1);
            // No event fell into the whole periods since then, so they are all alike.
            let whole = (now_ns - end_ns) / period_ns;
            self.smooth(if self.outstanding > 0 { 1000 } else { 0 }, whole);
            self.period_began_ns = end_ns + whole * period_ns;
            (self.busy_ns, self.booked_ns) = (0, self.period_began_ns);
            if whole > 0 && self.outstanding > 0 {
                self.enter_if(1000);
            }
            self.book(now_ns);
        }
        self.leave_if(now_ns);
    }

    /// The clock was set back to `now_ns`: starts a new period there.
    pub fn rebase(&mut self, now_ns: u64) {
        (self.booked_ns, self.period_began_ns, self.busy_ns) = (now_ns, now_ns, 0);
        self.low_since_ns = None;
        self.sampled = self.sampled.map(|(_, total_ns)| (now_ns, total_ns));
    }

    /// Counts outstanding time within a period.
    fn book(&mut self, up_to_ns: u64) {
        if self.outstanding > 0 {
            self.busy_ns += up_to_ns.saturating_sub(self.booked_ns);
            self.enter_if(self.busy_ns * 1000 / self.settings.period_ns);
        }
        self.booked_ns = up_to_ns;
    }

    fn smooth(&mut self, permille: u64, periods: u64) {
        for _ in 0..periods.min(FORGOTTEN_PERIODS) {
            let sum = self.smooth_permille * (SMOOTHING - 1) + permille;
            // Round towards the new value, or the fraction would never reach it.
            let up = permille > self.smooth_permille;
            self.smooth_permille = if up { sum.div_ceil(SMOOTHING) } else { sum / SMOOTHING };
        }
    }

    fn enter_if(&mut self, permille: u64) {
        if permille >= self.settings.enter_permille {
            (self.is_io, self.low_since_ns) = (true, None);
        }
    }

    fn leave_if(&mut self, now_ns: u64) {
        if self.smooth_permille >= self.settings.leave_permille {
            self.low_since_ns = None;
            return;
        }
        let since_ns = *self.low_since_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(since_ns) >= self.settings.hold_ns {
            self.is_io = false;
        }
    }

    /// Whether the task is an I/O task.
    pub fn is_io(&self) -> bool {
        self.is_io
    }

    /// Whether an I/O is outstanding, as far as events show.
    pub fn is_outstanding(&self) -> bool {
        self.outstanding > 0
    }

    /// The smoothed I/O fraction, in thousandths.
    pub fn permille(&self) -> u64 {
        self.smooth_permille
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;

    fn meter() -> IoMeter {
        IoMeter::new(IoSettings::default(), 0)
    }

    /// Runs I/Os of `busy_ns` each, one every `every_ns`.
    fn run(meter: &mut IoMeter, from_ns: u64, to_ns: u64, every_ns: u64, busy_ns: u64) {
        let mut at_ns = from_ns;
        while at_ns < to_ns {
            meter.begin(at_ns);
            meter.end(at_ns + busy_ns);
            at_ns += every_ns;
        }
    }

    #[test]
    fn an_io_task_is_recognized_within_a_millisecond() {
        let mut busy = meter();
        run(&mut busy, 5 * MS, 6 * MS, 500 * US, 400 * US);
        assert!(busy.is_io());
        let mut stuck = meter();
        stuck.begin(10 * MS);
        stuck.advance(10 * MS + 900 * US);
        assert!(stuck.is_io(), "one I/O that does not end counts as well");
    }

    #[test]
    fn a_task_that_mostly_computes_is_not_an_io_task() {
        let mut meter = meter();
        run(&mut meter, 0, 1000 * MS, 10 * MS, 200 * US);
        meter.advance(1000 * MS);
        assert!(!meter.is_io() && meter.permille() < 100);
    }

    #[test]
    fn it_stays_an_io_task_across_a_gap_and_ceases_after_the_hold() {
        let mut meter = meter();
        run(&mut meter, 0, 100 * MS, MS, 900 * US);
        assert!(meter.is_io() && meter.permille() > 800);
        meter.advance(130 * MS);
        assert!(meter.is_io());
        (130..600).for_each(|ms| meter.advance(ms * MS));
        assert!(!meter.is_io() && meter.permille() == 0);
    }

    #[test]
    fn overlapping_io_counts_once() {
        let mut meter = meter();
        meter.begin(0);
        meter.begin(100 * US);
        meter.end(200 * US);
        meter.end(300 * US);
        meter.end(400 * US);
        assert_eq!(meter.busy_ns, 300 * US);
    }

    #[test]
    fn an_io_task_is_recognized_from_samples() {
        let mut meter = meter();
        for i in 0..20 {
            meter.sampled(i * 10 * MS, i * 9 * MS);
        }
        assert!(meter.is_io() && (850..=900).contains(&meter.permille()), "{}", meter.permille());
        for i in 20..100 {
            meter.sampled(i * 10 * MS, 19 * 9 * MS);
        }
        assert!(!meter.is_io());
        meter.sampled(1000 * MS, 5);
        assert!(!meter.is_io(), "a counter that fell starts anew");
    }

    #[test]
    fn one_quantum_makes_no_io_task() {
        // One look in ten, 20 ms apart, shows a tick of 10 ms, or finds the task waiting for the whole 20 ms.
        for quantum_ns in [10 * MS, 20 * MS] {
            let (mut meter, mut total_ns) = (meter(), 0);
            for look in 0..1_005 {
                total_ns += if look % 10 == 9 { quantum_ns } else { 0 };
                meter.sampled(look * 20 * MS, total_ns);
                assert!(!meter.is_io(), "{look}");
            }
            let found = (1_005..1_010).find(|look| {
                total_ns += 20 * MS;
                meter.sampled(look * 20 * MS, total_ns);
                meter.is_io()
            });
            assert_eq!(found, Some(1_006), "two such looks in a row make one");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_is_followed() {
        let mut meter = meter();
        meter.begin(1_000_000 * MS);
        meter.rebase(10 * MS);
        meter.advance(11 * MS);
        assert!(meter.is_io());
    }

    #[test]
    fn time_that_goes_back_counts_nothing() {
        let mut meter = meter();
        meter.begin(10 * MS);
        meter.advance(5 * MS);
        meter.end(4 * MS);
        meter.advance(10 * MS);
        assert!(!meter.is_io() && meter.busy_ns == 0);
    }
}
