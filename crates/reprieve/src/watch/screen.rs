//! The terminal: takes it, writes what has changed to it, and gives it back as it was, however the process ends, except by SIGKILL.
//!
//! Keys are read here and not by crossterm, whose reader spins for ever on a terminal that has hung up, and asks the terminal
//! questions that a serial console does not answer.

use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, Once, PoisonError};
use std::thread;

use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::crossterm::{cursor, queue, style, terminal};
use ratatui::layout::Rect;
use reprieve_linux::clock;
use reprieve_linux::signals::Interrupt;
use reprieve_study::units::MILLISECOND_NS;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{self, OptionalActions, Termios};

use super::keys::Keys;
use super::model::Key;
use crate::failure::Failure;
use crate::look;

/// The size of a terminal that does not tell, as a serial console.
const USUAL: (u16, u16) = (80, 24);
/// The largest screen that is drawn, in columns and lines.
const MOST: (u16, u16) = (500, 200);
/// After an escape the rest of a sequence comes within this time, ns, or it was the key alone.
const ESCAPE_NS: u64 = 100 * MILLISECOND_NS;
/// Bytes of keys that are read at a time.
const KEY_BYTES: usize = 256;

/// The settings of the terminal as they were; also for a panic.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Whether standard input and output are a terminal that can be drawn on.
pub fn is_possible() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    termios::isatty(io::stdin()) && termios::isatty(io::stdout()) && !is_dumb
}

/// A terminal that is drawn on. Dropped, it is as it was.
pub struct Screen {
    backend: CrosstermBackend<BufWriter<io::Stdout>>,
    shown: Buffer,
    keys: Keys,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Keys may have come.
    Keys,
    /// The time is over.
    Time,
    /// A signal, or the terminal is gone.
    End,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// It does not let itself be set.
    pub fn open() -> Result<Screen, Failure> {
        restore_on_panic();
        let before = termios::tcgetattr(io::stdin()).map_err(refused)?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        // From here on, whatever fails gives it back.
        let writer = BufWriter::with_capacity(1 << 16, io::stdout());
        let mut screen = Screen {
            backend: CrosstermBackend::new(writer),
            shown: Buffer::default(),
            keys: Keys::default(),
        };
        termios::tcsetattr(io::stdin(), OptionalActions::Flush, &raw).map_err(refused)?;
        queue!(screen.backend, terminal::EnterAlternateScreen, cursor::Hide).map_err(Failure::output)?;
        Ok(screen)
    }

    /// Draws, and writes what is different from what is shown; nothing if nothing is.
    ///
    /// # Errors
    /// The terminal cannot be written to.
    pub fn draw(&mut self, draw: impl FnOnce(Rect, &mut Buffer)) -> io::Result<()> {
        let area = size();
        if self.shown.area != area {
            self.shown = Buffer::empty(area);
            queue!(
                self.backend,
                style::SetAttribute(style::Attribute::Reset),
                terminal::Clear(terminal::ClearType::All)
            )?;
        }
        let mut next = Buffer::empty(area);
        draw(area, &mut next);
        let changed = self.shown.diff(&next);
        if !changed.is_empty() {
            self.backend.draw(changed.into_iter())?;
        }
        self.shown = next;
        Write::flush(&mut self.backend)
    }

    /// Waits until then, for keys or the end.
    pub fn wait(&mut self, until_ns: u64, interrupt: &Interrupt) -> Woken {
        let left_ns = until_ns.saturating_sub(clock::now_ns());
        if interrupt.is_raised() {
            return Woken::End;
        }
        if left_ns == 0 {
            return Woken::Time;
        }
        let left_ns = if self.keys.is_pending() { left_ns.min(ESCAPE_NS) } else { left_ns };
        let input = io::stdin();
        let mut waited = [PollFd::new(interrupt, PollFlags::IN), PollFd::new(&input, PollFlags::IN)];
        // Whatever ends the wait, what counts is looked at again.
        let _ = poll(&mut waited, Some(&look::timeout(left_ns)));
        match (waited[0].revents(), waited[1].revents()) {
            (signal, _) if !signal.is_empty() => Woken::End,
            (_, input) if input.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) => Woken::End,
            (_, input) if input.contains(PollFlags::IN) || self.keys.is_pending() => Woken::Keys,
            _ => Woken::Time,
        }
    }

    /// The keys that have come; whether the terminal is still there.
    pub fn keys(&mut self, mut press: impl FnMut(Key)) -> bool {
        let input = io::stdin();
        let mut waited = [PollFd::new(&input, PollFlags::IN)];
        let _ = poll(&mut waited, Some(&look::timeout(0)));
        if !waited[0].revents().contains(PollFlags::IN) {
            self.keys.end().into_iter().for_each(press);
            return true;
        }
        let mut bytes = [0; KEY_BYTES];
        match rustix::io::read(input.as_fd(), &mut bytes) {
            Ok(0) => false,
            Ok(read) => {
                self.keys.take(&bytes[..read], &mut press);
                true
            }
            Err(error) => matches!(error, rustix::io::Errno::INTR | rustix::io::Errno::AGAIN),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // What is not written yet would come after the terminal is given back.
        let _ = Write::flush(&mut self.backend);
        restore();
    }
}

/// Gives the terminal back. What fails has no remedy: the terminal is gone.
fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(before) = before else { return };
    let mut out = io::stdout();
    let _ = queue!(
        out,
        style::SetAttribute(style::Attribute::Reset),
        cursor::Show,
        terminal::LeaveAlternateScreen
    );
    let _ = out.flush();
    let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &before);
}

/// A panic is told on the terminal as it was, not on a screen that vanishes.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let (main, told) = (thread::current().id(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            // Others' panics do not end the program.
            if thread::current().id() == main {
                restore();
            }
            told(panic);
        }));
    });
}

fn size() -> Rect {
    let told = termios::tcgetwinsize(io::stdout()).ok().map(|size| (size.ws_col, size.ws_row));
    let (columns, lines) = told.filter(|(columns, lines)| *columns > 0 && *lines > 0).unwrap_or(USUAL);
    Rect::new(0, 0, columns.min(MOST.0), lines.min(MOST.1))
}

fn refused(error: rustix::io::Errno) -> Failure {
    Failure::Failed(format!("the terminal cannot be set: {error}; --ndjson needs none"))
}
