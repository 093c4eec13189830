//! Waiting for work in other threads, so that Ctrl-C ends it and other Python threads go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;

/// How often signals are looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Says how far the work is, and whether it is to stop.
pub struct Told<'a> {
    stop: &'a AtomicBool,
    send: std::sync::mpsc::Sender<(u64, u64)>,
}

impl Told<'_> {
    /// So many of all are done.
    pub fn done(&self, done: u64, of: u64) {
        // Nobody listens once the work has been given up.
        let _ = self.send.send((done, of));
    }

    /// True if the work is to end early.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Does work in a thread of its own. `progress`, a callable, is told (done, of) now and then.
///
/// # Errors
/// A signal handler or `progress` raised an exception: the work was stopped, and has ended.
pub fn wait<T: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Told<'_>) -> T + Send,
) -> PyResult<T> {
    let stop = AtomicBool::new(false);
    let progress = progress.map(|progress| progress.clone().unbind());
    py.detach(|| {
        thread::scope(|scope| {
            let (send, receive) = channel();
            let worker = scope.spawn(|| {
                let told = Told { stop: &stop, send };
                work(&told)
            });
            let mut raised = Ok(());
            loop {
                let mut newest = receive.recv_timeout(LOOK);
                while let Ok(later) = receive.try_recv() {
                    newest = Ok(later);
                }
                if raised.is_ok() {
                    raised = Python::attach(|py| {
                        py.check_signals()?;
                        match (&progress, &newest) {
                            (Some(progress), Ok((done, of))) => progress.call1(py, (*done, *of)).map(drop),
                            _ => Ok(()),
                        }
                    });
                    stop.store(raised.is_err(), Ordering::Relaxed);
                }
                if matches!(newest, Err(RecvTimeoutError::Disconnected)) || worker.is_finished() {
                    break;
                }
            }
            match worker.join() {
                Ok(done) => raised.map(|()| done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    })
}
