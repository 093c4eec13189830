//! The end of a thread as the destructor of a thread-local variable, for systems without pthread keys.

use crate::sync::thread_local;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

type Run = fn(*mut c_void);

struct End(Cell<(*mut c_void, Option<Run>)>);

impl Drop for End {
    fn drop(&mut self) {
        if let (value, Some(run)) = self.0.get() {
            run(value);
        }
    }
}

thread_local! {
    static END: End = End(Cell::new((ptr::null_mut(), None)));
}

/// Calls `run` with `value` when the calling thread ends. Of several calls of one thread, the last one counts. Does
/// nothing if the thread-local variable is already gone, because the first call came from another variable's destructor.
pub(crate) fn at_thread_end(value: *mut c_void, run: Run) {
    let _ = END.try_with(|end| end.0.set((value, Some(run))));
}
