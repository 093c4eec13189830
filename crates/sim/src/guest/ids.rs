//! What tasks are called, and the mode they run in: what everything in a guest needs to know of them.

/// A task of a guest, from 0; also its entity in the guest's scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// In which mode a stretch of work is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the kernel: not preemptible by the guest.
    #[default]
    Kernel,
    /// In user space: preemptible, and a quiescent state.
    User,
}
